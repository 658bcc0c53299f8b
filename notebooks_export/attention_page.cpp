#include "notebooks_export/attention_page.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <filesystem>
#include <nlohmann/json.hpp>

#include "analysis/kinds/heads.hpp"
#include "analysis/plot/colour.hpp"
#include "core/base/error.hpp"
#include "core/base/escape.hpp"
#include "core/base/nan.hpp"
#include "core/trace/result.hpp"
#include "notebooks_export/page_sources.hpp"

namespace kvscope {

namespace {

using Json = nlohmann::ordered_json;

constexpr double kSteps = 65533.0;
constexpr double kBytesPerMb = 1e6;
constexpr Index kLeastCells = 16;

std::string base64(std::span<const std::uint8_t> bytes) {
  static constexpr char kSigns[] =
      "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";
  std::string text;
  text.reserve((bytes.size() + 2) / 3 * 4);
  for (std::size_t i = 0; i < bytes.size(); i += 3) {
    const std::size_t n = std::min<std::size_t>(3, bytes.size() - i);
    std::uint32_t group = 0;
    for (std::size_t j = 0; j < 3; ++j)
      group = group << 8 | (j < n ? static_cast<std::uint32_t>(bytes[i + j]) : 0U);
    for (std::size_t j = 0; j < 4; ++j) text += j <= n ? kSigns[group >> (18 - 6 * j) & 63U] : '=';
  }
  return text;
}

/// Bytes of all maps of the part in the page.
double maps_size(const TraceInfo& part, Index n_cells, Index block) {
  double bytes = 0.0;
  for (const Index layer : part.layers) {
    double cells = 0.0;
    const auto window = window_of(part, layer);
    for (Index r = 0; r < n_cells; ++r)
      cells += static_cast<double>(r + 1 - first_page_column(r, block, window));
    bytes += cells * 2.0 * 4.0 / 3.0 * static_cast<double>(part.q_heads.size());
  }
  return bytes;
}

/// Tokens per side of a cell: as asked for, else the fewest with which the maps fit.
Index choose_block(const TraceInfo& part, const AttentionPageOptions& options, double other_bytes) {
  const Index n_tokens = part.n_tokens;
  const auto cells_of = [&](Index block) { return (n_tokens + block - 1) / block; };
  const double room = options.max_size * kBytesPerMb - other_bytes;
  const auto fits = [&](Index block) { return maps_size(part, cells_of(block), block) <= room; };
  if (options.max_cells > 0) {
    const Index block = cells_of(options.max_cells);
    if (fits(block)) return block;
    throw ConfigError(fmt::format(
        "export: {} heads with {} cells per side take {:.1f} MB, expected at most {} (--max-size); "
        "choose fewer --layers or --heads, or fewer --max-cells",
        part.layers.size() * part.q_heads.size(), cells_of(block),
        (maps_size(part, cells_of(block), block) + other_bytes) / kBytesPerMb, options.max_size));
  }
  Index block = 1;
  while (!fits(block) && cells_of(block) > kLeastCells) ++block;
  if (fits(block)) return block;
  throw ConfigError(
      fmt::format("export: {} heads over {} tokens do not fit into {} MB (--max-size); "
                  "choose fewer --layers or --heads",
                  part.layers.size() * part.q_heads.size(), n_tokens, options.max_size));
}

Json texts_of(const TraceSource& trace) {
  const std::vector<std::string> bytes = trace.token_bytes();
  if (bytes.empty()) return nullptr;
  Json texts = Json::array();
  for (const std::string& text : bytes) texts.push_back(clean_text(text));
  return texts;
}

/// "name: value" lines of the head, escaped.
std::string about_html(const TraceSource& trace, const TraceInfo& part, const Json& data,
                       const ResultProvenance& provenance) {
  const TraceInfo& info = trace.info();
  std::string html = fmt::format(
      "<h1>Attention of {}</h1>\n<div class=\"soft small\">Trace {} ({}), {} tokens, {} of {} "
      "layers, {} of {} query heads. Written by {}: <code>{}</code></div>\n",
      xml_escape(info.model_name.empty() ? "a model" : info.model_name),
      xml_escape(std::filesystem::path(trace.where()).filename().string()), xml_escape(info.uuid),
      info.n_tokens, part.layers.size(), info.n_layers, part.q_heads.size(), info.n_q,
      xml_escape(provenance.writer), xml_escape(provenance.command_line));
  if (data["block"] > 1) {
    html += fmt::format("<div class=\"soft small\">Each cell is the {} of {} x {} weights.</div>\n",
                        data["pooling"] == "max" ? "largest" : "mean", data["block"].get<Index>(),
                        data["block"].get<Index>());
  }
  return html;
}

constexpr std::string_view kBody = R"html(<main>
<section class="heads"><div class="bar"><label>Heads by <select id="order"></select></label></div><div id="atlas"></div></section>
<section class="shown"><div class="bar"><b id="which"></b><label>colours from <select id="low"><option>1e-6</option>
<option>1e-5</option><option selected>1e-4</option><option>1e-3</option><option>1e-2</option></select></label>
<span id="scale"></span><span>to 1</span></div><div class="soft small" id="numbers"></div>
<div class="framed"><div class="ticks" id="query-ticks" aria-hidden="true"></div><canvas id="map" width="720" height="720" tabindex="0"
aria-label="attention map: queries downwards, keys to the right"></canvas><div class="ticks" id="key-ticks" aria-hidden="true"></div></div>
<div id="readout" aria-live="polite"></div></section>
</main>
)html";

/// The numbers of every head, without methods.
MemoryResult measure_heads(const TraceSource& trace, const AttentionPageOptions& options,
                           ThreadPool& pool, const ProgressFn& progress, std::stop_token stop) {
  HeadsOptions heads;
  heads.selection = options.selection;
  heads.selector.clear();
  heads.needle = options.needle;
  heads.cells = 4;  // the page has its own maps
  MemoryResult result;
  analyze_heads(trace, heads, result, pool, progress, std::move(stop));
  return result;
}

}  // namespace

