#include "gui/model/tokens/token_losses.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <limits>
#include <map>
#include <mutex>

#include "analysis/base/replay_pairs.hpp"
#include "analysis/base/statistics.hpp"
#include "analysis/figures/selection.hpp"
#include "core/base/csv_text.hpp"
#include "core/base/error.hpp"
#include "core/base/nan.hpp"
#include "core/base/number_text.hpp"
#include "core/sim/metrics.hpp"
#include "core/sim/replay.hpp"
#include "gui/model/session/methods.hpp"
#include "gui/model/tokens/next_token_losses.hpp"

namespace kvscope::gui {

namespace {

constexpr Index kLongestSection = 128;
constexpr Index kAllRowsUpTo = 8192;
constexpr Index kMostDecodeSteps = 1024;
constexpr std::size_t kMostLossPoints = 600;

std::string_view words_for(LossHeads heads) {
  constexpr std::array<std::string_view, 3> kWords = {"this layer's calls", "this layer's calls",
                                                      "all layers' calls"};
  return kWords[static_cast<std::size_t>(heads)];
}

std::string label_of(const LossRequest& request) {
  return figures::method_label(request.spec.text()) +
         (request.budget ? " at " + request.budget->to_string() : "");
}

}  // namespace

std::string LossRequest::key() const {
  const bool is_of_model = kind == LossKind::next_token;
  return fmt::format(
      "losses/{}/{}/{}/{}/{}/{}/{}/{}/{}/{}", is_of_model || heads == LossHeads::all ? -1 : layer,
      is_of_model || heads != LossHeads::head ? -1 : q_head, is_of_model ? "" : enum_name(phase),
      chunk, spec, budget ? budget->to_string() : "", dense_layers, rows_per_chunk.value_or(0),
      is_of_model ? "" : enum_name(heads), enum_name(kind));
}

ReplayOptions LossRequest::replay(const TraceInfo& info) const {
  ReplayOptions options{.rows_per_chunk = rows_per_chunk, .dense_layers = dense_layers};
  options.calls.phase = phase;
  options.calls.chunk = chunk;
  options.calls.steps = std::clamp<Index>(info.n_tokens - info.n_prompt, 1, kMostDecodeSteps);
  options.calls = whole_periods(options.calls, {{spec, budget}});
  return options;
}

MethodQuestion method_question(const Session& session, const MethodSpec& method,
                               const LossRequest& asked) {
  const Parameters& parameters = session.parameters();
  MethodQuestion question{.trace = session.document(),
                          .draft = session.draft_for(method),
                          .obstacle = obstacle(method, asked.phase, session.second() != nullptr)};
  const TraceInfo& info = question.trace->info();
  question.request = {.layer = session.selection().layer,
                      .q_head = session.selection().q_head,
                      .phase = asked.phase,
                      .chunk = parameters.chunk,
                      .spec = spec_of(method, parameters),
                      .budget = budget_of(method, parameters),
                      .dense_layers = parameters.dense_layers,
                      .heads = asked.heads,
                      .kind = asked.kind};
  if (info.n_tokens > kAllRowsUpTo)
    question.request.rows_per_chunk = std::max<Index>(1, 64 * kAllRowsUpTo / info.n_tokens);
  if (!info.capture.qkv)
    question.obstacle = "This trace holds no q, k and v: record it with --capture qkv.";
  return question;
}

void TokenLosses::add(Index position, double loss) {
  const auto n = static_cast<double>(pos.size());
  pos.push_back(position);
  lost.push_back(loss);
  mean = (mean * n + loss) / (n + 1.0);
  most = std::max(most, std::abs(loss));
  if (loss > lost[worst]) worst = lost.size() - 1;
}

std::optional<double> TokenLosses::at(Index position) const {
  const auto after = std::ranges::upper_bound(pos, position);
  if (after == pos.begin() || position > pos.back()) return std::nullopt;
  return lost[static_cast<std::size_t>(after - pos.begin() - 1)];
}

namespace {

/// Values of KV heads, read once. Safe from several threads.
class ValueReader {
 public:
  ValueReader(const TraceSource& trace, Index end) : trace_(trace), end_(end) {}
  TensorView<const float> of(Index layer, Index kv_head) {
    const std::lock_guard lock(mutex_);
    auto [place, is_new] = values_.try_emplace({layer, kv_head});
    if (is_new) place->second = trace_.read_v(layer, kv_head, {0, end_});
    return place->second.view();
  }

