#include "gui/model/traces/head_atlas_view.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <nlohmann/json.hpp>

#include "analysis/figures/head_atlas.hpp"
#include "core/base/fields_json.hpp"
#include "core/base/number_text.hpp"

namespace kvscope::gui {

namespace {

std::size_t slot_in(const std::vector<Index>& axis, Index wanted) {
  return static_cast<std::size_t>(std::find(axis.begin(), axis.end(), wanted) - axis.begin());
}

/// A head's loss under the atlas's method; NaN without one.
double loss_of(const HeadAtlas& atlas, std::size_t head) {
  const bool has_loss = !atlas.result.summary()["methods"].empty();
  return has_loss ? atlas.result.values<double>("lost_mass")[head] : std::nan("");
}

}  // namespace

HeadAtlas head_atlas_of(const TraceSource& trace, const HeadsOptions& options, JobContext& job) {
  HeadAtlas atlas;
  atlas.options = options;
  atlas.trace = file_name_of(trace);
  analyze_heads(trace, options, atlas.result, job.pool, job.progress, job.stop);
  for (const auto layer : atlas.result.values<std::int64_t>("layer")) atlas.layers.push_back(layer);
  for (const auto head : atlas.result.values<std::int64_t>("q_head")) atlas.q_heads.push_back(head);
  return atlas;
}

const AtlasPlace* AtlasPicture::at(double x, double y) const {
  const auto found = std::find_if(places.begin(), places.end(), [&](const AtlasPlace& place) {
    return std::floor(x) == place.x && std::floor(y) == place.y;
  });
  return found == places.end() ? nullptr : &*found;
}

const AtlasPlace* AtlasPicture::of(Index layer, Index q_head) const {
  const auto found = std::find_if(places.begin(), places.end(), [&](const AtlasPlace& place) {
    return place.layer == layer && place.q_head == q_head;
  });
  return found == places.end() ? nullptr : &*found;
}

AtlasPicture draw_atlas(const HeadAtlas& atlas, const AtlasChoice& choice) {
  const bool is_sorted = choice.sort == AtlasSort::largest;
  const MemoryResultView view(atlas.result, atlas.trace);
  FigureInput input;
  input.results = {&view};
  input.options.metric = std::string(enum_name(choice.number));
  AtlasPicture picture;
  picture.figure = make_figure(find_figure_kind(is_sorted ? "heads-sorted" : "heads"), input);
  picture.figure.caption.push_back(
      fmt::format("Trace: {}; {} query rows.", atlas.trace,
                  atlas.result.values<std::int64_t>("row_pos").size()));
  const auto order = is_sorted ? figures::AtlasOrder::by_number : figures::AtlasOrder::as_in_model;
  for (const figures::HeadTile& tile : figures::head_tiles(input, order)) {
    picture.places.push_back({atlas.layers[tile.layer], atlas.q_heads[tile.head],
                              static_cast<double>(tile.column), static_cast<double>(tile.row)});
  }
  return picture;
}

std::string head_atlas_key(const HeadsOptions& options) {
  return "heads/" + fields_to_json(options).dump();
}

std::map<std::pair<Index, Index>, double> retrieval_shades(const HeadAtlas& atlas) {
  const auto values = atlas.result.values<double>("retrieval");
  double most = 0.0;
  for (const double value : values) {
    if (value > most) most = value;  // false for NaN
  }
  std::map<std::pair<Index, Index>, double> shades;
  std::size_t head = 0;
  for (const Index layer : atlas.layers) {
    for (const Index q_head : atlas.q_heads) {
      const double value = values[head++];
      shades[{layer, q_head}] = value > 0.0 ? value / most : 0.0;
    }
  }
  return shades;
}

std::vector<std::pair<std::string, std::string>> head_lines(const HeadAtlas& atlas, Index layer,
                                                            Index q_head) {
  const std::size_t head =
      slot_in(atlas.layers, layer) * atlas.q_heads.size() + slot_in(atlas.q_heads, q_head);
  std::vector<std::pair<std::string, std::string>> lines = {
      {"head", fmt::format("layer {}, query head {}", layer, q_head)}};
  for (const HeadMeasure& measure : kHeadMeasures) {
    const double value = atlas.result.values<double>(measure.name)[head];
    lines.emplace_back(measure.label, number_text(value, 4));
  }
  const double lost = loss_of(atlas, head);
  if (!std::isnan(lost)) {
    const auto& method = atlas.result.summary()["methods"][0]["pair"];
    lines.emplace_back("Lost under " + method.get<std::string>(), percent_text(lost));
  }
  return lines;
}

std::string head_atlas_csv(const HeadAtlas& atlas) {
  std::string csv = "layer,q_head";
  for (const HeadMeasure& measure : kHeadMeasures) csv += fmt::format(",{}", measure.name);
  csv += ",lost_mass\n";
  const auto cell = [](double value) {
    return std::isnan(value) ? std::string(",") : fmt::format(",{:.17g}", value);
  };
  std::size_t head = 0;
  for (const Index layer : atlas.layers) {
    for (const Index q_head : atlas.q_heads) {
      csv += fmt::format("{},{}", layer, q_head);
      for (const HeadMeasure& measure : kHeadMeasures)
        csv += cell(atlas.result.values<double>(measure.name)[head]);
      csv += cell(loss_of(atlas, head)) + "\n";
      ++head;
    }
  }
  return csv;
}

}  // namespace kvscope::gui
