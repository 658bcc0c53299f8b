// kvscope analyze KIND: one class for the four analyses; a kind is its options, its function and
// its table.
#include <cmath>
#include <fstream>
#include <limits>
#include <sstream>

#include "analysis/cli/analyze_report.hpp"
#include "analysis/cli/command.hpp"
#include "analysis/cli/common_options.hpp"
#include "analysis/cli/output.hpp"
#include "analysis/cli/signals.hpp"
#include "analysis/layer_map.hpp"
#include "analysis/quest_bounds.hpp"
#include "analysis/quoka.hpp"
#include "analysis/theorem_b1.hpp"
#include "core/base/error.hpp"
#include "core/base/version.hpp"
#include "notebooks_export/result_csv.hpp"
#include "traces/reader.hpp"
#include "traces/result_file.hpp"

namespace kvscope::cli {
namespace {

namespace fs = std::filesystem;
using Json = nlohmann::ordered_json;
using Traces = std::vector<TraceFile>;

/// Drops the arrays: for runs that want the summary only.
class NullResult final : public ResultSink {
 public:
  void begin(const ResultInfo&) override {}
  void declare(const ResultArray&) override {}
  void add_plot(const ResultPlot&) override {}
  void finish(const Json&) override {}

 protected:
  void write_raw(std::string_view, ResultType, Index, const void*, Index) override {}
};

/// What an analysis is called with besides its traces and options.
struct AnalysisRun {
  ResultSink& sink;
  ThreadPool& pool;
  ProgressFn progress;
  std::stop_token stop;
  ResultProvenance provenance;
};

// A number of the totals for the headline; NaN if it is not there.
double total(const Json& totals, const char* key) {
  const auto found = totals.find(key);
  return found != totals.end() && found->is_number() ? found->get<double>()
                                                     : std::numeric_limits<double>::quiet_NaN();
}

std::string percent(double share) {
  return std::isnan(share) ? "-" : fmt::format("{:.1f} %", 100 * share);
}

// ---- the kinds: name, texts, options, call, table, headline, and the bounds that must hold ----

struct Quoka {
  using Options = QuokaOptions;
  static constexpr const char* kName = "analyze quoka";
  static constexpr const char* kSummary =
      "QuoKA: queries that speak for a chunk, key scores, kept keys";
  static constexpr std::size_t kTraces = 1;
  static Json call(const Traces& traces, const Options& options, const AnalysisRun& run) {
    return analyze_quoka(traces[0], options, run.sink, run.pool, run.progress, run.stop,
                         run.provenance);
  }
  static std::vector<ReportColumn> columns() {
    return {{"mass_mean", "attention kept"},         {"mass_p05", "5th percentile"},
            {"oracle_recall", "oracle recall"},      {"sink_selected", "sink kept"},
            {"reduction_per_kv_head", "keys saved"}, {"pearson_log_mean", "r(S_q, log weight)"}};
  }
  static std::string headline(const Json& totals) {
    return fmt::format(
        "kept keys hold {} of the attention (5th percentile of the rows: {}) and save {} of the "
        "key reads",
        percent(total(totals, "mass_mean")), percent(total(totals, "mass_p05")),
        percent(total(totals, "reduction_per_kv_head")));
  }
  static std::int64_t violations(const Json&) { return 0; }
};

struct TheoremB1 {
  using Options = TheoremB1Options;
  static constexpr const char* kName = "analyze theorem-b1";
  static constexpr const char* kSummary =
      "Theorem B.1: cosines against the printed and the repaired bounds";
  static constexpr std::size_t kTraces = 1;
  static Json call(const Traces& traces, const Options& options, const AnalysisRun& run) {
    return analyze_theorem_b1(traces[0], options, run.sink, run.pool, run.progress, run.stop,
                              run.provenance);
  }
  static std::vector<ReportColumn> columns() {
    return {{"rows", "rows"},
            {"cos_mean", "mean cos"},
            {"printed_violations", "printed violated"},
            {"repaired_violations", "repaired violated"},
            {"jensen_violations", "Jensen violated"},
            {"worst_violations", "worst violated"},
            {"jensen_mean_gap", "Jensen gap"},
            {"worst_mean_gap", "worst gap"}};
  }
  static std::string headline(const Json& totals) {
    return fmt::format(
        "{} rows: printed bound violated {} times, repaired {}, Jensen {}, worst case {}; mean "
        "Jensen gap {}",
        number_text(total(totals, "rows")), number_text(total(totals, "printed_violations")),
        number_text(total(totals, "repaired_violations")),
        number_text(total(totals, "jensen_violations")),
        number_text(total(totals, "worst_violations")),
        number_text(total(totals, "jensen_mean_gap"), 3));
  }
  static std::int64_t violations(const Json& totals) {
    return totals.value("violations_of_proved_bounds", std::int64_t{0});
  }
};

struct Quest {
  using Options = QuestOptions;
  static constexpr const char* kName = "analyze quest";
  static constexpr const char* kSummary =
      "Quest: page bounds against the true maxima, kept attention";
  static constexpr std::size_t kTraces = 1;
  static Json call(const Traces& traces, const Options& options, const AnalysisRun& run) {
    return analyze_quest(traces[0], options, run.sink, run.pool, run.progress, run.stop,
                         run.provenance);
  }
  static std::vector<ReportColumn> columns() {
    return {{"violations", "violated"},
            {"gap_mean", "bound gap"},
            {"rank_correlation", "rank corr."},
            {"eval_mass", "mass (eval)"},
            {"eval_best_page_kept", "best page kept"},
            {"kernel_mass", "mass (kernel)"},
            {"kernel_best_page_kept", "best page kept"},
            {"eval_reduction_per_kv_head", "keys saved"}};
  }
  static std::string headline(const Json& totals) {
    return fmt::format(
        "bound violated {} times in {} rows; kept pages hold {} of the attention (kernel rule: {}) "
        "and save {} "
        "of the key reads",
        number_text(total(totals, "violations")), number_text(total(totals, "rows")),
        percent(total(totals, "eval_mass")), percent(total(totals, "kernel_mass")),
        percent(total(totals, "eval_reduction_per_kv_head")));
  }
  static std::int64_t violations(const Json& totals) {
    return totals.value("violations", std::int64_t{0});
  }
};

struct LayerMap {
  using Options = LayerMapOptions;
  static constexpr const char* kName = "analyze layer-map";
  static constexpr const char* kSummary =
      "SpecAttn: KL(verifier || draft) of all layer pairs, layer maps";
  static constexpr std::size_t kTraces = 2;
  static Json call(const Traces& traces, const Options& options, const AnalysisRun& run) {
    return analyze_layer_map(traces[0], traces[1], options, run.sink, run.pool, run.progress,
                             run.stop, run.provenance);
  }
  static std::vector<ReportColumn> columns() {
    return {{"draft_layer", "mapped to"},           {"kl", "KL"},
            {"total_variation", "total variation"}, {"pinsker_floor", "Pinsker floor"},
            {"argmax_draft_layer", "nearest"},      {"argmax_kl", "its KL"}};
  }
  static std::string headline(const Json& totals) {
    return fmt::format(
        "mean KL of the mapped layers {} nat; monotone map costs {}, the unconstrained one {}",
        number_text(total(totals, "kl_mean_mapped"), 3),
        number_text(total(totals, "monotone_cost"), 3),
        number_text(total(totals, "argmax_cost"), 3));
  }
  static std::int64_t violations(const Json&) { return 0; }
};

// ---- the command ----

template <class Kind>
class AnalyzeCommand final : public Command {
 public:
  std::string name() const override { return Kind::kName; }
  std::string summary() const override { return Kind::kSummary; }
  std::string description() const override {
    return "Prints one line per layer; with --out also writes every array to an HDF5 file that "
           "h5web and silx plot. "
           "Exit code 5 if a bound that must hold was violated.";
  }
  std::vector<Example> examples() const override {
    const std::string files = Kind::kTraces == 2 ? "verifier.h5 draft.h5" : "trace.h5";
    return {{fmt::format("kvscope {} {}", Kind::kName, files), "the summary as a table"},
            {fmt::format("kvscope {} {} --out result.h5 --json", Kind::kName, files),
             "all arrays to a file, the summary as JSON"}};
  }
  void declare(OptionSet& options) override {
    if (Kind::kTraces == 2) {
      options.positional("VERIFIER", "the trace of the large model", files_[0], /*required=*/true);
      options.positional("DRAFT", "the trace of the small model over the same tokens", files_[1],
                         /*required=*/true);
    } else {
      options.positional("TRACE", "a recorded trace", files_[0], /*required=*/true);
    }
    options.add("out", "FILE", "write the arrays to this HDF5 file", out_).short_name = 'o';
    options.add("csv", "FILE",
                "write the per-layer rows as CSV (- is standard output, instead of the table)",
                csv_);
    options.flag("overwrite", "replace existing files", overwrite_);
    options.fields(options_);
    work_.declare(options);
    declare_json(options, json_);
  }

