// Panels by columns of a table, and curves of tables without heads: layers, and closed loops.
#include "tests/analysis/figures/drawn.hpp"
#include "tests/support/test.hpp"

namespace kvscope::panels_by_test {

/// "kmeans-like" names would share colours; here two models have different methods.
const std::string kRuns =
    "model,text,selector,budget_kind,budget,kept,relative_increase,relative_increase_low,"
    "relative_increase_high\n"
    "a,x,quest,tokens,16,20,0.5,0.4,0.6\n"
    "a,x,quest,tokens,32,40,0.2,0.1,0.3\n"
    "a,x,h2o,tokens,16,16,0.7,0.6,0.8\n"
    "b,x,h2o,tokens,16,16,0.9,0.8,1.0\n"
    "b,x,streamingllm,tokens,16,18,0.8,0.7,0.9\n";

const std::string kLayers =
    "selector,budget_kind,budget,phase,layer,dense,window,kept,mass_mean,mass_low,mass_high\n"
    "quest,tokens,16,prefill,0,0,0,20,0.5,0.4,0.6\n"
    "quest,tokens,16,prefill,1,0,0,30,0.7,0.65,0.75\n"
    "quest,tokens,16,prefill,2,0,64,30,0.1,0.05,0.15\n";

TEST_CASE("a panel for each value of some columns, in which a method looks the same", "[figures]") {
  FigureOptions options{.metric = "relative_increase", .panels = "model,text"};
  const plot::Figure figure = testing::drawn(testing::result_of(kRuns), "budget", options);
  REQUIRE(figure.panels.size() == 2);
  CHECK(figure.panels[0].title == "a, x");
  CHECK(figure.panels[1].title == "b, x");
  const plot::Line& quest = testing::line_named(figure.panels[0], "quest");
  CHECK(quest.x == std::vector<double>{20.0, 40.0});
  CHECK(quest.of == std::vector<std::size_t>{0, 1});  // rows of the table
  CHECK(quest.low == std::vector<double>{0.4, 0.1});
  CHECK(testing::line_named(figure.panels[0], "h2o").tone ==
        testing::line_named(figure.panels[1], "h2o").tone);
  CHECK_HAS(testing::caption_of(figure), "the difference to full attention");

  options.panels = "model,letter";
  CHECK_THROWS_AS(testing::drawn(testing::result_of(kRuns), "budget", options), ConfigError);
  options.panels = "model";
  options.selector = "quest";  // of which b has no row
  CHECK_SAYS(testing::drawn(testing::result_of(kRuns), "budget", options), "quest");
  std::string many = kRuns.substr(0, kRuns.find('\n') + 1);
  for (int i = 0; i < 65; ++i) many += std::to_string(i) + ",x,quest,tokens,16,20,0.5,0.4,0.6\n";
  options.selector.clear();
  CHECK_SAYS(testing::drawn(testing::result_of(many), "budget", options), "65 values of model");
}

TEST_CASE("a table without heads is drawn by its layers, with the intervals of layers",
          "[figures]") {
  FigureOptions options{.metric = "mass"};
  const plot::Figure figure = testing::drawn(testing::result_of(kLayers), "budget", options);
  const plot::Line& quest = testing::line_named(figure.panels.at(0), "quest");
  REQUIRE(quest.x.size() == 1);
  CHECK(quest.x[0] == Approx(25.0));
  CHECK(quest.y[0] == Approx(0.6));
  CHECK(quest.low[0] == Approx(0.525));
  CHECK(quest.high[0] == Approx(0.675));
  CHECK_HAS(testing::caption_of(figure), "layers (over traces)",
            "Sliding-window layers are left out");
}

}  // namespace kvscope::panels_by_test
