#include "notebooks_export/html_page.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <span>

#include "analysis/base/analysis.hpp"
#include "analysis/base/base64.hpp"
#include "analysis/figures/possible_figures.hpp"
#include "analysis/kinds/heads.hpp"
#include "analysis/plot/colour.hpp"
#include "analysis/plot/rich_text.hpp"
#include "core/base/embedded_file.hpp"
#include "core/base/error.hpp"
#include "core/base/escape.hpp"
#include "core/base/json.hpp"
#include "core/base/version.hpp"
#include "core/trace/result.hpp"
#include "notebooks_export/figure_export.hpp"
#include "notebooks_export/open_result.hpp"

namespace kvscope {

std::span<const EmbeddedFile> page_sources();  // scripts and styles in page (CMakeLists.txt)

namespace {

constexpr double kBytesPerMb = 1e6;
constexpr double kPageRoom = 120e3;  // script and style
constexpr double kPerHead = 900.0;   // its numbers besides the cells
constexpr Index kMostCells = 4096;
constexpr Index kLeastCells = 16;
constexpr double kFewestHeaviest = 8.0;
constexpr double kMostHeaviest = 32.0;
constexpr double kTextShare = 0.3;  // of the page, at most, as long as kFewestHeaviest allow it

std::string dumped(const Json& json) {
  return xml_escape(json.dump(-1, ' ', /*ensure_ascii=*/true, Json::error_handler_t::replace));
}

Json trace_json(const TraceSource& trace) {
  const std::vector<std::string> bytes = trace.token_bytes();
  Json json = {{"tokens", trace.info().n_tokens}};
  if (bytes.empty())
    json["ids"] = std::vector<TokenId>(trace.tokens().begin(), trace.tokens().end());
  for (const std::string& text : bytes) json["texts"].push_back(clean_text(text));
  return json;
}

/// "Trace t.h5 (uuid) of MODEL, 2112 tokens"; without its folder, which says whose machine it was.
std::string about_trace(const PageTrace& trace) {
  const TraceInfo& info = trace.source->info();
  return fmt::format("Trace {} ({}){}, {} tokens, {} of {} layers, {} of {} query heads. ",
                     xml_escape(trace.path.filename().string()), xml_escape(info.uuid),
                     info.model_name.empty() ? "" : " of " + xml_escape(info.model_name),
                     info.n_tokens, info.layers.size(), info.n_layers, info.q_heads.size(),
                     info.n_q);
}

/// The finest cells with which everything fits into max_size beside `other_bytes`; the maps that
/// have most get coarser together. Throws ConfigError if the least, or those asked for, do not fit.
void choose_cells(PageContent& content, const HtmlPageOptions& options, double other_bytes) {
  const double room = options.max_size * kBytesPerMb;
  double n_words = 0.0;
  for (PageHead& head : content.heads) {
    const TraceInfo& info = content.traces[head.trace].source->info();
    const Index most = options.max_cells > 0 ? options.max_cells : kMostCells;
    head.grid = {info.n_tokens, (info.n_tokens + most - 1) / most, info.window_of(head.layer)};
    n_words += static_cast<double>(info.n_tokens);
  }
  for (PageHead& head : content.heads) {
    const double heaviest = kTextShare * room * 3.0 / 4.0 / (7.0 * n_words);
    if (!content.atlas)
      head.n_heaviest = static_cast<Index>(std::clamp(heaviest, kFewestHeaviest, kMostHeaviest));
  }
  for (;;) {
    double bytes = other_bytes;
    Index most = 0;
    for (const PageHead& head : content.heads) {
      bytes += head.bytes();
      most = std::max(most, head.grid.side());
    }
    if (bytes <= room) return;
    if (options.max_cells > 0 || most <= kLeastCells) {
      throw ConfigError(
          "export: {} maps with up to {} cells per side, texts and figures take {:.1f} MB, "
          "expected at most {} (--max-size); choose fewer --layers, --heads or bookmarks, or fewer "
          "--max-cells",
          content.heads.size(), most, bytes / kBytesPerMb, options.max_size);
    }
    for (PageHead& head : content.heads) {
      while (head.grid.side() == most) ++head.grid.block;
    }
  }
}

/// What the heads of an atlas are ordered by: numbers of every head, which their maps get.
void add_measures(const PageContent& content, const HtmlPageOptions& options, ThreadPool& pool,
                  const std::stop_token& stop, Json& json) {
  HeadsOptions heads;
  heads.selection = *content.atlas;
  heads.selector.clear();  // without methods
  heads.needle = options.needle;
  heads.cells = 4;  // the page has its own maps
  MemoryResult numbers;
  analyze_heads(*content.traces[0].source, heads, {numbers, pool, {}, stop});
  json["measures"] = Json::array();
  for (const HeadMeasure& measure : kHeadMeasures) {
    const auto values = numbers.values<double>(measure.name);
    const bool says_something = std::any_of(values.begin(), values.end(),
                                            [](double x) { return std::isfinite(x) && x != 0.0; });
    if (says_something)
      json["measures"].push_back({{"name", measure.name}, {"label", measure.label}});
    for (std::size_t i = 0; i < content.heads.size(); ++i)
      json["heads"][i]["numbers"][std::string(measure.name)] =
          std::isnan(values[i]) ? Json(nullptr) : Json(values[i]);
  }
  json["columns"] = std::ranges::count(content.heads, content.heads[0].layer, &PageHead::layer);
}

struct PageFigure {
  std::string title;  // the result's file, without folders
  std::string html;   // two <img>, of which the page shows the one of its ground, and the caption
  std::string note;   // why there is no figure; then html is empty
};

constexpr double kWidth = 4.6;  // inches: its letters can be read at 400 pixels and from far away

/// The drawing on a ground as base64.
std::string drawing(const plot::Figure& figure, plot::Ground ground) {
  RenderOptions options;
  options.width = kWidth;
  options.theme = ground;
  const std::string svg =
      render_figure(figure, options, {FigureFormat::svg}, "figure").front().bytes;
  return text_from_bytes(std::as_bytes(std::span(svg)), LastGroup::padded);
}

/// A page says nothing of whose machine made it.
std::string without_folder(std::string text, const std::filesystem::path& file) {
  const std::string folder = file.parent_path().string() + "/";
  for (std::size_t at; (at = text.find(folder)) != std::string::npos;)
    text.erase(at, folder.size());
  return text;
}

std::string figure_html(const plot::Figure& figure) {
  std::string caption;
  for (const std::string& sentence : figure.caption) caption += plot::plain_text(sentence) + " ";
  return fmt::format(
      "<figure><img class=\"on-light\" alt=\"\" src=\"data:image/svg+xml;base64,{}\">"
      "<img class=\"on-dark\" alt=\"\" src=\"data:image/svg+xml;base64,{}\">"
      "<figcaption>{}</figcaption></figure>\n",
      drawing(figure, plot::Ground::light), drawing(figure, plot::Ground::dark),
      xml_escape(caption));
}

/// Of each result the first figure that fits it, as the window's results panel chooses. Throws
/// IoError or FormatError for what is no result.
std::vector<PageFigure> page_figures(std::span<const std::filesystem::path> results) {
  std::vector<ResultPtr> open;
  for (const auto& file : results) open.push_back(open_result(file));
  std::vector<PageFigure> figures;
  for (std::size_t i = 0; i < open.size(); ++i) {
    PageFigure page{results[i].filename().string(), "", ""};
    const std::vector<PossibleFigure> possible = possible_figures(open, open[i]);
    if (const PossibleFigure* chosen = first_drawable(possible)) {
      FigureInput input;
      for (const ResultPtr& result : chosen->chosen) input.results.push_back(result.get());
      try {
        page.html = figure_html(make_figure(chosen->kind, input));
      } catch (const ConfigError& e) {  // the page's other parts stand
        page.note = without_folder(
            fmt::format("{}: no figure {}: {}", page.title, chosen->kind.name, e.what()),
            results[i]);
      }
    } else {
      page.note = possible.empty() ? fmt::format("{}: no figure is about a result of kind {}",
                                                 page.title, open[i]->info().kind)
                                   : fmt::format("{}: {}", page.title, possible.front().missing);
    }
    figures.push_back(std::move(page));
  }
  return figures;
}

std::string step_html(const PageStep& step, std::size_t i) {
  return fmt::format(
      "<details class=\"step\" data-step=\"{}\"{}><summary><h2>{}</h2></summary>\n"
      "<p class=\"note\">{}</p><div class=\"panels\"><div class=\"panel\" data-panel=\"map\">"
      "</div><div class=\"panel\" data-panel=\"text\"></div></div></details>\n",
      i, i == 0 ? " open" : "", xml_escape(step.title), xml_escape(step.note));
}

std::string page_html(const PageContent& content, const Json& json, const std::string& body,
                      const std::string& scripts) {
  std::string about;
  for (const PageTrace& trace : content.traces) about += about_trace(trace);
  std::string script;
  for (const char* file : {"page_data.js", "page_map.js", "page_text.js", "page.js"})
    script += built_in_text(page_sources(), file);
  return fmt::format(
      "<!DOCTYPE html>\n<html lang=\"en\"><head><meta charset=\"utf-8\">\n"
      "<meta http-equiv=\"Content-Security-Policy\" content=\"default-src 'none'; script-src "
      "'unsafe-inline'; style-src 'unsafe-inline'; img-src data:\">\n<meta name=\"viewport\" "
      "content=\"width=device-width\">\n<link rel=\"icon\" href=\"data:,\">\n<title>{0}</title>\n"
      "<style>{1}</style></head>\n<body>\n<header><h1>{0}</h1>\n"
      "<label class=\"small\">ground <select id=\"ground\"><option value=\"\">as the system"
      "</option><option>light</option><option>dark</option></select></label></header>\n"
      "<main>\n<noscript><p>Maps and texts need JavaScript, which runs in this page alone.</p>"
      "</noscript>\n{2}</main>\n<footer class=\"soft small\">{3}Written by {4}.</footer>\n"
      "<pre id=\"page-data\" hidden>{5}</pre>\n{6}<script>(() => {{\n'use strict';\n{7}}})();"
      "</script>\n</body></html>\n",
      xml_escape(content.title), built_in_text(page_sources(), "page.css"), body, about,
      xml_escape(writer_name()), dumped(json), scripts, script);
}

}  // namespace

PageContent atlas_of_trace(const std::filesystem::path& file, const TraceSelection& selection,
                           const TraceOpener& open) {
  const auto source = open(file);
  require_full_qkv(*source, "export");
  const TraceInfo& info = source->info();
  PageContent content;
  content.title =
      fmt::format("Attention of {}", info.model_name.empty() ? "a model" : info.model_name);
  content.traces = {{file, source}};
  content.atlas = selection;
  const TraceInfo part = selected_part(info, selection);
  for (const Index layer : part.layers) {
    for (const Index head : part.q_heads) content.heads.push_back({0, layer, head, {}, {}, 0});
  }
  return content;
}

HtmlPage make_html_page(PageContent content, const HtmlPageOptions& options, ThreadPool& pool,
                        const ProgressFn& progress, const std::stop_token& stop) {
  check_fields(options);
  HtmlPage page;
  std::string body = content.atlas ? "<div class=\"panel\" data-panel=\"atlas\"></div>\n" : "";
  Json json = {{"floor", kPageFloor}, {"pooling", std::string(enum_name(options.pooling))}};
  for (int i = 0; i < 256; ++i)
    json["colours"].push_back(plot::hex(plot::colour_at(plot::ColourMap::sequential, i / 255.0)));
  for (const PageTrace& trace : content.traces) json["traces"].push_back(trace_json(*trace.source));
  json["steps"] = Json::array();
  for (std::size_t i = 0; i < content.steps.size(); ++i) {
    const PageStep& step = content.steps[i];
    body += step_html(step, i);
    json["steps"].push_back({{"head", step.head},
                             {"method", or_null(step.method)},
                             {"query", step.query},
                             {"key", or_null(step.key)}});
  }
  for (const PageFigure& figure : page_figures(content.results)) {
    body += fmt::format("<section><h2>{}</h2>{}{}</section>\n", xml_escape(figure.title),
                        figure.html, xml_escape(figure.note));
    if (!figure.note.empty()) page.notes.push_back(figure.note);
  }
  choose_cells(content, options,
               kPageRoom + kPerHead * static_cast<double>(content.heads.size()) +
                   static_cast<double>(body.size() + dumped(json).size()));
  std::string scripts;
  json["heads"] = Json::array();
  for (std::size_t i = 0; i < content.heads.size(); ++i) {
    const PageHead& head = content.heads[i];
    HeadNumbers numbers = head_numbers(head, i, *content.traces[head.trace].source, options.pooling,
                                       content.replay, pool, stop);
    for (const Json& method : numbers.json["methods"]) {
      const std::string note = method["note"];
      if (!note.empty() && std::ranges::find(page.notes, note) == page.notes.end())
        page.notes.push_back(note);
    }
    scripts += numbers.scripts;
    json["heads"].push_back(std::move(numbers.json));
    if (head.grid.side() > page.n_cells) {
      page.n_cells = head.grid.side();
      page.block = head.grid.block;
    }
    if (progress)
      progress(
          {"export", static_cast<Index>(i) + 1, static_cast<Index>(content.heads.size()), "heads"});
  }
  if (content.atlas) add_measures(content, options, pool, stop, json);
  page.html = page_html(content, json, body, scripts);
  return page;
}

}  // namespace kvscope
