#include "analysis/cli/inspect/analyze_command.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <map>

#include "analysis/base/base64.hpp"
#include "analysis/base/calibration_notes.hpp"
#include "analysis/base/json_rows.hpp"
#include "analysis/base/layer_store.hpp"
#include "analysis/base/mapped.hpp"
#include "analysis/base/number_formats.hpp"
#include "analysis/cli/frame/common_options.hpp"
#include "analysis/cli/frame/filled_text.hpp"
#include "analysis/cli/frame/output.hpp"
#include "analysis/cli/frame/save_text.hpp"
#include "analysis/cli/frame/text_table.hpp"
#include "core/base/error.hpp"
#include "core/base/json.hpp"
#include "core/base/read_files.hpp"
#include "core/base/version.hpp"
#include "core/trace/result.hpp"
#include "traces/result_file.hpp"

namespace kvscope::cli {

namespace fs = std::filesystem;

namespace {

/// A result that nobody wants: for runs that give their summary only.
class NullResult : public ResultWriter {
 public:
  void begin(const ResultInfo&) override {}
  void declare(const ResultArray&) override {}
  void add_plot(const ResultPlot&) override {}
  void finish(const nlohmann::ordered_json&) override {}

 protected:
  void write_raw(std::string_view, ResultType, Index, const void*, Index) override {}
};

// Analyses in items: one layer each. An item keeps the arrays of its layer; at the end the analysis
// runs over layers that are all known, which makes the same summary and the same file as a run that
// computed them.

/// The arrays of a layer by name, as text.
using LayerTexts = std::map<std::string, std::string>;

/// A writer that drops everything and keeps the arrays of one layer.
class OneLayer final : public NullResult, public LayerStore {
 public:
  explicit OneLayer(Index slot) : slot_(slot) {}
  bool knows(Index slot) const override { return slot != slot_; }
  void restore(const std::string&, Index, std::span<std::byte>) const override {}
  void keep(const std::string& name, Index slot, std::span<const std::byte> values) override {
    if (slot == slot_) arrays_[name] = text_from_bytes(values);
  }
  const LayerTexts& arrays() const { return arrays_; }

 private:
  Index slot_;
  LayerTexts arrays_;
};

/// Hands everything on to another writer, and knows the layers of a store.
class KnownLayers final : public LayersBeside {
 public:
  /// Throws FormatError if a layer is missing. `to` must outlive this object.
  KnownLayers(ResultWriter& to, const Work& work, const Store& store)
      : LayersBeside(to), where_(store.folder().string()) {
    for (std::size_t i = 0; i < work.keys.size(); ++i)
      answer_in(store, work.keys[i]).get_to(layers_[static_cast<Index>(i)]);
  }
  bool knows(Index slot) const override { return layers_.contains(slot); }
  void restore(const std::string& name, Index slot, std::span<std::byte> values) const override {
    const LayerTexts& arrays = layers_.at(slot);
    const auto found = arrays.find(name);
    const auto bytes =
        found == arrays.end() ? std::nullopt : bytes_from_text(found->second, values.size());
    if (!bytes) {
      throw FormatError("{}: expected {} bytes of the array {} of layer {}, found {}", where_,
                        values.size(), name, slot,
                        found == arrays.end() ? "none" : "another number");
    }
    std::ranges::copy(*bytes, values.begin());
  }
  void keep(const std::string&, Index, std::span<const std::byte>) override {}