 private:
  const TraceSource& trace_;
  Index end_;
  std::mutex mutex_;
  std::map<std::pair<Index, Index>, Tensor<float>> values_;
};

/// Error of the output on the kept keys over the norm of the dense output, as sweeps measure it.
double error_of_output(const MeasuredRow& row, TensorView<const float> values,
                       std::optional<double> sink_logit) {
  std::vector<double> scores;  // the weights give them up to what a softmax does not see
  double sum = 0.0;
  for (const double weight : row.probs) {
    scores.push_back(std::log(std::max(weight, 1e-300)));
    sum += weight;
  }
  if (sink_logit) sink_logit = std::log(std::max(1.0 - sum, 1e-300));
  DenseRow dense;
  const Index ks[] = {static_cast<Index>(row.kept[0].size())};
  dense.prepare(scores, row.visible, values, ks, sink_logit);
  return dense.compare(row.kept[0], 0, 0).output_error_rel;
}

}  // namespace

TokenLosses token_losses(const TraceSource& trace, const TraceSource* draft,
                         const LossRequest& request, JobContext& job) {
  if (request.kind == LossKind::next_token) return next_token_losses(trace, request, job);
  const TraceInfo& info = trace.info();
  ReplayOptions options = request.replay(info);
  if (request.heads == LossHeads::head) options.q_heads = {request.q_head};
  const std::vector<Index> layers =
      request.heads == LossHeads::all ? info.layers : std::vector<Index>{request.layer};
  const std::vector<Index>& heads =
      request.heads == LossHeads::head ? options.q_heads : info.q_heads;
  ValueReader values(trace, info.n_tokens);
  // Errors by layer, head and position: summed in this order whatever the threads did.
  std::map<Index, std::vector<double>> errors;
  if (request.kind == LossKind::output) {
    const auto n = static_cast<std::size_t>(info.n_tokens);
    for (const Index layer : layers) errors[layer].assign(heads.size() * n, kNan);
    options.on_row = [&, n](const MeasuredRow& row) {
      const auto head =
          static_cast<std::size_t>(std::ranges::find(heads, row.q_head) - heads.begin());
      errors.at(row.layer)[head * n + static_cast<std::size_t>(row.pos)] =
          error_of_output(row, values.of(row.layer, row.q_head / info.group(row.layer)),
                          info.sink_logit(row.layer, row.q_head));
    };
    options.on_selection = [&](const SelectedCall& selected) {
      if (selected.selection.summaries.empty() && selected.selection.log_weights().empty()) return;
      throw ConfigError(
          "{} answers with summaries or weighted keys, whose output error is not measured token by "
          "token: shade by mass, or see output_error_rel of kvscope sweep",
          request.spec);
    };
  }
  std::vector<Mean> sums(static_cast<std::size_t>(info.n_tokens));
  for (const LayerReplay& layer :
       replay_layers(trace, draft, layers, {{request.spec, request.budget}}, options, job.pool,
                     job.progress, job.stop)) {
    const PairReplay& pair = layer.pairs.front();
    if (layer.has_window || pair.is_dense) continue;
    std::size_t at = 0;  // in mass_rows
    for (std::size_t head = 0; head < layer.q_heads.size(); ++head) {
      for (const TokenRange& call : layer.calls) {
        for (const Index row : measured_rows(call.size(), options.rows_per_chunk)) {
          const auto pos = static_cast<std::size_t>(call.begin + row);
          const double lost = 1.0 - pair.mass_rows[at++];
          sums[pos].add(request.kind == LossKind::output
                            ? errors.at(layer.layer)[head * sums.size() + pos]
                            : lost);
        }
      }
    }
  }
  TokenLosses losses{.request = request};
  for (std::size_t pos = 0; pos < sums.size(); ++pos) {
    const double lost = sums[pos].value();
    if (std::isnan(lost)) continue;
    // A mass may be 1 + rounding.
    losses.add(static_cast<Index>(pos),
               request.kind == LossKind::mass ? std::clamp(lost, 0.0, 1.0) : lost);
  }
  return losses;
}

TokenLosses difference_of(const TokenLosses& losses, const TokenLosses& other) {
  TokenLosses out{.request = losses.request};
  for (std::size_t i = 0, j = 0; i < losses.pos.size() && j < other.pos.size();) {
    if (losses.pos[i] == other.pos[j]) {
      out.add(losses.pos[i], losses.lost[i] - other.lost[j]);
      ++i, ++j;
    } else if (losses.pos[i] < other.pos[j]) {
      ++i;
    } else {
      ++j;
    }
  }
  return out;
}

std::vector<LossSection> worst_sections(const TokenLosses& losses, const TokenTexts& texts,
                                        std::size_t n) {
  std::vector<LossSection> sections;
  std::size_t next = 0;
  for (Index begin = 0; begin < texts.size();) {
    Index end = begin;
    while (end < texts.size() && end - begin < kLongestSection && !texts.ends_line(end)) ++end;
    if (end < texts.size() && end - begin < kLongestSection) ++end;  // with its line break
    // as far as tokens are measured: in decode they are the last ones
    LossSection section{
        {std::max(begin, losses.pos.empty() ? begin : losses.pos.front()), end}, 0.0, begin};
    double largest = -std::numeric_limits<double>::infinity();
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

std::string loss_number(double loss, LossKind kind) {
  return kind == LossKind::next_token ? fmt::format("{:.3g} nats", loss) : percent_text(loss);
}

std::string loss_words(const TokenLosses& losses) {
  const LossRequest& request = losses.request;
  if (losses.empty())
    return fmt::format("nothing is lost: {} stay dense", words_for(request.heads));
  constexpr std::array<std::string_view, 3> kOf = {" of the attention", " of the output",
                                                   " of the next token"};
  return fmt::format("loses {}{} on average{}, at most {}", loss_number(losses.mean, request.kind),
                     kOf[static_cast<std::size_t>(request.kind)],
                     request.phase == Phase::decode && request.kind != LossKind::next_token
                         ? " of decode steps"
                         : "",
                     loss_number(losses.largest(), request.kind)) +
         (request.rows_per_chunk && request.kind != LossKind::next_token
              ? fmt::format(", of {} measured tokens", losses.pos.size())
              : "");
}

std::string difference_words(const TokenLosses& difference, const LossRequest& other) {
  const LossRequest& request = difference.request;
  if (difference.empty()) return "no token was measured for both methods";
  const auto words = [&](double loss) {  // shares differ by points
    const std::string number = request.kind == LossKind::next_token
                                   ? loss_number(std::abs(loss), request.kind)
                                   : fmt::format("{:.1f} points", 100.0 * std::abs(loss));
    return number + (loss >= 0.0 ? " more" : " less");
  };
  return fmt::format("{} loses {} than {} on average, at most {}, at least {}",
                     figures::method_label(request.spec.text()), words(difference.mean),
                     figures::method_label(other.spec.text()), words(difference.largest()),
                     words(*std::ranges::min_element(difference.lost)));
}

namespace {

plot::Line loss_line(const TokenLosses& losses) {
  const LossRequest& of = losses.request;
  plot::Line line{.label = label_of(of),
                  .tone = {plot::Role::series, figures::method_slot(of.spec.text()).value_or(0)},
                  .markers = false};
  const std::size_t width =
      std::max<std::size_t>(1, (losses.pos.size() + kMostLossPoints - 1) / kMostLossPoints);
  for (std::size_t begin = 0; begin < losses.pos.size(); begin += width) {
    std::size_t most = begin;
    for (std::size_t i = begin; i < std::min(losses.pos.size(), begin + width); ++i) {
      if (losses.lost[i] > losses.lost[most]) most = i;
    }
    line.add(static_cast<double>(losses.pos[most]), losses.lost[most]);
  }
  return line;
}

}  // namespace

plot::Figure loss_figure(const TokenLosses& losses, const TokenLosses* other,
                         const Document& document) {
  const LossRequest& request = losses.request;
  constexpr std::array<const char*, 3> kLabels = {
      "Attention on dropped keys", "Error of the output", "Loss of the next token (nats)"};
  plot::Figure figure;
  figure.name = "token-losses";
  plot::Panel panel;
  panel.x.label = "Position";
  panel.x.format = plot::TickFormat::tokens;
  panel.y.label = kLabels[static_cast<std::size_t>(request.kind)];
  if (request.kind != LossKind::next_token) panel.y.format = plot::TickFormat::percent;
  plot::Line line = loss_line(losses);
  if (other == nullptr) line.label.clear();
  panel.marks.push_back(std::move(line));
  if (other != nullptr) panel.marks.push_back(loss_line(*other));
  figure.panels.push_back(std::move(panel));
  const std::string of =
      request.kind == LossKind::next_token
          ? "the whole model"
          : fmt::format("{}, {}{}", enum_name(request.phase), enum_name(request.heads),
                        request.heads == LossHeads::all ? " that choose" : "");
  figure.caption.push_back(
      fmt::format("{}, {}: {} {}.", document.name(), of, label_of(request), loss_words(losses)));
  if (other != nullptr)
    figure.caption.push_back(fmt::format("{} {}.", label_of(other->request), loss_words(*other)));
  const std::size_t width = (losses.pos.size() + kMostLossPoints - 1) / kMostLossPoints;
  if (width > 1)
    figure.caption.push_back(fmt::format("The largest loss of {} tokens each.", width));
  return figure;
}

std::string loss_csv(const TokenLosses& losses, const TokenLosses* other,
                     const Document& document) {
  std::string csv = "position,id,text,lost";
  if (other != nullptr) csv += "," + csv_field("lost by " + label_of(other->request));
  csv += "\n";
  const auto tokens = document.source().tokens();
  for (std::size_t i = 0; i < losses.pos.size(); ++i) {
    const Index pos = losses.pos[i];
    std::string line =
        fmt::format("{},{},{},{}", pos, tokens[static_cast<std::size_t>(pos)],
                    document.has_text() ? csv_field(document.token_text(pos)) : "", losses.lost[i]);
    if (other != nullptr) {
      const auto found = std::ranges::lower_bound(other->pos, pos);
      if (found == other->pos.end() || *found != pos) continue;
      line += fmt::format(",{}", *other->at(pos));
    }
    csv += line + "\n";
  }
  return csv;
}

}  // namespace kvscope::gui