  int run(const OptionSet&, const std::string& command_line) override {
    check_outputs();
    const int n_threads = work_.n_threads();
    const Traces traces = open_traces();
    const Json summary = compute(traces, n_threads, command_line);
    tell(summary);
    const std::int64_t violations = Kind::violations(summary.value("totals", Json::object()));
    if (violations == 0) return kOk;
    note(fmt::format("kvscope: a bound that must hold was violated {} times", violations));
    return kCheckFailed;
  }

 private:
  void check_outputs() const {
    if (json_ && csv_ && *csv_ == "-")
      throw UsageError("--json and --csv - both want standard output");
    if (out_) {
      for (std::size_t i = 0; i < Kind::kTraces; ++i) {
        std::error_code error;
        if (fs::equivalent(*out_, files_[i], error)) {
          throw UsageError(fmt::format(
              "--out: {} is the trace itself; results go to a file of their own", out_->string()));
        }
      }
    }
    for (const auto& file : {out_, csv_}) {
      if (file && *file != "-" && !overwrite_ && fs::exists(*file)) {
        throw IoError(fmt::format("{} exists; --overwrite replaces it", file->string()));
      }
    }
  }

  Traces open_traces() const {
    Traces traces;
    for (std::size_t i = 0; i < Kind::kTraces; ++i) {
      traces.push_back(TraceFile::open(files_[i], {}));
      for (const auto& warning : traces.back().warnings())
        note(fmt::format("kvscope: {}: {}", files_[i].string(), warning));
      const TraceInfo& info = traces.back().info();
      if (info.status != TraceStatus::complete) {
        note(fmt::format("kvscope: {} is {}: it holds {} tokens", files_[i].string(),
                         name_of(info.status), info.n_tokens));
      }
    }
    return traces;
  }

