#include "gui/model/bounds/layer_map_view.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <nlohmann/json.hpp>

#include "analysis/figures/figure_kind.hpp"
#include "analysis/figures/result_view.hpp"
#include "gui/model/tokens/token_text.hpp"

namespace kvscope::gui {

namespace {

constexpr double kStarSize = 1.6;

std::vector<Index> axis_of(const MemoryResult& result, const char* name) {
  const auto values = result.values<std::int64_t>(name);
  return {values.begin(), values.end()};
}

/// A token in words: its text, or its id where the text was not recorded.
std::string token_of(const TraceSource& trace, Index pos) {
  const auto at = static_cast<std::size_t>(pos);
  const auto bytes = trace.token_bytes();
  if (at < bytes.size()) return fmt::format("“{}”", printable(bytes[at]));
  if (at < trace.tokens().size()) return fmt::format("id {}", trace.tokens()[at]);
  return "nothing";
}

}  // namespace

std::optional<LayerMapObstacle> layer_map_obstacle(const TraceSource& verifier,
                                                   const TraceSource& draft,
                                                   const LayerMapOptions& options) {
  const Index agree = n_common_tokens(verifier, draft);
  const Index n_verifier = verifier.info().n_tokens;
  const Index n_draft = draft.info().n_tokens;
  const bool enough = agree >= options.min_visible;
  if (agree == n_verifier && agree == n_draft && enough) return std::nullopt;
  if (options.token_match == TokenMatch::common_prefix && enough) return std::nullopt;
  LayerMapObstacle obstacle;
  obstacle.prefix_helps = enough;
  if (agree < std::min(n_verifier, n_draft)) {
    obstacle.sentence =
        fmt::format("The two traces hold different texts: at position {} {} has {} and {} has {}. ",
                    agree, file_name_of(verifier), token_of(verifier, agree), file_name_of(draft),
                    token_of(draft, agree));
  } else {
    obstacle.sentence = fmt::format("{} holds {} tokens and {} holds {}. ", file_name_of(verifier),
                                    n_verifier, file_name_of(draft), n_draft);
  }
  obstacle.sentence +=
      enough ? fmt::format(
                   "The first {} tokens are the same in both: compare those, or record both "
                   "models on the same tokens.",
                   agree)
             : fmt::format(
                   "They share {} tokens from the start, and a row needs {}: record both "
                   "models on the same tokens.",
                   agree, options.min_visible);
  return obstacle;
}

const LayerMapCell* LayerMap::cell(Index draft_slot, Index verifier_slot) const {
  const auto n_draft = static_cast<Index>(draft_layers.size());
  const auto n_ver = static_cast<Index>(verifier_layers.size());
  if (draft_slot < 0 || draft_slot >= n_draft || verifier_slot < 0 || verifier_slot >= n_ver) {
    return nullptr;
  }
  return &cells[static_cast<std::size_t>(draft_slot * n_ver + verifier_slot)];
}

const LayerMapCell* LayerMap::mapped(Index verifier_layer) const {
  const auto found = std::ranges::find_if(cells, [&](const LayerMapCell& c) {
    return c.verifier_layer == verifier_layer && c.in_monotone;
  });
  return found == cells.end() ? nullptr : &*found;
}

LayerMap layer_map(const TraceSource& verifier, const TraceSource& draft,
                   const LayerMapOptions& options, JobContext& job) {
  LayerMap map{
      .options = options, .verifier = file_name_of(verifier), .draft = file_name_of(draft)};
  analyze_layer_map(verifier, draft, options, {map.result, job.pool, job.progress, job.stop});
  map.draft_layers = axis_of(map.result, "draft_layer");
  map.verifier_layers = axis_of(map.result, "verifier_layer");
  const auto kl = map.result.values<double>("kl");
  const auto smoothed = map.result.values<double>("kl_smoothed");
  const auto variation = map.result.values<double>("total_variation");
  const auto floor = map.result.values<double>("pinsker_floor");
  const auto monotone = axis_of(map.result, "monotone_map");
  const auto argmax = axis_of(map.result, "argmax_map");
  std::size_t at = 0;
  for (const Index draft_layer : map.draft_layers) {
    for (std::size_t j = 0; j < map.verifier_layers.size(); ++j, ++at) {
      map.cells.push_back({draft_layer, map.verifier_layers[j], kl[at], smoothed[at], variation[at],
                           floor[at], monotone[j] == draft_layer, argmax[j] == draft_layer});
    }
  }
  return map;
}

plot::Figure layer_map_figure(const LayerMap& map, LayerMapMetric metric) {
  const MemoryResultView view(map.result, map.verifier);
  FigureInput input;
  input.results = {&view};
  input.options.metric = std::string(enum_name(metric));
  plot::Figure figure = make_figure(find_figure_kind("layer-map"), input);
  for (plot::Mark& mark : figure.panels[0].marks) {
    // the least of each column: large enough to be seen across a room
    if (auto* stars = std::get_if<plot::Scatter>(&mark)) stars->size = kStarSize;
  }
  figure.caption.push_back(
      fmt::format("Verifier: {}; draft: {}; {} tokens that both hold; rows smoothed: {}{}.",
                  map.verifier, map.draft, map.total("tokens"), enum_name(map.options.smoothing),
                  map.options.drop_sink ? "; key 0 left out" : ""));
  return figure;
}

void swap_traces(Session& session) {
  const Index first = session.selection().trace;
  const auto second = session.second_index();
  if (!session.second() || !second) return;
  session.select("swap traces", [&](Selection& s) { s.trace = *second; });
  session.set_second(first);
}

std::vector<Index> other_traces(const Session& session) {
  std::vector<Index> others;
  for (Index i = 0; i < static_cast<Index>(session.documents().size()); ++i) {
    if (i != session.selection().trace) others.push_back(i);
  }
  return others;
}

std::string layer_map_csv(const LayerMap& map) {
  std::string csv =
      "draft_layer,verifier_layer,kl,kl_smoothed,total_variation,pinsker_floor,monotone,argmax\n";
  for (const LayerMapCell& c : map.cells) {
    csv += fmt::format("{},{},{:.17g},{:.17g},{:.17g},{:.17g},{},{}\n", c.draft_layer,
                       c.verifier_layer, c.kl, c.kl_smoothed, c.total_variation, c.pinsker_floor,
                       c.in_monotone ? 1 : 0, c.is_least ? 1 : 0);
  }
  return csv;
}

}  // namespace kvscope::gui
