#include "analysis/cli/papers_runner.hpp"

#include <fmt/format.h>

#include "analysis/cli/host.hpp"
#include "analysis/cli/output.hpp"
#include "analysis/cli/program.hpp"
#include "analysis/cli/save_text.hpp"
#include "analysis/options/exit_code.hpp"
#include "analysis/papers/expand.hpp"
#include "core/base/error.hpp"
#include "core/base/json.hpp"
#include "core/base/new_file.hpp"
#include "core/base/read_files.hpp"
#include "core/base/stopwatch.hpp"
#include "core/base/version.hpp"
#include "core/base/whole_file.hpp"
#include "core/model/model_hash.hpp"
#include "notebooks_export/open_result.hpp"
#include "traces/hash.hpp"

namespace kvscope::cli {

namespace fs = std::filesystem;

namespace {

class OutputCatcher final : public Host {
 public:
  OutputCatcher(const ProgressFn& progress, const std::stop_token& stop)
      : progress_(progress), stop_(stop) {}
  void print(std::string_view text) override { outcome.printed += text; }
  void note(std::string_view line) override { outcome.last_note = line; }
  void report(const Progress& progress) override {
    if (progress_) progress_(progress);
  }
  std::stop_token stop_token() const override { return stop_; }
  void ended_by(const std::exception& error) override { outcome.is_system = is_of_system(error); }
  CommandOutcome outcome;

