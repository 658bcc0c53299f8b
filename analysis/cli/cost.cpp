// kvscope cost: from what a method selects on a recording to predicted time on a card; and the
// ledger of published speeds beside the model's predictions.
#include "analysis/cost/trace_cost.hpp"

#include <algorithm>

#include "analysis/calibration_notes.hpp"
#include "analysis/cli/all_methods.hpp"
#include "analysis/cli/command.hpp"
#include "analysis/cli/common_options.hpp"
#include "analysis/cli/cost_check.hpp"
#include "analysis/cli/output.hpp"
#include "analysis/cli/replay_arguments.hpp"
#include "analysis/cli/save_text.hpp"
#include "analysis/cli/signals.hpp"
#include "analysis/cli/text_table.hpp"
#include "analysis/cost/ledger.hpp"
#include "analysis/replay_pairs.hpp"
#include "core/base/error.hpp"
#include "core/base/lists.hpp"
#include "core/base/number_text.hpp"
#include "core/base/version.hpp"
#include "core/trace/info.hpp"
#include "traces/reader.hpp"

namespace kvscope::cli {
namespace {

namespace fs = std::filesystem;
using Json = nlohmann::ordered_json;

std::string cost_cell(const Json& row, const char* key, int digits = 4) {
  return row.at(key).is_number() ? number_text(row.at(key).get<double>(), digits)
                                 : std::string("-");
}

std::string describe_costs(const Json& report) {
  TextTable table({"hardware", "selector", "budget", "batch", "context", "append", "score", "top-k",
                   "attend", "estimate", "us", "dense us", "speedup", "pays from", "model"});
  for (const Json& row : report.at("rows")) {
    const std::string kind = row.at("budget_kind").get<std::string>();
    table.add_row({row.at("hardware").get<std::string>(), row.at("selector").get<std::string>(),
                   kind == "none" ? "" : kind + "=" + cost_cell(row, "budget"),
                   cost_cell(row, "batch"),
                   cost_cell(row, "context", 8) + (row.at("extrapolated") == 1 ? "*" : ""),
                   cost_cell(row, "append_us", 3), cost_cell(row, "score_us", 3),
                   cost_cell(row, "topk_us", 3), cost_cell(row, "attend_us", 3),
                   cost_cell(row, "estimate_us", 3), cost_cell(row, "predicted_us", 3),
                   cost_cell(row, "predicted_dense_us", 3), cost_cell(row, "predicted_speedup", 3),
                   cost_cell(row, "break_even", 7), cost_cell(row, "call_speedup", 3)});
  }
  const bool has_scaled = std::any_of(report.at("rows").begin(), report.at("rows").end(),
                                      [](const Json& row) { return row.at("extrapolated") == 1; });
  return fmt::format(
      "predicted microseconds of a forward call in one layer, mean over layers without a window; pays from: context "
      "from which on the method is not slower than dense attention; model: speedup of the whole call\n{}{}",
      table.text(),
      has_scaled
          ? "* scaled from the measured lists: a budget in tokens stays, everything else grows with the context\n"
          : "");
}

std::string describe_ledger(const Json& report) {
  TextTable table({"figure", "hardware", "published", "predicted", "error", ""});
  for (const Json& row : report.at("rows")) {
    const std::string unit = row.at("unit").get<std::string>();
    const std::string role = row.at("role").get<std::string>();
    const bool is_known = row.at("predicted").is_number();
    table.add_row({row.at("id").get<std::string>(), row.at("hardware").get<std::string>(),
                   cost_cell(row, "published") + unit,
                   is_known ? cost_cell(row, "predicted") + unit : "-",
                   is_known ? fmt::format("{:+.1f} %", 100.0 * row.at("error").get<double>()) : "-",
                   role == "predicts" ? ""
                   : role == "untold" ? row.at("note").get<std::string>()
                                      : role});
  }
  std::string text = table.text() + "\n";
  for (const Json& sentence : report.at("headlines")) text += sentence.get<std::string>() + "\n";
  text += fmt::format(
      "\nmedian error of the {} rows that are predictions: {}; {} of them within 20 %. Rows that calibrate gave a "
      "constant of a profile; bound: the published time is an upper limit.\n",
      report.at("predicted_rows").get<int>(), percent_text(report.at("median_error").get<double>()),
      report.at("within_20_percent").get<int>());
  return text;
}

class CostCommand final : public Command {
 public:
  std::string name() const override { return "cost"; }
  std::string summary() const override { return "predicted time on a card, from measured lists"; }
  std::string description() const override {
    return "Replays the methods on a recording and predicts, from the keys that they really select (union per KV head, "
           "runs of adjacent keys, rows of a list), what a forward call would take on each card: append, score, top-k, "
           "gather and attend, estimate; each a launch and the larger of FLOPs over rate and bytes over bandwidth. "
           "The formula and the source of every constant are in analysis/cost/README.md. --ledger predicts "
           "published speeds instead, without tuning; --check predicts what kvscope bench measured here.";
  }
  std::vector<Example> examples() const override {
    return {
        {"kvscope cost trace.h5 --selector quest,quoka --budget 256 --hardware h100-sxm,rtx-4090",
         "two methods on two cards at the recording's own length"},
        {"kvscope cost trace.h5 --phase decode --selector quest --budget 1024 --hardware a100-80 "
         "--context 32768,131072 --batch 1,16 --out cost.json",
         "scaled to longer contexts; kvscope figure cost draws it"},
        {"kvscope cost --ledger", "published speeds and what the model says of their settings"},
        {"kvscope bench machine --out here.json && kvscope cost --check --hardware here.json",
         "this machine's times, predicted and measured"}};
  }
  void declare(OptionSet& options) override {
    options.positional("TRACE", "a recorded trace", trace_, /*required=*/false);
    replay_.declare(options);
    options.add("hardware", "LIST",
                fmt::format("profiles: {}, or files of kvscope bench machine",
                            fmt::join(hardware_names(), ", ")),
                hardware_);
    options.add("batch", "LIST", "sequences side by side, each with a cache of its own", batch_);
    options.add("context", "LIST", "more context lengths, to which the measured lists are scaled",
                context_);
    options.add("kv-dtype", "WORD",
                "of stored keys and values: fp8, bf16 or f32 [f32 on a cpu, else bf16]", kv_dtype_);
    options.add("weight-bits", "N", "of a stored weight, for the whole call", weight_bits_);
    options.add("draft", "TRACE", "the draft model's trace over the same tokens", draft_);
    options.add("calibration", "TRACE",
                "the same model's trace over another text, as in kvscope sweep", calibration_);
    options.flag("ledger", "predict published figures instead of a recording", ledger_);
    options.flag("check", "predict what kvscope bench measured on this machine", check_);
    options.add("measured", "FILE",
                "with --check: a report of bench select --json; repeatable [made now]", measured_);
    options.add("out", "FILE", "write the report as JSON", out_).short_name = 'o';
    options.flag("overwrite", "replace an existing file", overwrite_);
    work_.declare(options);
    declare_json(options, json_);
  }

