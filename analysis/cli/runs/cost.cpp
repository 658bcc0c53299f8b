// kvscope cost: from what a method selects on a recording, or would in a model's shape, to
// predicted time on a card.
#include "analysis/cost/trace_cost.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <filesystem>

#include "analysis/base/calibration_notes.hpp"
#include "analysis/base/replay_pairs.hpp"
#include "analysis/cli/frame/command.hpp"
#include "analysis/cli/frame/common_options.hpp"
#include "analysis/cli/frame/filled_text.hpp"
#include "analysis/cli/frame/list_options.hpp"
#include "analysis/cli/frame/output.hpp"
#include "analysis/cli/frame/save_text.hpp"
#include "analysis/cli/frame/text_table.hpp"
#include "analysis/cli/inspect/analyze_report.hpp"
#include "analysis/cli/runs/all_methods.hpp"
#include "analysis/cli/runs/cost_shape.hpp"
#include "analysis/cli/runs/counts.hpp"
#include "analysis/cli/runs/replay_arguments.hpp"
#include "analysis/cli/runs/run_job.hpp"
#include "analysis/cost/cost_work.hpp"
#include "core/base/json.hpp"
#include "core/base/lists.hpp"
#include "core/base/read_files.hpp"
#include "core/base/version.hpp"
#include "core/sim/replay_run.hpp"
#include "core/sim/rotations.hpp"
#include "core/trace/info.hpp"
#include "traces/reader.hpp"

namespace kvscope::cli {

namespace fs = std::filesystem;

namespace {

std::string describe_costs(const Json& report) {
  TextTable table({"hardware", "selector", "budget", "batch", "context", "append", "score", "top-k",
                   "attend", "estimate", "us", "dense us", "speedup", "pays from", "model"});
  for (const Json& row : report.at("rows")) {
    const std::string kind = row.at("budget_kind").get<std::string>();
    table.add_row(
        {row.at("hardware").get<std::string>(), row.at("selector").get<std::string>(),
         kind == "none" ? "" : kind + "=" + number_cell(row, "budget"), number_cell(row, "batch"),
         number_cell(row, "context", 8) + (row.at("extrapolated") == 1 ? "*" : ""),
         number_cell(row, "append_us", 3), number_cell(row, "score_us", 3),
         number_cell(row, "topk_us", 3), number_cell(row, "attend_us", 3),
         number_cell(row, "estimate_us", 3), number_cell(row, "predicted_us", 3),
         number_cell(row, "predicted_dense_us", 3), number_cell(row, "predicted_speedup", 3),
         number_cell(row, "break_even", 7), number_cell(row, "call_speedup", 3)});
  }
  const bool has_scaled = std::any_of(report.at("rows").begin(), report.at("rows").end(),
                                      [](const Json& row) { return row.at("extrapolated") == 1; });
  std::string notes;
  for (const Json& row : report.at("rows")) {
    const std::string line = row.at("note").get<std::string>() + "\n";
    if (line.size() > 1 && notes.find(line) == std::string::npos) notes += "left out: " + line;
  }
  return fmt::format(
      "predicted microseconds of a forward call in one layer, mean over layers without a window; "
      "pays from: context from which on the method is not slower than dense attention; model: "
      "speedup of the whole call\n{}{}{}",
      table.text(),
      has_scaled
          ? "* scaled from the measured lists: a budget in tokens stays, everything else grows "
            "with the context\n"
          : "",
      notes);
}

class CostCommand final : public Command {
 public:
  CommandCard card() const override {
    return {
        "cost",
        "predicted time on a processor, from measured lists",
        "Replays the methods on a recording and predicts, from the keys that they really select "
        "(union per KV head, runs of adjacent keys, rows of a list), what a forward call would "
        "take on each card: append, score, top-k, gather and attend, estimate; each a launch "
        "and the larger of FLOPs over rate and bytes over bandwidth. The formula and the source "
        "of every constant are in analysis/cost/README.md. --shape asks the same of a model of "
        "which there is no recording, and answers in one sentence with an interval: from which "
        "context a method pays off, how much faster it is, when the first token comes, how many "
        "tokens a second.",
        {{"kvscope cost trace.h5 --selector quest,quoka --budget 256 --hardware h100-sxm,rtx-4090",
          "two methods on two cards at the recording's own length"},
         {"kvscope cost trace.h5 --phase decode --selector quest --budget 1024 --hardware a100-80 "
          "--context 32768,131072 --batch 1,16 --out cost.json",
          "scaled to longer contexts; kvscope figure cost draws it"},
         {"kvscope cost --shape org/model --hardware h100-sxm --question pays-off",
          "without a recording: from which context on quoka with 1024 keys is faster"},
         {"kvscope cost --shape config.json --hardware h200 --selector quest --keys 2048 --context "
          "4k:1M --batch 1,16,64 --question tokens-per-second --out shape.json",
          "a map over context and batch; kvscope figure cost-map draws it"}}};
  }
  void declare(OptionSet& options) override {
    options.positional("TRACE", "a recorded trace", trace_, /*required=*/false);
    replay_.declare(options);
    options.add("hardware", "LIST",
                fmt::format("profiles: {}, or files (of tests/bench's bench_machine)",
                            fmt::join(hardware_names(), ", ")),
                hardware_);
    options.add("batch", "LIST", "sequences side by side, each with its own cache", batch_);
    options.add(
        "context", "LIST",
        "more context lengths, to which the measured lists are scaled, as 32768,1M or 4k:1M "
        "(doubling); with --shape all of them [4k to the model's limit]",
        context_);
    options.add("kv-dtype", "WORD",
                "of stored keys and values: fp8, bf16 or f32 [f32 on a cpu, else bf16]", kv_dtype_);
    options.add("weight-bits", "N", "of a stored weight, for the whole call", weight_bits_,
                in(1, 64));
    shape_.declare(options);
    options.add("draft", "TRACE", "the draft model's trace over the same tokens", draft_);
    options.add("calibration", "TRACE",
                "the same model's trace over another text, as in kvscope sweep", calibration_);
    options.add("out", "FILE", "write the report as JSON", job_.out).short_name = 'o';
    options.flag("overwrite", "replace an existing file", job_.overwrite);
    job_.declare_work(options);
    options.exclude({"TRACE", "shape"});
    options.exclude_each({"shape"}, {"store", "engine", "worker"},
                         ": what is of no recording has no items");
  }

