// Results as tables and figures: what is refused, and free plots.
#include <catch2/catch_approx.hpp>
#include <catch2/catch_test_macros.hpp>
#include <catch2/matchers/catch_matchers_exception.hpp>
#include <catch2/matchers/catch_matchers_string.hpp>
#include <nlohmann/json.hpp>
#include <numeric>

#include "analysis/base/read_table.hpp"
#include "core/base/error.hpp"
#include "core/trace/result.hpp"
#include "gui/model/results/result_figures.hpp"
#include "gui/model/results/result_tables.hpp"

namespace kvscope::gui::test::result_view_test {
namespace {

using Catch::Approx;
using Catch::Matchers::ContainsSubstring;
using Catch::Matchers::MessageMatches;

/// A result that owns what it shows.
class OwnedResult final : public ResultView {
 public:
  explicit OwnedResult(std::string kind, std::string name = "r.h5")
      : view_(result_, std::move(name)) {
    ResultInfo info;
    info.kind = std::move(kind);
    result_.begin(info);
  }
  MemoryResult& result() { return result_; }
  std::string name() const override { return view_.name(); }
  const ResultInfo& info() const override { return view_.info(); }
  const nlohmann::ordered_json& summary() const override { return view_.summary(); }
  const std::vector<ResultArray>& arrays() const override { return view_.arrays(); }
  std::vector<double> read(std::string_view array) const override { return view_.read(array); }

 private:
  MemoryResult result_;
  MemoryResultView view_;
};

std::vector<std::uint32_t> all_rows(const Table& table) {
  std::vector<std::uint32_t> rows(table.n_rows());
  std::iota(rows.begin(), rows.end(), 0U);
  return rows;
}

TEST_CASE("an array too large for a list is refused before it is read") {
  auto owned = std::make_shared<OwnedResult>("big");
  class Huge final : public ResultView {
   public:
    Huge() { arrays_.push_back({"a", ResultType::f64, {1 << 20, 1 << 20}, {"x", "y"}, "1", ""}); }
    std::string name() const override { return "huge.h5"; }
    const ResultInfo& info() const override { return info_; }
    const nlohmann::ordered_json& summary() const override { return summary_; }
    const std::vector<ResultArray>& arrays() const override { return arrays_; }
    std::vector<double> read(std::string_view) const override { throw IoError("it was read"); }

   private:
    ResultInfo info_;
    nlohmann::ordered_json summary_;
    std::vector<ResultArray> arrays_;
  };
  CHECK_THROWS_MATCHES(load_table(Huge(), "a"), ConfigError,
                       MessageMatches(ContainsSubstring("h5py")));
}

TEST_CASE("many points are thinned, and the caption says so; bad choices are sentences") {
  Table table("big.csv");
  std::vector<double> x(300'000);
  std::iota(x.begin(), x.end(), 0.0);
  table.add_numbers("x", x);
  table.add_text("word", "same");
  const auto rows = all_rows(table);
  const plot::Figure plot = free_plot(table, rows, {"x", "x", "", PlotStyle::points});
  const auto& cloud = std::get<plot::Scatter>(plot.panels[0].marks[0]);
  REQUIRE(cloud.of.size() == kMostPlotted);
  CHECK(cloud.of.front() == 0);
  CHECK(cloud.of.back() == 299'999);
  CHECK_THAT(plot.caption.at(1), ContainsSubstring("100000 of them"));
  CHECK_THROWS_MATCHES(free_plot(table, rows, {"x", "word", "", PlotStyle::points}), ConfigError,
                       MessageMatches(ContainsSubstring("no column of numbers")));
  CHECK_THROWS_MATCHES(free_plot(table, rows, {"x", "x", "x", PlotStyle::points}), ConfigError,
                       MessageMatches(ContainsSubstring("different values")));
  CHECK_THROWS_AS(free_plot(table, {}, {"x", "x", ""}), ConfigError);
  const std::vector<std::uint32_t> zero = {0};
  CHECK_THROWS_MATCHES(
      free_plot(table, zero, {"x", "x", "", PlotStyle::points, BandKind::ci, true, false}),
      ConfigError, MessageMatches(ContainsSubstring("logarithmic")));
}

}  // namespace
}  // namespace kvscope::gui::test::result_view_test
