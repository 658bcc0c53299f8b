// What a subcommand is: a name, a text, options, and a run; main, help, completion and manual see
// only this.
#pragma once

#include "analysis/cli/options.hpp"
#include "core/base/vocabulary.hpp"

namespace kvscope::cli {

/// One line of a command's help that can be typed, and what it does.
struct Example {
  std::string command;
  std::string meaning;
};

/// The words of a command, as Command has them one by one.
struct CommandCard {
  std::string name;
  std::string summary;
  std::string description = "";
  std::vector<Example> examples = {};
};

/// One subcommand. The object holds the options' targets, so it is used for one run only.
class Command {
 public:
  virtual ~Command() = default;
  /// A command has a card, or says its words by the functions below.
  virtual CommandCard card() const { return {}; }
  /// "record" or, in a group, "analyze quoka".
  virtual std::string name() const { return card().name; }
  /// One line without a full stop, for the overview.
  virtual std::string summary() const { return card().summary; }
  /// A paragraph or two for the command's own help; may be empty.
  virtual std::string description() const { return card().description; }
  virtual std::vector<Example> examples() const { return card().examples; }
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
using MakeCommand = std::unique_ptr<Command>();
MakeCommand make_record_command, make_tokenize_command, make_info_command, make_models_command,
    make_verify_command, make_recover_command, make_sweep_command, make_merge_command,
    make_fit_command, make_fit_draft_command, make_selectors_command,
    make_simulate_perplexity_command, make_simulate_passkey_command, make_simulate_needle_command,
    make_simulate_ruler_command, make_simulate_chain_command, make_simulate_speculative_command,
    make_table_command, make_notebook_command, make_ladder_command, make_export_command,
    make_figure_command, make_figures_command, make_reproduce_command, make_bench_prefill_command,
    make_bench_record_command, make_bench_decode_command, make_bench_select_command,
    make_bench_live_command, make_bench_nucleus_command, make_bench_machine_command,
    make_bench_traceset_command, make_cost_command, make_pareto_command, make_papers_command,
    make_study_plan_command, make_study_run_command, make_study_status_command,
    make_study_table_command, make_study_figures_command, make_study_report_command,
    make_study_work_command, make_explain_command, make_version_command, make_completion_command,
    make_help_command;

}  // namespace kvscope::cli
