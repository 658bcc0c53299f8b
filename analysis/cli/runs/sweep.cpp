// kvscope sweep: traces x selectors x budgets in one table.
#include "analysis/sweep/sweep.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <filesystem>
#include <functional>

#include "analysis/base/calibration_notes.hpp"
#include "analysis/cli/frame/command.hpp"
#include "analysis/cli/frame/output.hpp"
#include "analysis/cli/runs/all_methods.hpp"
#include "analysis/cli/runs/experiment_file.hpp"
#include "analysis/cli/runs/replay_arguments.hpp"
#include "analysis/cli/runs/run_job.hpp"
#include "analysis/cli/runs/sweep_output.hpp"
#include "analysis/sweep/sweep_result.hpp"
#include "analysis/sweep/sweep_work.hpp"
#include "core/base/error.hpp"
#include "core/sim/replay_run.hpp"
#include "core/sim/rotations.hpp"
#include "traces/reader.hpp"

namespace kvscope::cli {

namespace fs = std::filesystem;

namespace {

class SweepCommand final : public Command {
 public:
  CommandCard card() const override {
    return {
        "sweep",
        "compare selectors over budgets on recorded traces",
        "Replays every selector with every budget on the recorded q, k and v and measures what "
        "it keeps: attention mass, recall, output error, similarity to the oracle, keys, FLOPs, "
        "bytes. Each layer sees the dense model's tensors, so errors do not compound. Methods "
        "that do not take a kind of budget, or are not defined for the phase, are left out and "
        "named. --resume continues an interrupted sweep. --selector all means every method that "
        "the run supports. --match compares at equal measured cost: the budget setting of each "
        "method (its budget, or the option that sets its cost; column knob) is adjusted until the "
        "keys or bytes of the measured rows, dense layers and forced keys included, reach the "
        "target; rows have the setting, the cost reached and, if it differs, the reason. Where "
        "keys are matched, two rows are added: method ceiling holds the most attention that so "
        "many keys can, however they are given out; oracle-topk, as many for every row. They "
        "split what a method loses: by choosing (lost_choosing: other keys of the same rows hold "
        "more) and by dividing (lost_dividing: other rows and heads need them more).",
        {{"kvscope sweep trace.h5 --selector quoka,quest,streamingllm --budget 64,128,256",
          "three selectors, three budgets, prefill in chunks of 128"},
         {"kvscope sweep trace.h5 --phase decode --selector quest:page-size=32 --budget "
          "ratio=0.1,0.2 --out q.csv",
          "decode steps; the table as CSV"},
         {"kvscope sweep trace.h5 --config experiment.json --out all.h5",
          "a sweep that a file describes"},
         {"kvscope sweep trace.h5 --selector quest --budget 64 --out q.csv --engine local "
          "--workers 4",
          "the items of the sweep in four processes"},
         {"kvscope sweep trace.h5 --phase decode --budget 64 "
          "--selector quest,keydiff@tokens=512+quest",
          "Quest on all keys, and on the 512 that KeyDiff leaves"},
         {"kvscope sweep trace.h5 --phase decode --selector all --match density=0.05 --out "
          "equal.h5",
          "every method, each at a twentieth of the keys; kvscope figure equal-cost draws it"}}};
  }
  void declare(OptionSet& options) override {
    options.positional("TRACE", "recorded traces", traces_, /*required=*/false);
    replay_.declare(options);
    options.add(
        "match", "LIST",
        "instead of --budget: density=0.05,0.1 (keys kept of those a query sees), keys=128 (kept "
        "per query), bytes=65536 (read per call and layer), as measured, or us=20 (predicted "
        "microseconds of a call in a layer, on the card of --hardware)",
        match_);
    options.flag("no-ceiling", "with --match: leave out the rows that split what is lost",
                 no_ceiling_);
    options.add("draft", "TRACE",
                "the draft model's trace over the same tokens, one for each trace", drafts_);
    options.add(
        "calibration", "TRACE",
        "the same model's trace over another text, for methods that learn before they see a "
        "sequence and name no file of kvscope fit (loki:basis=calibrated, kascade)",
        calibration_);
    options.add(
        "hardware", "NAME",
        "adds predicted microseconds on this card: a profile of kvscope cost, by name or as a file",
        hardware_);
    options.add("resamples", "N", "resamples behind the confidence intervals", resamples_,
                at_least(1));
    options.add("seed", "N", "seed of the resampling", seed_, at_least(0));
    job_.declare_table(options, "the unaggregated arrays", "sweep");
    options
        .add("config", "FILE",
             "an experiment file: a JSON object with these options, as trusted as a command "
             "line (it may name outputs and engines); the command line wins",
             config_)
        .kind = ValueKind::file;
    job_.declare_work(options);
    options.exclude({"match", "budget"}, ": a match finds every method's budget");
    options.then([this](OptionSet& set) {
      if (config_) apply_experiment_file(*config_, set);
    });
  }

