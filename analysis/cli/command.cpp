#include "analysis/cli/command.hpp"

#include <initializer_list>

namespace kvscope::cli {

std::vector<std::unique_ptr<Command>> all_commands() {
  std::vector<std::unique_ptr<Command>> commands;
  const auto add = [&](std::initializer_list<MakeCommand*> makers) {
    for (MakeCommand* make : makers) commands.push_back(make());
  };
  add({make_record_command, make_info_command, make_models_command, make_verify_command,
       make_recover_command});
  for (auto& command : analyze_commands()) commands.push_back(std::move(command));
  add({make_ladder_command, make_cost_command, make_sweep_command, make_merge_command});
  add({make_fit_command, make_fit_draft_command});
  add({make_simulate_perplexity_command, make_simulate_passkey_command,
       make_simulate_needle_command});
  add({make_simulate_ruler_command, make_simulate_chain_command,
       make_simulate_speculative_command});
  add({make_study_plan_command, make_study_run_command, make_study_status_command,
       make_study_table_command, make_study_figures_command, make_study_report_command,
       make_study_work_command});
  add({make_explain_command, make_pareto_command, make_papers_command, make_selectors_command});
  add({make_table_command, make_notebook_command, make_figure_command, make_figures_command});
  add({make_reproduce_command, make_export_command, make_tokenize_command});
  add({make_bench_prefill_command, make_bench_record_command, make_bench_decode_command});
  add({make_bench_select_command, make_bench_live_command, make_bench_nucleus_command});
  add({make_bench_machine_command, make_bench_traceset_command});
  add({make_version_command, make_completion_command, make_help_command});
  return commands;
}

std::vector<std::pair<std::string, std::string>> command_groups() {
  return {{"analyze", "analyses of recorded traces"},
          {"simulate", "the model with a selector inside its attention"},
          {"study", "a question over models, texts, methods and budgets as one file"},
          {"bench", "measurements of speed"}};
}

}  // namespace kvscope::cli
