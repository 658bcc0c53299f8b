#include "analysis/cli/analyze_command.hpp"

#include <sstream>

#include "analysis/base/null_result.hpp"
#include "analysis/base/number_formats.hpp"
#include "analysis/cli/filled_text.hpp"
#include "analysis/cli/kit.hpp"
#include "analysis/cli/temporary_journal.hpp"
#include "analysis/units/layer_units.hpp"
#include "analysis/units/unit_cost.hpp"
#include "core/base/read_files.hpp"
#include "core/trace/result.hpp"
#include "notebooks_export/result_csv.hpp"
#include "traces/result_file.hpp"

namespace kvscope::cli {

std::string AnalyzeCommand::description() const {
  std::string text =
      "Prints one line per layer; with --out also writes every array to an HDF5 "
      "file that h5web and silx plot.";
  if (!card_.must_be_zero.empty()) text += " Exit code 5 if a bound that must hold was violated.";
  return card_.about.empty() ? text : card_.about + "\n" + text;
}

std::vector<Example> AnalyzeCommand::examples() const {
  const std::string files = n_traces_ == 2 ? "verifier.h5 draft.h5" : "trace.h5";
  return {{fmt::format("kvscope {} {}", name(), files), "the summary as a table"},
          {fmt::format("kvscope {} {} --out result.h5 --json", name(), files),
           "all arrays to a file, the summary as JSON"}};
}

std::string AnalyzeCommand::headline(const Json& totals) const {
  return filled_in(card_.headline, totals);
}

std::string AnalyzeCommand::more_text(const Json&) const {
  return "";
}

void AnalyzeCommand::declare(OptionSet& options) {
  if (n_traces_ == 2) {
    options.positional("VERIFIER", "the trace of the large model", files_[0], /*required=*/true);
    options.positional("DRAFT", "the trace of the small model over the same tokens", files_[1],
                       /*required=*/true);
  } else {
    options.positional("TRACE", "a recorded trace", files_[0], /*required=*/true);
  }
  options.add("out", "FILE", "write the arrays to this HDF5 file", out_).short_name = 'o';
  options.add("csv", "FILE",
              "write the per-layer rows as CSV (- is standard output, instead of the table)", csv_);
  options.flag("overwrite", "replace existing files", overwrite_);
  declare_kind(options);
  units_.declare(options);
  work_.declare(options);
  declare_json(options, json_);
}

int AnalyzeCommand::run(const OptionSet& given, const std::string&) {
  units_.check(out_);
  if (!units_.is_alone()) check_outputs();
  const int n_threads = work_.n_threads();
  const Traces traces = open_traces();
  for (const auto& file : {out_, csv_}) {
    if (file && !units_.is_alone()) refuse_read_file(*file);
  }
  // As the same options give it in any order; files and threads do not decide the numbers.
  const std::string command_line = given.command_line(name(), kOptionsOfNoNumber);
  UnitFolder finished;
  std::optional<TemporaryJournal> journal;
  if (units_.is_used()) {
    ThreadPool pool(n_threads);
    const UnitWork work = work_of(traces, pool, given);
    if (units_.is_alone()) return units_.run_alone(work, out_, json_, work_);
    journal.emplace("analyze");
    finished = units_.finish(work, out_, work_, journal->file());
  }
  ResultInfo made;
  Json summary = compute(traces, n_threads, command_line,
                         journal ? std::optional(journal->file()) : std::nullopt, made);
  Json formats = Json::object();
  NumberFormats::of(made.config).add_to(formats);
  for (const char* key : {"layers", "rows"}) {
    if (!summary.contains(key)) continue;
    for (Json& row : summary[key]) {
      if (row.is_object()) row.update(formats);
    }
  }
  tell(made, summary, formats);
  if (units_.is_used()) units_.clean_up(finished);
  const std::int64_t n_violations =
      summary.value("totals", Json::object()).value(card_.must_be_zero, std::int64_t{0});
  if (n_violations == 0) return kOk;
  note("kvscope: a bound that must hold was violated {} times", n_violations);
  return kCheckFailed;
}

std::vector<Index> AnalyzeCommand::unit_layers(const Traces&) const {
  return {};
}

UnitWork AnalyzeCommand::work_of(const Traces& traces, ThreadPool& pool,
                                 const OptionSet& given) const {
  const std::vector<Index> layers = unit_layers(traces);
  if (layers.empty()) {
    throw UsageError(
        "{} has no units: what it says of a layer hangs on other layers, or on more than the trace",
        name());
  }
  const TraceFile& trace = traces.front();
  Json config = {{"options", options_json()}, {"layers", layers}};
  config["trace"] = {{"uuid", trace.info().uuid}, {"hash", trace.info().content_hash}};
  UnitWork work = layer_work(
      config, layers.size(),
      [&trace, layers](std::size_t unit) {
        return layers_cost(trace.info(), trace.where(), {layers[unit]});
      },
      [this, &traces, &pool](ResultWriter& output, const ProgressFn& progress,
                             std::stop_token stop) {
        call(traces, {output, pool, progress, std::move(stop), {}});
      });
  work.command = name();
  seal(work);
  units_.seal(work, given, name());
  return work;
}

void AnalyzeCommand::check_outputs() const {
  if (json_ && csv_ && *csv_ == "-")
    throw UsageError("--json and --csv - both want standard output");
  if (out_) check_new_output(*out_, overwrite_, "--overwrite");
  if (csv_ && *csv_ != "-") {
    check_new_output(*csv_, overwrite_, "--overwrite");
    std::error_code error;
    if (out_ && fs::weakly_canonical(*out_, error) == fs::weakly_canonical(*csv_, error))
      throw UsageError("--out and --csv both name {}", csv_->string());
  }
}

AnalyzeCommand::Traces AnalyzeCommand::open_traces() const {
  Traces traces;
  for (std::size_t i = 0; i < n_traces_; ++i) {
    traces.push_back(TraceFile::open(files_[i], {}));
    for (const auto& warning : traces.back().warnings())
      note("kvscope: {}: {}", files_[i].string(), warning);
    const TraceInfo& info = traces.back().info();
    if (info.status != TraceStatus::complete) {
      note("kvscope: {} is {}: it holds {} tokens", files_[i].string(), name_of(info.status),
           info.n_tokens);
    }
  }
  return traces;
}

AnalyzeCommand::Json AnalyzeCommand::compute(const Traces& traces, int n_threads,
                                             const std::string& command_line,
                                             const std::optional<fs::path>& journal,
                                             ResultInfo& made) const {
  const StopOnSignal stop;
  ThreadPool pool(n_threads);
  ProgressReporter progress(work_.progress);
  std::unique_ptr<ResultWriter> output;
  if (out_) {
    output = create_result_file(*out_, overwrite_);
  } else {
    output = std::make_unique<NullResult>();
  }
  ResultProvenance provenance{.command_line = command_line, .writer = writer_name(), .made = &made};
  std::optional<KnownLayers> known;
  if (journal) known.emplace(*output, *journal);
  ResultWriter& to = known ? static_cast<ResultWriter&>(*known) : *output;
  return call(traces, {to, pool, progress.callback(), stop.token(), provenance});
}

void AnalyzeCommand::tell(const ResultInfo& made, const Json& summary, const Json& formats) const {
  if (csv_) {
    std::ostringstream text;
    write_layers_csv(summary, text);
    if (*csv_ == "-") {
      print_data(text.str());
    } else {
      save_text(*csv_, text.str(), overwrite_);
    }
  }
  if (json_) {
    Json report = {{"kind", card_.kind}};
    for (std::size_t i = 0; i < n_traces_; ++i) report["traces"].push_back(files_[i].string());
    report["options"] = options_json();
    report["result_file"] = out_ ? Json(out_->string()) : Json(nullptr);
    // options and layers: as they were called before 0.1.0
    report["config"] = report["options"];
    report["config"].update(formats);
    report["inputs"] = inputs_of(made);
    report.update(summary);
    if (summary.contains("layers") && !summary.contains("rows")) report["rows"] = summary["layers"];
    print_json(report);
  } else if (!csv_ || *csv_ != "-") {
    const Json totals = summary.value("totals", Json::object());
    print(fmt::format("{}{}{}\n{}: {}\n", summary_table(summary, card_.columns), more_text(summary),
                      NumberFormats::of(formats).line(), card_.kind, headline(totals)));
  }
}

}  // namespace kvscope::cli