  int run(const OptionSet& options, const std::string& command_line) override {
    check_usage(options);
    Json report;
    if (ledger_) {
      report = ledger_report();
    } else if (check_) {
      const StopOnSignal stop;
      ProgressReporter progress(work_.progress);
      report = cost_check(split_list(hardware_), measured_, progress.callback(), stop.token());
    } else {
      report = of_trace();
    }
    report["version"] = writer_name();
    report["command_line"] = command_line;
    if (out_) save_text(*out_, report.dump(1) + "\n", overwrite_);
    if (json_) {
      print_json(report);
    } else {
      print(ledger_  ? describe_ledger(report)
            : check_ ? describe_check(report)
                     : describe_costs(report));
    }
    return kOk;
  }

 private:
  static std::vector<std::string> split_list(const std::vector<std::string>& lists) {
    std::vector<std::string> words;
    for (const std::string& list : lists) {
      for (std::string& word : split_words(list, ',')) {
        if (!word.empty()) words.push_back(std::move(word));
      }
    }
    return words;
  }

  void check_usage(const OptionSet& options) const {
    if (ledger_ && check_) throw UsageError("--ledger and --check exclude each other");
    if (ledger_ || check_) {
      const std::string_view mode = ledger_ ? "--ledger" : "--check";
      if (trace_) throw UsageError(fmt::format("{} takes no TRACE", mode));
      for (const char* other :
           {"selector", "budget", "batch", "context", "kv-dtype", "weight-bits", "draft"}) {
        if (options.given(other))
          throw UsageError(fmt::format("{} and --{} exclude each other", mode, other));
      }
      if (ledger_ && !hardware_.empty())
        throw UsageError("--ledger and --hardware exclude each other: rows name theirs");
    } else {
      if (!trace_) throw UsageError("TRACE is missing (or --ledger, or --check)");
      if (!replay_.has_selectors())
        throw UsageError("--selector is missing: expected at least one method");
      if (hardware_.empty()) {
        throw UsageError(fmt::format(
            "--hardware is missing: expected some of {}, or a file of kvscope bench machine",
            fmt::join(hardware_names(), ", ")));
      }
    }
    if (!measured_.empty() && !check_) throw UsageError("--measured needs --check");
    if (weight_bits_ < 1 || weight_bits_ > 64)
      throw UsageError(
          fmt::format("--weight-bits: expected a value in [1, 64], found {}", weight_bits_));
    if (!out_) return;
    std::vector<fs::path> inputs = measured_;
    for (const auto& file : {trace_, draft_, calibration_}) {
      if (file) inputs.push_back(*file);
    }
    check_new_output(*out_, "out", inputs, overwrite_, "--overwrite");
  }

