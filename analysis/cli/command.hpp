// What a subcommand is: a name, a text, options, and a run; main, help, completion and manual see
// only this.
#pragma once

#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "analysis/cli/options.hpp"

namespace kvscope::cli {

/// One line of a command's help that can be typed, and what it does.
struct Example {
  std::string command;
  std::string meaning;
};

/// One subcommand. The object holds the options' targets, so it is used for one run only.
class Command {
 public:
  virtual ~Command() = default;
  /// "record" or, in a group, "analyze quoka".
  virtual std::string name() const = 0;
  /// One line without a full stop, for the overview.
  virtual std::string summary() const = 0;
  /// A paragraph or two for the command's own help; may be empty.
  virtual std::string description() const { return ""; }
  virtual std::vector<Example> examples() const { return {}; }
  /// Its place in its group: ascending, then by the name of its file.
  virtual int place() const { return 100; }
  virtual void declare(OptionSet& options) = 0;
  /// After declare and parse. `command_line`: as typed, for provenance. Returns an ExitCode.
  virtual int run(const OptionSet& options, const std::string& command_line) = 0;
};

/// Every command in the order of the overview.
std::vector<std::unique_ptr<Command>> all_commands();

/// Names of the groups ("analyze", "bench") with what their commands have in common.
std::vector<std::pair<std::string, std::string>> command_groups();

/// One per file analyze_NAME.cpp, which has make_analyze_NAME_command(); CMake finds them.
std::vector<std::unique_ptr<Command>> analyze_commands();

// One factory per other file of this folder.
std::unique_ptr<Command> make_record_command();
std::unique_ptr<Command> make_tokenize_command();
std::unique_ptr<Command> make_info_command();
std::unique_ptr<Command> make_models_command();
std::unique_ptr<Command> make_verify_command();
std::unique_ptr<Command> make_recover_command();
std::unique_ptr<Command> make_sweep_command();
std::unique_ptr<Command> make_merge_command();
std::unique_ptr<Command> make_fit_command();
std::unique_ptr<Command> make_fit_draft_command();
std::unique_ptr<Command> make_selectors_command();
std::unique_ptr<Command> make_simulate_perplexity_command();
std::unique_ptr<Command> make_simulate_passkey_command();
std::unique_ptr<Command> make_simulate_needle_command();
std::unique_ptr<Command> make_simulate_ruler_command();
std::unique_ptr<Command> make_simulate_chain_command();
std::unique_ptr<Command> make_simulate_speculative_command();
std::unique_ptr<Command> make_table_command();
std::unique_ptr<Command> make_notebook_command();
std::unique_ptr<Command> make_ladder_command();
std::unique_ptr<Command> make_export_command();
std::unique_ptr<Command> make_figure_command();
std::unique_ptr<Command> make_figures_command();
std::unique_ptr<Command> make_reproduce_command();
std::unique_ptr<Command> make_bench_prefill_command();
std::unique_ptr<Command> make_bench_record_command();
std::unique_ptr<Command> make_bench_decode_command();
std::unique_ptr<Command> make_bench_select_command();
std::unique_ptr<Command> make_bench_live_command();
std::unique_ptr<Command> make_bench_nucleus_command();
std::unique_ptr<Command> make_bench_machine_command();
std::unique_ptr<Command> make_bench_traceset_command();
std::unique_ptr<Command> make_cost_command();
std::unique_ptr<Command> make_pareto_command();
std::unique_ptr<Command> make_papers_command();
std::unique_ptr<Command> make_study_plan_command();
std::unique_ptr<Command> make_study_run_command();
std::unique_ptr<Command> make_study_status_command();
std::unique_ptr<Command> make_study_table_command();
std::unique_ptr<Command> make_study_figures_command();
std::unique_ptr<Command> make_study_report_command();
std::unique_ptr<Command> make_study_work_command();
std::unique_ptr<Command> make_explain_command();
std::unique_ptr<Command> make_version_command();
std::unique_ptr<Command> make_completion_command();
std::unique_ptr<Command> make_help_command();

}  // namespace kvscope::cli
