// The commands behind the items of kvscope papers, as items of a store: each is run once, in this
// process or by workers, and its result lies in the report's folder.
//
// A run's key covers its command as items.toml has it, the models, how they are computed, and the
// keys of the runs that it reads: what changes is run again, with what hangs on it.
#pragma once

#include <filesystem>
#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <span>
#include <stop_token>
#include <string>
#include <string_view>
#include <vector>

#include "analysis/cli/models/model_source.hpp"
#include "analysis/figures/result_view.hpp"
#include "analysis/papers/item.hpp"
#include "analysis/papers/measure.hpp"
#include "analysis/runs/work.hpp"
#include "core/base/progress.hpp"

namespace kvscope::cli {

struct PapersFolder {
  std::filesystem::path out;
  std::string model = "verifier";
  std::optional<std::string> draft;  // empty: the first layers of the model become one
  EngineOptions engine;              // of commands that run the model
  bool quick = false;
  int n_threads = 1;
};

class PapersRunner {
 public:
  /// For the runs behind these items. `say` gets a line before each command that runs.
  PapersRunner(PapersFolder folder, std::span<const papers::Item* const> items,
               std::function<void(const std::string&)> say);

  /// The runs, in an order in which each stands behind what it reads. This object must outlive it.
  Work work();
  Store& store() { return store_; }
  /// What the system refused is tried again (with `retry_failed` whatever failed); what somebody
  /// else changed in the folder is made again.
  void forget_failed_and_changed(bool retry_failed);

  /// The result of a run that was done, or why there is none.
  papers::RunResult result(const std::string& name);
  /// The command line of a run, as it is typed in the report's folder, and its result's path there.
  /// Runs that it needs have to be done.
  std::string typed(const std::string& name);
  std::string file_of(const std::string& name) const;
  /// That the runs took, whenever they were run.
  double seconds() const;

  /// What of the runs is known, and what the others took when they last ran: {"commands", "known",
  /// "seconds"}; null where one never ran.
  nlohmann::ordered_json forecast() const;

  /// What the draft is, for the report; empty if none was needed, or none could be made.
  std::string draft_text() const;
  /// True if the run's numbers depend on a draft that was made of the model's own layers.
  bool uses_own_draft(const std::string& name) const;

  /// The words of `command`; `in_folder`: paths as they are typed in the report's folder.
  std::vector<std::string> words_of(const std::string& command, const std::string& out,
                                    bool in_folder);

  const PapersFolder& folder() const { return folder_; }

 private:
  const papers::Run& find(const std::string& name) const;
  /// The run whose result stands for a name in braces; null: none's.
  const papers::Run* run_behind(std::string_view name) const;
  /// The runs whose results it reads.
  std::vector<const papers::Run*> needs_of(const papers::Run& run) const;
  void add_run(const papers::Run& run);
  std::string draft_word(bool in_folder) const;
  Index own_layers() const;
  const std::string& command_of(const papers::Run& run) const;
  std::filesystem::path path_of(const papers::Run& run) const;
  std::string substitute(std::string_view name, const std::string& out, bool in_folder);
  std::string picked(std::string_view name);
  ItemState state_of(std::size_t place, const Store& store) const;
  std::vector<nlohmann::ordered_json> execute(const papers::Run& run, const ProgressFn& progress,
                                              const std::stop_token& stop);

  PapersFolder folder_;
  std::function<void(const std::string&)> say_;
  std::string models_;                    // identity of both checkpoints
  std::vector<const papers::Run*> runs_;  // behind the items
  std::map<std::string, std::string> keys_;
  Store store_;
  std::map<std::string, std::unique_ptr<ResultView>> views_;
};

}  // namespace kvscope::cli
