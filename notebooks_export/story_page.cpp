#include "notebooks_export/story_page.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <nlohmann/json.hpp>

#include "core/base/escape.hpp"
#include "notebooks_export/page_sources.hpp"
#include "notebooks_export/story_data.hpp"
#include "notebooks_export/story_figure.hpp"

namespace kvscope {

namespace {

constexpr double kPageRoom = 120e3;  // script, style and steps
constexpr double kPerMap = 900.0;    // its numbers besides the cells

std::string dumped(const nlohmann::ordered_json& json) {
  return json.dump(-1, ' ', /*ensure_ascii=*/true,
                   nlohmann::ordered_json::error_handler_t::replace);
}

/// "Trace t.h5 (uuid) of MODEL, 2112 tokens".
std::string about_trace(const PlannedTrace& trace) {
  const TraceInfo& info = trace.source->info();
  return fmt::format("Trace {} ({}){}, {} tokens, {} of {} layers, {} of {} query heads.",
                     xml_escape(trace.path.filename().string()), xml_escape(info.uuid),
                     info.model_name.empty() ? "" : " of " + xml_escape(info.model_name),
                     info.n_tokens, info.layers.size(), info.n_layers, info.q_heads.size(),
                     info.n_q);
}

/// What a mark says to who does not see it.
std::string mark_words(const StoryMark& mark) {
  const auto range = [](TokenRange r) {
    return r.size() == 1 ? fmt::format("{}", r.begin) : fmt::format("{} to {}", r.begin, r.end - 1);
  };
  std::string words;
  switch (mark.kind) {
    case StoryMark::Kind::box:
      words = fmt::format("Box: queries {}, keys {}", range(mark.queries), range(mark.keys));
      break;
    case StoryMark::Kind::arrow:
      words = fmt::format("Arrow from query {}, key {} to query {}, key {}", mark.from[0],
                          mark.from[1], mark.to[0], mark.to[1]);
      break;
    case StoryMark::Kind::words:
      words = fmt::format("Marked words: {}{}", range(mark.words),
                          mark.at ? ", with an arrow to " + range(*mark.at) : "");
      break;
  }
  return words + (mark.label.empty() ? "." : ": " + mark.label + ".");
}

std::string step_html(const Story& story, std::size_t i, const StoryData& data,
                      const std::vector<std::optional<PageFigure>>& figures) {
  const StoryStep& step = story.steps[i];
  std::string html = fmt::format(
      "<section class=\"step\" id=\"step-{0}\" aria-labelledby=\"title-{0}\"{1}>\n"
      "<div class=\"note\"><p class=\"soft small place\">{0} of {2}</p>\n"
      "<h2 id=\"title-{0}\" tabindex=\"-1\">{3}</h2>\n{4}",
      i + 1, i > 0 ? " hidden" : "", story.steps.size(), xml_escape(step.title),
      note_html(step.note));
  if (!step.marks.empty()) {
    html += "<ul class=\"unseen\">\n";
    for (const StoryMark& mark : step.marks)
      html += fmt::format("<li>{}</li>\n", xml_escape(mark_words(mark)));
    html += "</ul>\n";
  }
  html += "</div>\n<div class=\"panels\">\n";
  for (const StoryPanel panel : step.panels) {
    switch (panel) {
      case StoryPanel::map:
        html += fmt::format("<div class=\"panel\" data-panel=\"map\" data-alt=\"{}\"></div>\n",
                            xml_escape(data.alts[i]));
        break;
      case StoryPanel::text:
        html += "<div class=\"panel\" data-panel=\"text\"></div>\n";
        break;
      case StoryPanel::atlas:
        html += "<div class=\"panel\" data-panel=\"atlas\"></div>\n";
        break;
      case StoryPanel::figure:
        html += fmt::format(
            "<div class=\"panel\" data-panel=\"figure\" data-marks=\"{}\">"
            "<div class=\"drawing\">{}</div></div>\n",
            xml_escape(figures[i]->marks), figures[i]->html);
        break;
    }
  }
  return html + "</div>\n</section>\n";
}

/// Everything around the steps.
std::string page_html(const Story& story, const StoryPlan& plan, const StoryData& data,
                      const std::string& steps, const ResultProvenance& provenance) {
  const std::string title = !story.title.empty()   ? story.title
                            : !story.steps.empty() ? story.steps[0].title
                                                   : "A story";
  std::string about;
  for (const PlannedTrace& trace : plan.traces) about += about_trace(trace) + " ";
  about += fmt::format("Written by {}: <code>{}</code>", xml_escape(provenance.writer),
                       xml_escape(provenance.command_line));
  const std::string author = story.author.empty() ? ""
                                                  : fmt::format("<p class=\"soft author\">{}</p>",
                                                                xml_escape(story.author));
  std::string script;
  for (const char* file : {"story_data.js", "story_map.js", "story_text.js", "story.js"})
    script += page_source(file);
  return fmt::format(
      "<!DOCTYPE html>\n<html lang=\"en\"><head><meta charset=\"utf-8\">\n"
      "<meta http-equiv=\"Content-Security-Policy\" content=\"default-src 'none'; script-src "
      "'unsafe-inline'; style-src 'unsafe-inline'; img-src data:\">\n<meta name=\"viewport\" "
      "content=\"width=device-width\">\n<link rel=\"icon\" href=\"data:,\">\n<title>{0}</title>\n"
      "<style>{1}</style></head>\n<body{2}>\n<header><div><h1>{0}</h1>{3}</div>\n"
      "<label class=\"small\">ground <select id=\"ground\"><option value=\"\">as the system"
      "</option><option>light</option><option>dark</option></select></label></header>\n"
      "<nav id=\"steps\" aria-label=\"Steps\"></nav>\n"
      "<p class=\"unseen\" id=\"said\" role=\"status\" aria-live=\"polite\"></p>\n"
      "<main>\n<noscript><p>The notes are below; maps and texts need JavaScript, which runs in "
      "this page alone.</p></noscript>\n{4}</main>\n<footer class=\"soft small\">{5}</footer>\n"
      "<pre id=\"page-data\" hidden>{6}</pre>\n{7}<script>(() => {{\n'use strict';\n{8}}})();"
      "</script>\n</body></html>\n",
      xml_escape(title), page_source("story.css"),
      story.steps.size() == 1 ? " class=\"one-step\"" : "", author, steps, about,
      xml_escape(dumped(data.json)), data.scripts, script);
}

}  // namespace

StoryPage make_story_page(const Story& story, const StoryPageOptions& options,
                          const TraceOpener& open, ThreadPool& pool, const ProgressFn& progress,
                          const std::stop_token& stop, const ResultProvenance& provenance) {
  check_fields(options);
  StoryPlan plan = plan_story(story, open);
  std::vector<std::optional<PageFigure>> figures(story.steps.size());
  double other = kPageRoom + kPerMap * static_cast<double>(plan.maps.size());
  for (std::size_t i = 0; i < story.steps.size(); ++i) {
    const StoryStep& step = story.steps[i];
    other += static_cast<double>(2 * step.note.size()) + 2000.0;
    if (!step.figure) continue;
    const std::string name = fmt::format("step {} (\"{}\")", i + 1, step.title);
    figures[i] = page_figure(story_figure(*step.figure, name));
    other += static_cast<double>(figures[i]->html.size() + xml_escape(figures[i]->marks).size());
  }
  for (const PlannedTrace& trace : plan.traces)
    other += static_cast<double>(xml_escape(dumped(page_tokens(*trace.source))).size());
  choose_blocks(plan, options, other);
  const StoryData data = compute_story(story, plan, options, pool, progress, stop);

  StoryPage page;
  std::string steps;
  for (std::size_t i = 0; i < story.steps.size(); ++i) {
    steps += step_html(story, i, data, figures);
    page.n_heads = std::max(page.n_heads, static_cast<Index>(plan.steps[i].maps.size()));
  }
  for (const PlannedMap& map : plan.maps) {
    const Index side = std::max(map.grid.rows(), map.grid.cols());
    if (map.is_overview || side <= page.n_cells) continue;
    page.n_cells = side;
    page.block = map.grid.block;
  }
  for (const std::string& words : data.method_words) {
    if (!words.empty()) page.notes.push_back(words);
  }
  page.html = page_html(story, plan, data, steps, provenance);
  return page;
}

Story atlas_story(const TraceSource& trace, const std::filesystem::path& path,
                  const TraceSelection& selection) {
  const TraceInfo& info = trace.info();
  Story story;
  story.title =
      fmt::format("Attention of {}", info.model_name.empty() ? "a model" : info.model_name);
  StoryStep step;
  step.title = "All heads";
  const TraceInfo part = selected_part(info, selection);
  if (part.layers.size() * part.q_heads.size() == 1) step.title = "One head";
  step.panels = {StoryPanel::atlas};
  step.view.trace = path;
  step.view.atlas = selection;
  story.steps.push_back(std::move(step));
  return story;
}

}  // namespace kvscope
