// The papers' tables from their own figures, and what LaTeX and Markdown make of a table.
#include <cstdlib>
#include <fstream>
#include <sstream>

#include "analysis/base/read_table.hpp"
#include "analysis/figures/selection.hpp"
#include "notebooks_export/latex_table.hpp"
#include "notebooks_export/markdown_table.hpp"
#include "notebooks_export/table_presets.hpp"
#include "tests/support/test.hpp"

namespace kvscope::table_layouts_test {

PaperTable preset_table(const std::string& name, const std::string& csv) {
  const TablePreset* preset = find_table_preset(name);
  REQUIRE(preset != nullptr);
  TableSpec spec = preset->spec;
  spec.names = figures::method_names();
  return make_paper_table(table_from_csv(csv, "test.csv"), spec);
}

/// QuoKA, table 1: two models, two lengths, three methods.
constexpr const char* kRuler =
    "model,selector,length,accuracy\n"
    "Llama-3.2-3B,snapkv,4096,0.2915\nLlama-3.2-3B,snapkv,32768,0.0621\n"
    "Llama-3.2-3B,sparq,4096,0.7936\nLlama-3.2-3B,sparq,32768,0.3114\n"
    "Llama-3.2-3B,quoka,4096,0.8671\nLlama-3.2-3B,quoka,32768,0.5701\n"
    "Qwen_3-4B,snapkv,4096,0.2729\nQwen_3-4B,snapkv,32768,0.1007\n"
    "Qwen_3-4B,sparq,4096,0.8793\nQwen_3-4B,sparq,32768,0.3520\n"
    "Qwen_3-4B,quoka,4096,0.9373\nQwen_3-4B,quoka,32768,0.7483\n";

/// Cells of one LaTeX row, a \multicolumn counted by its width.
int n_cells(const std::string& line) {
  int n = 1;
  for (std::size_t i = 0; i < line.size(); ++i)
    n += line[i] == '&' && (i == 0 || line[i - 1] != '\\');
  for (std::size_t at = 0; (at = line.find("\\multicolumn{", at)) != std::string::npos; ++at)
    n += std::atoi(line.c_str() + at + 13) - 1;
  return n;
}

/// Braces balance, environments close in order, every row is as wide as the column list.
void check_latex(const std::string& latex) {
  INFO(latex);
  int depth = 0;
  for (std::size_t i = 0; i < latex.size(); ++i) {
    if (i > 0 && latex[i - 1] == '\\') continue;
    depth += latex[i] == '{' ? 1 : latex[i] == '}' ? -1 : 0;
    REQUIRE(depth >= 0);
  }
  CHECK(depth == 0);
  const std::size_t begin = latex.find("\\begin{tabular}{");
  REQUIRE(begin != std::string::npos);
  const std::size_t columns = begin + 16;
  const auto width = static_cast<int>(latex.find('}', columns) - columns);
  std::istringstream lines(latex.substr(columns));
  int n_rows = 0;
  for (std::string line; std::getline(lines, line);) {
    if (!line.ends_with("\\\\")) continue;
    ++n_rows;
    CHECK(n_cells(line) == width);
  }
  CHECK(n_rows >= 2);
  for (const char* rule : {"\\toprule", "\\midrule", "\\bottomrule"}) CHECK_HAS(latex, rule);
}

TEST_CASE("QuoKA's table 1: models above lengths, the best bold, the second underlined") {
  const PaperTable table = preset_table("quoka-1", kRuler);
  const std::string latex = latex_table(table);
  check_latex(latex);
  CHECK_HAS(latex,
            "\\multicolumn{2}{c}{Llama-3.2-3B} & \\multicolumn{2}{c}{Qwen\\_3-4B} \\\\\n"
            "    \\cmidrule(lr){2-3} \\cmidrule(lr){4-5}\n"
            "    Method & 4k & 32k & 4k & 32k \\\\",
            "SnapKV & 29.15 & 6.21 & 27.29 & 10.07 \\\\",
            "QuoKA & \\textbf{86.71} & \\textbf{57.01} & \\textbf{93.73} & \\textbf{74.83} \\\\",
            "SparQ & \\underline{79.36}");
}

TEST_CASE("QuoKA's table 2: full attention and a share, model by model") {
  const std::string latex =
      latex_table(preset_table("quoka-2",
                               "model,selector,budget_kind,budget,length,accuracy\nA,full,none,,"
                               "4096,0.875\nA,quoka,ratio,0.25,4096,0.8694\n"
                               "A,full,none,,8192,0.8133\nA,quoka,ratio,0.25,8192,0.7972\nB,full,"
                               "none,,4096,0.8956\nB,quoka,ratio,0.25,4096,0.8607\n"));
  check_latex(latex);
  CHECK_HAS(latex, "Model & Budget & 4096 & 8192 \\\\",
            "A & Full attention & 87.50 & 81.33 \\\\\n     & QuoKA (25\\%) & 86.94 & 79.72 \\\\\n"
            "    \\midrule\n    B & Full attention & 89.56 & -- \\\\");
  CHECK_THAT(latex, !has("textbf"));  // one method has no rival
}

TEST_CASE("SpecAttn's table 1: perplexity, its difference and increase, KV reduction") {
  const PaperTable table = preset_table(
      "specattn-1",
      "selector,budget_kind,budget,perplexity,kv_reduction\nfull,none,,6.435,0\nstreamingllm,"
      "tokens,464,186.242,0.774\n"
      "quest,tokens,464,7.823,0.774\nspecattn,p,0.95,7.419,0.784\nspecattn,p,0.99,6.471,0.443\n");
  const std::string latex = latex_table(table);
  check_latex(latex);
  CHECK_HAS(latex, "Method & Perplexity & Perp. Diff. & Rel. Increase & KV Reduction \\\\",
            "Full attention & 6.435 & -- & -- & 0.0\\% \\\\",
            "186.242 & $+$179.807 & $+$2794.20\\% & 77.4\\% \\\\",
            "SpecAttn (p = 0.99) & \\textbf{6.471} & \\textbf{$+$0.036} "
            "& \\textbf{$+$0.56\\%} & 44.3\\%");
}

TEST_CASE("hostile names and negative numbers survive every format") {
  TableSpec spec{.rows = {"selector"},
                 .values = {{"x", Derive::none, "a|b_c", Better::higher,
                             NumberFormat{1, false, false, false}}},
                 .spread = Spread::sd};
  const PaperTable table = make_paper_table(
      table_from_csv("selector,x\n\"a,|_%{\",-1\n\"a,|_%{\",-2\nb,3\n", "t"), spec);
  check_latex(latex_table(table));
  check_latex(latex_table(table, {.floating = false}));
  CHECK_HAS(latex_table(table),
            "a,\\textbar{}\\_\\%\\{ & \\underline{$-$1.5} {\\scriptsize $\\pm$ 0.7}");
  CHECK_HAS(markdown_table(table), "| a,\\|\\_%{");
  CHECK(csv_table(table) == "Method,a|b_c\n\"a,|_%{\",-1.5\nb,3\n");
}

TEST_CASE("pdflatex takes the tables, where there is one") {
  if (std::system("command -v pdflatex > /dev/null 2>&1") != 0) SKIP("pdflatex is not installed");
  const testing::TempDir dir;
  std::ofstream(dir.path() / "t.tex")
      << "\\documentclass{article}\\usepackage{booktabs}\\begin{document}\n"
      << latex_table(preset_table("quoka-1", kRuler)) << "\\end{document}\n";
  const std::string command = "cd '" + dir.path().string() +
                              "' && pdflatex -interaction=nonstopmode -halt-on-error t.tex > log";
  CHECK(std::system(command.c_str()) == 0);
}

}  // namespace kvscope::table_layouts_test