 private:
  std::string where_;
  std::map<Index, LayerTexts> layers_;
};

/// The rows under "layers", one line each, then one line "all" from "totals", in those columns of
/// which some row has the value. Empty without rows.
std::string summary_table(const Json& summary, const std::vector<FilledColumn>& wanted) {
  Json rows = summary.value("layers", Json::array());
  if (rows.empty()) return "";
  Json totals = summary.value("totals", Json::object());
  std::vector<FilledColumn> columns = {{"layer", "{layer}"}};
  bool has_totals = false;
  for (const FilledColumn& column : wanted) {
    const std::string key(column.cell.substr(1, column.cell.size() - 2));
    if (std::ranges::none_of(rows, [&](const Json& row) { return row.contains(key); })) continue;
    columns.push_back(column);
    has_totals = has_totals || totals.contains(key);
  }
  totals["layer"] = "all";
  if (has_totals) rows.push_back(std::move(totals));
  return filled_table(rows, columns);
}

}  // namespace

CommandCard AnalyzeCommand::card() const {
  const std::string name = "analyze " + card_.kind;
  const std::string files = n_traces_ == 2 ? "verifier.h5 draft.h5" : "trace.h5";
  const bool has_rows = card_.needs_out.empty();
  std::string about = card_.about + (has_rows && !card_.about.empty() ? "\n" : "");
  if (has_rows)
    about +=
        "Prints one line per layer; with --out also writes every array to an HDF5 file that h5web "
        "and silx plot.";
  if (!card_.must_be_zero.empty()) about += " Exit code 5 if a bound that must hold was violated.";
  const std::string line =
      fmt::format("kvscope {} {}{}", name, files, has_rows ? "" : " --layers 2 --heads 6");
  std::vector<Example> examples;
  if (has_rows) examples.push_back({line, "the summary as a table"});
  examples.push_back(
      {line + " --out result.h5 --json", "all arrays to a file, the summary as JSON"});
  return {name, card_.summary, about, examples};
}

std::string AnalyzeCommand::headline(const Json& totals) const {
  const bool is_empty = !card_.measured.empty() && totals.value(card_.measured, Index{1}) == 0;
  return is_empty ? card_.if_none : filled_in(card_.headline, totals);
}

std::string AnalyzeCommand::more_text(const Json& summary) const {
  std::string text;
  if (!card_.more_of.empty() && !summary[card_.more_of].empty())
    text = "\n" + filled_table(summary[card_.more_of], card_.more);
  for (const Json& sentence : summary.value("skipped", Json::array()))
    text += fmt::format("left out: {}\n", sentence.get<std::string>());
  return text;
}

void AnalyzeCommand::declare(OptionSet& options) {
  if (n_traces_ == 2) {
    options.positional("VERIFIER", "the trace of the large model", files_[0], /*required=*/true)
        .of({FileKind::trace});
    options
        .positional("DRAFT", "the trace of the small model over the same tokens", files_[1],
                    /*required=*/true)
        .of({FileKind::trace});
  } else {
    options.positional("TRACE", "a recorded trace", files_[0], /*required=*/true)
        .of({FileKind::trace});
  }
  options.add("out", "FILE", "write the arrays to this HDF5 file", job_.out)
      .needed(card_.needs_out)
      .short_name = 'o';
  if (card_.needs_out.empty())
    options.add("csv", "FILE",
                "write the per-layer rows as CSV (- is standard output, instead of the table)",
                csv_);
  options.flag("overwrite", "replace existing files", job_.overwrite);
  declare_kind(options);
  job_.declare_work(options);
}

int AnalyzeCommand::run(const OptionSet& given, const std::string&) {
  job_.check();
  if (!job_.is_worker()) check_outputs();
  const Traces traces = open_traces();
  job_.check_inputs();
  if (csv_ && !job_.is_worker()) refuse_read_file(*csv_);
  // As the same options give it in any order; files and threads do not decide the numbers.
  const std::string command_line = given.command_line(name(), kOptionsOfNoNumber);
  auto hashes =
      mapped<std::string>(traces, [](const auto& trace) { return trace.info().content_hash; });
  if (const auto other = other_trace())
    hashes.push_back(TraceFile::open(*other, {}).info().content_hash);
  const Json says = {{"version", writer_name()},
                     {"command_line", command_line},
                     {"trace_hashes", hashes},
                     {"artifacts", artifacts()}};
  if (job_.is_complete(says, {}, /*wants_more=*/csv_.has_value())) return kOk;
  ThreadPool pool(job_.work.n_threads());
  std::optional<Work> work;
  if (job_.is_split()) {
    work = work_of(traces, pool);
    if (const auto code = job_.finish(*work, given, name())) return *code;
  }
  ResultInfo made;
  Json summary = compute(traces, pool, command_line, work ? &*work : nullptr, made);
  Json formats = Json::object();
  NumberFormats::of(made.config).add_to(formats);
  for (const char* key : {"layers", "rows"}) {
    if (!summary.contains(key)) continue;
    for (Json& row : summary[key]) {
      if (row.is_object()) row.update(formats);
    }
  }
  tell(made, summary, formats);
  if (summary.contains("left_out"))
    note("kvscope: left out: {}", summary["left_out"].get<std::string>());
  job_.end();
  const std::int64_t n_violations =
      summary.value("totals", Json::object()).value(card_.must_be_zero, std::int64_t{0});
  if (n_violations == 0) return kOk;
  note("kvscope: a bound that must hold was violated {} times", n_violations);
  return kCheckFailed;
}

std::vector<Index> AnalyzeCommand::item_layers(const Traces&) const {
  return {};
}

AnalyzeCommand::Json AnalyzeCommand::artifacts() const {
  Json config;
  add_artifacts(methods(), config);
  return config.is_null() ? Json() : config.at("artifacts");
}

Work AnalyzeCommand::work_of(const Traces& traces, ThreadPool& pool) const {
  const std::vector<Index> layers = item_layers(traces);
  if (layers.empty()) {
    throw UsageError(
        "{} has no items: it is one piece, or what it says of a layer hangs on other layers",
        name());
  }
  const TraceInfo& info = traces.front().info();
  Work work;
  work.command = name();
  work.config = {{"options", options_json()},
                 {"layers", layers},
                 {"trace", {{"uuid", info.uuid}, {"hash", info.content_hash}}},
                 {"artifacts", artifacts()}};
  name_items(work, layers.size());
  work.run = [this, &traces, &pool, keys = work.keys](std::span<const std::size_t> items,
                                                      const Lease*, const ProgressFn& progress,
                                                      std::stop_token stop) {
    const std::size_t item = items.front();
    OneLayer layer(static_cast<Index>(item));
    call(traces, {layer, pool, progress, std::move(stop), {}});
    return answer_of(keys[item], layer.arrays());
  };
  return work;
}

void AnalyzeCommand::check_outputs() const {
  if (job_.json && csv_ && *csv_ == "-")
    throw UsageError("--json and --csv - both want standard output");
  if (job_.out) check_new_output(*job_.out, /*overwrite=*/true, FileKind::result);
  if (csv_ && *csv_ != "-") {
    check_new_output(*csv_, job_.overwrite, FileKind::csv);
    std::error_code error;
    if (job_.out && fs::weakly_canonical(*job_.out, error) == fs::weakly_canonical(*csv_, error))
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
      note("kvscope: {} is {}: it holds {} tokens", files_[i].string(), enum_name(info.status),
           info.n_tokens);
    }
  }
  return traces;
}

