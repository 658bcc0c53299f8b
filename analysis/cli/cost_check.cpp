#include "analysis/cli/cost_check.hpp"

#include <cmath>
#include <map>

#include "analysis/base/statistics.hpp"
#include "analysis/cli/analyze_report.hpp"
#include "analysis/cli/bench_select_run.hpp"
#include "analysis/cli/cost_check_rows.hpp"
#include "analysis/cli/kit.hpp"
#include "analysis/cli/list_options.hpp"
#include "analysis/cost/measure_machine.hpp"
#include "analysis/options/options.hpp"
#include "core/base/cpu.hpp"
#include "core/base/json_reader.hpp"
#include "core/base/nan.hpp"
#include "core/base/whole_file.hpp"

namespace kvscope::cli {
namespace {

constexpr std::size_t kMostReportBytes = 64u << 20;

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
    row.with_rate = row.predicted() * known->measured() / known->predicted();
  }
}

Json number_or_null(double value) {
  return std::isnan(value) ? Json(nullptr) : Json(value);
}

double relative_error(double predicted, double measured) {
  return predicted / measured - 1.0;
}

}  // namespace

std::vector<std::string> default_check_methods() {
  return {"quest", "quoka", "sparq", "snapkv", "keydiff", "loki", "h2o", "streamingllm"};
}

