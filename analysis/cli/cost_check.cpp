#include "analysis/cli/cost_check.hpp"

#include <cmath>
#include <map>

#include "analysis/cli/options.hpp"
#include "analysis/cli/papers_runner.hpp"
#include "analysis/cli/text_table.hpp"
#include "analysis/cost/measure_machine.hpp"
#include "analysis/cost/predict.hpp"
#include "analysis/statistics.hpp"
#include "core/base/cpu.hpp"
#include "core/base/error.hpp"
#include "core/base/json_reader.hpp"
#include "core/base/number_text.hpp"
#include "core/base/whole_file.hpp"

namespace kvscope::cli {
namespace {

using Json = nlohmann::ordered_json;

constexpr std::size_t kMostReportBytes = 64u << 20;

nlohmann::json bench_report(const std::string& text, const std::string& where) {
  nlohmann::json json = parse_json(text, where);
  const JsonObject top(json, where);
  if (top.string_if("bench").value_or("") != "select")
    throw FormatError(fmt::format("{}: expected a report of kvscope bench select --json", where));
  top.integer("threads", 1, 1024);
  top.list("cases");
  return json;
}

std::string bench_now(int n_threads, const ProgressFn& progress, const std::stop_token& stop) {
  const CommandOutcome outcome =
      run_inside({"bench", "select", "--tokens", "4096,8192,16384,32768", "--repeat", "3",
                  "--threads", std::to_string(n_threads), "--json"},
                 progress, stop);
  if (stop.stop_requested()) throw Interrupted("cost --check stopped");
  if (outcome.code != 0)
    throw ConfigError(fmt::format("bench select failed: {}", outcome.last_note));
  return outcome.printed;
}

/// The work of a row, as bench select counted it.
LayerWork work_of(const JsonObject& selector, const CallShape& shape) {
  const JsonObject work = selector.object("work");
  const auto number = [&](const char* name) { return work.number(name, 0.0, 1e18); };
  LayerWork out = dense_work(shape);
  out.is_dense = work.boolean_or("is_dense", false);
  out.attend = {number("pairs"), number("keys"), number("runs"), number("rows")};
  out.score_flops = number("score_flops");
  out.score_bytes = number("score_bytes");
  out.ranked = number("ranked");
  out.summaries = number("summaries");
  return out;
}

struct CheckRow {
  std::string selector;
  std::string phase;
  int n_threads = 1;
  double tokens = 0.0;
  double measured = 0.0;
  double predicted = 0.0;
  double with_rate =
      0.0;  // one factor per method and phase, of its shortest call on the fewest threads
  bool gave_rate = false;
};

void add_rows(const nlohmann::json& report, const HardwareProfile& hardware,
              const std::string& where, std::vector<CheckRow>& rows) {
  const JsonObject top(report, where);
  const auto n_threads = static_cast<int>(top.integer("threads", 1, 1024));
  CostSetting setting;
  setting.kv_bytes = top.string_if("kv_dtype").value_or("f32") == "f32" ? 4.0 : 2.0;
  CostSetting of_lists = setting;
  if (hardware.kernels.contains("lists")) of_lists.attend = hardware.kernels.at("lists").value;
  CallShape shape{top.number("n_q", 1, 1e6), top.number("n_kv", 1, 1e6),
                  top.number("d_head", 1, 1e6), 1.0, 1.0};
  for (const auto& one : top.list("cases")) {
    const JsonObject item(one, where, "cases.");
    shape.n_tok = item.number("queries", 1, 1e9);
    shape.n_ctx = item.number("tokens", 1, 1e9);
    const JsonObject dense = item.object("dense");
    CheckRow row{"dense attention",
                 item.string("phase"),
                 n_threads,
                 shape.n_ctx,
                 dense.number("seconds_median", 0.0, 1e9),
                 predict_layer(dense_work(shape), hardware, setting).total()};
    rows.push_back(row);
    for (const auto& entry : item.list("selectors")) {
      const JsonObject selector(entry, where, "selectors.");
      if (selector.find("attend_seconds_median") == nullptr)
        continue;  // chose everything: nothing was attended to
      const LayerWork work = work_of(selector, shape);
      row.selector = selector.string("selector");
      row.measured = selector.number("seconds_median", 0.0, 1e9) +
                     selector.number("attend_seconds_median", 0.0, 1e9);
      row.predicted = predict_layer(work, hardware, of_lists).total();
      rows.push_back(row);
    }
  }
}

void set_rates(std::vector<CheckRow>& rows) {
  std::map<std::pair<std::string, std::string>, const CheckRow*> first;
  for (const CheckRow& row : rows) {
    const CheckRow*& known = first[{row.selector, row.phase}];
    if (known == nullptr ||
        std::pair(row.n_threads, row.tokens) < std::pair(known->n_threads, known->tokens))
      known = &row;
  }
  for (CheckRow& row : rows) {
    const CheckRow* known = first.at({row.selector, row.phase});
    row.gave_rate = known == &row;
    row.with_rate = row.predicted * known->measured / known->predicted;
  }
}

double relative_error(double predicted, double measured) {
  return predicted / measured - 1.0;
}

}  // namespace

nlohmann::ordered_json cost_check(const std::vector<std::string>& hardware,
                                  const std::vector<std::filesystem::path>& reports,
                                  const ProgressFn& progress, const std::stop_token& stop) {
  if (hardware.size() > 1)
    throw UsageError("--check takes one profile of --hardware: this machine's");
  std::vector<std::pair<std::string, nlohmann::json>> measured;
  for (const auto& file : reports)
    measured.emplace_back(file.string(),
                          bench_report(read_whole_file(file, kMostReportBytes), file.string()));
  std::optional<HardwareProfile> given;
  if (!hardware.empty()) given = find_hardware(hardware[0]);
  if (measured.empty()) {
    std::vector<int> threads = {1};
    if (available_cores() > 1) threads.push_back(available_cores());
    for (const int n : threads) {
      const std::string where = fmt::format("bench select with {} threads", n);
      measured.emplace_back(where, bench_report(bench_now(n, progress, stop), where));
    }
  }
  std::map<int, HardwareProfile> machines;  // by threads
  std::vector<CheckRow> rows;
  for (const auto& [where, report] : measured) {
    const int n_threads = report.at("threads").get<int>();
    if (!given && !machines.contains(n_threads)) {
      ThreadPool pool(n_threads);
      machines.emplace(n_threads, measure_machine(pool, cpu_name(), progress, stop));
    }
    add_rows(report, given ? *given : machines.at(n_threads), where, rows);
  }
  set_rates(rows);

  std::map<std::string, std::pair<std::vector<double>, std::vector<double>>> by_method;
  std::vector<double> errors;
  std::vector<double> errors_with_rates;
  Json json_rows = Json::array();
  for (const CheckRow& row : rows) {
    const double error = relative_error(row.predicted, row.measured);
    const double with_rate = relative_error(row.with_rate, row.measured);
    json_rows.push_back({{"selector", row.selector},
                         {"phase", row.phase},
                         {"threads", row.n_threads},
                         {"tokens", row.tokens},
                         {"measured_us", 1e6 * row.measured},
                         {"predicted_us", 1e6 * row.predicted},
                         {"error", error},
                         {"error_with_rate", row.gave_rate ? Json(nullptr) : Json(with_rate)}});
    auto& [plain, rated] = by_method[row.selector];
    plain.push_back(std::abs(error));
    errors.push_back(std::abs(error));
    if (row.gave_rate) continue;
    rated.push_back(std::abs(with_rate));
    errors_with_rates.push_back(std::abs(with_rate));
  }
  Json methods = Json::array();
  for (const auto& [selector, both] : by_method) {
    methods.push_back({{"selector", selector},
                       {"calls", both.first.size()},
                       {"median_error", quantile(both.first, 0.5)},
                       {"median_error_with_rate",
                        both.second.empty() ? Json(nullptr) : Json(quantile(both.second, 0.5))}});
  }
  return {{"kind", "cost-check"},
          {"cpu", cpu_name()},
          {"median_error", quantile(errors, 0.5)},
          {"median_error_with_rates",
           errors_with_rates.empty() ? Json(nullptr) : Json(quantile(errors_with_rates, 0.5))},
          {"methods", methods},
          {"rows", json_rows}};
}

std::string describe_check(const nlohmann::ordered_json& report) {
  TextTable table({"selector", "calls", "median error", "with a rate of its own"});
  const auto share = [](const Json& row, const char* key) {
    return row.at(key).is_number() ? percent_text(row.at(key).get<double>()) : std::string("-");
  };
  for (const Json& row : report.at("methods")) {
    table.add_row({row.at("selector").get<std::string>(),
                   std::to_string(row.at("calls").get<int>()), share(row, "median_error"),
                   share(row, "median_error_with_rate")});
  }
  return fmt::format(
      "{}\nmedian error {} of choosing and attending together on {}. With a rate of its own: a method's measured over "
      "predicted time in its shortest call on the fewest threads, applied to its other calls: {}.\n",
      table.text(), share(report, "median_error"), report.at("cpu").get<std::string>(),
      share(report, "median_error_with_rates"));
}

}  // namespace kvscope::cli
