// What all kinds of kvscope analyze share: traces in, a table, JSON or CSV out, arrays to a file. A
// kind is a card of words (analyze_kinds.cpp), or a class of its own.
#pragma once

#include <filesystem>
#include <nlohmann/json_fwd.hpp>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "analysis/base/analysis.hpp"
#include "analysis/cli/frame/command.hpp"
#include "analysis/cli/frame/filled_text.hpp"
#include "analysis/cli/runs/run_job.hpp"
#include "core/base/progress.hpp"
#include "core/selectors/method_spec.hpp"
#include "traces/reader.hpp"

namespace kvscope::cli {

/// The words of a kind.
struct AnalysisCard {
  std::string kind;
  std::string summary;
  std::string about = "";             // a sentence or two for the help: what the numbers mean
  std::vector<FilledColumn> columns;  // of the table over layers, each a value alone: "{mass}"
  std::string headline = "";          // one line under the table, as filled_in has it
  std::string measured = "";          // the total that says whether anything was, and
  std::string if_none = "";           // what is said if it is 0
  std::string more_of = "";           // a second table, of this list of the summary
  std::vector<FilledColumn> more = {};
  std::string must_be_zero = "";  // total that counts how often a bound that must hold was violated
  std::string needs_out = "";     // why --out must be given
  bool one_shape = false;  // KV heads or channels are axes of its arrays: of layers of one shape
  bool has_items = false;  // its layers are measured one by one (AnalyzeOne; LayerArrays::load)
};

class AnalyzeCommand : public Command {
 public:
  CommandCard card() const override;
  void declare(OptionSet& options) override;
  int run(const OptionSet& options, const std::string& command_line) override;

 protected:
  using Json = nlohmann::ordered_json;
  using Traces = std::vector<TraceFile>;

  /// `n_traces`: 1, or 2 for a verifier and its draft.
  explicit AnalyzeCommand(AnalysisCard card, std::size_t n_traces = 1)
      : card_(std::move(card)), n_traces_(n_traces) {}
  const AnalysisCard& kind_card() const { return card_; }

  /// The options of this kind alone.
  virtual void declare_kind(OptionSet& options) = 0;
  /// Their values, for the report.
  virtual Json options_json() const = 0;
  /// Whose files decide the numbers too.
  virtual std::vector<MethodSpec> methods() const { return {}; }
  /// A trace that an option names, which is read besides.
  virtual std::optional<std::filesystem::path> other_trace() const { return std::nullopt; }
  /// Runs the analysis; returns its summary with "layers" and "totals".
  virtual Json call(const Traces& traces, const AnalysisRun& run) const = 0;
  /// One line under the table: the card's.
  virtual std::string headline(const Json& totals) const;
  /// The layers that are measured each by itself, which are this kind's items; empty: it has none.
  virtual std::vector<Index> item_layers(const Traces& traces) const;

 private:
  /// Text between the table and the headline, with its line ends: the card's second table, and what
  /// was left out.
  std::string more_text(const Json& summary) const;
  void check_outputs() const;
  Traces open_traces() const;
  /// `known`: layers that are not computed again; null: none is.
  Json compute(const Traces& traces, ThreadPool& pool, const std::string& command_line,
               const Work* known, ResultInfo& made);
  /// Of methods(), as results name them; null: none.
  Json artifacts() const;
  Work work_of(const Traces& traces, ThreadPool& pool) const;
  /// `formats`: keys of analysis/base/number_formats.hpp.
  void tell(const ResultInfo& made, const Json& summary, const Json& formats) const;

  AnalysisCard card_;
  std::size_t n_traces_;
  std::filesystem::path files_[2];
  std::optional<std::filesystem::path> csv_;
  RunJob job_;
};

}  // namespace kvscope::cli
