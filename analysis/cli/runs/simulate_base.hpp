// What the kinds of kvscope simulate share: models, text, selectors, budgets, store, outputs.
#pragma once

#include <filesystem>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "analysis/cli/frame/command.hpp"
#include "analysis/cli/models/model_source.hpp"
#include "analysis/cli/models/prompt.hpp"
#include "analysis/cli/runs/run_job.hpp"
#include "analysis/simulate/simulation.hpp"

namespace kvscope::cli {

class SimulateCommand : public Command {
 public:
  void declare(OptionSet& options) final;
  int run(const OptionSet& options, const std::string& command_line) final;

 protected:
  virtual void declare_task(OptionSet& options) = 0;
  /// The phases that a method may be defined for; one is enough.
  virtual std::vector<Phase> phases() const = 0;
  /// Called before anything is loaded: throws UsageError for values that cannot be.
  virtual void check_task() const {}
  virtual std::unique_ptr<SimulationTask> make_task(const SimulationSetup& setup) const = 0;
  /// The printed table; each row has a "method": selector and budget, or what it was matched to.
  virtual std::string summary_table(const nlohmann::ordered_json& rows) const = 0;
  /// Called once when the model is there, before make_task.
  virtual void prepare(const std::filesystem::path& model, const SimulationSetup& setup,
                       ThreadPool& pool) {
    (void)model, (void)setup, (void)pool;
  }
  /// True for tasks that cannot run without a draft model.
  virtual bool needs_draft() const { return false; }
  /// Selectors when none are given.
  virtual std::vector<MethodSpec> default_selectors() const { return {}; }
  /// True for tasks whose prompts can be printed.
  virtual bool shows_prompts() const { return false; }
  /// True if "full" joins the selectors, so that results can be put beside the dense ones.
  virtual bool adds_full() const { return false; }

  SimulationOptions options_;

 private:
  SimulationOptions simulation_options() const;
  std::optional<std::string> draft_word() const;
  void check_usage() const;
  /// The draft, where a method or the task wants one; names it in `models`.
  std::optional<Transformer> load_draft(const SimulationOptions& options,
                                        SimulationModels& models) const;
  /// The texts that are run, which `models` then refers to.
  std::vector<Prompt> load_texts(SimulationModels& models) const;
  /// Writes and prints the result; returns the exit code.
  int tell(const SimulationTask& task, SimulationResult& result, const OptionSet& given);

  std::string model_ = "verifier";
  std::optional<std::string> draft_;
  std::vector<std::filesystem::path> texts_;
  std::optional<std::filesystem::path> tokens_;
  std::vector<std::string> selectors_;
  std::vector<std::string> budgets_;
  std::vector<std::string> match_;
  bool no_special_ = false;
  Index n_shown_ = 0;
  EngineOptions engine_;
  RunJob job_;
};

}  // namespace kvscope::cli
