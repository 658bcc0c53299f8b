#include "gui/model/methods/coverage_view.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <nlohmann/json.hpp>

#include "analysis/figures/selection.hpp"
#include "analysis/kinds/coverage.hpp"
#include "core/base/error.hpp"
#include "core/base/fields_json.hpp"
#include "core/base/nan.hpp"
#include "gui/model/methods/recall_parts.hpp"

namespace kvscope::gui {

namespace {

constexpr Index kDecodeBlocks = 128;

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

// ---- layer x head ----

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

// ---- query block x page ----

std::string PagesRequest::key() const {
  return fmt::format("coverage-pages/{}/{}/{}/{}/{}/{}/{}/{}/{}/{}", layer, q_head ? *q_head : -1,
                     name_of(phase), chunk, spec, budget ? budget->to_string() : "", dense_layers,
                     rows_per_chunk, query_block, page_size);
}

PagesRequest pages_request(const TraceInfo& info, Index layer, std::optional<Index> q_head,
                           Phase phase, const MethodItem& method, const Parameters& parameters) {
  PagesRequest request{.layer = layer, .q_head = q_head, .phase = phase, .chunk = parameters.chunk};
  if (method.obstacle.empty()) {
    request.spec = method.spec;
    request.budget = budget_of(method.spec, parameters);
  }
  request.dense_layers = parameters.dense_layers;
  request.rows_per_chunk = display_rows_per_chunk(info.n_tokens);
  request.page_size = parameters.page_size;
  const Index n_decoded = info.n_tokens - info.n_prompt;
  request.query_block = phase == Phase::prefill
                            ? parameters.chunk
                            : std::max<Index>(1, (n_decoded + kDecodeBlocks - 1) / kDecodeBlocks);
  return request;
}

CoveragePages::CoveragePages(MemoryResult result, PagesRequest request)
    : result_(std::move(result)), request_(std::move(request)) {
  const MemoryResultView view(result_, "coverage");
  blocks_ = view.axis("map_mass", 1);
  pages_ = view.axis("map_mass", 2);
  has_method_ = view.find("map_kept") != nullptr;
}

std::optional<PageCell> CoveragePages::cell_at(double key, double query) const {
  const auto query_size = static_cast<double>(request_.query_block);
  const auto page_size = static_cast<double>(request_.page_size);
  const double row = std::floor((query - blocks_.front()) / query_size);
  const double col = std::floor((key - pages_.front()) / page_size);
  if (!(row >= 0.0 && row < static_cast<double>(blocks_.size()) && col >= 0.0 &&
        col < static_cast<double>(pages_.size()))) {
    return std::nullopt;
  }
  const auto r = static_cast<std::size_t>(row);
  const auto c = static_cast<std::size_t>(col);
  const std::size_t at = r * pages_.size() + c;
  PageCell cell;
  const auto block_begin = static_cast<Index>(blocks_[r]);
  const auto page_begin = static_cast<Index>(pages_[c]);
  cell.block = {block_begin, block_begin + request_.query_block};
  cell.page = {page_begin, page_begin + request_.page_size};
  cell.attention = static_cast<double>(result_.values<float>("map_mass")[at]);
  if (has_method_) {
    cell.kept = static_cast<double>(result_.values<float>("map_kept")[at]);
    cell.selected = static_cast<double>(result_.values<float>("map_selected")[at]);
  }
  return cell;
}

std::vector<std::pair<Index, Index>> CoveragePages::some_cells() const {
  constexpr std::size_t kMost = 16;
  std::vector<std::pair<Index, Index>> cells;
  const std::size_t step = (blocks_.size() + kMost - 1) / kMost;
  for (std::size_t block = 0; block < blocks_.size(); block += step) {
    const auto query = static_cast<Index>(blocks_[block]);
    cells.emplace_back(query, query / request_.page_size * request_.page_size);
  }
  cells.emplace_back(static_cast<Index>(blocks_.back()), static_cast<Index>(pages_.front()));
  return cells;
}

CoveragePages coverage_pages(const TraceSource& trace, const TraceSource* draft,
                             const PagesRequest& request, JobContext& job) {
  CoverageOptions options;
  if (!request.spec.empty()) {
    options.selectors = {request.spec};
    if (request.budget) options.budgets = {*request.budget};
  }
  options.layers = {request.layer};
  options.replay.calls = call_plan(trace.info(), request.phase, request.chunk);
  options.replay.rows_per_chunk = request.rows_per_chunk;
  options.replay.dense_layers = request.dense_layers;
  if (request.q_head) options.replay.q_heads = {*request.q_head};
  options.query_block = request.query_block;
  options.page_size = request.page_size;
  MemoryResult result;
  analyze_coverage(trace, draft, options, {result, job.pool, job.progress, job.stop});
  return {std::move(result), request};
}

plot::Figure pages_figure(const CoveragePages& pages, PagesPart part, const std::string& trace) {
  if (part != PagesPart::attention && !pages.has_method()) {
    throw ConfigError("this result holds no method: show the attention instead");
  }
  const MemoryResultView view(pages.result(), trace);
  FigureOptions options;
  if (part == PagesPart::selected) options.metric = "selected";
  if (part == PagesPart::lost) options.metric = "lost";
  plot::Figure figure = make_figure(find_figure_kind("coverage-pages"), {{&view}, options});
  plot::Panel panel = std::move(figure.panels[part == PagesPart::attention ? 0 : 1]);
  panel.colour->show_bar = true;
  const PagesRequest& request = pages.request();
  const std::string heads =
      request.q_head ? fmt::format("query head {}", *request.q_head) : "all query heads";
  std::string what = "attention";
  if (part == PagesPart::kept) what = fmt::format("attention kept by {}", request.spec);
  if (part == PagesPart::lost) what = fmt::format("attention lost by {}", request.spec);
  if (part == PagesPart::selected) what = fmt::format("keys selected by {}", request.spec);
  if (part != PagesPart::attention && request.budget) {
    what += fmt::format(" at {}", request.budget->to_string());
  }
  panel.title = part == PagesPart::attention ? "attention"
                                             : fmt::format("{}: {}", enum_name(part), panel.title);
  figure.panels.clear();
  figure.panels.push_back(std::move(panel));
  figure.columns = 1;
  figure.span = plot::Span::column;
  std::vector<std::string> caption = {fmt::format(
      "{}, layer {}, {}: {}, by blocks of {} {} and pages of {} keys.", trace, request.layer, heads,
      what, request.query_block,
      request.phase == Phase::prefill ? "prompt positions" : "decode steps", request.page_size)};
  for (std::string& sentence : figure.caption) caption.push_back(std::move(sentence));
  if (request.phase == Phase::prefill) {
    caption.push_back(chunk_sentence(request.chunk, request.rows_per_chunk));
  }
  figure.caption = std::move(caption);
  return figure;
}

PagePlace page_place(const PageCell& cell, Index n_rows_end) {
  PagePlace place;
  place.query = std::clamp<Index>(cell.block.end - 1, 0, std::max<Index>(0, n_rows_end - 1));
  place.key = std::min(cell.page.begin, place.query);
  return place;
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