 private:
  const ProgressFn& progress_;
  const std::stop_token& stop_;
};

/// "simulate" and "sweep" keep a journal, from which they go on.
bool keeps_journal(const std::string& command) {
  return command.starts_with("simulate ") || command.starts_with("sweep ");
}

/// Recordings and drafts are inputs of other commands; no value is read from them.
bool is_result(const std::string& command) {
  return !command.starts_with("record ") && !command.starts_with("papers ") &&
         !command.starts_with("fit ");
}

}  // namespace

bool is_of_system(const std::exception& error) {
  if (dynamic_cast<const Error*>(&error) != nullptr) {
    return dynamic_cast<const IoError*>(&error) != nullptr &&
           dynamic_cast<const MissingFile*>(&error) == nullptr;
  }
  return dynamic_cast<const UsageError*>(&error) == nullptr;
}

CommandOutcome run_inside(const std::vector<std::string>& words, const ProgressFn& progress,
                          const std::stop_token& stop) {
  OutputCatcher catcher(progress, stop);
  const HostScope scope(catcher);
  catcher.outcome.code = run_program(words);
  return catcher.outcome;
}

PapersRunner::PapersRunner(PapersFolder folder, ProgressFn progress, std::stop_token stop,
                           std::function<void(const std::string&)> say)
    : folder_(std::move(folder)),
      progress_(std::move(progress)),
      stop_(std::move(stop)),
      say_(std::move(say)) {
  models_ = model_hash(model_dir(folder_.model));
  if (folder_.draft) models_ += model_hash(model_dir(*folder_.draft));
  fs::create_directories(folder_.out / "runs");
}

const papers::Run& PapersRunner::find(const std::string& name) const {
  for (const papers::Run& run : papers::runs()) {
    if (run.name == name) return run;
  }
  throw ConfigError("no run is called {}", name);
}

const std::string& PapersRunner::command_of(const papers::Run& run) const {
  return folder_.quick && !run.quick.empty() ? run.quick : run.full;
}

std::string PapersRunner::file_of(const std::string& name) const {
  return "runs/" + name + find(name).ending;
}

fs::path PapersRunner::path_of(const papers::Run& run) const {
  return folder_.out / file_of(run.name);
}

bool PapersRunner::is_done(const fs::path& mark, const std::string& stamp,
                           const std::function<bool(const JsonObject&)>& and_is) const {
  const OwnFiles own;
  try {
    if (!fs::is_regular_file(mark)) return false;
    const auto json = parse_json(read_regular_file(mark, 1 << 20), mark.string());
    const JsonObject done(json, mark.string());
    return done.string("stamp") == stamp && (!and_is || and_is(done));
  } catch (const Error&) {
    return false;  // whatever lies there is not what we wrote
  }
}

void PapersRunner::set_done(const fs::path& mark, const std::string& stamp) const {
  save_text(mark, Json{{"stamp", stamp}}.dump(1) + "\n", /*overwrite=*/true);
}

papers::RunResult PapersRunner::result(const std::string& name) {
  State& state = states_[name];
  if (!state.done) {
    make(find(name), state);
    state.done = true;
  }
  return {state.view.get(), state.missing, state.not_run};
}

void PapersRunner::make(const papers::Run& run, State& state) {
  const std::string& command = command_of(run);
  try {
    for (const std::string& name : papers::names_in(command)) {
      const papers::Run* behind = run_behind(name);
      if (behind == nullptr || behind == &run) continue;
      const papers::RunResult needed = result(behind->name);
      if (needed.view == nullptr && !needed.missing.empty()) {
        state.missing = needed.missing;
        if (behind->name == papers::kOwnDraft)
          state.missing = "no --draft was given, and none could be fitted: " + state.missing;
        state.not_run = needed.not_run;
        return;
      }
    }
    state.stamp = stamp_of(command);
    if (!reuse(run, state)) execute(run, state);
    if (state.missing.empty() && is_result(command)) state.view = open_result(path_of(run));
  } catch (const Interrupted&) {
    throw;
  } catch (const std::exception& error) {
    state.missing = error.what();
    state.not_run = is_of_system(error);
  }
}

bool PapersRunner::reuse(const papers::Run& run, State& state) {
  const fs::path file = path_of(run);
  return is_done(file.string() + ".done", state.stamp, [&](const JsonObject& done) {
    if (!fs::is_regular_file(file) || done.string("result") != hash_file(file)) return false;
    seconds_ += done.number("seconds", 0.0, 1e12);
    return true;
  });
}

void PapersRunner::execute(const papers::Run& run, State& state) {
  if (stop_.stop_requested()) throw Interrupted("stopped; the same command continues from here");
  const std::string& command = command_of(run);
  const fs::path out = path_of(run);
  const fs::path journal = out.string() + ".journal";
  say_(fmt::format("{}: {}", run.name, typed(run.name)));
  std::vector<std::string> words = words_of(command, out.string(), /*in_folder=*/false);
  if (!command.starts_with("papers "))
    words.insert(words.end(), {"--threads", fmt::format("{}", folder_.n_threads)});
  for (const fs::path& old :
       {out, fs::path(out.string() + ".part"), fs::path(out.string() + ".done")})
    remove_quietly(old);
  const Stopwatch watch;
  CommandOutcome outcome;
  if (keeps_journal(command) && fs::exists(journal)) {
    std::vector<std::string> resumed = words;
    resumed.push_back("--resume");
    outcome = run_inside(resumed, progress_, stop_);
    if (outcome.code == kUsageError) remove_quietly(journal);  // of another configuration
  } else {
    outcome.code = kUsageError;
  }
  if (outcome.code == kUsageError) outcome = run_inside(words, progress_, stop_);
  if (stop_.stop_requested()) throw Interrupted("stopped; the same command continues from here");
  if (outcome.code != kOk && outcome.code != kCheckFailed) {
    state.missing = outcome.last_note.starts_with("kvscope: ") ? outcome.last_note.substr(9)
                                                               : outcome.last_note;
    if (state.missing.empty()) state.missing = fmt::format("exit code {}", outcome.code);
    state.not_run = outcome.is_system;
    return;
  }
  if (run.ending == ".json") save_text(out, outcome.printed, /*overwrite=*/true);
  const double seconds = watch.seconds();
  seconds_ += seconds;
  save_text(out.string() + ".done",
            Json{{"stamp", state.stamp},
                 {"command", typed(run.name)},
                 {"version", writer_name()},
                 {"result", hash_file(out)},
                 {"seconds", seconds}}
                    .dump(1) +
                "\n",
            /*overwrite=*/true);
}

}  // namespace kvscope::cli