AnalyzeCommand::Json AnalyzeCommand::compute(const Traces& traces, ThreadPool& pool,
                                             const std::string& command_line,
                                             const Work* known_work, ResultInfo& made) {
  const Running run(job_.work.progress);
  std::unique_ptr<ResultWriter> output;
  if (job_.writes()) {
    output = create_result_file(*job_.out, job_.may_replace());
  } else {
    output = std::make_unique<NullResult>();
  }
  ResultProvenance provenance{.command_line = command_line, .writer = writer_name(), .made = &made};
  std::optional<KnownLayers> known;
  if (known_work != nullptr) known.emplace(*output, *known_work, job_.store());
  ResultWriter& to = known ? static_cast<ResultWriter&>(*known) : *output;
  return call(traces, {to, pool, run.progress, run.stop, provenance});
}

void AnalyzeCommand::tell(const ResultInfo& made, const Json& summary, const Json& formats) const {
  if (csv_) {
    const Json layers = summary.value("layers", Json::array());
    if (layers.empty()) throw ConfigError("the summary holds no layers to write as CSV");
    if (*csv_ == "-") {
      print_data(rows_csv(layers));
    } else {
      write_new_file(*csv_, rows_csv(layers), job_.overwrite);
    }
  }
  if (job_.json) {
    Json report = {{"kind", card_.kind}};
    for (std::size_t i = 0; i < n_traces_; ++i) report["traces"].push_back(files_[i].string());
    report["options"] = options_json();
    report["result_file"] = job_.out ? Json(job_.out->string()) : Json(nullptr);
    // options and layers: as they were called before 0.1.0
    report["config"] = report["options"];
    report["config"].update(formats);
    report["inputs"] = inputs_of(made);
    report.update(summary);
    if (summary.contains("layers") && !summary.contains("rows")) report["rows"] = summary["layers"];
    print_json(report);
  } else if (!csv_ || *csv_ != "-") {
    const Json totals = summary.value("totals", summary);
    const std::string above = summary_table(summary, card_.columns) + more_text(summary) +
                              NumberFormats::of(formats).line();
    print("{}{}{}: {}\n{}", above, above.empty() ? "" : "\n", card_.kind, headline(totals),
          windows_left_out(totals.value("windowed_layers", std::size_t{0})));
  }
}

}  // namespace kvscope::cli
