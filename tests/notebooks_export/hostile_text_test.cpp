// Names from hostile files in every format of figures and tables: nothing is obeyed, everything
// stays well-formed.

#include <cctype>
#include <set>
#include <sstream>

#include "analysis/plot/rich_text.hpp"
#include "core/base/utf8.hpp"
#include "notebooks_export/cairo_canvas.hpp"
#include "notebooks_export/figure_export.hpp"
#include "notebooks_export/latex_table.hpp"
#include "notebooks_export/markdown_table.hpp"
#include "tests/support/test.hpp"

namespace kvscope::hostile_text_test {

const std::vector<std::string> kHostile = {
    "$\\^^69^^6e^^70ut{/etc/passwd}$",
    "\\input{/etc/passwd}",
    "$\\write18{id}$ and $",
    "$x_{a$ b} ^^41",
    "$a^b^c_d_e$ $^$ $_$ $^{}$ $_{a_{b}}$",
    "% comment\n\\end{axis}",
    "]} , title={x",
    "a\nb\n\n",
    "[2cm] *",
    "\u202eevil\u202c \u200b \u2066x",
    "emoji 😀 and 中文 and é",
    "\xff\xfe bad \xc0\xaf \xed\xa0\x80",
    "\xef\xbf\xbe\xef\xbf\xbf",
    std::string("nul\0 esc\x1b[31m bell\x07 del\x7f", 24),
    "<script>alert(1)</script>&lt;\"'",
    "]]> <!-- -->",
    "$",
    "$$",
    "^^",
    "~#%&_{}",
    std::string(3000, 'w'),
};

/// Every command of TeX text, and whether braces and dollars pair.
struct TexScan {
  std::set<std::string> commands;
  bool is_balanced = true;
  bool has_hat_hat = false;
};

TexScan scan_tex(const std::string& tex) {
  TexScan scan;
  int depth = 0;
  bool in_math = false;
  for (std::size_t i = 0; i < tex.size(); ++i) {
    if (tex[i] == '\\') {
      std::size_t end = i + 1;
      while (end < tex.size() && std::isalpha(static_cast<unsigned char>(tex[end]))) ++end;
      if (end == i + 1) ++end;
      scan.commands.insert(tex.substr(i, end - i));
      i = end - 1;
    } else if (tex[i] == '{') {
      ++depth;
    } else if (tex[i] == '}') {
      scan.is_balanced = scan.is_balanced && --depth >= 0;
    } else if (tex[i] == '$') {
      in_math = !in_math;
    } else if (tex.compare(i, 2, "^^") == 0) {
      scan.has_hat_hat = true;
    } else if (tex[i] == '%') {  // a comment that nobody meant
      scan.is_balanced = false;
    }
  }
  scan.is_balanced = scan.is_balanced && depth == 0 && !in_math;
  return scan;
}

TEST_CASE("labels become TeX without commands of their own") {
  const std::set<std::string> allowed = {"\\textbackslash",
                                         "\\{",
                                         "\\}",
                                         "\\$",
                                         "\\&",
                                         "\\#",
                                         "\\%",
                                         "\\_",
                                         "\\textasciicircum",
                                         "\\textasciitilde",
                                         "\\textless",
                                         "\\textgreater",
                                         "\\textbar",
                                         "\\backslash",
                                         "\\hat",
                                         "\\sim",
                                         "\\mathrm",
                                         "\\ ",
                                         "\\mbox",
                                         "\\ifdefined",
                                         "\\Umathcode",
                                         "\\else",
                                         "\\fi",
                                         "\\\\"};
  std::vector<std::string> labels = kHostile;
  std::uint32_t state = 7;
  const std::string signs = "$$$^^__{}\\\\ab1 %&#~\n\xff";
  for (int round = 0; round < 5000; ++round) {
    std::string label;
    for (int i = 0; i < 14; ++i) {
      state = state * 1664525 + 1013904223;
      label += signs[(state >> 16) % signs.size()];
    }
    labels.push_back(label);
  }
  for (const std::string& label : labels) {
    for (const std::string& tex : {plot::tex_text(label), plot::tex_lines(label)}) {
      INFO(label << " -> " << tex);
      const TexScan scan = scan_tex(tex);
      CHECK(scan.is_balanced);
      CHECK_FALSE(scan.has_hat_hat);
      for (const std::string& command : scan.commands) {
        INFO(command);
        CHECK(allowed.contains(command));
      }
      CHECK_FALSE(first_invalid_utf8(tex));
      CHECK(tex.find('\n') == std::string::npos);
    }
  }
  CHECK(plot::tex_text("$x_i^2$, $a^b^c$") == "$x_i^2$, $a^b{}^c$");
  CHECK(plot::tex_text("$N_{max}$") == "$N_{\\mathrm{max}}$");
  CHECK(plot::tex_lines("a\n[b]") == "a\\\\{}{[}b{]}");
}

/// TeX without its lines of comment.
std::string without_comments(const std::string& tex) {
  std::istringstream lines(tex);
  std::string out;
  for (std::string line; std::getline(lines, line);) {
    if (!line.starts_with('%')) out += line + "\n";
  }
  return out;
}

plot::Figure figure_with(const std::string& name) {
  plot::Figure figure{.name = "hostile", .title = name, .caption = {name}};
  plot::Panel panel{.title = name,
                    .x = {.label = name, .ticks = {{1.0, name}, {2.0, name}}},
                    .y = {.label = name}};
  plot::Line line{.label = name, .x = {1.0, 2.0}, .y = {0.0, 1.0}};
  panel.marks = {line, plot::Note{name, 0.5, 0.5}};
  panel.legend = plot::LegendPlace::inside;
  figure.panels = {panel};
  return figure;
}

TEST_CASE("figures with hostile names are drawn in every format") {
  using enum FigureFormat;
  for (const std::string& name : kHostile) {
    INFO(name);
    if (name.size() > 1000) {  // refused in a sentence: no room is left for the frame
      CHECK_THROWS_AS(render_figure(figure_with(name), {}, {svg}, "f"), ConfigError);
      continue;
    }
    const auto files = render_figure(figure_with(name), {}, {svg, pdf, png, tex}, "f");
    REQUIRE(files.size() == 5);
    for (const OutputFile& file : files) CHECK(file.bytes.size() > 40);
    const std::string& text = files[0].bytes;
    CHECK_FALSE(first_invalid_utf8(text));
    CHECK(text.find("<script") == std::string::npos);
    for (const char c : text) REQUIRE((static_cast<unsigned char>(c) >= 0x20 || c == '\n'));
    for (const char* sign : {"\xef\xbf\xbe", "\xef\xbf\xbf"})
      CHECK(text.find(sign) == std::string::npos);
    CHECK(files[1].bytes.find("%%EOF") != std::string::npos);
    CHECK_FALSE(first_invalid_utf8(files[3].bytes));
    const std::string tex_file = without_comments(files[3].bytes);
    CHECK(tex_file.find("^^") == std::string::npos);
    CHECK(tex_file.find("\\input{/") == std::string::npos);
    CHECK(tex_file.find("\\write") == std::string::npos);
  }
}

TEST_CASE("a PDF that is not drawn to its end frees what it wrote to last") {
  // Cairo flushes into the bytes when the surface dies; the address sanitizer watches.
  for (int round = 0; round < 3; ++round) {
    const auto canvas = make_pdf_canvas({100.0, 100.0}, "title \xff");
    canvas->fill_rect({1.0, 2.0, 30.0, 40.0}, {});
    canvas->text({5.0, 5.0}, "bytes \xff that are no UTF-8 \xef\xbf\xbe", {});
  }
}

TEST_CASE("tables with hostile names are well-formed in every format") {
  for (const std::string& name : kHostile) {
    INFO(name);
    PaperTable table;
    table.row_heads = {name};
    table.level_titles = {name};
    table.header = {{name, name}};
    table.rows = {{{name}, {{"1", "", CellMark::best, 1.0}, {"-", "", CellMark::none, 0.0}}}};
    table.caption = name;
    table.note = name;
    const std::string latex = latex_table(table);
    const TexScan scan = scan_tex(latex.substr(latex.find('\n') + 1));
    CHECK(scan.is_balanced);
    CHECK_FALSE(scan.has_hat_hat);
    for (const char* command : {"\\input", "\\write", "\\end{axis}"})
      CHECK(scan.commands.count(command) == 0);
    const std::string markdown = markdown_table(table);
    CHECK_FALSE(first_invalid_utf8(markdown));
    CHECK(markdown.find("<script") == std::string::npos);
    // caption, blank, header, rule, one row, blank, note
    CHECK(std::count(markdown.begin(), markdown.end(), '\n') == 7);
  }
}

}  // namespace kvscope::hostile_text_test
