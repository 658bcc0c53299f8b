#include "analysis/papers/page.hpp"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <array>

#include "core/base/escape.hpp"
#include "core/base/lists.hpp"
#include "core/base/utf8.hpp"

namespace kvscope::papers {

namespace {

constexpr const char* kStyle = R"css(
:root { color-scheme: light dark; --ink: #1d2530; --soft: #5b6675; --line: #dde2e8; --ground: #f7f8fa; --page: #fff; --link: #0b5cad; }
@media (prefers-color-scheme: dark) {
  :root { --ink: #e4e8ee; --soft: #a3adba; --line: #3a434f; --ground: #222a34; --page: #171c23; --link: #7ab4f5; }
  figure svg { background: #fff; border-radius: 4px; }
}
* { box-sizing: border-box; }
body { margin: 0 auto; max-width: 60rem; overflow-wrap: break-word; padding: 2rem 1.25rem 4rem; color: var(--ink); background: var(--page);
  font: 16px/1.55 system-ui, "Segoe UI", "DejaVu Sans", sans-serif; }
h1 { font-size: 1.75rem; line-height: 1.25; margin: 0 0 .5rem; }
h2 { font-size: 1.35rem; margin: 3rem 0 .5rem; padding-bottom: .3rem; border-bottom: 2px solid var(--ink); }
h3 { font-size: 1.08rem; margin: 0; }
a { color: var(--link); text-decoration: none; } a:hover { text-decoration: underline; }
.soft { color: var(--soft); } .small { font-size: .875rem; }
table { border-collapse: collapse; font-size: .9rem; width: 100%; margin: .75rem 0; }
th, td { text-align: left; padding: .3rem .6rem .3rem 0; border-bottom: 1px solid var(--line); vertical-align: top; }
th { font-weight: 600; color: var(--soft); } td { font-variant-numeric: tabular-nums; }
.scroll { overflow-x: auto; }
.grid td, .grid th { text-align: right; padding: .25rem .75rem .25rem 0; } .grid td:not(:first-child) { white-space: nowrap; }
.grid td:first-child, .grid th:first-child { text-align: left; }
section.item { margin: 1.75rem 0; padding: 1.1rem 1.25rem; border: 1px solid var(--line); border-radius: 6px; }
.head { display: flex; gap: .75rem; align-items: baseline; justify-content: space-between; flex-wrap: wrap; }
.verdict { display: inline-block; border-radius: 999px; padding: .05rem .7rem; font-size: .85rem; font-weight: 600; white-space: nowrap; }
.v0 { background: #d9f0e1; color: #0d5a2c; } .v1 { background: #e3ecfb; color: #123f86; }
.v2, .v5 { background: #fdf0cf; color: #6b4a00; } .v3, .v4 { background: #fbe0dc; color: #8a1c0c; }
.v6 { background: #eceef1; color: #4a5462; } .v7 { background: #fff; color: #8a1c0c; outline: 1px dashed #8a1c0c; }
dl { display: grid; grid-template-columns: 7.5rem 1fr; gap: .35rem 1rem; margin: .8rem 0; }
dt { color: var(--soft); } dd { margin: 0; overflow-wrap: anywhere; }
figure { margin: 1rem 0; } figure svg { max-width: 100%; height: auto; display: block; }
figcaption { color: var(--soft); font-size: .875rem; margin-top: .35rem; }
pre { background: var(--ground); border: 1px solid var(--line); border-radius: 4px; padding: .6rem .75rem; margin: .4rem 0;
  font: 12.5px/1.5 ui-monospace, "DejaVu Sans Mono", monospace; white-space: pre-wrap; overflow-wrap: anywhere; }
code { font: .8125rem ui-monospace, "DejaVu Sans Mono", monospace; overflow-wrap: anywhere; }
details summary { cursor: pointer; color: var(--soft); font-size: .9rem; }
@media print { body { max-width: none; } h2, h3, .head { break-after: avoid; } figure, tr, pre { break-inside: avoid; } }
@media (max-width: 40rem) { dl { grid-template-columns: 1fr; gap: 0; } dd { margin-bottom: .5rem; } }
)css";

constexpr const char* kPreamble =
    R"tex(% written by kvscope; compile in this folder: pdflatex report.tex, twice
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

bool is_rule(const std::vector<std::string>& cells) {
  for (const std::string& cell : cells) {
    if (cell.find_first_not_of("-: ") != std::string::npos) return false;
  }
  return true;
}

/// The cells of a table in Markdown as kvscope table writes it, the header first; marks (** and
/// <u>) stay.
std::vector<std::vector<std::string>> markdown_cells(std::string_view markdown) {
  std::vector<std::vector<std::string>> rows;
  for (const std::string& line : split_words(markdown, '\n')) {
    if (!line.starts_with('|')) continue;
    std::vector<std::string> cells;
    std::string cell;
    for (std::size_t i = 1; i < line.size(); ++i) {
      if (line[i] == '\\' && i + 1 < line.size()) {
        cell += line[++i];
      } else if (line.substr(i).starts_with("&lt;")) {
        cell += '<';
        i += 3;
      } else if (line.substr(i).starts_with("&amp;")) {
        cell += '&';
        i += 4;
      } else if (line[i] == '|') {
        const std::size_t first = cell.find_first_not_of(' ');
        const std::size_t last = cell.find_last_not_of(' ');
        cells.push_back(first == cell.npos ? "" : cell.substr(first, last - first + 1));
        cell.clear();
      } else {
        cell += line[i];
      }
    }
    if (rows.size() == 1 && is_rule(cells)) continue;  // the rule below the header
    rows.push_back(std::move(cells));
  }
  return rows;
}

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

/// Cells with the header first; a cell may have the marks of Markdown (** and <u>).
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

/// `svg` as part of a page: without the XML declaration, its ids prefixed so that those of two
/// pictures differ.
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

std::string picture_html(const DrawnPicture& picture, const std::string& prefix) {
  if (!picture.failed.empty())
    return fmt::format("<p class=\"soft small\">Not drawn: {}.</p>\n", xml_escape(picture.failed));
  std::string html = "<figure>";
  if (!picture.svg.empty()) html += inline_svg(picture.svg, prefix);
  if (!picture.markdown.empty()) html += grid_html(markdown_cells(picture.markdown));
  if (!picture.caption.empty())
    html += fmt::format("<figcaption>{}</figcaption>", xml_escape(picture.caption));
  return html + "</figure>\n";
}

/// Text whose lines may end after any of `breaks`, and inside words that no line holds.
std::string text_tex(std::string_view text, std::string_view breaks) {
  constexpr std::size_t kLongestRun = 44;  // a hash stays whole
  constexpr std::size_t kNextBreak = 8;    // behind it
  std::string tex, piece;
  std::size_t run = 0;
  const std::string clean = clean_text(text);
  for (std::size_t at = 0; at < clean.size();) {
    const std::size_t size = utf8_char_at(clean, at).size;
    piece.append(clean, at, size);
    run = clean[at] == ' ' ? 0 : run + 1;
    if (breaks.find(clean[at]) != breaks.npos || run == kLongestRun) {
      tex += tex_escape(piece) + "\\allowbreak{}";
      piece.clear();
      run = run == kLongestRun ? kLongestRun - kNextBreak : 0;
    }
    at += size;
  }
  return tex + tex_escape(piece);
}

std::string prose_tex(std::string_view text) {
  return text_tex(text, "");
}

/// What is typed may break after blanks, commas and slashes.
std::string typed_tex(std::string_view typed) {
  return text_tex(typed, ",/=");
}

std::string command_tex(const std::string& command) {
  return "{\\footnotesize\\ttfamily\\raggedright " + typed_tex(command) + "\\par}\n";
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
    tex += fmt::format("{{\\footnotesize {}\\par}}\n", prose_tex(picture.caption));
  return tex;
}

/// The text escaped, its line ends as `br`.
std::string lines_of(std::string_view text, std::string (*escape)(std::string_view),
                     std::string_view br) {
  std::string out;
  for (std::size_t end; (end = text.find('\n')) != text.npos; text.remove_prefix(end + 1))
    out.append(escape(text.substr(0, end))).append(br);
  return out + escape(text);
}

/// How a style begins and ends, by Style.
struct StyleMarks {
  std::string_view html, html_end, tex, tex_end;
};
constexpr std::array<StyleMarks, 5> kMarks = {{
    {"", "", "", ""},
    {"<b>", "</b>", "\\textbf{", "}"},
    {"<i>", "</i>", "\\emph{", "}"},
    {"<code>", "</code>", "{\\footnotesize\\ttfamily ", "}"},
    {"<span class=\"soft small\">", "</span>", "{\\footnotesize ", "}"},
}};

std::string spans_html(const Spans& spans) {
  std::string html;
  for (const Span& span : spans) {
    std::string text = lines_of(span.text, xml_escape, "<br>");
    if (!span.link.empty()) text = fmt::format("<a href=\"#{}\">{}</a>", span.link, text);
    if (span.chip >= 0)
      text = fmt::format("<span class=\"verdict v{}\">{}</span>", span.chip, text);
    const StyleMarks& marks = kMarks[static_cast<std::size_t>(span.style)];
    html.append(marks.html).append(text).append(marks.html_end);
  }
  return html;
}

std::string spans_tex(const Spans& spans) {
  std::string tex;
  for (const Span& span : spans) {
    std::string text = span.style == Style::code ? typed_tex(span.text)
                                                 : lines_of(span.text, prose_tex, "\\newline ");
    if (!span.link.empty()) text = fmt::format("\\hyperref[{}]{{{}}}", span.link, text);
    const StyleMarks& marks = kMarks[static_cast<std::size_t>(span.style)];
    tex.append(marks.tex).append(text).append(marks.tex_end);
  }
  return tex;
}

}  // namespace

Page::Page(const std::string& title, const std::string& writer)
    : html_(fmt::format(
          "<!doctype html>\n<html lang=\"en\"><head><meta charset=\"utf-8\"><meta "
          "name=\"viewport\" content=\"width=device-width, initial-scale=1\"><title>{0}</title>"
          "<style>{1}</style></head><body>\n<h1>{0}</h1>\n",
          xml_escape(title), kStyle)),
      tex_(fmt::format("{}\\title{{{}}}\n\\author{{made by {}}}\n\\date{{}}\n"
                       "\\begin{{document}}\n\\maketitle\n",
                       kPreamble, prose_tex(title), tex_escape(writer))) {}

void Page::heading(const std::string& text) {
  html_ += fmt::format("<h2>{}</h2>\n", xml_escape(text));
  tex_ += fmt::format("\\section*{{{}}}\n", prose_tex(text));
}

void Page::paragraph(const Spans& spans) {
  html_ += fmt::format("<p>{}</p>\n", spans_html(spans));
  tex_ += spans_tex(spans) + "\n\n";
}

void Page::begin_entry(const std::string& id, const std::string& title, const std::string& where,
                       const Span& verdict) {
  html_ += fmt::format(
      "<section class=\"item\" id=\"{}\"><div class=\"head\"><div><h3>{}</h3><span class=\"soft "
      "small\">{}</span></div>{}</div>\n",
      id, xml_escape(title), xml_escape(where), spans_html({verdict}));
  tex_ += fmt::format(
      "\\subsection*{{{0}}}\n\\label{{{1}}}\\addcontentsline{{toc}}{{subsection}}{{{0}}}\n"
      "\\emph{{{2}}}: \\textbf{{{3}}}.\n\n",
      prose_tex(title), id, prose_tex(where), spans_tex({verdict}));
}

void Page::end_entry() {
  html_ += "</section>\n";
}

void Page::terms(const std::vector<std::pair<std::string, Spans>>& terms) {
  html_ += "<dl>\n";
  for (const auto& [term, spans] : terms) {
    html_ += fmt::format("<dt>{}</dt><dd>{}</dd>\n", xml_escape(term), spans_html(spans));
    tex_ += fmt::format("\\textbf{{{}.}} {}\n\n", tex_escape(term), spans_tex(spans));
  }
  html_ += "</dl>\n";
}

void Page::table(const std::vector<PageColumn>& columns,
                 const std::vector<std::vector<Spans>>& rows) {
  std::string columns_tex, head_html;
  std::vector<std::string> head_tex;
  for (const PageColumn& column : columns) {
    head_html += fmt::format("<th>{}</th>", xml_escape(column.title));
    head_tex.push_back(tex_escape(column.title));
    columns_tex += fmt::format(
        ">{{\\raggedright\\arraybackslash}}p{{{:.2f}\\dimexpr\\linewidth-{}\\tabcolsep}}",
        column.share, 2 * (columns.size() - 1));
  }
  html_ += fmt::format("<div class=\"scroll\"><table><tr>{}</tr>\n", head_html);
  tex_ += fmt::format(
      "{{\\small\n\\begin{{longtable}}{{@{{}}{}@{{}}}}\n\\toprule\n{} \\\\\n\\midrule\n\\endhead\n"
      "\\bottomrule\n\\endfoot\n",
      columns_tex, fmt::join(head_tex, " & "));
  for (const std::vector<Spans>& row : rows) {
    std::vector<std::string> cells;
    html_ += "<tr>";
    for (const Spans& cell : row) {
      html_ += fmt::format("<td>{}</td>", spans_html(cell));
      cells.push_back(spans_tex(cell));
    }
    html_ += "</tr>\n";
    tex_ += fmt::format("{} \\\\\n", fmt::join(cells, " & "));
  }
  html_ += "</table></div>\n";
  tex_ += "\\end{longtable}}\n";
}

void Page::picture(const DrawnPicture& picture) {
  html_ += picture_html(picture, fmt::format("p{}-", n_pictures_++));
  tex_ += picture_tex(picture);
}

void Page::commands(const std::vector<std::string>& commands, const std::string& summary,
                    bool is_open) {
  if (commands.empty()) return;
  if (!summary.empty())
    html_ += fmt::format("<details{}><summary>{}</summary>\n", is_open ? " open" : "",
                         xml_escape(summary));
  for (const std::string& command : commands) {
    html_ += fmt::format("<pre>{}</pre>\n", lines_of(command, xml_escape, "\n"));
    for (const std::string& line : split_words(command, '\n')) tex_ += command_tex(line) + "\n";
  }
  if (!summary.empty()) html_ += "</details>\n";
}

void Page::list(const std::string& heading, const std::vector<std::string>& lines) {
  if (lines.empty()) return;
  this->heading(heading);
  html_ += "<ul>\n";
  tex_ += "\\begin{itemize}\n";
  for (const std::string& line : lines) {
    html_ += fmt::format("<li>{}</li>\n", xml_escape(line));
    tex_ += fmt::format("\\item {}\n", prose_tex(line));
  }
  html_ += "</ul>\n";
  tex_ += "\\end{itemize}\n";
}

}  // namespace kvscope::papers