Json cost_check(const CheckOptions& options, const ProgressFn& progress,
                const std::stop_token& stop) {
  if (options.hardware.size() > 1)
    throw UsageError("--check takes one profile of --hardware: this machine's");
  std::optional<HardwareProfile> given;
  if (!options.hardware.empty()) given = find_hardware(options.hardware[0]);
  const auto clock = [&] { return now_by(options.clock); };
  // For reports, whose calls were measured some time before.
  std::map<int, HardwareProfile> machines;  // by threads
  const auto profile_of = [&](int n_threads) -> const HardwareProfile& {
    if (given) return *given;
    if (!machines.contains(n_threads)) {
      ThreadPool pool(n_threads);
      MachineMeter meter(pool, clock);
      meter.measure(progress, stop);
      machines.emplace(n_threads, meter.profile(cpu_name()));
    }
    return machines.at(n_threads);
  };

  std::vector<CheckRow> rows;
  const auto add = [&](const std::vector<CheckRow>& more) {
    rows.insert(rows.end(), more.begin(), more.end());
  };
  Json left_out = Json::array();
  for (const auto& file : options.reports) {
    const nlohmann::json report =
        parse_json(read_whole_file(file, kMostReportBytes), file.string());
    add(rows_of_report(report, file.string(),
                       profile_of(threads_of_report(report, file.string()))));
  }
  if (options.reports.empty()) {
    std::vector<MethodSpec> methods = options.methods;
    if (methods.empty()) methods = selectors_of(default_check_methods());
    const BudgetedMethods chosen = with_budgets(methods, default_bench_budgets());
    left_out = chosen.left_out;
    if (chosen.methods.empty())
      throw UsageError("--selector: nothing is left to measure: {}",
                       fmt::join(chosen.left_out, "; "));
    SelectBenchPlan plan;
    plan.methods = chosen.methods;
    plan.lengths = options.lengths;
    plan.n_repeats = options.n_repeats;
    plan.clock = options.clock;
    std::vector<int> threads = options.threads;
    if (threads.empty() && !given) threads.push_back(1);
    if (threads.empty() || (options.threads.empty() && available_cores() > 1))
      threads.push_back(available_cores());
    for (const int n_threads : threads) {
      ThreadPool pool(n_threads);
      std::optional<MachineMeter> meter;
      if (!given) meter.emplace(pool, clock).measure(progress, stop);
      const std::vector<SelectBenchCase> cases = run_select_bench(plan, {pool, progress, stop});
      // Once more: a machine that was busy before the calls may not be after them.
      if (meter) meter->measure(progress, stop);
      const HardwareProfile hardware = meter ? meter->profile(cpu_name()) : *given;
      add(rows_of_bench(cases, plan, hardware, n_threads));
      // The model's own times are the wall's.
      if (options.live_tokens > 0 && options.clock == BenchClock::wall)
        add(rows_of_live(chosen.methods, options.live_tokens, options.n_repeats, hardware, pool,
                         progress, stop));
    }
  }
  set_rates(rows);

  std::map<std::string, std::pair<std::vector<double>, std::vector<double>>> by_method;
  std::map<std::string, std::vector<double>> choose_ratios;
  std::map<std::string, std::vector<double>> attend_ratios;
  std::vector<double> errors;
  std::vector<double> errors_with_rates;
  Json json_rows = Json::array();
  for (const CheckRow& row : rows) {
    const double error = relative_error(row.predicted(), row.measured());
    const double with_rate = relative_error(row.with_rate, row.measured());
    json_rows.push_back({{"selector", row.selector},
                         {"phase", row.phase},
                         {"threads", row.n_threads},
                         {"tokens", row.tokens},
                         {"measured_us", 1e6 * row.measured()},
                         {"predicted_us", 1e6 * row.predicted()},
                         {"measured_choose_us", 1e6 * row.measured_choose},
                         {"predicted_choose_us", 1e6 * row.predicted_choose},
                         {"measured_attend_us", 1e6 * row.measured_attend},
                         {"predicted_attend_us", 1e6 * row.predicted_attend},
                         {"error", error},
                         {"error_with_rate", row.gave_rate ? Json(nullptr) : Json(with_rate)}});
    auto& [plain, rated] = by_method[row.selector];
    plain.push_back(std::abs(error));
    const auto ratio = [](double predicted, double measured) {
      return measured > 0.0 ? predicted / measured : kNan;
    };
    choose_ratios[row.selector].push_back(ratio(row.predicted_choose, row.measured_choose));
    attend_ratios[row.selector].push_back(ratio(row.predicted_attend, row.measured_attend));
    errors.push_back(std::abs(error));
    if (row.gave_rate) continue;
    rated.push_back(std::abs(with_rate));
    errors_with_rates.push_back(std::abs(with_rate));
  }
  Json methods = Json::array();
  for (const auto& [selector, both] : by_method) {
    methods.push_back(
        {{"selector", selector},
         {"calls", both.first.size()},
         {"median_error", quantile(both.first, 0.5)},
         {"choose_over_measured", number_or_null(quantile(choose_ratios[selector], 0.5))},
         {"attend_over_measured", number_or_null(quantile(attend_ratios[selector], 0.5))},
         {"median_error_with_rate",
          both.second.empty() ? Json(nullptr) : Json(quantile(both.second, 0.5))}});
  }
  return {{"kind", "cost-check"},
          {"cpu", cpu_name()},
          {"clock", std::string(enum_name(options.clock))},
          {"left_out", left_out},
          {"median_error", quantile(errors, 0.5)},
          {"median_error_with_rates",
           errors_with_rates.empty() ? Json(nullptr) : Json(quantile(errors_with_rates, 0.5))},
          {"methods", methods},
          {"rows", json_rows}};
}

std::string describe_check(const Json& report) {
  TextTable table(
      {"selector", "calls", "median error", "with a rate of its own", "choosing", "attending"});
  for (const Json& row : report.at("methods")) {
    table.add_row(
        {row.at("selector").get<std::string>(), std::to_string(row.at("calls").get<int>()),
         percent_cell(row, "median_error"), percent_cell(row, "median_error_with_rate"),
         number_cell(row, "choose_over_measured", 3), number_cell(row, "attend_over_measured", 3)});
  }
  return fmt::format(
      "{}\nmedian error {} of choosing and attending together on {}. With a rate of its own: a "
      "method's measured over predicted time in its shortest call on the fewest threads, applied "
      "to its other calls: {}. Choosing, attending: predicted over measured, medians.\n",
      table.text(), percent_cell(report, "median_error"), report.at("cpu").get<std::string>(),
      percent_cell(report, "median_error_with_rates"));
}

}  // namespace kvscope::cli
