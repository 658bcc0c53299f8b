// What figures draw, from small results whose numbers can be counted.
#include "analysis/base/analysis.hpp"
#include "analysis/figures/selection.hpp"
#include "core/trace/result.hpp"
#include "tests/analysis/figures/drawn.hpp"
#include "tests/support/test.hpp"

namespace kvscope::data_kinds_test {

using testing::begin_result;
using testing::drawn;
using testing::mark_of;
using testing::put;
using testing::result_of;

TEST_CASE("nucleus-size: shares of rows by size, medians of heads by layer") {
  MemoryResult result;
  begin_result(result, "coverage");
  write_axis(result, "layer", std::vector<Index>{5}, "1", "layer");
  write_axis(result, "q_head", std::vector<Index>{0, 1}, "1", "query head");
  write_axis(result, "bin", std::vector<Index>{1, 2, 4}, "token", "smallest size");
  put(result, "p", {1}, {"p"}, std::vector<double>{0.9});
  put(result, "nucleus_counts", {1, 2, 1, 3}, {"layer", "q_head", "p", "bin"},
      std::vector<std::int64_t>{1, 2, 1, 0, 4, 2});
  put(result, "nucleus_p50", {1, 2, 1}, {"layer", "q_head", "p"}, std::vector<double>{2.0, 6.0});
  const plot::Figure figure = drawn(result, "nucleus-size");
  REQUIRE(figure.panels.size() == 2);
  // 1 row of size 1, 6 of 2 to 3, 3 of 4 to 7
  const auto& shares = mark_of<plot::Line>(figure.panels[0]);
  CHECK(shares.x == std::vector<double>{1.0, 3.0, 7.0});
  REQUIRE(shares.y.size() == 3);
  CHECK(shares.y[0] == Approx(0.1));
  CHECK(shares.y[1] == Approx(0.7));
  CHECK(shares.y[2] == Approx(1.0));
  const auto& medians = mark_of<plot::Line>(figure.panels[1]);
  CHECK(medians.x == std::vector<double>{5.0});
  CHECK(medians.y[0] == Approx(4.0));
  CHECK(medians.low[0] == Approx(3.0));
  CHECK(medians.high[0] == Approx(5.0));
  CHECK_HAS(figure.caption[0], "Rows: n = 10 of all");
}

TEST_CASE("pareto: dots with intervals, the front through the best, dense as a line") {
  const Table rows = table_from_csv(
      "selector,budget_kind,budget,"
      "relative_increase,relative_increase_low,relative_increase_high\n"
      "quest,tokens,64,0.05,0.045,0.06\n"
      "quest,tokens,256,0.02,0.015,0.03\n"
      "quoka,tokens,256,0.06,0.055,0.07\n"
      "oracle-topk,tokens,256,0.001,-0.005,0.005\n"
      "full,none,,0,0,0\n",
      "ppl.csv");
  const Table times = table_from_csv(
      "selector,budget_kind,budget,"
      "hardware,phase,context,batch,predicted_us,predicted_dense_us\n"
      "quest,tokens,64,h200,decode,4096,1,2,9\n"
      "quest,tokens,256,h200,decode,4096,1,4,9\n"
      "quoka,tokens,256,h200,decode,4096,1,5,9\n"
      "oracle-topk,tokens,256,h200,decode,4096,1,1,9\n"
      "quest,tokens,64,a6000,decode,4096,1,20,90\n",
      "cost.json");
  MemoryResult loss, cost;
  table_to_result(rows, {.kind = "simulate-perplexity"}, loss);
  table_to_result(times, {.kind = "cost"}, cost);
  const auto pareto = [&](const FigureOptions& options) {
    return make_figure(find_figure_kind("pareto"), {{&loss, &cost}, options});
  };
  const plot::Figure figure = pareto({});
  REQUIRE(figure.panels.size() == 2);
  const plot::Panel& panel = figure.panels[0];
  CHECK(panel.title == "h200, decode of 4096 tokens");
  CHECK(panel.y.label == "Increase of perplexity");
  CHECK(mark_of<plot::Rule>(panel).at == 9.0);
  const auto& front = mark_of<plot::Line>(panel);
  CHECK(front.x == std::vector<double>{2.0, 4.0, 9.0});
  CHECK(front.y == std::vector<double>{0.05, 0.02, 0.0});
  CHECK_HAS(testing::caption_of(figure), "the fastest that surely loses at most 1 % is full",
            "Without a time: ");
  CHECK_SAYS(pareto({.selector = "snapkv"}), "there is no \"snapkv\"");
  CHECK_SAYS(pareto({.metric = "mass"}), "found relative_increase");
  CHECK_SAYS(drawn(loss, "pareto"), "has no predicted times");

  // Layers that one method leaves dense count for none; what a mean is over is said.
  std::string layers =
      "phase,selector,budget_kind,budget,layer,q_head,dense,window,mass_mean,mass_low,mass_high,"
      "predicted_us,predicted_dense_us\n";
  layers += "decode,quest,tokens,32,0,,1,0,1,1,1,9,9\ndecode,quest,tokens,32,1,,0,0,.5,.4,.6,4,9\n";
  layers +=
      "decode,tova,tokens,32,0,,0,0,.1,.1,.1,3,9\ndecode,tova,tokens,32,1,,0,0,.7,.6,.8,3,9\n";
  const plot::Figure of_layers = drawn(result_of(layers, "sweep"), "pareto");
  CHECK(mark_of<plot::Line>(of_layers.panels[0], 1).y[0] == Approx(0.5));
  CHECK_HAS(testing::caption_of(of_layers), "leaves dense are left out for all");
  const std::string loops =
      "selector,budget_kind,budget,kept,protocol,accuracy,accuracy_low,accuracy_high\n"
      "quest,tokens,64,64,decode,.5,.4,.6\nquest,tokens,64,64,prefill,1,.9,1\n";
  CHECK_HAS(testing::caption_of(drawn(result_of(loops), "budget", {.metric = "accuracy"})),
            "Means over 2 protocols.");
}

TEST_CASE("curves along measured keys, bytes or the nominal budget") {
  const std::string csv =
      "trace,phase,selector,budget_kind,layer,q_head,budget,dense,window,kept,mass_mean,bytes\n"
      "t,prefill,full,none,0,0,,0,0,500,1,9000\n"
      "t,prefill,oracle-topk,tokens,0,0,64,0,0,64,0.5,1000\n"
      "t,prefill,oracle-topk,tokens,0,0,256,0,0,256,0.7,4000\n"
      "t,prefill,quoka,tokens,0,0,64,0,0,128,0.55,2000\n"
      "t,prefill,oracle-topp,p,0,0,0.8,0,0,100,0.8,1500\n"
      "t,prefill,twilight,p,0,0,0.8,0,0,256,0.8,1500\n";
  const MemoryResult result = result_of(csv, "sweep");
  FigureOptions options{.metric = "mass"};
  const auto x_of = [&](const std::string& figure_name, const std::string& axis,
                        const std::string& label) {
    options.x = axis;
    const plot::Figure figure = drawn(result, figure_name, options);
    for (const plot::Mark& mark : figure.panels[0].marks) {
      const auto* line = std::get_if<plot::Line>(&mark);
      if (line != nullptr && line->label == figures::method_label(label))
        return std::pair(line->x.front(), testing::caption_of(figure));
    }
    return std::pair(-1.0, testing::caption_of(figure));
  };
  CHECK(x_of("budget", "", "quoka").first == Approx(128.0));
  // A rule: it has no place among keys that are saved.
  CHECK(x_of("budget", "", "full").first == -1.0);
  CHECK(x_of("budget", "budget", "quoka").first == Approx(64.0));
  CHECK(x_of("budget", "bytes", "quoka").first == Approx(2000.0));
  CHECK(x_of("bytes", "", "quoka").first == Approx(2000.0));
  CHECK(x_of("bytes", "keys", "twilight").first == Approx(256.0));
  // quoka's 0.55 beats the oracle's 0.5 at the nominal 64, not its 0.6 at 128 keys; twilight's 0.8
  // does beat 0.7 at 256
  CHECK_HAS(x_of("budget", "budget", "quoka").second,
            "\nAt budget 64 QuoKA is above the oracle: 128 keys to its 64.\n");
  CHECK_HAS(x_of("budget", "", "quoka").second,
            "At 256 keys Twilight is above the oracle: it gives some rows more keys.");
  // along bytes: 0.55 at 2000 where the oracle's line has 0.6; twilight's 0.8 at 1500 where
  // it has 0.56
  CHECK_HAS(x_of("bytes", "", "quoka").second,
            "At 1.46 KiB Twilight is above the oracle, which reads every key to choose.");
  CHECK_THROWS_AS(x_of("budget", "tokens", "quoka"), ConfigError);
}

}  // namespace kvscope::data_kinds_test