  int run(const OptionSet& options, const std::string& typed) override {
    job_.check();
    check_usage();
    Json report;
    // The report of a recording says the same whoever did its items.
    const std::string command_line =
        trace_ ? options.command_line(name(), kOptionsOfNoNumber) : typed;
    if (shape_.is_used()) {
      report = shape_.report(options, replay_, cost_options(), job_.work);
    } else {
      if (const std::optional<int> code = of_trace(options, report)) return *code;
    }
    report["version"] = writer_name();
    report["command_line"] = command_line;
    if (job_.out) save_text(*job_.out, report.dump(1) + "\n", job_.overwrite);
    job_.end();
    if (job_.json) {
      print_json(report);
    } else {
      print(shape_.is_used() ? describe_shape_costs(report) : describe_costs(report));
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

  void check_usage() const {
    if (!trace_ && !shape_.is_used()) throw UsageError("TRACE is missing (or --shape)");
    if (trace_ && !replay_.has_selectors())
      throw UsageError("--selector is missing: expected at least one method");
    if (hardware_.empty()) {
      throw UsageError("--hardware is missing: expected some of {}, or a file",
                       fmt::join(hardware_names(), ", "));
    }
    if (job_.out) check_new_output(*job_.out, job_.overwrite, "--overwrite");
  }

  CostOptions cost_options() const {
    CostOptions options;
    for (const std::string& name : split_list(hardware_))
      options.hardware.push_back(find_hardware(name));
    const auto batches = counts_of(batch_, "batch");
    options.batches.assign(batches.begin(), batches.end());
    const auto contexts = context_.empty() ? std::vector<Index>() : counts_of(context_, "context");
    options.contexts.assign(contexts.begin(), contexts.end());
    options.weight_bits = static_cast<double>(weight_bits_);
    if (!kv_dtype_) return options;
    if (*kv_dtype_ != "fp8" && *kv_dtype_ != "bf16" && *kv_dtype_ != "f32")
      throw UsageError("--kv-dtype: expected fp8, bf16 or f32, found \"{}\"", *kv_dtype_);
    options.kv_bytes = *kv_dtype_ == "fp8" ? 1.0 : *kv_dtype_ == "bf16" ? 2.0 : 4.0;
    return options;
  }

  /// What besides the replay decides the report.
  Json settings() const {
    Json json = {{"batch", batch_}, {"context", context_}, {"weight_bits", weight_bits_}};
    json["kv_dtype"] = or_null(kv_dtype_);
    for (const std::string& name : split_list(hardware_))
      json["hardware"].push_back(hardware_json(find_hardware(name)));
    return json;
  }

  /// Fills the report, or returns the exit code of a worker, which makes none.
  std::optional<int> of_trace(const OptionSet& given, Json& report) {
    const CostOptions options = cost_options();
    const TraceFile trace = TraceFile::open(*trace_, {});
    std::optional<TraceFile> draft;
    if (draft_) draft.emplace(TraceFile::open(*draft_, {}));
    std::optional<TraceFile> calibration;
    if (calibration_) calibration.emplace(TraceFile::open(*calibration_, {}));
    const MethodList methods =
        methods_of(replay_.selector_lists(),
                   {replay_.phase(), draft.has_value(), calibration.has_value(),
                    rotations_of(trace.info()) != nullptr,
                    /*has_projection=*/false, has_like_layers(trace.info(), replay_.layers())});
    const PairPlan plan = plan_pairs(
        methods.methods, replay_.budgets(), replay_.phase(),
        draft ? std::nullopt : std::optional<std::string>(trace_->filename().string()), "cost");
    for (const auto* sentences : {&methods.left_out, &plan.skipped}) {
      for (const std::string& sentence : *sentences) note("kvscope: left out: {}", sentence);
    }
    const TraceInfo& info = trace.info();
    check_artifacts(methods.methods, info);
    job_.check_inputs();
    std::vector<Index> layers = replay_.layers();
    if (layers.empty()) layers = info.layers;
    CostReplay replay{trace, draft ? &*draft : nullptr, layers, plan.pairs, replay_.replay()};
    replay.options.only_costs = true;
    replay.options.calibration = calibration ? &*calibration : nullptr;
    WorkCollector works(info);
    ThreadPool pool(job_.work.n_threads());
    const Work work = cost_work(replay, settings(), pool);
    if (const auto code = job_.finish(work, given, name())) return code;
    read_works(work, job_.store(), works);
    report = trace_cost_report(info, layers, plan.pairs, works, replay_.phase(), options);
    report["trace"] = trace_->filename().string();
    return std::nullopt;
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
  CostShape shape_;
  RunJob job_;
};

}  // namespace

KVSCOPE_COMMAND(350, CostCommand)

}  // namespace kvscope::cli
