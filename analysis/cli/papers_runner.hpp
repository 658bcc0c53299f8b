// Runs the commands behind the items of kvscope papers inside this process, each once, and keeps
// what is whole: the folder of a stopped report goes on where it was.
#pragma once

#include <filesystem>
#include <functional>
#include <map>
#include <memory>
#include <nlohmann/json_fwd.hpp>
#include <optional>
#include <stop_token>
#include <string>
#include <string_view>
#include <vector>

#include "analysis/cli/model_source.hpp"
#include "analysis/figures/result_view.hpp"
#include "analysis/papers/item.hpp"
#include "analysis/papers/measure.hpp"
#include "core/base/json_reader.hpp"
#include "core/base/progress.hpp"

namespace kvscope::cli {

/// What a command printed and how it ended.
struct CommandOutcome {
  int code = 0;
  std::string printed;
  std::string last_note;  // of a command that failed: why
  /// It failed for what the system refused (a write, memory): says nothing about the claim.
  bool is_system = false;
};

/// True for errors of the system: everything but what an input or an option is to blame for.
bool is_of_system(const std::exception& error);

/// The command `words` as the program would run it, its output caught. Progress goes to `progress`.
CommandOutcome run_inside(const std::vector<std::string>& words, const ProgressFn& progress,
                          const std::stop_token& stop);

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
  /// `say` gets a line before each command that runs.
  PapersRunner(PapersFolder folder, ProgressFn progress, std::stop_token stop,
               std::function<void(const std::string&)> say);

  /// The result of a run: made now, or found as it was made earlier by the same command on the same
  /// inputs. A run that fails says why. Throws Interrupted.
  papers::RunResult result(const std::string& name);
  /// The command line of a run, as it is typed in the report's folder, and its result's path there.
  /// Runs that it needs have to be done.
  std::string typed(const std::string& name);
  std::string file_of(const std::string& name) const;
  double seconds() const { return seconds_; }

  /// What the draft is, for the report; empty if none was needed, or none could be made.
  std::string draft_text();
  /// True if the run's numbers depend on a draft that was made of the model's own layers.
  bool uses_own_draft(const std::string& name) const;

  /// Makes the files that `make` writes unless `folder/mark` says that the same was made of the
  /// same: for pictures.
  bool is_done(const std::filesystem::path& mark, const std::string& stamp,
               const std::function<bool(const JsonObject&)>& and_is = {}) const;
  void set_done(const std::filesystem::path& mark, const std::string& stamp) const;
  /// What a command's answer depends on besides its words: the results that it names.
  std::string stamp_of(const std::string& command);
  /// The words of `command`; `in_folder`: paths as they are typed in the report's folder.
  std::vector<std::string> words_of(const std::string& command, const std::string& out,
                                    bool in_folder);

  const PapersFolder& folder() const { return folder_; }

 private:
  struct State {
    std::string stamp;
    std::unique_ptr<ResultView> view;
    std::string missing;
    bool not_run = false;
    bool done = false;
  };
  const papers::Run& find(const std::string& name) const;
  /// The run whose result stands for a name in braces; null: none's.
  const papers::Run* run_behind(std::string_view name) const;
  std::string draft_word(bool in_folder) const;
  Index own_layers() const;
  const std::string& command_of(const papers::Run& run) const;
  std::filesystem::path path_of(const papers::Run& run) const;
  std::string substitute(std::string_view name, const std::string& out, bool in_folder);
  std::string picked(std::string_view name);
  void make(const papers::Run& run, State& state);
  bool reuse(const papers::Run& run, State& state);
  void execute(const papers::Run& run, State& state);

  PapersFolder folder_;
  ProgressFn progress_;
  std::stop_token stop_;
  std::function<void(const std::string&)> say_;
  std::string models_;  // identity of both checkpoints
  std::map<std::string, State> states_;
  double seconds_ = 0.0;
};

}  // namespace kvscope::cli
