// Figures from results with known numbers.
#include <set>
#include <tuple>

#include "analysis/figures/selection.hpp"
#include "analysis/plot/theme.hpp"
#include "core/selectors/registry.hpp"
#include "core/trace/result.hpp"
#include "tests/analysis/figures/drawn.hpp"
#include "tests/support/test.hpp"

namespace kvscope::kinds_test {

const std::string kSweepHead =
    "trace,phase,selector,budget_kind,layer,q_head,budget,dense,window,mass_mean,recall10,"
    "output_error_rel,bytes\n";

/// Two methods, two budgets, layers 0 and 1 with two heads; quest leaves layer 0 dense.
std::string sweep_csv_text() {
  std::string csv = kSweepHead;
  for (int layer : {0, 1}) {
    for (int head : {-1, 0, 1}) {
      for (int budget : {32, 64}) {
        for (const std::string selector : {"quest", "oracle-topk"}) {
          const bool dense = selector == "quest" && layer == 0;
          const double mass =
              dense ? 1.0 : (selector == "quest" ? 0.5 : 0.6) + 0.1 * head + budget / 640.0;
          csv += "a,prefill," + selector + ",tokens," + std::to_string(layer) + "," +
                 (head < 0 ? std::string() : std::to_string(head)) + "," + std::to_string(budget) +
                 "," + (dense ? "1" : "0") + ",0," + std::to_string(mass) + ",0.5,0.1," +
                 std::to_string(budget * 100) + "\n";
        }
      }
    }
  }
  return csv;
}

TEST_CASE("budget curves are means over the heads of layers that are sparse for all") {
  const MemoryResult result = testing::result_of(sweep_csv_text(), "sweep");
  const plot::Figure figure = testing::drawn(result, "budget");
  REQUIRE(figure.panels.size() == 3);
  const plot::Line& quest = testing::line_named(figure.panels[0], "quest");
  CHECK(quest.x == std::vector<double>{32, 64});
  CHECK(quest.y[0] == Approx(0.5 + 0.05 + 0.05));  // heads 0 and 1 of layer 1
  CHECK(quest.y[1] == Approx(0.5 + 0.05 + 0.1));
  const plot::Line& oracle = testing::line_named(figure.panels[0], "oracle-topk");
  CHECK(oracle.tone.role == plot::Role::reference);
  CHECK(oracle.y[0] == Approx(0.7));  // layer 0 does not count, though it is sparse for the oracle
  CHECK(quest.low.empty());  // heads are no sample: without recorded intervals there is no band
  CHECK_HAS(testing::caption_of(figure), "none are recorded for mass, recall10", "n = 2");
  FigureOptions options{.metric = "recall10", .band = BandKind::range};
  CHECK(testing::drawn(result, "budget", options).panels.size() == 1);
  CHECK(testing::line_named(testing::drawn(result, "bytes").panels[0], "quest").x[0] ==
        Approx(3200.0));
}

TEST_CASE("coverage by head masks what is dense") {
  const MemoryResult result = testing::result_of(sweep_csv_text(), "sweep");
  FigureOptions options{.selector = "quest", .budget = "64"};
  const plot::Figure figure = testing::drawn(result, "coverage-heads", options);
  const auto& map = std::get<plot::HeatMap>(figure.panels[0].marks[0]);
  REQUIRE(map.values.size() == 4);
  CHECK(std::isnan(map.values[0]));
  CHECK(map.values[3] == Approx(0.7));
}

TEST_CASE("a budget beyond the context leaves no layer out") {
  // Everything fits at 64: the method answers "all of it" there, which is not a dense layer.
  std::string csv = kSweepHead;
  for (int head : {0, 1}) {
    for (int budget : {32, 64}) {
      csv += "a,prefill,tova,tokens,0," + std::to_string(head) + "," + std::to_string(budget) +
             (budget == 64 ? ",1,0,1.0" : ",0,0,0.5") + ",0.5,0.1,3200\n";
    }
  }
  const plot::Figure figure = testing::drawn(testing::result_of(csv, "sweep"), "budget");
  const auto& line = std::get<plot::Line>(figure.panels[0].marks[0]);
  CHECK(line.x == std::vector<double>{32.0, 64.0});
  CHECK(line.y == std::vector<double>{0.5, 1.0});
}

TEST_CASE("needle, perplexity and latency are made from plain tables") {
  const MemoryResult needle = testing::result_of(
      "selector,budget,length,depth,accuracy\nquoka,64,1024,0,1\nquoka,64,1024,1,0.5\n"
      "quoka,64,2048,0,0\nquoka,64,1024,0,0\n");
  const plot::Figure grid = testing::drawn(needle, "needle");
  const auto& map = std::get<plot::HeatMap>(grid.panels[0].marks[0]);
  CHECK(map.values[0] == 0.5F);  // two prompts averaged
  CHECK(std::isnan(map.values[3]));
  const MemoryResult ppl =
      testing::result_of("selector,position,log_perplexity\nfull,1,0\nfull,2,1\n");
  CHECK(testing::line_named(testing::drawn(ppl, "perplexity").panels[0], "full").y[1] ==
        Approx(std::exp(1.0)));
  const MemoryResult times = testing::result_of(
      "selector,length,seconds\nfull,1024,0.002\nquest,1024,0.001\nfull,2048,0.004\nquest,2048,0."
      "001\n");
  CHECK(testing::line_named(testing::drawn(times, "latency").panels[1], "quest").y ==
        std::vector<double>{2.0, 4.0});
}

TEST_CASE("rows at one place become their mean, and the caption says what it is over") {
  const auto drawn = [](const std::string& csv, const char* kind) {
    return testing::drawn(testing::result_of(csv), kind);
  };
  const plot::Figure times = drawn(
      "selector,length,seconds,batch\nfull,1024,1,1\nquest,1024,.5,1\nfull,1024,9,4\n", "latency");
  CHECK(testing::line_named(times.panels[1], "quest").y == std::vector<double>{2.0});
  CHECK_HAS(testing::caption_of(times), "1 of 2 places are left out for all");
  const plot::Figure loss = drawn(
      "selector,position,log_perplexity,text\nfull,1,0,a\nfull,2,0,a\nfull,1,2,b\nfull,2,4,b\n",
      "perplexity");
  CHECK(testing::line_named(loss.panels[0], "full").y[1] == Approx(std::exp(2.0)));
  CHECK_HAS(testing::caption_of(loss), "Means over 2 texts.");
  const plot::Figure needle =
      drawn("selector,length,depth,accuracy,prompts,model\nquest,64,0,1,10,a\nquest,64,0,0,2,b\n",
            "needle");
  CHECK(std::get<plot::HeatMap>(needle.panels[0].marks[0]).values[0] == Approx(10.0 / 12.0));
  CHECK_HAS(testing::caption_of(needle), "Each cell: 12 prompts.", "Means over 2 models.");
}

TEST_CASE("methods are compared where all of them have rows, and over the values that are there") {
  const std::string csv =
      kSweepHead +
      "a,prefill,quest,tokens,1,,32,0,0,.4,,,\nb,prefill,quest,tokens,1,,32,0,0,"
      ".9,,,\na,prefill,h2o,tokens,1,,32,0,0,.5,,,\na,prefill,quest,tokens,1,,64,0,0,.6,,,\n"
      "b,prefill,h2o,tokens,1,,32,0,0,.7,,,\nb,prefill,quest,tokens,1,,64,0,0,,,,\n";
  const plot::Figure figure =
      testing::drawn(testing::result_of(csv, "sweep"), "budget", {.metric = "mass"});
  CHECK(testing::line_named(figure.panels[0], "quest").y == std::vector<double>{0.4, 0.6});
  CHECK_HAS(testing::caption_of(figure), "1 of 2 layers are left out for all");
  const plot::Figure kept = testing::drawn(
      testing::result_of(
          "selector,budget_kind,budget,layer,phase,mass_mean,kept\nquest,tokens,64,1,"
          "decode,.5,40\nquest,tokens,64,2,decode,,200\n"),
      "budget", {.metric = "mass"});
  CHECK(testing::line_named(kept.panels[0], "quest").x == std::vector<double>{40.0});
}

TEST_CASE("what one method lacks is left out for all, and two costs are two points") {
  const auto mass = [](const std::string& csv, const char* method) {
    const plot::Figure figure =
        testing::drawn(testing::result_of(csv), "budget", {.metric = "mass"});
    return testing::line_named(figure.panels[0], method).y;
  };
  CHECK(mass(kSweepHead +
                 "a,decode,quest,tokens,1,0,8,0,0,.4,,,\na,decode,h2o,tokens,1,0,8,0,0,.5,,,\n"
                 "a,decode,h2o,tokens,1,1,8,0,0,.9,,,\n",
             "h2o") == std::vector<double>{0.5});
  CHECK(mass("selector,budget_kind,budget,match,layer,phase,mass_mean,kept\n"
             "bigbird,none,,density=0.1,1,decode,.4,8\nbigbird,none,,density=0.2,1,decode,.6,16\n",
             "bigbird") == std::vector<double>{0.4, 0.6});
  const std::string all = "selector,budget_kind,budget,match,layer,phase,mass_mean,kept\n";
  CHECK(
      mass(all + "quest,tokens,8,,1,decode,1,4\nquest,tokens,9,,1,decode,1,4\n", "quest").size() ==
      2);  // budgets that both keep everything
  CHECK(mass(all + "quest,tokens,8,a,1,decode,1,4\nquest,tokens,8,b,1,decode,1,4\n", "quest")
            .size() == 1);
  const auto loss = testing::result_of(
      "selector,position,log_perplexity,text\nfull,1,0,a\nquest,1,0,a\nquest,1,2,b\n");
  CHECK(testing::line_named(testing::drawn(loss, "perplexity").panels[0], "quest").y ==
        std::vector<double>{1.0});
}

TEST_CASE("every method has a look of its own, the same in every figure") {
  const plot::Theme theme = plot::make_theme(plot::Venue::icml, plot::Ground::light);
  std::set<std::tuple<int, int, int, int, int>> looks;
  for (const SelectorEntry& entry : selector_registry().entries()) {
    INFO(entry.name);
    if (entry.name == "full" || entry.name == "ceiling" || entry.name.starts_with("oracle")) {
      const figures::MethodTones tones({"quest", entry.name});
      CHECK(tones.of(entry.name).role == plot::Role::reference);
      continue;
    }
    const std::optional<int> slot = figures::method_slot(entry.name);
    REQUIRE(slot);  // a new method takes a slot in analysis/figures/selection.cpp
    const auto style = theme.style_of({plot::Role::series, *slot});
    CHECK(looks
              .insert({style.colour.r, style.colour.g, style.colour.b,
                       static_cast<int>(style.marker), static_cast<int>(style.dash)})
              .second);
    for (const auto& [preset, options] : entry.presets) CHECK(figures::method_slot(preset) == slot);
    // alone, in any place, with options
    const figures::MethodTones tones({"quest", entry.name + ":a=1", "oracle-topk"});
    if (*slot % 12 != 1) CHECK(tones.of(entry.name + ":a=1").slot == *slot);
  }
  const figures::MethodTones two({"vattention", "quest-paper", "quest:page-size=4"});
  CHECK(two.of("quest-paper").slot == 1);  // also behind another of its colour
  CHECK(two.of("vattention").slot % 12 != 1);
  CHECK(two.of("quest:page-size=4").slot % 12 != 1);
}

TEST_CASE("a method beyond the oracle has its reason in the caption") {
  const std::string head =
      "trace,phase,selector,budget_kind,layer,q_head,budget,dense,window,kept,mass_mean,bytes\n";
  const std::string oracle = "a,prefill,oracle-topk,tokens,1,0,16,0,0,248,0.538,100\n";
  FigureOptions options{.metric = "mass", .x = "budget"};
  const plot::Figure beyond = testing::drawn(
      testing::result_of(head + oracle + "a,prefill,quoka,tokens,1,0,16,0,0,308,0.563,100\n",
                         "sweep"),
      "budget", options);
  CHECK(beyond.panels[0].title.empty());
  CHECK_HAS(testing::caption_of(beyond),
            "\nAt budget 16 QuoKA is above the oracle: 308 keys to its 248.\n", "keep more keys");
  const plot::Figure below = testing::drawn(
      testing::result_of(head + oracle + "a,prefill,quoka,tokens,1,0,16,0,0,308,0.5,100\n",
                         "sweep"),
      "budget", options);
  CHECK_THAT(testing::caption_of(below), !has("above the oracle"));
  // heads beside each other: every panel says its keys, where one is beyond
  FigureOptions at_budget{.budget = "16"};
  const plot::Figure heads = testing::drawn(
      testing::result_of(head + oracle + "a,prefill,quoka,tokens,1,0,16,0,0,308,0.563,100\n",
                         "sweep"),
      "coverage-heads", at_budget);
  REQUIRE(heads.panels.size() == 2);
  CHECK_HAS(heads.panels[0].title, "248 keys per query");
  CHECK_HAS(heads.panels[1].title, "308 keys per query");
  const plot::Figure usual = testing::drawn(
      testing::result_of(head + oracle + "a,prefill,quoka,tokens,1,0,16,0,0,308,0.5,100\n",
                         "sweep"),
      "coverage-heads", at_budget);
  CHECK_THAT(usual.panels[1].title, !has("keys per query"));
}

TEST_CASE("closed loops: an oracle below a method says why in the caption") {
  const std::string head = "selector,budget_kind,budget,length,depth,accuracy,kept\n";
  const std::string oracle = "oracle-topk,tokens,128,2048,0.5,0.5,128\n";
  const plot::Figure more = testing::drawn(
      testing::result_of(head + oracle + "quoka,tokens,128,2048,0.5,1,210\n", "table"), "needle");
  CHECK_THAT(more.panels[0].title, !has("above"));
  CHECK_HAS(testing::caption_of(more), "\nQuoKA is above the oracle: 210 keys to its 128.\n",
            "no bound on answers");
  const plot::Figure same = testing::drawn(
      testing::result_of(head + oracle + "quoka,tokens,128,2048,0.5,1,128\n", "table"), "needle");
  CHECK_HAS(testing::caption_of(same), "QuoKA is above the oracle: it ranks weights, not answers");
  const plot::Figure other =  // of another budget
      testing::drawn(
          testing::result_of(head + oracle + "quoka,tokens,512,2048,0.5,1,512\n", "table"),
          "needle");
  CHECK_THAT(testing::caption_of(other), !has("above"));

  const std::string loss = "selector,budget_kind,budget,position,log_perplexity,kept\n";
  const std::string curve = "oracle-topk,tokens,64,1,3,64\noracle-topk,tokens,64,2,3,64\n";
  const auto caption = [&](const char* rows) {
    return testing::caption_of(
        testing::drawn(testing::result_of(loss + curve + rows, "table"), "perplexity"));
  };
  CHECK_HAS(caption("quest,tokens,64,1,2,80\nquest,tokens,64,2,2.5,80\n"),
            "\nQuest is below the oracle");
  CHECK_THAT(caption("quest,tokens,64,1,2,80\nquest,tokens,64,2,3.5,80\n"), !has("the oracle"));
}

TEST_CASE("needle: a depth is a share, and a mean says of how many cells") {
  const std::string head = "selector,budget,length,depth,accuracy\n";
  CHECK_SAYS(testing::drawn(testing::result_of(head + "quoka,64,1024,50,1\n"), "needle"),
             "from 0 to 1", "found 50");
  const plot::Figure figure = testing::drawn(
      testing::result_of(head + "quoka,64,1024,0,1\nquoka,64,1024,0.5,0.5\nquoka,64,2048,0,1\n"),
      "needle");
  CHECK_HAS(figure.panels[0].title, "mean 83% over 3 of 4 cells");
}

TEST_CASE("latency: what is plotted, attention apart, ratios as they were taken") {
  const std::string csv =
      "selector,budget,length,repeat,seconds,seconds_low,seconds_high,ttft_seconds,"
      "attention_seconds,selection_seconds,ttft_ratio,ttft_ratio_low,ttft_ratio_high,attention_"
      "ratio\n"
      "full,,1024,3,2,1.9,2.1,2,1,0,1,1,1,1\n"
      "quoka,128,1024,3,1,0.9,1.1,1,0.2,0.1,1.9,1.7,2.2,3.2\n";
  const plot::Figure figure = testing::drawn(testing::result_of(csv), "latency");
  REQUIRE(figure.panels.size() == 4);
  CHECK(figure.panels[0].y.label == "Time to the first token (ms)");
  CHECK(testing::line_named(figure.panels[1], "quoka").y[0] == Approx(300.0));
  const plot::Line& ratio = testing::line_named(figure.panels[2], "quoka");
  CHECK(ratio.y[0] == Approx(1.9));  // the median of ratios, not 2 / 1
  CHECK(ratio.high[0] == Approx(2.2));
  CHECK(testing::line_named(figure.panels[3], "quoka").y[0] == Approx(3.2));
  CHECK_HAS(testing::caption_of(figure), "n = 3 turns");
  const plot::Figure plain = testing::drawn(
      testing::result_of("selector,length,seconds\nfull,1024,2\nquest,1024,1\n"), "latency");
  CHECK(plain.panels.size() == 2);
  CHECK_HAS(plain.caption.front(), "column seconds of the table");
}

}  // namespace kvscope::kinds_test
