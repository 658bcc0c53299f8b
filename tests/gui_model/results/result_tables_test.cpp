// Results as tables: what is refused.
#include <nlohmann/json.hpp>

#include "core/trace/result.hpp"
#include "gui/model/results/result_tables.hpp"

#include "tests/support/test.hpp"

namespace kvscope::gui::test::result_tables_test {
namespace {

TEST_CASE("an array too large for a list is refused before it is read") {
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

}  // namespace
}  // namespace kvscope::gui::test::result_tables_test