  Json compute(const Traces& traces, int n_threads, const std::string& command_line) const {
    const StopOnSignal stop;
    ThreadPool pool(n_threads);
    ProgressReporter progress(work_.progress);
    std::unique_ptr<ResultSink> sink;
    if (out_) {
      sink = create_result_file(*out_, overwrite_);
    } else {
      sink = std::make_unique<NullResult>();
    }
    ResultProvenance provenance;
    provenance.command_line = command_line;
    provenance.writer = writer_name();
    return Kind::call(traces, options_,
                      {*sink, pool, progress.callback(), stop.token(), provenance});
  }

  void tell(const Json& summary) const {
    if (csv_) {
      std::ostringstream text;
      write_layers_csv(summary, text);
      if (*csv_ == "-") {
        print(text.str());
      } else {
        std::ofstream file(*csv_, std::ios::binary | std::ios::trunc);
        file << text.str();
        file.close();
        if (!file) throw IoError(fmt::format("cannot write {}", csv_->string()));
      }
    }
    if (json_) {
      Json report = {{"kind", std::string(Kind::kName).substr(8)}};
      for (std::size_t i = 0; i < Kind::kTraces; ++i)
        report["traces"].push_back(files_[i].string());
      report["options"] = fields_to_json(options_);
      report["result_file"] = out_ ? Json(out_->string()) : Json(nullptr);
      report.update(summary);
      print_json(report);
    } else if (!csv_ || *csv_ != "-") {
      const Json totals = summary.value("totals", Json::object());
      print(fmt::format("{}\n{}: {}\n", summary_table(summary, Kind::columns()),
                        std::string(Kind::kName).substr(8), Kind::headline(totals)));
    }
  }

  fs::path files_[2];
  std::optional<fs::path> out_;
  std::optional<fs::path> csv_;
  bool overwrite_ = false;
  bool json_ = false;
  typename Kind::Options options_;
  WorkOptions work_;
};

}  // namespace

std::unique_ptr<Command> make_analyze_quoka_command() {
  return std::make_unique<AnalyzeCommand<Quoka>>();
}
std::unique_ptr<Command> make_analyze_theorem_b1_command() {
  return std::make_unique<AnalyzeCommand<TheoremB1>>();
}
std::unique_ptr<Command> make_analyze_quest_command() {
  return std::make_unique<AnalyzeCommand<Quest>>();
}
std::unique_ptr<Command> make_analyze_layer_map_command() {
  return std::make_unique<AnalyzeCommand<LayerMap>>();
}

}  // namespace kvscope::cli
