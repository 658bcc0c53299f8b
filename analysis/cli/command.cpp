#include "analysis/cli/command.hpp"

namespace kvscope::cli {

std::vector<std::unique_ptr<Command>> all_commands() {
  std::vector<std::unique_ptr<Command>> commands;
  commands.push_back(make_record_command());
  commands.push_back(make_info_command());
  commands.push_back(make_models_command());
  commands.push_back(make_verify_command());
  commands.push_back(make_recover_command());
  for (auto& command : analyze_commands()) commands.push_back(std::move(command));
  commands.push_back(make_ladder_command());
  commands.push_back(make_cost_command());
  commands.push_back(make_sweep_command());
  commands.push_back(make_merge_command());
  commands.push_back(make_fit_command());
  commands.push_back(make_fit_draft_command());
  commands.push_back(make_simulate_perplexity_command());
  commands.push_back(make_simulate_passkey_command());
  commands.push_back(make_simulate_needle_command());
  commands.push_back(make_simulate_ruler_command());
  commands.push_back(make_simulate_chain_command());
  commands.push_back(make_simulate_speculative_command());
  commands.push_back(make_study_plan_command());
  commands.push_back(make_study_run_command());
  commands.push_back(make_study_status_command());
  commands.push_back(make_study_table_command());
  commands.push_back(make_study_figures_command());
  commands.push_back(make_study_report_command());
  commands.push_back(make_study_work_command());
  commands.push_back(make_explain_command());
  commands.push_back(make_pareto_command());
  commands.push_back(make_papers_command());
  commands.push_back(make_selectors_command());
  commands.push_back(make_table_command());
  commands.push_back(make_notebook_command());
  commands.push_back(make_figure_command());
  commands.push_back(make_figures_command());
  commands.push_back(make_reproduce_command());
  commands.push_back(make_export_command());
  commands.push_back(make_tokenize_command());
  commands.push_back(make_bench_prefill_command());
  commands.push_back(make_bench_record_command());
  commands.push_back(make_bench_decode_command());
  commands.push_back(make_bench_select_command());
  commands.push_back(make_bench_live_command());
  commands.push_back(make_bench_nucleus_command());
  commands.push_back(make_bench_machine_command());
  commands.push_back(make_bench_traceset_command());
  commands.push_back(make_version_command());
  commands.push_back(make_completion_command());
  commands.push_back(make_help_command());
  return commands;
}

std::vector<std::pair<std::string, std::string>> command_groups() {
  return {{"analyze", "analyses of recorded traces"},
          {"simulate", "the model with a selector inside its attention"},
          {"study", "a question over models, texts, methods and budgets as one file"},
          {"bench", "measurements of speed"}};
}

}  // namespace kvscope::cli
