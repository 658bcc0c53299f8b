#include "gui/model/methods/coverage_view.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <nlohmann/json.hpp>

#include "analysis/figures/selection.hpp"
#include "core/base/error.hpp"
#include "core/base/fields_json.hpp"
#include "core/base/nan.hpp"
#include "core/trace/result.hpp"
#include "gui/model/methods/recall_parts.hpp"

namespace kvscope::gui {

namespace {

SweepNumber number_of(RecallMetric metric) {
  constexpr SweepNumber kNumbers[] = {SweepNumber::mass_mean, SweepNumber::recall10,
                                      SweepNumber::recallk, SweepNumber::output_error,
                                      SweepNumber::output_error_rel};
  return kNumbers[static_cast<std::size_t>(metric)];
}

std::string budget_phrase(const std::optional<Budget>& budget) {
  return budget ? budget->to_string() : "no budget";
}

std::string chunk_sentence(Index chunk, Index n_rows) {
  return fmt::format("Chunks of {}; {} rows of each are measured.", chunk, std::min(chunk, n_rows));
}

/// A head of a layer that is still to come: as a known one, without a value, which figures mask.
SweepRow masked_row(const SweepRow& like, Index layer, Index q_head) {
  SweepRow row = like;
  row.numbers.fill(kNan);
  row.number(SweepNumber::layer) = static_cast<double>(layer);
  row.number(SweepNumber::q_head) = static_cast<double>(q_head);
  row.number(SweepNumber::budget) = like.number(SweepNumber::budget);
  row.number(SweepNumber::dense) = row.number(SweepNumber::window) = 0.0;
  return row;
}

std::string why_no_heads(const HeadsQuestion& question) {
  return fmt::format(
      "{} leaves every layer of this trace dense: all its layers have sliding windows, or "
      "\"dense-layers\" covers them.",
      question.method.name);
}

}  // namespace

std::string HeadsQuestion::key() const {
  return fmt::format("heads/{}/{}/{}/{}", name_of(phase), method.spec,
                     fields_to_json(parameters).dump(), enum_name(metric));
}

std::vector<MethodRowsRequest> plan_heads(const HeadsQuestion& question) {
  MethodRowsRequest request{.layers = question.layers,
                            .phase = question.phase,
                            .chunk = question.parameters.chunk,
                            .spec = question.method.spec,
                            .dense_layers = question.parameters.dense_layers,
                            .rows_per_chunk = display_rows_per_chunk(question.n_tokens)};
  if (const auto budget = budget_of(question.method.spec, question.parameters)) {
    request.budgets = {*budget};
  }
  std::vector<MethodRowsRequest> parts = split_by_layer(request);
  std::stable_partition(parts.begin(), parts.end(), [&](const MethodRowsRequest& part) {
    return part.layers.size() == 1 && part.layers[0] == question.layer;
  });
  return parts;
}

std::size_t HeadsPicture::bytes() const {
  return sizeof *this + rows.size() * (sizeof(SweepRow) + 64);
}

const SweepRow* HeadsPicture::find(Index layer, Index q_head) const {
  for (const SweepRow& row : rows) {
    if (row.number(SweepNumber::layer) == static_cast<double>(layer) &&
        row.number(SweepNumber::q_head) == static_cast<double>(q_head)) {
      return &row;
    }
  }
  return nullptr;
}

HeadsPicture heads_picture(const HeadsQuestion& question,
                           const std::vector<std::shared_ptr<const MethodRows>>& rows) {
  HeadsPicture picture;
  std::vector<bool> has_layer(question.layers.size(), false);
  for (const auto& part : rows) {
    if (!part) continue;
    for (const SweepRow& row : part->rows) {
      if (std::isnan(row.number(SweepNumber::q_head))) continue;
      const auto layer = static_cast<Index>(row.number(SweepNumber::layer));
      const auto at = std::ranges::find(question.layers, layer);
      if (at != question.layers.end()) {
        has_layer[static_cast<std::size_t>(at - question.layers.begin())] = true;
      }
      picture.rows.push_back(row);
    }
  }
  if (picture.rows.empty()) return picture;  // no layer yet
  std::vector<SweepRow> to_come;
  for (std::size_t l = 0; l < question.layers.size(); ++l) {
    for (Index head : question.q_heads) {
      if (!has_layer[l])
        to_come.push_back(masked_row(picture.rows.front(), question.layers[l], head));
    }
  }
  std::vector<const SweepRow*> all;
  for (const SweepRow& row : picture.rows) all.push_back(&row);
  for (const SweepRow& row : to_come) all.push_back(&row);
  MemoryResult memory;
  ResultInfo info;
  info.kind = "sweep";
  table_to_result(table_of(all, question.trace), info, memory);
  const MemoryResultView view(memory, question.trace);
  FigureOptions options;
  options.metric = sweep_column(question.metric);
  try {
    picture.figure = make_figure(find_figure_kind("coverage-heads"), {{&view}, options});
  } catch (const ConfigError&) {  // nothing but dense layers
    picture.figure = {};
    picture.sentence = why_no_heads(question);
    return picture;
  }
  plot::Panel& panel = picture.figure.panels.front();
  const auto budget = budget_of(question.method.spec, question.parameters);
  const std::string method = figures::method_label(question.method.spec.text());
  panel.title = method + (budget ? " " + budget->to_string() : "");
  panel.marks.resize(1);
  const auto n_to_come = static_cast<Index>(std::ranges::count(has_layer, false));
  panel.colour->masked_label = n_to_come > 0 ? "dense, or still to come" : "dense or not measured";
  std::vector<std::string> caption = {
      fmt::format("{}, {}: {} of {} at {}.", question.trace, layer_words(question.layers),
                  enum_name(question.metric), method, budget_phrase(budget))};
  for (std::string& sentence : picture.figure.caption) caption.push_back(std::move(sentence));
  if (question.phase == Phase::prefill) {
    caption.push_back(
        chunk_sentence(question.parameters.chunk, display_rows_per_chunk(question.n_tokens)));
  }
  if (n_to_come > 0) {
    picture.unfinished =
        fmt::format("{} of {} layers are still to come", n_to_come, question.layers.size());
    caption.push_back(picture.unfinished + ".");
  }
  picture.figure.caption = std::move(caption);
  return picture;
}

double metric_of(const SweepRow& row, RecallMetric metric) {
  return row.number(number_of(metric));
}

void set_colours(plot::Figure& figure, double low, double high) {
  if (!(low < high)) return;
  for (plot::Panel& panel : figure.panels) {
    if (!panel.colour) continue;
    if (panel.colour->axis.scale == plot::ScaleKind::log10 && !(low > 0.0)) continue;
    panel.colour->axis.range = plot::Range{low, high};
  }
}

}  // namespace kvscope::gui
