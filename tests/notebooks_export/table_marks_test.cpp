// What tables mark and say: headings by whole names, one rank per quantity, prompts that count.
#include <fmt/format.h>

#include "analysis/base/read_table.hpp"
#include "notebooks_export/latex_table.hpp"
#include "notebooks_export/markdown_table.hpp"
#include "notebooks_export/paper_table.hpp"
#include "notebooks_export/table_presets.hpp"
#include "tests/support/test.hpp"

namespace kvscope::table_marks_test {

using Texts = std::vector<std::string>;

PaperTable made(const char* csv, Texts rows, Texts columns, const Texts& values) {
  TableSpec spec{.rows = std::move(rows), .columns = std::move(columns)};
  for (const std::string& value : values) spec.values.push_back({value, Derive::none, "", {}, {}});
  return make_paper_table(table_from_csv(csv, "test.csv"), spec);
}

std::string marked(const PaperRow& row) {
  std::string text;
  for (const PaperCell& cell : row.cells)
    text += cell.mark == CellMark::best ? 'b' : cell.mark == CellMark::second ? 's' : '.';
  return text;
}

TEST_CASE("the slowest method is not the best by its speedup over dense attention") {
  const PaperTable table =
      made("selector,length,ttft_ratio\nfull,1024,1\nquoka,1024,1.17\nstreamingllm,1024,0.54\n",
           {"selector"}, {"length"}, {"ttft_ratio"});
  CHECK(marked(table.rows[1]) == "b");
  CHECK(marked(table.rows[2]) == "s");
  CHECK(table.caption == "TTFT speedup over dense by length (higher is better).");
}

TEST_CASE("a quantity is ranked once, in whatever forms it is shown") {
  const TablePreset* preset = find_table_preset("specattn-1");
  REQUIRE(preset != nullptr);
  const PaperTable table = make_paper_table(
      table_from_csv("selector,budget_kind,budget,perplexity,kv_reduction\nfull,none,,24.6450,0\n"
                     "specattn,p,0.95,24.6470,0.3\nspecattn,p,0.97,24.6461,0.2\n"
                     "specattn,p,0.99,24.6452,0.1\nquest,tokens,128,25.4,0.6\n",
                     "test.csv"),
      preset->spec);
  // 24.647, 24.646, 24.645: differences of .002, .001, .000; increases of 0.01, 0.00 and 0.00 %
  CHECK(table.rows[2].cells[2].text == table.rows[3].cells[2].text);
  CHECK(marked(table.rows[1]) == "...s");
  CHECK(marked(table.rows[2]) == "sss.");
  CHECK(marked(table.rows[3]) == "bbb.");
  CHECK(marked(table.rows[4]) == "...b");
}

TEST_CASE("nothing is marked where all tie, and nothing second where all others tie") {
  const PaperTable table = made(
      "selector,budget,accuracy\na,1,0\nb,1,0\nc,1,0\na,2,0.5\nb,2,0\nc,2,0\na,3,0.5\nb,3,0\n"
      "c,3,0.1\n",
      {"selector"}, {"budget"}, {"accuracy"});
  CHECK(marked(table.rows[0]) == ".bb");
  CHECK(marked(table.rows[1]) == "...");
  CHECK(marked(table.rows[2]) == "..s");
}

/// A sweep at one cost that vattention missed; random is a control, full has no budget setting.
constexpr const char* kEqualCost =
    "selector,budget_kind,budget,match,knob,match_note,match_reached,layer,q_head,window,density,"
    "mass_mean\n"
    "full,none,,density=0.05,,no budget setting: it takes no budget,1,2,,0,1,1\n"
    "vattention,none,,density=0.05,epsilon=1,not reached: the least is 0.194,0.194,2,,0,0.194,0.851"
    "\n"
    "loki,ratio,0.0412,density=0.05,ratio=0.0412,,0.05,2,,0,0.05,0.753\n"
    "quest,ratio,0.0319,density=0.05,ratio=0.0319,,0.0501,2,,0,0.0501,0.741\n"
    "random,ratio,0.04,density=0.05,ratio=0.04,,0.05,2,,0,0.05,0.9\n"
    "oracle-topk,ratio,0.05,density=0.05,ratio=0.05,,0.05,2,,0,0.05,0.77\n";

TEST_CASE("at equal cost rows are methods, and what missed the cost has a dagger and no mark") {
  const PaperTable table = made(kEqualCost, {"selector"}, {}, {"mass_mean", "density"});
  REQUIRE(table.rows.size() == 6);
  CHECK(table.caption == "Methods at equal cost (density=0.05).");
  const auto row = [&](const std::string& name) -> const PaperRow& {
    for (const PaperRow& one : table.rows) {
      if (one.keys[0] == name) return one;
    }
    FAIL("no row " << name);
    return table.rows[0];
  };
  CHECK(marked(row("loki")) == "b.");  // the cost itself is not ranked
  CHECK(marked(row("quest")) == "s.");
  CHECK(marked(row("vattention")) == "..");
  CHECK(row("vattention").cells[0].missed_cost);
  CHECK_FALSE(row("loki").cells[0].missed_cost);
  CHECK_FALSE(row("full").cells[0].missed_cost);
  CHECK(marked(row("random")) == "..");
  CHECK(row("random").role == RowRole::control);
  CHECK(table.rows[4].keys[0] == "random");  // after the methods, before the oracles
  CHECK_HAS(table.note,
            "† Another cost than density=0.05, hence not marked: vattention "
            "(0.194; not reached: the least is 0.194).");
  CHECK_HAS(markdown_table(table), "0.851†");
  CHECK_HAS(latex_table(table), "0.851$^\\dagger$", "$\\dagger$ Another cost");
  CHECK_HAS(latex_table(table, {.wide = true, .size = "small"}),
            "\\begin{table*}[t]\n  \\centering\n  \\small\n", "\\end{table*}");
  const PaperTable one = made(kEqualCost, {"selector"}, {}, {"mass_mean"});
  CHECK_HAS(one.caption, "at equal cost (density=0.05; higher is better).");
}

TEST_CASE("two costs stand side by side, and are not averaged") {
  std::string csv = kEqualCost;
  csv +=
      "loki,ratio,0.09,density=0.1,ratio=0.09,,0.1,2,,0,0.1,0.85\n"
      "quest,ratio,0.08,density=0.1,ratio=0.08,,0.1,2,,0,0.1,0.86\n";
  CHECK_SAYS(made(csv.c_str(), {"selector"}, {}, {"mass_mean"}),
             "differ in match (density=0.05 to density=0.1)");
  const PaperTable table = made(csv.c_str(), {"selector"}, {"match"}, {"mass_mean"});
  REQUIRE(table.header[0] == Texts{"density=0.05", "density=0.1"});
  CHECK(table.level_titles[0] == "Cost");
  CHECK(table.rows[0].keys[0] == "full");
  CHECK(table.rows[0].cells[1].text == table.rows[0].cells[0].text);  // it has no budget setting
  TableSpec spec{.rows = {"selector"},
                 .values = {{"mass_mean", Derive::none, "", {}, {}}},
                 .where = {{"match", "density=0.1"}}};
  const PaperTable chosen = make_paper_table(table_from_csv(csv, "t.csv"), spec);
  CHECK(chosen.rows.size() == 3);  // full, loki, quest
  CHECK_HAS(chosen.caption, "(density=0.1; higher");
}

TEST_CASE("a closed loop's cells may cost a little more or less than all of them") {
  const PaperTable table = made(
      "selector,match,knob,match_note,match_reached,length,accuracy\n"
      "quest,density=0.1,pages=4,below by 2 %,0.098,512,0.5\n"
      "quest,density=0.1,pages=4,above by 2 %,0.102,1024,0.7\n"
      "loki,density=0.1,ratio=0.3,above by 100 %,0.2,512,0.9\n"
      "loki,density=0.1,ratio=0.3,above by 100 %,0.2,1024,0.9\n",
      {"selector"}, {"length"}, {"accuracy"});
  CHECK_FALSE(table.rows[0].cells[0].missed_cost);
  CHECK(table.rows[1].cells[0].missed_cost);
  CHECK(marked(table.rows[1]) == "..");
}

constexpr const char* kRulerKinds =
    "model,task,selector,budget_kind,kind,dense_solves,budget,length,accuracy\n"
    "m,ruler,full,none,passkey,yes,,512,1\nm,ruler,full,none,passkey,yes,,1024,1\n"
    "m,ruler,quoka,ratio,passkey,yes,0.25,512,0.8\nm,ruler,quoka,ratio,passkey,yes,0.25,1024,0.6\n"
    "m,ruler,full,none,multi_key,yes,,512,1\nm,ruler,full,none,multi_key,no,,1024,0.2\n"
    "m,ruler,quoka,ratio,multi_key,yes,0.25,512,0.6\nm,ruler,quoka,ratio,multi_key,no,0.25,1024,0\n"
    "m,ruler,full,none,common_words,no,,512,0\nm,ruler,full,none,common_words,no,,1024,0\n"
    "m,ruler,quoka,ratio,common_words,no,0.25,512,0\n"
    "m,ruler,quoka,ratio,common_words,no,0.25,1024,0\n";

TEST_CASE("tables of prompts leave out what the dense model does not answer, and say so") {
  const TablePreset* preset = find_table_preset("quoka-1");
  REQUIRE(preset != nullptr);
  const Table rows = table_from_csv(kRulerKinds, "ruler.csv");
  const PaperTable table = make_paper_table(rows, preset->spec);
  CHECK(table.rows[0].cells[0].text == "100.00");
  CHECK(table.rows[0].cells[1].text == "100.00");
  CHECK(table.rows[1].cells[0].text == "70.00");
  CHECK(table.rows[1].cells[1].text == "60.00");
  CHECK_HAS(table.note,
            "Prompts that the dense model does not answer are left "
            "out: common_words (512, 1024); multi_key (1024).",
            "Means over 2 kinds (multi_key, passkey).");

  // asked for by name, everything is shown
  TableSpec by_kind = preset->spec;
  by_kind.columns = {"kind", "length"};
  CHECK(make_paper_table(rows, by_kind).header.front().size() == 6);
  TableSpec one = preset->spec;
  one.where = {{"kind", "common_words"}};
  CHECK(make_paper_table(rows, one).rows[0].cells[0].text == "0.00");
  TableSpec none = preset->spec;
  none.where = {{"length", "1024"}, {"accuracy", "0"}};
  CHECK_THROWS_AS(make_paper_table(rows, none), ConfigError);
}

TEST_CASE("nothing is marked that a gate doubts, and the note names the gates") {
  const char* csv =
      "selector,length,accuracy,doubt\nfull,1024,1,\nquest,1024,0.9,too-few-trials\n"
      "quoka,1024,0.8,too-few-trials\nsnapkv,1024,0.2,\nfull,2048,1,\nquest,2048,0.7,\n"
      "quoka,2048,0.9,\nsnapkv,2048,0.1,sparse-above-dense+saturated\n";
  const PaperTable table = made(csv, {"selector"}, {"length"}, {"accuracy"});
  CHECK(marked(table.rows[1]) == ".s");
  CHECK(marked(table.rows[2]) == ".b");
  CHECK(marked(table.rows[3]) == "..");
  CHECK_HAS(table.note,
            "Not marked, since gates doubt it: saturated (1 row of the "
            "result), sparse-above-dense (1 row of the result), "
            "too-few-trials (2 rows of the result).");
}

TEST_CASE("results under two protocols are not averaged") {
  const char* csv = "selector,length,accuracy,protocol\nfull,1024,1,all\nfull,1024,1,decode\n";
  CHECK_SAYS(made(csv, {"selector"}, {"length"}, {"accuracy"}), "the rows differ in protocol");
  CHECK(made(csv, {"selector"}, {"protocol"}, {"accuracy"}).header[0] == Texts{"all", "decode"});
}

TEST_CASE("a label that says selector and budget stands for both") {
  constexpr const char* csv =
      "method,selector,budget,length,seconds\ndense,full,,1024,2\n"
      "quoka tokens=512,quoka,512,1024,1\nquoka tokens=256,quoka,256,1024,0.5\n";
  const PaperTable table = made(csv, {"method"}, {"length"}, {"seconds"});
  CHECK(table.rows.size() == 3);
  CHECK(made(csv, {"selector+budget"}, {"length"}, {"seconds"}).rows.size() == 3);
  CHECK_THROWS_AS(made(csv, {"selector"}, {"length"}, {"seconds"}), ConfigError);
}

TEST_CASE("nothing is marked where the interval of the best holds the second, shown or not") {
  constexpr const char* csv =
      "selector,turn,ttft_ratio,ttft_ratio_low,ttft_ratio_high\n"
      "full,1,1,,\n"
      "quoka,1,1.12,0.84,1.38\nquest,1,1.05,1.00,1.09\nsnapkv,1,0.70,0.65,0.75\n"
      "quoka,2,1.12,1.10,1.14\nquest,2,1.05,0.98,1.09\nsnapkv,2,1.01,0.95,1.02\n"
      "tova,2,0.5,0.4,0.6\n"
      "quoka,3,1.12,0.84,1.38\nquest,3,1.05,1.00,1.09\n"
      "quoka,4,1.12,,\nquest,4,1.05,,\n";
  const PaperTable table = made(csv, {"selector"}, {"turn"}, {"ttft_ratio"});
  CHECK(marked(table.rows[1]) == ".b.b");  // quoka
  CHECK(marked(table.rows[2]) == "...s");  // in turn 2 quest's interval holds snapkv
  CHECK(marked(table.rows[3]) == "....");
  CHECK(marked(table.rows[4]) == "....");
  CHECK(table.note == "No mark where the recorded interval of the best holds another.");
  const PaperTable plain = made("selector,turn,ttft_ratio\nquoka,1,1.12\nquest,1,1.05\n",
                                {"selector"}, {"turn"}, {"ttft_ratio"});
  CHECK(marked(plain.rows[0]) == "b");
  CHECK(plain.note.empty());
}

TEST_CASE("marks follow paired differences, where the result holds what its rows are means of") {
  // Two hard prompts make every level unsure; quoka is better than quest on each but one.
  constexpr const char* csv =
      "selector,length,accuracy,accuracy_low,accuracy_high\n"
      "full,512,1,,\nquoka,512,0.8,0.5,0.95\nquest,512,0.5,0.25,0.75\nsnapkv,512,0.45,0.2,0.7\n";
  const std::vector<double> quoka{1, 1, 1, 1, 1, 1, 1, 1, 0, 0};
  const std::vector<double> quest{1, 1, 1, 1, 1, 0, 0, 0, 0, 0};
  const auto made_with = [&](std::vector<double> of_quoka, std::vector<double> of_snapkv) {
    Table table = table_from_csv(csv, "test.csv");
    std::vector<std::vector<double>> values(4);
    const auto repeated = [](const std::vector<double>& of) {
      std::vector<double> all;
      for (int i = 0; i < 4; ++i) all.insert(all.end(), of.begin(), of.end());
      return all;
    };
    values[0] = std::vector<double>(40, 1.0);
    values[1] = repeated(of_quoka);
    values[2] = repeated(quest);
    values[3] = repeated(of_snapkv);
    table.set_units({"accuracy", values});
    TableSpec spec{.rows = {"selector"},
                   .columns = {"length"},
                   .values = {{"accuracy", Derive::none, "", {}, {}}}};
    return make_paper_table(table, spec);
  };
  // snapkv: as many as quest but one in ten, and other prompts
  const PaperTable apart = made_with(quoka, {0, 0, 0, 0.5, 1, 1, 1, 1, 0, 0});
  CHECK(marked(apart.rows[1]) == "b");
  CHECK(marked(apart.rows[2]) == ".");
  CHECK_HAS(apart.note,
            "Bold: apart from every other value by the 95 % interval "
            "of the paired difference over prompts; underlined");
  // the same two levels on different prompts are not told apart
  const PaperTable together = made_with({0, 0, 0, 1, 1, 1, 1, 1, 1, 0}, quest);
  CHECK(marked(together.rows[1]) == ".");
  CHECK_HAS(together.note, "No mark where the first two cannot be told apart.");
  Table table = table_from_csv(csv, "test.csv");
  CHECK_THROWS_AS(table.set_units({"accuracy", {}}), ShapeError);
  table.set_units({"accuracy", std::vector<std::vector<double>>(4, quest)});
  table.append(table_from_csv(csv, "test.csv"));
  REQUIRE(table.units() != nullptr);
  CHECK(table.units()->values.size() == 8);
  CHECK(table.units()->values[7].empty());
}

TEST_CASE("a method that keeps every key is not the best of those that choose") {
  const PaperTable table = made(
      "selector,budget,layer,q_head,window,density,mass_mean\nthink,64,0,,0,1,1\n"
      "quest,64,0,,0,0.1,0.8\nquoka,64,0,,0,0.1,0.9\n",
      {"selector"}, {"budget"}, {"mass_mean"});
  CHECK(marked(table.rows[0]) == ".");
  CHECK(marked(table.rows[2]) == "b");
  CHECK_HAS(table.note, "Not marked, since it keeps every key: think.");
  // as wide as it is: one column of a page, or two
  CHECK_HAS(latex_table(table), "\\begin{table}[t]");
  std::string csv = "selector,length,accuracy\n";
  for (int length = 1024; length <= 16384; length += 1024)
    csv += fmt::format("quest,{0},0.5\nquoka,{0},0.6\n", length);
  const PaperTable wide = made(csv.c_str(), {"selector"}, {"length"}, {"accuracy"});
  CHECK_HAS(latex_table(wide), "\\begin{table*}[t]");
  CHECK_HAS(latex_table(wide, {.wide = false}), "\\begin{table}[t]");
  CHECK(latex_width(wide, "tiny") < latex_width(wide, "normalsize"));
}

TEST_CASE("methods of a sweep are compared over the heads of its layers") {
  std::string csv = "selector,budget,layer,q_head,window,mass_mean\n";
  for (const auto& [name, gain] : {std::pair("quest", 0.0), std::pair("quoka", 0.02)}) {
    for (int layer = 0; layer < 2; ++layer) {
      csv += fmt::format("{},64,{},,0,{}\n", name, layer, 0.5 + 0.2 * layer + gain);
      for (int head = 0; head < 4; ++head)
        csv += fmt::format("{},64,{},{},0,{}\n", name, layer, head,
                           0.2 + 0.2 * layer + 0.2 * head + gain * (0.5 + 0.3 * head));
    }
  }
  const PaperTable table = made(csv.c_str(), {"selector"}, {"budget"}, {"mass_mean"});
  CHECK(table.rows[1].keys[0] == "quoka");
  CHECK(marked(table.rows[1]) == "b");
  CHECK_HAS(table.note, "paired difference over heads");
}

TEST_CASE("a note says what all rows agree in and no field shows, and how much was measured") {
  constexpr const char* csv =
      "model,task,selector,budget_kind,budget,n_tokens,scored_tokens,perplexity\n"
      "verifier,perplexity,full,none,,48,43,32.8\nverifier,perplexity,quest,tokens,16,48,43,33\n"
      "verifier,perplexity,quoka,tokens,16,48,40,34\n";
  const auto note = [&](const Texts& rows, const Texts& columns) {
    return made(csv, rows, columns, {"perplexity"}).note;
  };
  CHECK(note({"selector"}, {}) ==
        "Of verifier, task perplexity, 48 tokens, budget tokens=16; n = 40 to 43 scored tokens.");
  CHECK(note({"model", "selector"}, {"budget"}) ==
        "Of task perplexity, 48 tokens; n = 40 to 43 scored tokens.");
}

}  // namespace kvscope::table_marks_test