std::uint16_t page_code(double weight) {
  if (std::isnan(weight)) return 0;
  if (weight < kPageFloor) return 1;
  const double share = 1.0 - std::log(std::min(weight, 1.0)) / std::log(kPageFloor);
  return static_cast<std::uint16_t>(2.0 + std::round(share * kSteps));
}

double weight_of_page_code(std::uint16_t code) {
  if (code < 2) return code == 0 ? kNan : 0.0;
  return std::exp(std::log(kPageFloor) * (1.0 - (static_cast<double>(code) - 2.0) / kSteps));
}

Index first_page_column(Index r, Index block, std::optional<Index> window) {
  return window ? std::max<Index>(0, (r * block - *window + 1) / block) : 0;
}

std::string encode_page_map(std::span<const float> map, Index n_cells, Index block,
                            std::optional<Index> window) {
  std::vector<std::uint8_t> bytes;
  for (Index r = 0; r < n_cells; ++r) {
    for (Index c = first_page_column(r, block, window); c <= r; ++c) {
      const std::uint16_t code =
          page_code(static_cast<double>(map[static_cast<std::size_t>(r * n_cells + c)]));
      bytes.push_back(static_cast<std::uint8_t>(code & 0xff));
      bytes.push_back(static_cast<std::uint8_t>(code >> 8));
    }
  }
  return base64(bytes);
}

AttentionPage make_attention_page(const TraceSource& trace, const AttentionPageOptions& options,
                                  ThreadPool& pool, const ProgressFn& progress,
                                  std::stop_token stop, const ResultProvenance& provenance) {
  check_fields(options);
  require_full_qkv(trace, "export");
  const TraceInfo part = selected_part(trace.info(), options.selection);
  Json data;
  data["tokens"] = part.n_tokens;
  data["texts"] = texts_of(trace);
  if (data["texts"].is_null())
    data["ids"] = std::vector<TokenId>(trace.tokens().begin(), trace.tokens().end());
  // what is not maps: texts as they will stand, and some room for script and heads
  const auto dumped = [](const Json& json) {
    return json.dump(-1, ' ', /*ensure_ascii=*/true, Json::error_handler_t::replace);
  };
  const double other = static_cast<double>(xml_escape(dumped(data)).size()) + 60e3 +
                       400.0 * static_cast<double>(part.layers.size() * part.q_heads.size());
  const Index block = choose_block(part, options, other);
  const Index n_cells = (part.n_tokens + block - 1) / block;
  data["block"] = block;
  data["cells"] = n_cells;
  data["floor"] = kPageFloor;
  data["pooling"] = std::string(enum_name(options.pooling));
  data["columns"] = part.q_heads.size();
  for (int i = 0; i < 256; ++i)
    data["colours"].push_back(plot::hex(plot::colour_at(plot::ColourMap::sequential, i / 255.0)));
  const MemoryResult numbers = measure_heads(trace, options, pool, progress, stop);
  for (const HeadMeasure& measure : kHeadMeasures) {
    const auto values = numbers.values<double>(measure.name);
    const bool says_something = std::any_of(values.begin(), values.end(),
                                            [](double x) { return std::isfinite(x) && x != 0.0; });
    if (says_something)
      data["measures"].push_back({{"name", measure.name}, {"label", measure.label}});
  }

  AttentionPage page;
  page.n_cells = n_cells;
  page.block = block;
  page.n_heads = static_cast<Index>(part.layers.size() * part.q_heads.size());
  std::string maps;
  for (const Index layer : part.layers) {
    const auto window = window_of(part, layer);
    for (const Index q_head : part.q_heads) {
      const auto index = data["heads"].size();
      AttentionMapOptions one{layer, q_head, n_cells, options.pooling};
      MemoryResult map;
      analyze_attention_map(trace, one, map, pool, {}, stop);
      maps += fmt::format("<script type=\"text/plain\" id=\"map-{}\">{}</script>\n", index,
                          encode_page_map(map.values<float>("map"), n_cells, block, window));
      Json head = {
          {"layer", layer}, {"head", q_head}, {"window", window ? Json(*window) : Json(nullptr)}};
      for (const HeadMeasure& measure : kHeadMeasures) {
        const double value = numbers.values<double>(measure.name)[index];
        head["numbers"][std::string(measure.name)] =
            std::isnan(value) ? Json(nullptr) : Json(value);
      }
      data["heads"].push_back(std::move(head));
      if (progress) progress({"export", static_cast<Index>(index) + 1, page.n_heads, "heads"});
    }
  }
  page.html = fmt::format(
      "<!DOCTYPE html>\n<html lang=\"en\"><head><meta charset=\"utf-8\">\n"
      "<meta http-equiv=\"Content-Security-Policy\" content=\"default-src 'none'; script-src "
      "'unsafe-inline'; style-src 'unsafe-inline'; img-src data:\">\n<meta name=\"viewport\" "
      "content=\"width=device-width\">\n<link rel=\"icon\" href=\"data:,\">\n<title>Attention of "
      "{}</title>\n<style>{}</style></head>\n<body>\n{}{}<pre id=\"page-data\" "
      "hidden>{}</pre>\n{}<script>{}</script>\n</body></html>\n",
      xml_escape(part.model_name), page_source("attention_page.css"),
      about_html(trace, part, data, provenance), kBody, xml_escape(dumped(data)), maps,
      page_source("attention_page.js"));
  return page;
}

}  // namespace kvscope
