// The ledger of published speeds: its rows as they are built in, its errors by group, faults in it.
#include "analysis/cost/ledger.hpp"

#include <map>

#include "tests/analysis/kit.hpp"

namespace kvscope::ledger_test {

TEST_CASE("ledger: rows name sources, are predicted, and calibrating rows are met") {
  std::set<std::string> ids;
  std::size_t n_headlines = 0;
  for (const LedgerRow& row : ledger_rows()) {
    INFO(row.id);
    CHECK(ids.insert(row.id).second);
    const nlohmann::ordered_json json = ledger_json(row);
    n_headlines += row.headline.empty() ? 0 : 1;
    if (row.role == "untold") {
      CHECK(json["predicted"].is_null());
      continue;
    }
    CHECK(json["predicted"].get<double>() > 0.0);
    if (row.role == "calibrates") CHECK(std::abs(json["error"].get<double>()) < 0.06);
    if (row.role == "bound") CHECK(json["error"].get<double>() < 0.0);
  }
  CHECK(ids.size() > 50);
  CHECK(n_headlines == 9);  // three of them twice, for two assumptions
  const nlohmann::ordered_json report = ledger_report();
  CHECK(report["headlines"].size() == 9);
  std::map<std::string, std::vector<double>> errors;
  for (const auto& row : report["rows"]) {
    CHECK(row["group"].get<std::string>().empty() == (row["role"] != "predicts"));
    if (row["role"] == "predicts")
      errors[row["group"]].push_back(std::abs(row["error"].get<double>()));
  }
  REQUIRE(report["groups"].size() == 4);
  for (const auto& group : report["groups"]) {
    std::vector<double>& of = errors[group["group"]];
    std::ranges::sort(of);
    REQUIRE(of.size() > 3);
    CHECK(group["predicted_rows"] == of.size());
    CHECK(group["median_error"].get<double>() ==
          Approx((of[(of.size() - 1) / 2] + of[of.size() / 2]) / 2.0));
    CHECK(group["within_20_percent"] ==
          std::ranges::count_if(of, [](double e) { return e <= 0.2; }));
  }
}

TEST_CASE("ledger: a row in a group that is not its own is refused") {
  const auto said = [](const char* group, const char* source, const char* note) {
    const auto row = [&](const char* role, const char* of, const char* name) {
      return nlohmann::json{{"id", name},
                            {"source", of},
                            {"figure", "f"},
                            {"role", role},
                            {"published", 2.0},
                            {"hardware", "h200"},
                            {"group", group},
                            {"note", note},
                            {"quantity", "dense_ms"},
                            {"setting", {{"mode", "decode"}}}};
    };
    const nlohmann::json ledger = {
        {"rows", {row("predicts", source, "a"), row("calibrates", "X's table", "b")}}};
    try {
      parse_ledger(ledger.dump(), "my.json");
    } catch (const FormatError& error) {
      return std::string(error.what());
    }
    return std::string();
  };
  CHECK(said("stated", "Y", "") == "");
  CHECK(said("assumed", "Y", "assumed: 8k tokens") == "");
  CHECK(said("calibration", "X's table", "") == "");
  CHECK(said("own", "kvscope, core/cuda/README.md", "") == "");
  CHECK(said("stated", "X's table", "") ==
        "my.json: row a is of group \"stated\": expected calibration");
  CHECK_HAS(said("stated", "Y", "assumed: 8k tokens"), "expected assumed");
  CHECK_HAS(said("own", "Y", ""), "expected stated");
}

TEST_CASE("ledger: a row of InfLLMv2's table by hand") {
  const HardwareProfile card = find_hardware("h100-sxm");
  double flops = 0.0;  // 8 sequences of 32768 tokens, 32 heads of 128
  for (double pos = 0.0; pos < 32768.0; pos += 1.0) flops += 4.0 * 128.0 * 32.0 * (pos + 1.0);
  flops *= 8.0;
  const double rows = card.attend_rows.at(32768.0 * 16.0);
  const double ms = 1e3 * (3e-6 + flops / (0.35 * rows * 989e12));
  for (const LedgerRow& row : ledger_rows()) {
    if (row.id == "infllmv2-dense-32k")
      CHECK(predict_quantity(row.setting, row.quantity, card) == Approx(ms));
  }
}

TEST_CASE("ledger: what would have to be true is solved for") {
  LedgerRow row{.quantity = "attention_speedup",
                .published = 4.0,
                .setting = {.context = 131072, .share = 0.5}};
  const HardwareProfile card = find_hardware("h100-sxm");
  const auto share = needed_value(row, "share", card);
  REQUIRE(share);
  row.setting.share = *share;
  CHECK(predict_quantity(row.setting, row.quantity, card) == Approx(4.0).epsilon(1e-3));
  row.published = 1e6;
  CHECK_FALSE(needed_value(row, "batch", card));
}

}  // namespace kvscope::ledger_test