  int run(const OptionSet& options, const std::string&) override {
    check_usage();
    std::optional<TraceFile> calibration;
    if (calibration_) calibration.emplace(TraceFile::open(*calibration_, {}));
    SweepOptions sweep = make_options();
    sweep.replay.calibration = calibration ? &*calibration : nullptr;
    const SweepPlan plan = plan_sweep(make_traces(), std::move(sweep));
    for (const std::string& sentence : plan.skipped) note("kvscope: left out: {}", sentence);
    for (const std::string& sentence : calibration_warnings(plan.config))
      note("kvscope: warning: {}", sentence);

    job_.check_inputs();
    if (job_.is_complete(plan.config_hash)) return kOk;
    ThreadPool pool(job_.work.n_threads());
    const Work work = sweep_work(plan, pool);
    if (const auto code = job_.finish(work, options, name())) return *code;
    const SweepResult result = sweep_result(plan, work, job_.store());
    if (job_.out) write_sweep_output(result, *job_.out, job_.may_replace());
    const int code = job_.end();
    const SweepSummary summary = sweep_summary(result);
    job_.json ? print_json(sweep_json(result)) : print(summary.text);
    for (const std::string& remark : summary.remarks)
      job_.json ? note("kvscope: {}", remark) : print("{}\n", remark);
    return code;
  }

 private:
  void check_usage() const {
    if (traces_.empty()) throw UsageError("TRACE is missing");
    if (!replay_.has_selectors())
      throw UsageError("--selector is missing: expected at least one method");
    job_.check();
    if (!drafts_.empty() && drafts_.size() != traces_.size()) {
      throw UsageError("--draft: expected one for each trace, found {} for {}", drafts_.size(),
                       traces_.size());
    }
    job_.check_table();
  }

  std::vector<SweepTrace> make_traces() const {
    std::vector<SweepTrace> traces;
    for (std::size_t i = 0; i < traces_.size(); ++i) {
      const auto opener = [](const fs::path& file) {
        return [file]() -> std::unique_ptr<TraceSource> {
          return std::make_unique<TraceFile>(TraceFile::open(file, {}));
        };
      };
      SweepTrace trace;
      trace.name = name_of_trace(i);
      trace.open = opener(traces_[i]);
      if (!drafts_.empty()) trace.open_draft = opener(drafts_[i]);
      traces.push_back(std::move(trace));
    }
    return traces;
  }

  /// The file's name without folder; the whole path where two files are called alike.
  std::string name_of_trace(std::size_t i) const {
    const auto same = std::ranges::count_if(
        traces_, [&](const fs::path& file) { return file.filename() == traces_[i].filename(); });
    return same == 1 ? traces_[i].filename().string() : traces_[i].string();
  }

  /// False: "all" leaves out methods that need it. A file that cannot be opened is a matter of its
  /// items.
  bool all_traces(const std::function<bool(const TraceInfo&)>& have) const {
    const std::vector<std::string> lists = replay_.selector_lists();
    const bool may_say_all = std::ranges::any_of(
        lists, [](const std::string& list) { return list.find("all") != std::string::npos; });
    if (!may_say_all) return true;  // no file is opened for a question that nobody asks
    return std::ranges::all_of(traces_, [&](const fs::path& file) {
      try {
        return have(TraceFile::open(file, {}).info());
      } catch (const Error&) {
        return true;
      }
    });
  }

  SweepOptions make_options() const {
    SweepOptions options;
    MethodNeeds needs{replay_.phase(), !drafts_.empty(), calibration_.has_value()};
    needs.has_rotation =
        all_traces([](const TraceInfo& info) { return rotations_of(info) != nullptr; });
    needs.has_like_layers =
        all_traces([&](const TraceInfo& info) { return has_like_layers(info, replay_.layers()); });
    MethodList methods = methods_of(replay_.selector_lists(), needs);
    options.selectors = std::move(methods.methods);
    options.left_out = std::move(methods.left_out);
    options.match = as_usage([&] { return parse_matches(match_); });
    options.with_ceiling = !no_ceiling_;
    options.budgets = replay_.budgets();
    options.replay = replay_.replay();
    options.layers = replay_.layers();
    options.n_resamples = resamples_;
    options.seed = seed_;
    if (hardware_) options.hardware = find_hardware(*hardware_);
    return options;
  }

  std::vector<fs::path> traces_;
  std::vector<fs::path> drafts_;
  std::optional<fs::path> calibration_;
  ReplayArguments replay_;
  std::vector<std::string> match_;
  bool no_ceiling_ = false;
  std::optional<std::string> hardware_;
  Index resamples_ = 200;
  Index seed_ = 0;
  std::optional<fs::path> config_;
  RunJob job_;
};

}  // namespace

KVSCOPE_COMMAND(310, SweepCommand)

}  // namespace kvscope::cli
