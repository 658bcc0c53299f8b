#include "analysis/cli/runs/papers_runner.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>

#include "analysis/cli/frame/save_text.hpp"
#include "analysis/cli/runs/run_inside.hpp"
#include "analysis/fit/draft_fit.hpp"
#include "analysis/options/exit_code.hpp"
#include "core/base/error.hpp"
#include "core/base/json.hpp"
#include "core/base/json_reader.hpp"
#include "core/base/lists.hpp"
#include "core/base/nan.hpp"
#include "core/base/new_file.hpp"
#include "core/base/number_text.hpp"
#include "core/base/read_files.hpp"
#include "core/base/shell_word.hpp"
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

/// Names of models as they are, a path by its full name: the report's commands run anywhere.
std::string model_word(const std::string& word) {
  const bool is_path = word != "verifier" && word != "draft" && fs::exists(word);
  return is_path ? fs::absolute(word).lexically_normal().string() : word;
}

/// "4096,8192" of "4096,8192,16384" for a model of 8192 positions; the shortest in any case, whose
/// command says what is wrong.
std::string lengths_within(std::string_view lengths, const std::string& model) {
  const Index most = load_config(model_dir(model)).max_positions;
  std::string within;
  for (const std::string& length : split_words(lengths, ',')) {
    if (within.empty() || number_from<Index>(length).value_or(0) <= most)
      within += (within.empty() ? "" : ",") + length;
  }
  return within;
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
    for (const std::string& command : item->pictures) {
      for (const std::string& name : papers::names_in(command)) {
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
  work.run = [this](std::span<const std::size_t> items, const Lease*, const ProgressFn& progress,
                    const std::stop_token& stop) {
    return execute(*runs_[items.front()], progress, stop);
  };
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
    if (keeps_store(command)) words.emplace_back("--resume");
    outcome = run_inside(words, progress, stop);
    if ((outcome.code == kUsageError || outcome.code == kInputError) && is_store(store)) {
      remove_store(store);  // damaged
      outcome = run_inside(words, progress, stop);
    }
    if (stop.stop_requested()) throw Interrupted("stopped at {}", run.name);
    const bool is_done = outcome.code == kOk || outcome.code == kCheckFailed;
    if (is_done && run.ending == ".json") write_new_file(out, outcome.printed, /*overwrite=*/true);
    const OwnFiles own;
    if (is_done)
      return {{{"key", keys_.at(run.name)},
               {"run", run.name},
               {"asked", command},
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

Json PapersRunner::forecast() const {
  std::map<std::string, double> took;  // by the command as items.toml has it
  for (const auto& [key, answer] : store_.answers()) {
    const Json line = parse_ordered_json(store_.line(key), key);
    if (answer.failure.empty()) took[line.value("asked", "")] = answer.seconds;
  }
  std::size_t n_known = 0;
  double seconds = 0.0;
  for (const papers::Run* run : runs_) {
    const auto last = took.find(command_of(*run));
    if (store_.knows(keys_.at(run->name)))
      ++n_known;
    else
      seconds += last == took.end() ? kNan : last->second;
  }
  return {{"commands", runs_.size()}, {"known", n_known}, {"seconds", json_number(seconds)}};
}

// Command lines: what stands for their names in braces, and the draft that is made where none is
// given.

std::string PapersRunner::picked(std::string_view name) {
  const std::vector<std::string> parts = split_words(name, ':');
  const bool is_wording = parts.front() == "--chat";
  if (parts.size() != (is_wording ? 3 : 4))
    throw ConfigError("\"{}\": expected pick:RUN:BY:COLUMN or --chat:RUN:BY", name);
  const papers::RunResult found = result(parts[1]);
  if (found.view == nullptr && found.not_run) throw IoError(found.missing);
  if (found.view == nullptr) throw ConfigError(found.missing);
  const Table table = rows_of(*found.view);
  const auto by = table.numbers(parts[2]);
  std::size_t best = 0;
  for (std::size_t row = 1; row < table.n_rows(); ++row) {
    if (std::isnan(by[best]) || by[row] > by[best]) best = row;
  }
  if (!is_wording) return table.at(parts[3]).cell(best);
  const TableColumn* const wording = table.find("wording");  // none where there is no template
  return wording != nullptr && wording->cell(best) == "chat" ? "--chat" : "";
}

const papers::Run* PapersRunner::run_behind(std::string_view name) const {
  if (!folder_.draft && (name == "--draft" || name == "draft-model")) name = papers::kOwnDraft;
  if (papers::is_choice(name)) return papers::run_named(split_words(name, ':').at(1));
  return papers::run_named(name);
}

std::string PapersRunner::draft_word(bool in_folder) const {
  if (folder_.draft) return model_word(*folder_.draft);
  const fs::path folder = fs::path("runs") / papers::kOwnDraft;
  return (in_folder ? folder : folder_.out / folder).string();
}

Index PapersRunner::own_layers() const {
  if (folder_.draft) return 0;
  const Index n_layers = load_config(model_dir(folder_.model)).n_layers;
  if (n_layers < 2) {
    throw ConfigError(
        "{} has one layer, so no shorter model can be made of it: --draft names another",
        folder_.model);
  }
  return std::min(DraftFitOptions{}.n_layers, n_layers - 1);
}

std::string PapersRunner::draft_text() const {
  if (folder_.draft) return *folder_.draft;
  const auto fitted = keys_.find(papers::kOwnDraft);
  if (fitted == keys_.end() || !store_.knows(fitted->second)) return "";
  return fmt::format("early exit: the first {} layers of the model itself and a fitted head",
                     own_layers());
}

bool PapersRunner::uses_own_draft(const std::string& name) const {
  return std::ranges::any_of(needs_of(find(name)), [&](const papers::Run* need) {
    return need->name == papers::kOwnDraft || uses_own_draft(need->name);
  });
}

std::string PapersRunner::substitute(std::string_view name, const std::string& out,
                                     bool in_folder) {
  if (name == "out") return out;
  if (name == "model") return model_word(folder_.model);
  if (name == "--model") {
    std::string words = "--model\n" + model_word(folder_.model);
    const EngineOptions& engine = folder_.engine;
    if (engine.is_on_gpu()) words += "\n--device\n" + engine.device;
    if (engine.matmul != "f32") words += "\n--matmul\n" + engine.matmul;
    return words;
  }
  if (name == "--draft") return "--draft\n" + draft_word(in_folder);
  if (name == "draft-model") return draft_word(in_folder);
  if (name == "own-layers") return fmt::format("{}", own_layers());
  if (name == "live-dense-layers") return fmt::format("{}", std::max(Index{2}, own_layers()));
  if (name == "--layer-map-unlike-draft")
    return folder_.draft ? "" : fmt::format("--dense-layers\n{}", own_layers());
  if (name == "--unlike-draft") {
    const Index n_layers = load_config(model_dir(folder_.model)).n_layers;
    return folder_.draft ? "" : fmt::format("--layers\n{}-{}", own_layers(), n_layers - 1);
  }
  if (name == "sparse-layers")  // behind the two that the papers leave dense
    return fmt::format("2-{}", load_config(model_dir(folder_.model)).n_layers - 1);
  if (papers::is_choice(name)) return picked(name);
  if (name.starts_with("lengths:")) return lengths_within(name.substr(8), folder_.model);
  const papers::Run& run = find(std::string(name));
  return in_folder ? file_of(run.name) : path_of(run).string();
}

std::vector<std::string> PapersRunner::words_of(const std::string& command, const std::string& out,
                                                bool in_folder) {
  return papers::expand(command,
                        [&](std::string_view name) { return substitute(name, out, in_folder); });
}

std::string PapersRunner::typed(const std::string& name) {
  const papers::Run& run = find(name);
  const std::string line =
      command_line_of(words_of(command_of(run), file_of(name), /*in_folder=*/true));
  return run.ending == ".json" ? line + " > " + file_of(name) : line;
}

}  // namespace kvscope::cli
