// Paper tables: grouping, ranks, references, spreads, and what is refused.
#include "notebooks_export/paper_table.hpp"

#include "analysis/base/read_table.hpp"
#include "tests/support/test.hpp"

namespace kvscope::paper_table_test {

using Texts = std::vector<std::string>;

TableSpec spec_of(Texts rows, Texts columns, const std::string& value) {
  TableSpec spec{.rows = std::move(rows), .columns = std::move(columns)};
  spec.values.push_back({value, Derive::none, "", {}, {}});
  return spec;
}

PaperTable table_of(const char* csv, const TableSpec& spec) {
  return make_paper_table(table_from_csv(csv, "test.csv"), spec);
}

Texts row_names(const PaperTable& table) {
  Texts names;
  for (const PaperRow& row : table.rows) names.push_back(row.keys.back());
  return names;
}

/// "b" best, "s" second, "." neither: one character per cell.
std::string marks(const PaperRow& row) {
  std::string text;
  for (const PaperCell& cell : row.cells)
    text += cell.mark == CellMark::best ? 'b' : cell.mark == CellMark::second ? 's' : '.';
  return text;
}

constexpr const char* kSweep =
    "selector,budget_kind,budget,mass_mean,output_error\n"
    "full,none,,1,0\n"
    "a,tokens,128,0.90,0.10\n"
    "a,tokens,64,0.80,0.30\n"
    "b,tokens,64,0.85,0.20\n"
    "b,tokens,128,0.9004,0.05\n"
    "c,tokens,64,0.10,0.9\n"
    "oracle-topk,tokens,64,0.95,0.01\n"
    "oracle-topk,tokens,128,0.99,0.01\n";

TEST_CASE("rows are methods, columns budgets in order; full first, oracles last, both unranked") {
  const PaperTable table = table_of(kSweep, spec_of({"selector"}, {"budget"}, "mass_mean"));
  CHECK(row_names(table) == Texts{"full", "a", "b", "c", "oracle-topk"});
  CHECK(table.header == std::vector<Texts>{{"64", "128"}});
  CHECK(table.row_heads == Texts{"Method"});
  CHECK(table.rows[0].cells[0].text == "1.000");  // no budget: the same in every column
  CHECK(table.rows[0].cells[1].text == "1.000");
  CHECK(table.rows[3].cells[1].text == "-");
  CHECK(marks(table.rows[0]) == "..");
  CHECK(marks(table.rows[1]) == "s.");  // 0.80 behind 0.85; 0.900 and 0.9004 show the same, and
  CHECK(marks(table.rows[2]) == "b.");  // nothing is best where all tie
  CHECK(marks(table.rows[3]) == "..");
  CHECK(marks(table.rows[4]) == "..");
  CHECK(table.note.empty());
  CHECK(table.caption == "Attention kept by budget (higher is better).");
}

TEST_CASE("errors rank the other way, and a caller may turn any metric round") {
  TableSpec spec = spec_of({"selector"}, {"budget"}, "output_error");
  CHECK(marks(table_of(kSweep, spec).rows[2]) == "bb");
  CHECK(marks(table_of(kSweep, spec).rows[1]) == "ss");
  spec.values[0].better = Better::higher;
  CHECK(marks(table_of(kSweep, spec).rows[3]) == "b.");
  spec.values[0].better = Better::neither;
  CHECK(marks(table_of(kSweep, spec).rows[3]) == "..");
}

TEST_CASE("methods in columns are ranked along each row") {
  TableSpec spec = spec_of({"budget"}, {"selector"}, "mass_mean");
  spec.where = {{"budget_kind", "tokens"}};
  const PaperTable table = table_of(kSweep, spec);
  CHECK(row_names(table) == Texts{"64", "128"});
  CHECK(table.header.front() == Texts{"a", "b", "c", "oracle-topk"});
  CHECK(marks(table.rows[0]) == "sb..");
  CHECK(marks(table.rows[1]) == "....");
}

TEST_CASE("without methods nothing is ranked") {
  const PaperTable table = table_of("layer,mass\n0,0.5\n1,0.6\n", spec_of({"layer"}, {}, "mass"));
  CHECK(table.header == std::vector<Texts>{{"Attention kept"}});
  CHECK(marks(table.rows[0]) + marks(table.rows[1]) == "..");
}

TEST_CASE("outer row heads make groups with their own best") {
  const PaperTable table =
      table_of("model,selector,accuracy\nx,a,0.9\nx,b,0.8\ny,a,0.1\ny,b,0.3\ny,full,0.9\n",
               spec_of({"model", "selector"}, {}, "accuracy"));
  CHECK(row_names(table) == Texts{"a", "b", "full", "a", "b"});
  CHECK(marks(table.rows[0]) + marks(table.rows[1]) == "bs");
  CHECK(marks(table.rows[2]) + marks(table.rows[3]) + marks(table.rows[4]) == ".sb");
}

TEST_CASE("cells average their rows, leave NaN out, and say how many there were") {
  constexpr const char* csv =
      "selector,layer,mass_mean,mass_low,mass_high\n"
      "a,0,0.2,0.1,0.3\na,1,0.4,0.3,0.5\nb,0,,,\nb,1,0.5,0.4,0.6\n";
  TableSpec spec = spec_of({"selector"}, {}, "mass_mean");
  PaperTable table = table_of(csv, spec);
  CHECK_THAT(table.rows[0].cells[0].value, WithinAbs(0.3, 1e-12));
  CHECK_THAT(table.rows[1].cells[0].value, WithinAbs(0.5, 1e-12));
  CHECK(table.note == "Each cell is the mean of 1 to 2 rows of the result. Means over 2 layers.");
  spec.spread = Spread::sd;
  table = table_of(csv, spec);
  CHECK(table.rows[0].cells[0].spread == "± 0.141");
  CHECK(table.rows[1].cells[0].spread.empty());  // one row has none
  CHECK_HAS(table.note, "standard deviation");
  spec.spread = Spread::range;
  CHECK(table_of(csv, spec).rows[0].cells[0].spread == "[0.200, 0.400]");
  spec.spread = Spread::recorded;
  CHECK(table_of(csv, spec).rows[0].cells[0].spread == "[0.200, 0.400]");
  CHECK(table_of(csv, spec).rows[1].cells[0].spread == "[0.400, 0.600]");
}

TEST_CASE("a sweep's heads and window layers do not count twice") {
  constexpr const char* csv =
      "selector,layer,q_head,window,dense,mass\n"
      "a,0,,0,1,0.5\na,0,0,0,1,0.9\na,1,,1,1,1\na,2,,0,0,0.7\nb,2,,0,0,0.1\n";
  const TableSpec spec = spec_of({"selector"}, {}, "mass");
  const PaperTable table = table_of(csv, spec);
  CHECK_THAT(table.rows[0].cells[0].value, WithinAbs(0.6, 1e-12));
  CHECK_HAS(table.note, "dense count (a: 1 of 2)");
  TableSpec heads = spec_of({"selector"}, {"q_head"}, "mass");
  CHECK_THAT(table_of(csv, heads).rows[0].cells[0].value, WithinAbs(0.9, 1e-12));
  CHECK(table_of(csv, heads).note == "Of layer 0.");  // of the heads' rows alone
}

TEST_CASE("budgets carry their unit; several kinds stand apart; composites and names") {
  TableSpec spec = spec_of({"selector+budget"}, {}, "perplexity");
  spec.names = {{"specattn", "SpecAttn"}, {"quest", "Quest"}};
  const PaperTable table = table_of(
      "selector,budget_kind,budget,perplexity\nspecattn,p,0.95,7.4\nquest:page-size=32,tokens,256,"
      "7.8\n"
      "quest,ratio,0.25,8\nfull,none,,6\n",
      spec);
  CHECK(row_names(table) ==
        Texts{"full", "SpecAttn (p = 0.95)", "Quest (page-size=32) (256)", "Quest (25%)"});
}

TEST_CASE("fields may have alternatives and be optional") {
  TableSpec spec = spec_of({"method|selector"}, {"model|trace?", "length?"}, "score|mass");
  spec.binary_lengths = true;
  const PaperTable table =
      table_of("selector,trace,length,mass\na,t,4096,0.5\na,t,32768,0.6\n", spec);
  CHECK(table.header == std::vector<Texts>{{"4k", "32k"}});  // one trace only: no level for it
}

TEST_CASE("derived values compare with full attention of the same group and column") {
  TableSpec spec = spec_of({"selector"}, {"model"}, "perplexity");
  constexpr const char* csv = "selector,model,perplexity\nfull,x,4\na,x,5\nfull,y,10\na,y,9\n";
  spec.values[0].derive = Derive::difference;
  PaperTable table = table_of(csv, spec);
  CHECK(table.rows[0].cells[0].text == "-");
  CHECK(table.rows[1].cells[0].text == "1.000");
  CHECK(table.rows[1].cells[1].text == "-1.000");
  spec.values[0].derive = Derive::relative;
  CHECK(table_of(csv, spec).rows[1].cells[0].text == "0.250");
  spec.values[0].derive = Derive::ratio;
  table = table_of(csv, spec);
  CHECK(table.rows[0].cells[1].text == "1.000");
  CHECK(table.rows[1].cells[1].text == "0.900");
  spec.where = {{"selector", "a"}};
  CHECK_SAYS_AS(ConfigError, table_of(csv, spec), "needs rows of selector full");
}

TEST_CASE("what cannot be a table is refused in a sentence") {
  const auto refuses = [](const TableSpec& spec, const char* words) {
    CHECK_SAYS_AS(ConfigError, table_of(kSweep, spec), words);
  };
  refuses(spec_of({"selector"}, {"budget"}, "selector"), "holds text, expected numbers");
  refuses(spec_of({"selector"}, {}, "mass_mean"), "differ in budget");
  refuses(spec_of({"budget"}, {}, "mass_mean"), "differ in selector");
  TableSpec recorded = spec_of({"selector"}, {"budget"}, "mass_mean");
  recorded.spread = Spread::recorded;
  refuses(recorded, "expected columns mass_low and mass_high");
  CHECK_THROWS_AS(table_of("selector,x\n", spec_of({"selector"}, {}, "x")), ConfigError);
  std::string large = "row,x\n";
  for (int i = 0; i < 20000; ++i) large += std::to_string(i) + ",1\n";
  CHECK_SAYS_AS(ConfigError, table_of(large.c_str(), spec_of({"row"}, {}, "x")),
                "more than 10000 cells");
}

TEST_CASE("where matches numbers however they are written") {
  TableSpec spec = spec_of({"selector"}, {}, "mass_mean");
  spec.where = {{"budget", "64.0"}};
  CHECK(row_names(table_of(kSweep, spec)) == Texts{"a", "b", "c", "oracle-topk"});
}

}  // namespace kvscope::paper_table_test
