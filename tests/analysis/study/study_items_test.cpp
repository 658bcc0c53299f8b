// What a study expands to, what its keys depend on, and what is kept of heads.
#include <fstream>
#include <set>

#include "analysis/study/study_items.hpp"
#include "analysis/study/study_table.hpp"
#include "core/base/json.hpp"
#include "tests/support/planted_trace.hpp"
#include "tests/support/test.hpp"

namespace kvscope::test::study_items_test {

constexpr const char* kText = R"(
models = { a = "verifier", b = { model = "draft", draft = "draft" } }
texts = ["book"]
methods = ["quest", "full", "specattn", "xattention", "kascade"]
budgets = [64, "ratio=0.5", "p=0.9"]
protocols = ["chunks", "steps"]
[tasks.sweep]
[tasks.perplexity]
)";

StudyPlan plan_of(const std::string& text, const std::string& hash_a = "A") {
  const TempDir dir;
  std::ofstream(dir.path() / "s.toml") << text;
  StudyInputs inputs{.models = {hash_a, "B"},
                     .drafts = {"C", "C"},
                     .texts = {"T"},
                     .protocols = {"phase", "mode"}};
  return plan_study(read_study_file(dir.path() / "s.toml"), inputs);
}

std::set<std::string> keys_of(const StudyPlan& plan, const std::string& model) {
  std::set<std::string> keys;
  for (const StudyItem& item : plan.items) {
    if (item.model == model) keys.insert(item.key);
  }
  return keys;
}

TEST_CASE("a study asks what makes sense, and says what it leaves out") {
  const StudyPlan plan = plan_of(kText);
  std::size_t n_full = 0;
  std::size_t n_recordings = 0;
  std::set<std::string> keys;
  for (const StudyItem& item : plan.items) {
    keys.insert(item.key);
    n_recordings += item.task == "record" ? 1 : 0;
    n_full += item.method == "full" ? 1 : 0;
    CHECK_FALSE((item.method == "quest" && item.budget == "p=0.9"));
    CHECK_FALSE((item.method == "xattention" && item.protocol == "steps" && item.task == "sweep"));
    CHECK_FALSE((item.method == "kascade" && item.task == "sweep"));
  }
  CHECK(keys.size() == plan.items.size());
  CHECK(n_recordings == 4);    // two of them by drafts, for specattn
  CHECK(n_full == 2 * 2 * 2);  // once for all budgets
  CHECK_FALSE(plan.left_out.empty());
  for (std::size_t j = 0; j < plan.jobs.size(); ++j) {
    for (const std::size_t need : plan.jobs[j].needs) CHECK(need < j);
  }
}

TEST_CASE("keys depend on contents, and on nothing else") {
  const StudyPlan plan = plan_of(kText);
  std::string renamed = kText;
  renamed.replace(renamed.find("a ="), 3, "z =");
  CHECK(keys_of(plan_of(renamed), "z") == keys_of(plan, "a"));
  const StudyPlan retrained = plan_of(kText, "other weights");
  for (const std::string& key : keys_of(retrained, "a"))
    CHECK_FALSE(keys_of(plan, "a").contains(key));
  CHECK(keys_of(retrained, "b") == keys_of(plan, "b"));
  // The same model twice asks the same: it is done once.
  const StudyPlan twice = plan_of(kText, "B");
  const auto jobs = jobs_for(twice, std::vector<bool>(twice.items.size(), true));
  CHECK(2 * jobs.size() == plan.jobs.size());
  CHECK(twice.items.size() > jobs.size());
}

TEST_CASE("what a store keeps of heads gives the paired difference of two methods") {
  StudyItem item{.method = "quest", .budget = "tokens=16"};
  const double mass[] = {0.5, 0.75, 0.8123456};
  Json rows = Json::array();
  for (int head = 0; head < 3; ++head)
    rows.push_back({{"selector", "quest"},
                    {"budget_kind", "tokens"},
                    {"budget", 16},
                    {"q_head", head},
                    {"window", 0},
                    {"mass_mean", mass[head]}});
  rows.push_back(rows[0]);
  rows[3]["q_head"] = nullptr;  // the layer's own
  rows.push_back(rows[0]);
  rows[4]["window"] = 64;
  rows.push_back(rows[0]);
  rows[5]["budget"] = 32;
  rows.push_back(rows[0]);
  rows[6]["dense"] = 1;
  const Json heads = heads_of_item(rows, item);
  CHECK(heads.at("mass_mean") == Json({0.5, 0.75, 0.81235, nullptr}));
  CHECK(heads_of_item(Json::array(), item).is_null());

  const Json other = {{"mass_mean", {0.4, 0.6, 0.8, 0.1}}};
  const auto differences = head_differences(heads, other);
  REQUIRE(differences.size() == 1);
  CHECK(differences[0].column == "mass_difference");
  const double d[] = {0.1, 0.15, 0.01235};
  const double mean = (d[0] + d[1] + d[2]) / 3.0;
  double squares = 0.0;
  for (const double x : d) squares += (x - mean) * (x - mean);
  const double half = 4.30265 * std::sqrt(squares / 2.0 / 3.0);  // Student's t of two degrees
  CHECK(differences[0].mean == Approx(mean));
  CHECK(differences[0].low == Approx(mean - half).epsilon(1e-4));
  CHECK(differences[0].high == Approx(mean + half).epsilon(1e-4));
  CHECK(head_differences(heads, {{"mass_mean", {0.4}}}).empty());  // other heads
  CHECK(head_differences(heads, nullptr).empty());
}

TEST_CASE("a row of a study has the doubts that one method beside dense attention can have") {
  const StudyItem item{.method = "quest", .budget = "tokens=16"};
  Json row = {{"selector", "quest"}, {"budget_kind", "tokens"},
              {"budget", 16},        {"accuracy", 1},
              {"accuracy_low", 0.6}, {"doubt", "saturated+nothing-chosen"}};
  CHECK(rows_of_item(Json::array({row}), item)[0].at("doubt") == "nothing-chosen");
  row["accuracy_low"] = nullptr;
  row["doubt"] = "saturated";
  CHECK(rows_of_item(Json::array({row}), item)[0].at("doubt") == "too-few-trials");
}

}  // namespace kvscope::test::study_items_test