  static std::vector<double> counts_of(const std::string& list, const char* option) {
    std::vector<double> counts;
    for (const std::string& word :
         list.empty() ? std::vector<std::string>{} : split_words(list, ',')) {
      const auto n = number_from<Index>(word);
      if (!n || *n < 1 || *n > (Index{1} << 40))
        throw UsageError(
            fmt::format("--{}: expected numbers of at least 1, found \"{}\"", option, word));
      counts.push_back(static_cast<double>(*n));
    }
    return counts;
  }

  CostOptions cost_options() const {
    CostOptions options;
    for (const std::string& name : split_list(hardware_))
      options.hardware.push_back(find_hardware(name));
    options.batches = counts_of(batch_, "batch");
    options.contexts = counts_of(context_, "context");
    options.weight_bits = static_cast<double>(weight_bits_);
    if (!kv_dtype_) return options;
    if (*kv_dtype_ != "fp8" && *kv_dtype_ != "bf16" && *kv_dtype_ != "f32")
      throw UsageError(
          fmt::format("--kv-dtype: expected fp8, bf16 or f32, found \"{}\"", *kv_dtype_));
    options.kv_bytes = *kv_dtype_ == "fp8" ? 1.0 : *kv_dtype_ == "bf16" ? 2.0 : 4.0;
    return options;
  }

  Json of_trace() const {
    const CostOptions options = cost_options();
    const TraceFile trace = TraceFile::open(*trace_, {});
    std::optional<TraceFile> draft;
    if (draft_) draft.emplace(TraceFile::open(*draft_, {}));
    std::optional<TraceFile> calibration;
    if (calibration_) calibration.emplace(TraceFile::open(*calibration_, {}));
    const MethodList methods = methods_of(
        replay_.selector_lists(), {replay_.phase(), draft.has_value(), calibration.has_value()});
    const PairPlan plan = plan_pairs(
        methods.methods, replay_.budgets(), replay_.phase(),
        draft ? std::nullopt : std::optional<std::string>(trace_->filename().string()), "cost");
    for (const auto* sentences : {&methods.left_out, &plan.skipped}) {
      for (const std::string& sentence : *sentences)
        note(fmt::format("kvscope: left out: {}", sentence));
    }
    const TraceInfo& info = trace.info();
    check_artifacts(methods.methods, info);
    std::vector<Index> layers = replay_.layers();
    if (layers.empty()) layers = info.layers;
    WorkCollector works(info.n_q, info.n_kv, info.d_head);
    ReplayOptions replay = replay_.replay();
    replay.only_costs = true;
    replay.calibration = calibration ? &*calibration : nullptr;
    replay.on_answer = [&works](const AnsweredCall& answer) { works.add(answer); };
    const StopOnSignal stop;
    ThreadPool pool(work_.n_threads());
    ProgressReporter progress(work_.progress);
    replay_layers(trace, draft ? &*draft : nullptr, layers, plan.pairs, replay, pool,
                  progress.callback(), stop.token());
    Json report = trace_cost_report(info, layers, plan.pairs, works, replay_.phase(), options);
    report["trace"] = trace_->filename().string();
    return report;
  }

  std::optional<fs::path> trace_;
  ReplayArguments replay_;
  std::vector<std::string> hardware_;
  std::string batch_ = "1";
  std::string context_;
  std::optional<std::string> kv_dtype_;
  Index weight_bits_ = 16;
  std::optional<fs::path> draft_;
  std::optional<fs::path> calibration_;
  bool ledger_ = false;
  bool check_ = false;
  std::vector<fs::path> measured_;
  std::optional<fs::path> out_;
  bool overwrite_ = false;
  bool json_ = false;
  WorkOptions work_;
};

}  // namespace

std::unique_ptr<Command> make_cost_command() {
  return std::make_unique<CostCommand>();
}

}  // namespace kvscope::cli
