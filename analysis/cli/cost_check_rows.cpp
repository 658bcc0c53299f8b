#include "analysis/cli/cost_check_rows.hpp"

#include "analysis/cli/bench_live_run.hpp"
#include "analysis/cli/kit.hpp"
#include "analysis/cli/model_source.hpp"
#include "analysis/cost/predict.hpp"
#include "analysis/cost/trace_cost.hpp"
#include "core/base/json_reader.hpp"
#include "core/sim/memory_recording.hpp"

namespace kvscope::cli {
namespace {

constexpr Index kLiveChunk = 128;

double least_of(const std::vector<double>& seconds) {
  return *std::ranges::min_element(seconds);
}

/// Attention over lists has a kernel of its own.
CostSetting list_setting(const HardwareProfile& hardware, double kv_bytes) {
  CostSetting setting;
  setting.kv_bytes = kv_bytes;
  if (hardware.kernels.contains("lists")) setting.attend = hardware.kernels.at("lists").value;
  return setting;
}

/// Adds what a call takes by the model.
void predict_into(CheckRow& row, const LayerWork& work, const HardwareProfile& hardware,
                  double kv_bytes) {
  CostSetting setting = list_setting(hardware, kv_bytes);
  if (work.is_dense) setting.attend.reset();
  const StageTimes times = predict_layer(work, hardware, setting);
  const double attend = times.of(CostStage::attend) + times.of(CostStage::estimate);
  row.predicted_attend += attend;
  row.predicted_choose += times.total() - attend;
}

CheckRow dense_row(const std::string& phase, int n_threads, const CallShape& shape, double seconds,
                   const HardwareProfile& hardware, double kv_bytes) {
  CheckRow row{"dense attention", phase, n_threads, shape.n_ctx};
  row.measured_attend = seconds;
  predict_into(row, dense_work(shape), hardware, kv_bytes);
  return row;
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
  if (work.find("counted") == nullptr) return out;  // a report of before 0.1.0
  const JsonObject counted = work.object("counted");
  WorkCounts& counts = out.counts.emplace();
  for (std::size_t i = 0; i < kCountedNames.size(); ++i)
    counts.n[i] = counted.number(std::string(kCountedNames[i]), 0.0, 1e18);
  return out;
}

/// The least of a list of seconds; the median beside it where an older report has no list.
double least_seconds_of(const JsonObject& object, const char* list, const char* median) {
  if (object.find(list) == nullptr) return object.number(median, 0.0, 1e9);
  double least = 1e9;
  for (const auto& one : object.list(list)) {
    if (!one.is_number() || !(one.get<double>() >= 0.0))
      object.refuse(list, "seconds of at least 0");
    least = std::min(least, one.get<double>());
  }
  return least;
}

}  // namespace

std::vector<CheckRow> rows_of_bench(const std::vector<SelectBenchCase>& cases,
                                    const SelectBenchPlan& plan, const HardwareProfile& hardware,
                                    int n_threads) {
  const double kv_bytes = plan.kv_dtype == DType::f32 ? 4.0 : 2.0;
  std::vector<CheckRow> rows;
  for (const SelectBenchCase& one : cases) {
    const CallShape shape{static_cast<double>(plan.shape.n_q), static_cast<double>(plan.shape.n_kv),
                          static_cast<double>(plan.shape.d_head), static_cast<double>(one.n_tok),
                          static_cast<double>(one.n_tokens)};
    const std::string phase(name_of(one.phase));
    rows.push_back(
        dense_row(phase, n_threads, shape, least_of(one.dense_seconds), hardware, kv_bytes));
    for (const SelectBenchRow& measured : one.rows) {
      if (measured.attend_seconds.empty()) continue;  // chose everything: nothing was attended to
      CheckRow row{measured.selector, phase, n_threads, shape.n_ctx};
      row.measured_choose = least_of(measured.seconds);
      row.measured_attend = least_of(measured.attend_seconds);
      LayerWork work = measured.work;
      work.append_bytes = 0.0;  // is not in the time of choosing
      predict_into(row, work, hardware, kv_bytes);
      rows.push_back(row);
    }
  }
  return rows;
}

int threads_of_report(const nlohmann::json& report, const std::string& where) {
  const JsonObject top(report, where);
  if (top.string_if("bench").value_or("") != "select")
    throw FormatError("{}: expected a report of kvscope bench select --json", where);
  return static_cast<int>(top.integer("threads", 1, 1024));
}

std::vector<CheckRow> rows_of_report(const nlohmann::json& report, const std::string& where,
                                     const HardwareProfile& hardware) {
  const JsonObject top(report, where);
  const int n_threads = threads_of_report(report, where);
  const double kv_bytes = top.string_if("kv_dtype").value_or("f32") == "f32" ? 4.0 : 2.0;
  CallShape shape{top.number("n_q", 1, 1e6), top.number("n_kv", 1, 1e6),
                  top.number("d_head", 1, 1e6), 1.0, 1.0};
  std::vector<CheckRow> rows;
  for (const auto& one : top.list("cases")) {
    const JsonObject item(one, where, "cases.");
    shape.n_tok = item.number("queries", 1, 1e9);
    shape.n_ctx = item.number("tokens", 1, 1e9);
    const std::string phase = item.string("phase");
    rows.push_back(dense_row(phase, n_threads, shape,
                             least_seconds_of(item.object("dense"), "seconds", "seconds_median"),
                             hardware, kv_bytes));
    for (const auto& entry : item.list("selectors")) {
      const JsonObject selector(entry, where, "selectors.");
      // Chose everything: nothing was attended to.
      if (selector.find("attend_seconds_median") == nullptr) continue;
      CheckRow row{selector.string("selector"), phase, n_threads, shape.n_ctx};
      row.measured_choose = least_seconds_of(selector, "seconds", "seconds_median");
      row.measured_attend = least_seconds_of(selector, "attend_seconds", "attend_seconds_median");
      predict_into(row, work_of(selector, shape), hardware, kv_bytes);
      rows.push_back(row);
    }
  }
  return rows;
}

std::vector<CheckRow> rows_of_live(const std::vector<std::pair<MethodSpec, Budget>>& methods,
                                   Index n_tokens, Index n_repeats, const HardwareProfile& hardware,
                                   ThreadPool& pool, const ProgressFn& progress,
                                   const std::stop_token& stop) {
  const Transformer model = load_transformer(model_dir("verifier"), EngineOptions{});
  const ModelConfig& config = model.config();
  const std::vector<TokenId> text = book_tokens(config, n_tokens);
  std::vector<ReplayPair> pairs;
  for (const auto& [method, budget] : methods) {
    const SelectorCaps& caps = method.caps();
    if (!caps.prefill || caps.needs_calibration || caps.needs_side) continue;
    pairs.push_back({method, caps.budgets.empty() ? std::nullopt : std::optional<Budget>(budget)});
  }

  const MemoryTrace dense_pass = record_in_memory(model, text, kLiveChunk, pool);
  const TraceInfo& info = dense_pass.info();
  WorkCollector works(info.n_q, info.n_kv, info.d_head);
  ReplayOptions replay;
  replay.calls.chunk = kLiveChunk;
  replay.only_costs = true;
  replay.on_answer = [&works](const AnsweredCall& answer) { works.add(answer); };
  replay_layers(dense_pass, nullptr, info.layers, pairs, replay, pool, {}, stop);

  const auto predict = [&](CheckRow& row, const std::optional<WorkCounts>& counts,
                           std::optional<std::size_t> pair) {
    // A profile without the loops' own rates predicts choosing from the papers' formulas.
    const auto choose = pair ? counted_seconds(*counts, hardware) : std::nullopt;
    for (const Index layer : info.layers) {
      std::vector<LayerWork> calls;
      if (pair) calls = works.calls(*pair, layer);
      const auto at = static_cast<std::size_t>(layer);
      const auto window = at < info.window.size() ? info.window[at] : std::nullopt;
      // A layer that the method is not asked about stays dense.
      for (Index begin = 0; calls.empty() && begin < n_tokens; begin += kLiveChunk) {
        const Index end = std::min(begin + kLiveChunk, n_tokens);
        const CallShape shape{static_cast<double>(info.n_q), static_cast<double>(info.n_kv),
                              static_cast<double>(info.d_head), static_cast<double>(end - begin),
                              static_cast<double>(end)};
        predict_into(row, dense_work(shape, window), hardware, 4.0);
      }
      for (LayerWork& work : calls) {
        if (choose) work.counts.emplace();  // choosing was counted for all layers together
        predict_into(row, work, hardware, 4.0);
      }
    }
    row.predicted_choose += choose.value_or(0.0);
  };
  std::vector<CheckRow> rows;
  std::int64_t n_done = 0;
  const auto n_runs = static_cast<std::int64_t>(pairs.size() + 1);
  for (std::size_t i = 0; i <= pairs.size(); ++i) {
    const ReplayPair* pair = i == 0 ? nullptr : &pairs[i - 1];
    CheckRow row{i == 0 ? std::string("dense attention") : pair->selector.text(), "live prefill",
                 pool.n_threads(), static_cast<double>(n_tokens)};
    std::optional<WorkCounts> counts;
    for (Index repeat = 0; repeat <= n_repeats; ++repeat) {
      if (repeat == 0) {  // pages in what is new, and says what there is to do
        const WorkTally tally;
        time_prefill(model, pair, text, kLiveChunk, pool, stop);
        counts = tally.counts();
        continue;
      }
      const PrefillSeconds one = time_prefill(model, pair, text, kLiveChunk, pool, stop);
      const double before = row.measured();
      if (repeat > 1 && one.selection + one.attention >= before) continue;
      row.measured_choose = one.selection;
      row.measured_attend = one.attention;
    }
    predict(row, counts, i == 0 ? std::nullopt : std::optional<std::size_t>(i - 1));
    rows.push_back(row);
    if (progress) progress({"live prefill", ++n_done, n_runs, "methods"});
  }
  return rows;
}

}  // namespace kvscope::cli
