#include "analysis/cli/runs/papers_runner.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <set>

#include "analysis/cli/frame/save_text.hpp"
#include "analysis/cli/runs/run_inside.hpp"
#include "analysis/options/exit_code.hpp"
#include "analysis/papers/expand.hpp"
#include "core/base/error.hpp"
#include "core/base/json.hpp"
#include "core/base/json_reader.hpp"
#include "core/base/new_file.hpp"
#include "core/base/read_files.hpp"
#include "core/base/stopwatch.hpp"
#include "core/model/model_hash.hpp"
#include "notebooks_export/open_result.hpp"
#include "traces/hash.hpp"

namespace kvscope::cli {

namespace fs = std::filesystem;

namespace {

/// "simulate" and "sweep" keep a store, from which they go on.
bool keeps_store(const std::string& command) {
  return command.starts_with("simulate ") || command.starts_with("sweep ");
}

/// Times are told of an idle machine: such a run waits for all that stand before it.
bool measures_time(const std::string& command) {
  return command.starts_with("bench ");
}

/// Recordings and drafts are inputs of other commands; no value is read from them.
bool is_result(const std::string& command) {
  return !command.starts_with("record ") && !command.starts_with("papers ") &&
         !command.starts_with("fit ");
}

}  // namespace

PapersRunner::PapersRunner(PapersFolder folder, std::span<const papers::Item* const> items,
                           std::function<void(const std::string&)> say)
    : folder_(std::move(folder)), say_(std::move(say)), store_(folder_.out / "store") {
  models_ = model_hash(model_dir(folder_.model));
  if (folder_.draft) models_ += model_hash(model_dir(*folder_.draft));
  fs::create_directories(folder_.out / "runs");
  for (const papers::Item* item : items) {
    for (const papers::Value& value : item->values) add_run(find(value.run));
    for (const papers::Picture& picture : item->pictures) {
      for (const std::string& name : papers::names_in(picture.command)) {
        if (const papers::Run* const run = run_behind(name)) add_run(*run);
      }
    }
  }
  std::ranges::stable_sort(runs_, {},
                           [&](const papers::Run* run) { return measures_time(command_of(*run)); });
}

const papers::Run& PapersRunner::find(const std::string& name) const {
  const papers::Run* const run = papers::run_named(name);
  if (run == nullptr) throw ConfigError("no run is called {}", name);
  return *run;
}

std::vector<const papers::Run*> PapersRunner::needs_of(const papers::Run& run) const {
  std::vector<const papers::Run*> needs;
  for (const std::string& name : papers::names_in(command_of(run))) {
    const papers::Run* const behind = run_behind(name);
    if (behind != nullptr && behind != &run) needs.push_back(behind);
  }
  return needs;
}

void PapersRunner::add_run(const papers::Run& run) {
  if (keys_.contains(run.name)) return;
  Json needs = Json::array();
  for (const papers::Run* need : needs_of(run)) {
    add_run(*need);
    needs.push_back(keys_.at(need->name));
  }
  keys_[run.name] = item_key({{"papers", command_of(run)},
                              {"models", models_},
                              {"device", folder_.engine.device},
                              {"matmul", folder_.engine.matmul},
                              {"needs", needs}});
  runs_.push_back(&run);
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

void PapersRunner::forget_failed_and_changed(bool retry_failed) {
  const OwnFiles own;
  for (const papers::Run* run : runs_) {
    const std::string& key = keys_.at(run->name);
    const StoredAnswer* const answer = store_.find(key);
    if (answer == nullptr) continue;
    const Json line = parse_ordered_json(store_.line(key), run->name);
    std::error_code error;
    const bool stays = answer->failure.empty() ? fs::is_regular_file(path_of(*run), error) &&
                                                     line.at("result") == hash_file(path_of(*run))
                                               : !retry_failed && !line.value("system", true);
    if (!stays) store_.forget(key);
  }
}

ItemState PapersRunner::state_of(std::size_t place, const Store& store) const {
  const papers::Run& run = *runs_[place];
  if (store.find(keys_.at(run.name)) != nullptr) return ItemState::done;
  for (const papers::Run* need : needs_of(run)) {
    const auto at = std::ranges::find(runs_, need) - runs_.begin();
    const ItemState state = state_of(static_cast<std::size_t>(at), store);
    if (state != ItemState::done) return ItemState::waits;
    if (!store.knows(keys_.at(need->name))) return ItemState::done;  // it cannot be done
  }
  for (std::size_t i = 0; measures_time(command_of(run)) && i < place; ++i) {
    if (state_of(i, store) != ItemState::done) return ItemState::waits;
  }
  return ItemState::to_do;
}

Work PapersRunner::work() {
  Work work;
  work.command = "papers";
  for (const papers::Run* run : runs_) work.keys.push_back(keys_.at(run->name));
  work.state = [this](std::size_t i, const Store& store) { return state_of(i, store); };
  work.run = [this](std::size_t i, const Lease*, const ProgressFn& progress,
                    const std::stop_token& stop) { return execute(*runs_[i], progress, stop); };
  work.is_exclusive = [](std::size_t) { return true; };  // results have one name each
  work.step_name = "commands";
  return work;
}

std::vector<Json> PapersRunner::execute(const papers::Run& run, const ProgressFn& progress,
                                        const std::stop_token& stop) {
  const std::string& command = command_of(run);
  const fs::path out = path_of(run);
  const fs::path store = out.string() + ".store";
  const Stopwatch watch;
  CommandOutcome outcome;
  try {
    say_(fmt::format("{}: {}", run.name, typed(run.name)));
    std::vector<std::string> words = words_of(command, out.string(), /*in_folder=*/false);
    if (!command.starts_with("papers "))
      words.insert(words.end(), {"--threads", fmt::format("{}", folder_.n_threads)});
    remove_quietly(out);
    remove_quietly(out.string() + ".part");
    const bool goes_on = keeps_store(command) && is_store(store);
    if (goes_on) {
      std::vector<std::string> resumed = words;
      resumed.emplace_back("--resume");
      outcome = run_inside(resumed, progress, stop);
    }
    if (!goes_on || outcome.code == kUsageError || outcome.code == kInputError) {
      remove_store(store);  // of another configuration, or damaged
      outcome = run_inside(words, progress, stop);
    }
    if (stop.stop_requested()) throw Interrupted("stopped at {}", run.name);
    const bool is_done = outcome.code == kOk || outcome.code == kCheckFailed;
    if (is_done && run.ending == ".json") save_text(out, outcome.printed, /*overwrite=*/true);
    const OwnFiles own;
    if (is_done)
      return {{{"key", keys_.at(run.name)},
               {"run", run.name},
               {"command", typed(run.name)},
               {"result", hash_file(out)},
               {"seconds", watch.seconds()}}};
  } catch (const Interrupted&) {
    throw;
  } catch (const std::exception& error) {
    outcome.last_note = error.what();
    outcome.is_system = is_of_system(error);
  }
  return {{{"key", keys_.at(run.name)},
           {"failure", outcome.sentence()},
           {"system", outcome.is_system}}};
}

papers::RunResult PapersRunner::result(const std::string& name) {
  const papers::Run& run = find(name);
  const std::string& key = keys_.at(name);
  const StoredAnswer* const answer = store_.find(key);
  papers::RunResult result;
  if (answer == nullptr) {
    for (const papers::Run* need : needs_of(run)) {
      if (store_.knows(keys_.at(need->name))) continue;
      result = this->result(need->name);
      if (need->name == papers::kOwnDraft)
        result.missing = "no --draft was given, and none could be fitted: " + result.missing;
      return result;
    }
    result.missing = name + " was not run";
    result.not_run = true;
    return result;
  }
  if (!answer->failure.empty()) {
    result.missing = answer->failure;
    result.not_run = parse_ordered_json(store_.line(key), name).value("system", false);
    return result;
  }
  if (!is_result(command_of(run))) return result;
  try {
    auto& view = views_[name];
    if (view == nullptr) view = open_result(path_of(run));
    result.view = view.get();
  } catch (const Error& error) {
    result.missing = error.what();
    result.not_run = is_of_system(error);
  }
  return result;
}

double PapersRunner::seconds() const {
  double seconds = 0.0;
  for (const auto& [name, key] : keys_) {
    if (const StoredAnswer* const answer = store_.find(key)) seconds += answer->seconds;
  }
  return seconds;
}

}  // namespace kvscope::cli
