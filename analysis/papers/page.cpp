#include "analysis/papers/page.hpp"

#include <fmt/format.h>

#include <algorithm>

#include "core/base/escape.hpp"

namespace kvscope::papers {

namespace {

constexpr const char* kStyle = R"css(
:root { color-scheme: light; --ink: #1d2530; --soft: #5b6675; --line: #dde2e8; --ground: #f7f8fa; }
* { box-sizing: border-box; }
body { margin: 0 auto; max-width: 60rem; padding: 2rem 1.25rem 4rem; color: var(--ink); background: #fff;
  font: 16px/1.55 system-ui, "Segoe UI", "DejaVu Sans", sans-serif; }
h1 { font-size: 1.75rem; line-height: 1.25; margin: 0 0 .5rem; }
h2 { font-size: 1.35rem; margin: 3rem 0 .5rem; padding-bottom: .3rem; border-bottom: 2px solid var(--ink); }
h3 { font-size: 1.08rem; margin: 0; }
a { color: #0b5cad; text-decoration: none; } a:hover { text-decoration: underline; }
.soft { color: var(--soft); } .small { font-size: .875rem; }
table { border-collapse: collapse; font-size: .9rem; width: 100%; margin: .75rem 0; }
th, td { text-align: left; padding: .3rem .6rem .3rem 0; border-bottom: 1px solid var(--line); vertical-align: top; }
th { font-weight: 600; color: var(--soft); } td.number { white-space: nowrap; font-variant-numeric: tabular-nums; }
.scroll { overflow-x: auto; }
.grid td, .grid th { text-align: right; padding: .25rem .75rem .25rem 0; } .grid td:first-child, .grid th:first-child { text-align: left; }
section.item { margin: 1.75rem 0; padding: 1.1rem 1.25rem; border: 1px solid var(--line); border-radius: 6px; }
.head { display: flex; gap: .75rem; align-items: baseline; justify-content: space-between; flex-wrap: wrap; }
.verdict { display: inline-block; border-radius: 999px; padding: .05rem .7rem; font-size: .85rem; font-weight: 600; white-space: nowrap; }
.v0 { background: #d9f0e1; color: #0d5a2c; } .v1 { background: #e3ecfb; color: #123f86; }
.v2, .v5 { background: #fdf0cf; color: #6b4a00; } .v3, .v4 { background: #fbe0dc; color: #8a1c0c; }
.v6 { background: #eceef1; color: #4a5462; } .v7 { background: #fff; color: #8a1c0c; outline: 1px dashed #8a1c0c; }
dl { display: grid; grid-template-columns: 7.5rem 1fr; gap: .35rem 1rem; margin: .8rem 0; }
dt { color: var(--soft); } dd { margin: 0; }
figure { margin: 1rem 0; } figure svg { max-width: 100%; height: auto; display: block; }
figcaption { color: var(--soft); font-size: .875rem; margin-top: .35rem; }
pre { background: var(--ground); border: 1px solid var(--line); border-radius: 4px; padding: .6rem .75rem; margin: .4rem 0;
  font: 12.5px/1.5 ui-monospace, "DejaVu Sans Mono", monospace; white-space: pre-wrap; overflow-wrap: anywhere; }
details summary { cursor: pointer; color: var(--soft); font-size: .9rem; }
@media print { body { max-width: none; } h2, h3, .head { break-after: avoid; } figure, tr, pre { break-inside: avoid; } }
@media (max-width: 40rem) { dl { grid-template-columns: 1fr; gap: 0; } dd { margin-bottom: .5rem; } }
)css";

constexpr const char* kPreamble = R"tex(% compile in this folder: pdflatex report.tex, twice
\documentclass[10pt]{article}
\usepackage[T1]{fontenc}
\usepackage[utf8]{inputenc}
\usepackage[a4paper,margin=25mm]{geometry}
\usepackage{booktabs,graphicx,longtable,array}
\usepackage[hidelinks]{hyperref}
\setlength{\parindent}{0pt}
\setlength{\parskip}{4pt plus 1pt}
\sloppy
)tex";

/// A cell of a Markdown table: ** and <u> become tags, the rest is text.
std::string cell_html(std::string text) {
  std::string before, after;
  const auto strip = [&](std::string_view open, std::string_view close, const char* tag) {
    if (text.size() < open.size() + close.size() || !text.starts_with(open) ||
        !text.ends_with(close))
      return;
    text = text.substr(open.size(), text.size() - open.size() - close.size());
    before += fmt::format("<{}>", tag);
    after = fmt::format("</{}>", tag) + after;
  };
  strip("**", "**", "b");
  strip("<u>", "</u>", "u");
  return before + xml_escape(text) + after;
}

}  // namespace

std::string page_begin(const std::string& title) {
  return fmt::format(
      "<!doctype html>\n<html lang=\"en\"><head><meta charset=\"utf-8\"><meta name=\"viewport\" "
      "content=\"width=device-width, initial-scale=1\"><title>{}</title><style>{}</style></head>"
      "<body>\n",
      xml_escape(title), kStyle);
}

std::string grid_html(const std::vector<std::vector<std::string>>& cells) {
  std::string html = "<div class=\"scroll\"><table class=\"grid\">";
  for (std::size_t row = 0; row < cells.size(); ++row) {
    const char* tag = row == 0 ? "th" : "td";
    html += "<tr>";
    for (const std::string& cell : cells[row])
      html += fmt::format("<{0}>{1}</{0}>", tag, cell_html(cell));
    html += "</tr>\n";
  }
  return html + "</table></div>";
}

std::string picture_html(const DrawnPicture& picture, const std::string& prefix) {
  if (!picture.failed.empty())
    return fmt::format("<p class=\"soft small\">Not drawn: {}.</p>\n", xml_escape(picture.failed));
  std::string html = "<figure>";
  if (!picture.svg.empty()) html += inline_svg(picture.svg, prefix);
  if (!picture.cells.empty()) html += grid_html(picture.cells);
  if (!picture.caption.empty())
    html += fmt::format("<figcaption>{}</figcaption>", xml_escape(picture.caption));
  return html + "</figure>\n";
}

std::string inline_svg(const std::string& svg, const std::string& prefix) {
  std::string text = svg;
  if (text.starts_with("<?xml")) text = text.substr(std::min(text.find("?>"), text.size() - 2) + 2);
  std::string out;
  for (std::size_t at = 0; at < text.size();) {
    std::size_t found = text.npos;
    std::string_view matched;
    for (const std::string_view mark : {" id=\"", "url(#", "href=\"#"}) {
      const std::size_t place = text.find(mark, at);
      if (place < found) {
        found = place;
        matched = mark;
      }
    }
    if (found == text.npos) return out + text.substr(at);
    out += text.substr(at, found + matched.size() - at) + prefix;
    at = found + matched.size();
  }
  return out;
}

std::string tex_preamble() {
  return kPreamble;
}

std::string command_tex(const std::string& command) {
  std::string tex;
  for (const char c : command) {
    tex += tex_escape(std::string(1, c));
    if (c == ',' || c == '/' || c == '=') tex += "\\allowbreak{}";
  }
  return "{\\footnotesize\\ttfamily\\raggedright " + tex + "\\par}\n";
}

std::string picture_tex(const DrawnPicture& picture) {
  if (!picture.failed.empty()) return fmt::format("Not drawn: {}.\n\n", tex_escape(picture.failed));
  std::string tex = "\\begin{center}\n";
  if (!picture.pdf.empty()) {
    tex += fmt::format(
        "\\resizebox{{\\ifdim\\width>\\linewidth\\linewidth\\else\\width\\fi}}{{!}}"
        "{{\\includegraphics{{{}}}}}\n",
        picture.pdf);
  } else {
    tex += fmt::format(
        "\\small\\resizebox{{\\ifdim\\width>\\linewidth\\linewidth\\else\\width\\fi}}"
        "{{!}}{{\\input{{{}}}}}\n",
        picture.tex);
  }
  tex += "\\end{center}\n";
  if (!picture.caption.empty())
    tex += fmt::format("{{\\footnotesize {}\\par}}\n", tex_escape(picture.caption));
  return tex;
}

}  // namespace kvscope::papers
