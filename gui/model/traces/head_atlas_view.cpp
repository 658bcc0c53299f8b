#include "gui/model/traces/head_atlas_view.hpp"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <cmath>
#include <nlohmann/json.hpp>

#include "analysis/figures/head_atlas.hpp"
#include "analysis/kinds/overlap.hpp"
#include "core/base/csv_text.hpp"
#include "core/base/fields_json.hpp"
#include "core/base/number_text.hpp"

namespace kvscope::gui {

namespace {

std::size_t slot_in(const std::vector<Index>& axis, Index wanted) {
  return static_cast<std::size_t>(std::ranges::find(axis, wanted) - axis.begin());
}

/// A head's loss under one of the atlas's methods; NaN without any.
double loss_of(const HeadAtlas& atlas, std::size_t head, std::size_t method = 0) {
  const std::size_t n = atlas.methods().size();
  return n > 0 ? atlas.result.values<double>("lost_mass")[head * n + method] : std::nan("");
}

/// "256 of 4160 queries": how many the numbers of each head are means over; losses and lists, of
/// which a replay measures others, "8 of each 128 queries of the prompt".
std::string sample_words(const HeadAtlas& atlas, bool is_replayed) {
  if (is_replayed)
    return fmt::format("{} of each {} queries of the prompt", atlas.options.rows_per_chunk,
                       atlas.options.chunk);
  const std::size_t n = atlas.result.values<std::int64_t>("row_pos").size();
  const auto n_all = atlas.result.summary().value("tokens", std::size_t{0});
  return n < n_all ? fmt::format("{} of {} queries", n, n_all) : fmt::format("{} queries", n);
}

/// The figure's input; it refers to the atlas.
FigureInput input_of(const HeadAtlas& atlas, const AtlasChoice& choice) {
  FigureInput input;
  input.results = {&atlas.result};
  input.options.metric = std::string(enum_name(choice.number));
  if (choice.difference == AtlasDifference::methods && atlas.methods().size() > 1) {
    const bool shows_loss = choice.couple == AtlasCouple::lost || !atlas.overlap;
    input.options.metric = shows_loss ? "lost_mass" : enum_name(choice.couple);
    if (!shows_loss) input.results.push_back(atlas.overlap.get());
    input.options.selector = atlas.methods()[0];
    input.options.against = atlas.methods()[1];
  }
  if (choice.difference == AtlasDifference::traces && atlas.second)
    input.results.push_back(&atlas.second->result);
  return input;
}

}  // namespace

std::vector<std::string> HeadAtlas::methods() const {
  std::vector<std::string> names;
  for (const auto& method : result.summary()["methods"])
    names.push_back(method["selector"].get<std::string>());
  return names;
}

HeadAtlas head_atlases_of(const TraceSource& trace, const TraceSource* second,
                          const AtlasRequest& request, JobContext& job) {
  HeadAtlas atlas = head_atlas_of(trace, request.heads, job);
  if (second != nullptr)
    atlas.second = std::make_shared<const HeadAtlas>(head_atlas_of(*second, request.heads, job));
  if (request.with_overlap) {
    OverlapOptions options;
    static_cast<ReplayedCalls&>(options) = request.heads;
    options.selection = request.heads.selection;
    options.selector = request.heads.selector;
    options.budget = request.heads.budget;
    const auto overlap = std::make_shared<MemoryResult>(atlas.result.name());
    analyze_overlap(trace, options, {*overlap, job.pool, job.progress, job.stop});
    atlas.overlap = overlap;
  }
  return atlas;
}

HeadAtlas head_atlas_of(const TraceSource& trace, const HeadsOptions& options, JobContext& job) {
  const std::string name = file_name_of(trace);
  HeadAtlas atlas{.options = options, .result = MemoryResult(name)};
  analyze_heads(trace, options, {atlas.result, job.pool, job.progress, job.stop});
  for (const auto layer : atlas.result.values<std::int64_t>("layer")) atlas.layers.push_back(layer);
  for (const auto head : atlas.result.values<std::int64_t>("q_head")) atlas.q_heads.push_back(head);
  return atlas;
}

const AtlasPlace* AtlasPicture::at(double x, double y) const {
  const auto found = std::ranges::find_if(places, [&](const AtlasPlace& place) {
    return std::floor(x) == place.x && std::floor(y) == place.y;
  });
  return found == places.end() ? nullptr : &*found;
}

const AtlasPlace* AtlasPicture::of(Index layer, Index q_head) const {
  const auto found = std::ranges::find_if(places, [&](const AtlasPlace& place) {
    return place.layer == layer && place.q_head == q_head;
  });
  return found == places.end() ? nullptr : &*found;
}

AtlasPicture draw_atlas(const HeadAtlas& atlas, const AtlasChoice& choice) {
  const bool is_sorted = choice.sort == AtlasSort::largest;
  const FigureInput input = input_of(atlas, choice);
  AtlasPicture picture{
      .figure = make_figure(find_figure_kind(is_sorted ? "heads-sorted" : "heads"), input),
      .difference = figures::head_difference(input)};
  const bool is_replayed =
      choice.number == AtlasNumber::lost_mass || choice.difference == AtlasDifference::methods;
  const std::string sample = sample_words(atlas, is_replayed);
  picture.figure.caption.push_back(fmt::format("Trace: {}; {}.", atlas.result.name(), sample));
  picture.figure.panels.front().x.label += fmt::format(" ({})", sample);
  const auto order = is_sorted ? figures::AtlasOrder::by_number : figures::AtlasOrder::as_in_model;
  for (const figures::HeadTile& tile : figures::head_tiles(input, order)) {
    picture.places.push_back({atlas.layers[tile.layer], atlas.q_heads[tile.head],
                              static_cast<double>(tile.column), static_cast<double>(tile.row)});
  }
  return picture;
}

std::string head_atlas_key(const AtlasRequest& request) {
  return fmt::format("heads{}/{}", request.with_overlap ? "+overlap" : "",
                     fields_to_json(request.heads).dump());
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

namespace {

/// Layer and head that a head is compared with.
std::pair<Index, Index> partner_of(const HeadAtlas& atlas,
                                   const figures::HeadDifference& difference, std::size_t head) {
  const HeadAtlas& other = atlas.second ? *atlas.second : atlas;
  const std::size_t slot = difference.partner[head];
  return {other.layers[slot / other.q_heads.size()], other.q_heads[slot % other.q_heads.size()]};
}

/// A number of one head: as a column of CSV, and as a line of its tooltip; no words: no line.
struct HeadValue {
  std::string column;
  double value = 0.0;
  std::string label;
  std::string words;
};

std::vector<HeadValue> values_of(const HeadAtlas& atlas, std::size_t head,
                                 const figures::HeadDifference* difference) {
  std::vector<HeadValue> values;
  for (const HeadMeasure& measure : kHeadMeasures) {
    const double value = atlas.result.values<double>(measure.name)[head];
    values.push_back(
        {std::string(measure.name), value, std::string(measure.label), number_text(value, 4)});
  }
  const auto add_share = [&](const std::string& column, double share, const std::string& label,
                             const std::string& of = "") {
    values.push_back(
        {column, share, label, std::isnan(share) ? std::string() : percent_text(share) + of});
  };
  const std::vector<std::string> methods = atlas.methods();
  for (std::size_t m = 0; m < methods.size(); ++m) {
    const auto& pair = atlas.result.summary()["methods"][m]["pair"];
    add_share("lost_mass of " + methods[m], loss_of(atlas, head, m),
              "Lost under " + pair.get<std::string>(),
              fmt::format(" ({})", sample_words(atlas, true)));
  }
  if (atlas.overlap) {
    const auto add = [&](const char* name, const std::string& label) {
      add_share(name, atlas.overlap->values<float>(name)[head], label);
    };
    add("jaccard", "keys in common");
    add("shared_mass", "attention on keys of both");
    add("first_mass", fmt::format("on keys of {} alone", methods[0]));
    add("second_mass", fmt::format("on keys of {} alone", methods[1]));
  }
  if (difference == nullptr) return values;
  const auto [its_layer, its_head] = partner_of(atlas, *difference, head);
  const std::string other = atlas.second ? fmt::format("layer {}, query head {} of {}", its_layer,
                                                       its_head, atlas.second->result.name())
                                         : std::string();
  values.push_back({"other_layer", static_cast<double>(its_layer), "compared with", other});
  values.push_back({"other_q_head", static_cast<double>(its_head), "", ""});
  const double value = difference->numbers.values[head];
  values.push_back({"difference", value, "difference", number_text(value, 4)});
  return values;
}

}  // namespace

std::vector<std::pair<std::string, std::string>> head_lines(
    const HeadAtlas& atlas, Index layer, Index q_head, const figures::HeadDifference* difference) {
  const std::size_t head =
      slot_in(atlas.layers, layer) * atlas.q_heads.size() + slot_in(atlas.q_heads, q_head);
  std::vector<std::pair<std::string, std::string>> lines = {
      {"head", fmt::format("layer {}, query head {}", layer, q_head)},
      {"means over", sample_words(atlas, /*is_replayed=*/false)}};
  for (const HeadValue& value : values_of(atlas, head, difference)) {
    if (!value.words.empty()) lines.emplace_back(value.label, value.words);
  }
  return lines;
}

std::string head_atlas_csv(const HeadAtlas& atlas, const figures::HeadDifference* difference) {
  std::string csv = "layer,q_head";
  for (const HeadValue& value : values_of(atlas, 0, difference))
    csv += "," + csv_field(value.column);
  for (std::size_t head = 0; head < atlas.layers.size() * atlas.q_heads.size(); ++head) {
    csv += fmt::format("\n{},{}", atlas.layers[head / atlas.q_heads.size()],
                       atlas.q_heads[head % atlas.q_heads.size()]);
    for (const HeadValue& value : values_of(atlas, head, difference))
      csv += "," + csv_number(value.value);
  }
  return csv + "\n";
}

}  // namespace kvscope::gui
