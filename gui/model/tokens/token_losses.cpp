#include "gui/model/tokens/token_losses.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <functional>

#include "analysis/base/statistics.hpp"
#include "analysis/figures/selection.hpp"
#include "core/base/csv_text.hpp"
#include "core/sim/replay.hpp"

namespace kvscope::gui {

namespace {

constexpr Index kMostMeasuredSteps = 1024;
constexpr Index kLongestSection = 128;
constexpr std::size_t kMostLossPoints = 600;

std::string_view words_for(LossHeads heads) {
  constexpr std::array<std::string_view, 3> kWords = {"this layer's calls", "this layer's calls",
                                                      "all layers' calls"};
  return kWords[static_cast<std::size_t>(heads)];
}

std::string label_of(const KeptRequest& request) {
  return figures::method_label(request.spec.text()) +
         (request.budget ? " at " + request.budget->to_string() : "");
}

}  // namespace

std::string LossRequest::key() const {
  return fmt::format("losses/{}/{}", of.key(), enum_name(heads));
}

std::optional<double> TokenLosses::at(Index position) const {
  const auto after = std::upper_bound(pos.begin(), pos.end(), position);
  if (after == pos.begin()) return std::nullopt;
  return lost[static_cast<std::size_t>(after - pos.begin() - 1)];
}

TokenLosses token_losses(const TraceSource& trace, const TraceSource* draft,
                         const LossRequest& request, JobContext& job) {
  const TraceInfo& info = trace.info();
  ReplayOptions options;
  options.calls.phase = request.of.phase;
  options.calls.chunk = request.of.chunk;
  options.calls.steps = std::clamp<Index>(info.n_tokens - info.n_prompt, 1, kMostMeasuredSteps);
  options.rows_per_chunk = request.of.rows_per_chunk;
  options.dense_layers = request.of.dense_layers;
  if (request.heads == LossHeads::head) options.q_heads = {request.of.q_head};
  const std::vector<Index> layers =
      request.heads == LossHeads::all ? info.layers : std::vector<Index>{request.of.layer};
  std::vector<Mean> sums(static_cast<std::size_t>(info.n_tokens));
  for (const LayerReplay& layer :
       replay_layers(trace, draft, layers, {{request.of.spec, request.of.budget}}, options,
                     job.pool, job.progress, job.stop)) {
    const PairReplay& pair = layer.pairs.front();
    if (layer.has_window || pair.is_dense) continue;
    std::size_t at = 0;  // in mass_rows
    for (std::size_t head = 0; head < layer.q_heads.size(); ++head) {
      for (const TokenRange& call : layer.calls) {
        for (const Index row : measured_rows(call.size(), options.rows_per_chunk))
          sums[static_cast<std::size_t>(call.begin + row)].add(1.0 - pair.mass_rows[at++]);
      }
    }
  }
  TokenLosses losses;
  for (std::size_t pos = 0; pos < sums.size(); ++pos) {
    const double lost = sums[pos].value();
    if (std::isnan(lost)) continue;
    losses.pos.push_back(static_cast<Index>(pos));
    losses.lost.push_back(std::clamp(lost, 0.0, 1.0));  // a mass may be 1 + rounding
    losses.mean += losses.lost.back();
    if (losses.lost.back() > losses.lost[losses.worst]) losses.worst = losses.lost.size() - 1;
  }
  if (!losses.empty()) losses.mean /= static_cast<double>(losses.pos.size());
  return losses;
}

std::vector<LossSection> worst_sections(const TokenLosses& losses, const TokenTexts& texts,
                                        std::size_t n) {
  std::vector<LossSection> sections;
  std::size_t next = 0;
  for (Index begin = 0; begin < texts.size();) {
    Index end = begin;
    while (end < texts.size() && end - begin < kLongestSection && !texts.ends_line(end)) ++end;
    if (end < texts.size() && end - begin < kLongestSection) ++end;  // with its line break
    LossSection section{{begin, end}, 0.0, begin};
    double largest = -1.0;
    Index count = 0;
    for (; next < losses.pos.size() && losses.pos[next] < end; ++next, ++count) {
      section.mean += losses.lost[next];
      if (losses.lost[next] <= largest) continue;
      largest = losses.lost[next];
      section.worst = losses.pos[next];
    }
    if (count > 0) {
      section.mean /= static_cast<double>(count);
      sections.push_back(section);
    }
    begin = end;
  }
  std::ranges::stable_sort(sections, std::ranges::greater{}, &LossSection::mean);
  sections.resize(std::min(sections.size(), n));
  return sections;
}

std::string loss_words(const TokenLosses& losses, const LossRequest& request) {
  if (losses.empty())
    return fmt::format("nothing is lost: {} stay dense", words_for(request.heads));
  return fmt::format("loses {:.1f}% of the attention on average, at most {:.1f}%",
                     100.0 * losses.mean, 100.0 * losses.largest());
}

plot::Figure loss_figure(const TokenLosses& losses, const LossRequest& request,
                         const Document& document) {
  plot::Figure figure;
  figure.name = "token-losses";
  plot::Panel panel;
  panel.x.label = "Position";
  panel.x.format = plot::TickFormat::tokens;
  panel.y.label = "Attention on dropped keys";
  panel.y.format = plot::TickFormat::percent;
  plot::Line line;
  line.tone = {plot::Role::series, figures::method_slot(request.of.spec.text()).value_or(0)};
  line.markers = false;
  const std::size_t width =
      std::max<std::size_t>(1, (losses.pos.size() + kMostLossPoints - 1) / kMostLossPoints);
  for (std::size_t begin = 0; begin < losses.pos.size(); begin += width) {
    std::size_t most = begin;
    for (std::size_t i = begin; i < std::min(losses.pos.size(), begin + width); ++i) {
      if (losses.lost[i] > losses.lost[most]) most = i;
    }
    line.x.push_back(static_cast<double>(losses.pos[most]));
    line.y.push_back(losses.lost[most]);
  }
  panel.marks.push_back(std::move(line));
  figure.panels.push_back(std::move(panel));
  figure.caption.push_back(fmt::format("{}, {}, {}: {} {}.", document.name(),
                                       name_of(request.of.phase), enum_name(request.heads),
                                       label_of(request.of), loss_words(losses, request)));
  if (width > 1)
    figure.caption.push_back(fmt::format("The largest loss of {} tokens each.", width));
  return figure;
}

std::string loss_csv(const TokenLosses& losses, const Document& document) {
  std::string csv = "position,id,text,lost\n";
  const auto tokens = document.source().tokens();
  for (std::size_t i = 0; i < losses.pos.size(); ++i) {
    const Index pos = losses.pos[i];
    csv +=
        fmt::format("{},{},{},{}\n", pos, tokens[static_cast<std::size_t>(pos)],
                    document.has_text() ? csv_field(document.token_text(pos)) : "", losses.lost[i]);
  }
  return csv;
}

}  // namespace kvscope::gui
