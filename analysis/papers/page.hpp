// What pages of results have in common, as HTML that needs no other file and as LaTeX: the style,
// pictures, tables and commands.
#pragma once

#include <string>
#include <vector>

namespace kvscope::papers {

/// A picture that was made. Figures have svg and a PDF for TeX; tables have cells and a .tex file.
struct DrawnPicture {
  std::string svg;  // the file's text
  std::string pdf;  // path relative to the report: "items/quoka-fig-4/needle.pdf"
  std::string tex;  // of a table, relative to the report
  std::vector<std::vector<std::string>> cells;  // of a table, the header first
  std::string caption;  // what the program says of it: left out rows, intervals
  std::string command;
  std::string failed;    // a sentence if it could not be made
  bool not_run = false;  // for what the system refused
};

/// The page up to its first heading; `title` is plain text.
std::string page_begin(const std::string& title);
/// The picture, its table and its caption; `prefix` tells its ids from those of others.
std::string picture_html(const DrawnPicture& picture, const std::string& prefix);
/// Cells with the header first; a cell may have the marks of Markdown (** and <u>).
std::string grid_html(const std::vector<std::vector<std::string>>& cells);
/// `svg` as part of a page: without the XML declaration, its ids prefixed so that those of
/// two pictures differ.
std::string inline_svg(const std::string& svg, const std::string& prefix);

/// A LaTeX document up to its title.
std::string tex_preamble();
std::string picture_tex(const DrawnPicture& picture);
/// A command in typewriter letters that may break after blanks, commas and slashes.
std::string command_tex(const std::string& command);

}  // namespace kvscope::papers
