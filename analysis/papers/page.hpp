// Pages of results, as HTML that needs no other file and as LaTeX: style, text, tables, pictures
// and commands.
#pragma once

#include <string>
#include <utility>
#include <vector>

namespace kvscope::papers {

/// A picture that was made. Figures have svg and a PDF for TeX; tables have cells and a .tex file.
struct DrawnPicture {
  std::string svg;       // the file's text
  std::string pdf;       // path relative to the report: "items/quoka-fig-4/needle.pdf"
  std::string tex;       // of a table, relative to the report
  std::string markdown;  // of a table, as kvscope table writes it
  std::string caption;   // what the program says of it: left out rows, intervals
  std::string command;
  std::string failed;    // a sentence if it could not be made
  bool not_run = false;  // for what the system refused
};

enum class Style { plain, bold, italic, code, soft };

/// Words in one style. A line feed begins another line.
struct Span {
  std::string text;
  Style style = Style::plain;
  std::string link = "";  // the id of an entry
  int chip = -1;          // not negative: on a ground of this verdict's colour
};
using Spans = std::vector<Span>;

struct PageColumn {
  std::string title;
  double share;  // of the line, in LaTeX
};

/// A page of results: everything is said once and written in both ways. All texts are plain.
class Page {
 public:
  /// `writer`: the program that makes it.
  Page(const std::string& title, const std::string& writer);
  void heading(const std::string& text);
  void paragraph(const Spans& spans);
  /// A framed part with its name, where it is from, and its verdict; until end_entry().
  void begin_entry(const std::string& id, const std::string& title, const std::string& where,
                   const Span& verdict);
  void end_entry();
  void terms(const std::vector<std::pair<std::string, Spans>>& terms);
  void table(const std::vector<PageColumn>& columns, const std::vector<std::vector<Spans>>& rows);
  void picture(const DrawnPicture& picture);
  /// `summary`: what they can be folded under; empty: they cannot.
  void commands(const std::vector<std::string>& commands, const std::string& summary = "",
                bool is_open = false);
  /// Nothing at all of no lines.
  void list(const std::string& heading, const std::vector<std::string>& lines);

  std::string html() const { return html_ + "</body></html>\n"; }
  std::string tex() const { return tex_ + "\\end{document}\n"; }

 private:
  std::string html_;
  std::string tex_;
  int n_pictures_ = 0;
};

}  // namespace kvscope::papers
