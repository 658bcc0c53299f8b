// What all kinds of kvscope analyze share: traces in, a table, JSON or CSV out, arrays to a file. A
// kind is one file that derives from AnalyzeCommand: its options, its call, its table, its
// headline.
#pragma once

#include <filesystem>
#include <nlohmann/json_fwd.hpp>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "analysis/analysis.hpp"
#include "analysis/cli/analyze_report.hpp"
#include "analysis/cli/command.hpp"
#include "analysis/cli/common_options.hpp"
#include "analysis/cli/unit_options.hpp"
#include "core/base/progress.hpp"
#include "traces/reader.hpp"

namespace kvscope::cli {

/// What an analysis is called with besides its traces and options.
struct AnalysisRun {
  ResultWriter& output;
  ThreadPool& pool;
  ProgressFn progress;
  std::stop_token stop;
  ResultProvenance provenance;
};

class AnalyzeCommand : public Command {
 public:
  std::string name() const override { return "analyze " + kind_; }
  std::string summary() const override { return summary_; }
  std::string description() const override;
  std::vector<Example> examples() const override;
  void declare(OptionSet& options) override;
  int run(const OptionSet& options, const std::string& command_line) override;

 protected:
  using Json = nlohmann::ordered_json;
  using Traces = std::vector<TraceFile>;

  /// `n_traces`: 1, or 2 for a verifier and its draft.
  AnalyzeCommand(std::string kind, std::string summary, std::size_t n_traces)
      : kind_(std::move(kind)), summary_(std::move(summary)), n_traces_(n_traces) {}

  /// A sentence or two for the help: what the numbers mean. May be empty.
  virtual std::string about() const { return ""; }
  /// The options of this kind alone.
  virtual void declare_kind(OptionSet& options) = 0;
  /// Their values, for the report.
  virtual Json options_json() const = 0;
  /// Runs the analysis; returns its summary with "layers" and "totals".
  virtual Json call(const Traces& traces, const AnalysisRun& run) const = 0;
  virtual std::vector<ReportColumn> columns() const = 0;
  /// One line under the table.
  virtual std::string headline(const Json& totals) const = 0;
  /// True if some bound must hold.
  virtual bool checks_bounds() const { return false; }
  /// The layers that are measured each by itself, which are this kind's units; empty: it has none.
  virtual std::vector<Index> unit_layers(const Traces& traces) const;
  /// Text between the table and the headline, with its line ends; most kinds have none.
  virtual std::string more_text(const Json& summary) const;
  /// How often a bound that must hold was violated: more than 0 is exit code 5.
  virtual std::int64_t violations(const Json& totals) const;

 private:
  void check_outputs() const;
  Traces open_traces() const;
  Json compute(const Traces& traces, int n_threads, const std::string& command_line,
               const std::optional<std::filesystem::path>& journal, ResultInfo& made) const;
  UnitWork work_of(const Traces& traces, ThreadPool& pool, const OptionSet& given) const;
  /// `formats`: keys of analysis/number_formats.hpp.
  void tell(const ResultInfo& made, const Json& summary, const Json& formats) const;

  std::string kind_;
  std::string summary_;
  std::size_t n_traces_;
  std::filesystem::path files_[2];
  std::optional<std::filesystem::path> out_;
  std::optional<std::filesystem::path> csv_;
  bool overwrite_ = false;
  bool json_ = false;
  UnitOptions units_;
  WorkOptions work_;
};

/// A number of the totals for the headline; NaN if it is not there.
double total_of(const nlohmann::ordered_json& totals, std::string_view key);

}  // namespace kvscope::cli
