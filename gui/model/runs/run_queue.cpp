#include "gui/model/runs/run_queue.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <mutex>
#include <nlohmann/json.hpp>

#include "analysis/options/exit_code.hpp"
#include "analysis/runs/store.hpp"
#include "core/base/lists.hpp"
#include "gui/model/runs/child_program.hpp"

namespace kvscope::gui {

namespace fs = std::filesystem;

/// What the thread of a command and the window share.
struct RunWords {
  std::mutex mutex;
  std::string said;
  std::string last;  // of standard error, without progress
  std::string kept;  // what the store holds of one that did not come to its end
};

struct RunQueue::Catalogue {
  Job job;
  std::vector<CommandSpec> commands;
};

namespace {

bool is_file(const fs::path& file) {
  std::error_code error;
  return !file.empty() && fs::is_regular_file(file, error);
}

/// "143 of 256 items are kept in x.h5.store"; empty without a store that can be read.
std::string kept_in(const fs::path& folder) {
  if (!is_store(folder)) return "";
  try {
    const Store store(folder);
    std::size_t n_items = 0;
    for (const auto& [hash, plan] : store.plans()) n_items += plan.n_items;
    return fmt::format("{}{} items are kept in {}", store.n_known(),
                       n_items > 0 ? fmt::format(" of {}", n_items) : std::string(),
                       folder.filename().string());
  } catch (const Error&) {
    return "";
  }
}

std::optional<fs::file_time_type> time_of(const fs::path& file) {
  std::error_code error;
  const auto time = fs::last_write_time(file, error);
  return error ? std::nullopt : std::optional(time);
}

}  // namespace

std::string Run::title() const {
  std::string words_of_command;
  for (const std::string& word : words) {
    const bool is_name = std::ranges::all_of(
        word, [](char c) { return (c >= 'a' && c <= 'z') || c == '-' || (c >= '0' && c <= '9'); });
    if (!is_name || word.starts_with("-")) break;
    words_of_command += (words_of_command.empty() ? "" : " ") + word;
  }
  return out.empty() ? words_of_command : words_of_command + " " + out.filename().string();
}

fs::path Run::part() const {
  fs::path file = out;
  if (!out.empty()) file += ".part";
  return file;
}

fs::path Run::store() const {
  fs::path file = out;
  if (!out.empty()) file += ".store";
  return file;
}

RunQueue::RunQueue(JobRunner& jobs, std::string program)
    : jobs_(jobs), program_(std::move(program)) {}

RunQueue::~RunQueue() = default;

std::uint64_t RunQueue::add(std::vector<std::string> words, fs::path out, AtEnd at_end) {
  Run run{.id = ++last_id_,
          .words = std::move(words),
          .out = std::move(out),
          .opens = at_end == AtEnd::open};
  start(std::move(run));
  return last_id_;
}

void RunQueue::start(Run run) {
  run.heard = std::make_shared<RunWords>();
  std::vector<std::string> words = {program_};
  words.insert(words.end(), run.words.begin(), run.words.end());
  words.insert(words.end(), {"--progress", "json"});
  if (is_file(run.out)) run.before = time_of(run.out);
  run.job = jobs_.start(
      run.title(), Lane::programs,
      [heard = run.heard, words = std::move(words),
       store = run.store()](JobContext& context) -> std::any {
        const auto on_line = [&](const std::string& line) {
          if (const auto progress = progress_of(line)) {
            context.progress(*progress);
          } else if (!line.empty()) {
            const std::lock_guard lock(heard->mutex);
            heard->last = sentence_of(line);
          }
        };
        ProgramEnd end = run_program(words, on_line, context.stop);
        const bool stands =
            end.code() == kOk || end.code() == kPartlyFailed || end.code() == kCheckFailed;
        const bool is_whole = stands && !context.stop.stop_requested();
        std::string kept = is_whole ? std::string() : kept_in(store);
        const std::lock_guard lock(heard->mutex);
        heard->said = std::move(end.out);
        heard->kept = std::move(kept);
        if (is_whole) return end.code();
        if (end.signal() != 0) throw IoError("{} was killed (signal {})", words[1], end.signal());
        throw IoError(heard->last.empty()
                          ? fmt::format("{} ended with code {} and no word", words[1], end.code())
                          : heard->last);
      },
      {});
  // Not the job's own: it may have ended by now, and what ends is looked at once, in update().
  run.status = JobStatus{run.title(), Lane::programs, JobState::waiting, {}, {}};
  runs_.push_back(std::move(run));
}

bool RunQueue::update() {
  bool changed = false;
  for (Run& run : runs_) {
    if (run.status.is_over()) continue;
    const JobStatus now = run.job.status();
    changed =
        changed || now.state != run.status.state || now.progress.done != run.status.progress.done;
    run.status = now;
    if (!now.is_over()) continue;
    RunWords& words = *run.heard;
    const std::lock_guard lock(words.mutex);
    run.said = words.said;
    // One that failed or never began made nothing: what has that name was there before.
    run.has_made_file = now.state != JobState::failed && is_file(run.out) &&
                        (now.state == JobState::done || time_of(run.out) != run.before);
    if (now.state == JobState::done) {
      run.remark = words.last;
      const bool is_study =
          run.words.size() > 2 && run.words[0] == "study" && run.words[1] == "run";
      if ((run.has_made_file && run.opens) || is_study) made_.push_back(run);
    } else if (!words.kept.empty()) {
      run.remark = words.kept;
    } else if (run.has_made_file && now.state == JobState::cancelled) {
      run.remark = "what was whole until then is kept";
    } else if (is_file(run.part())) {
      run.remark = fmt::format("{} is left: recover makes a whole file of it",
                               run.part().filename().string());
    }
  }
  return changed;
}

std::vector<Run> RunQueue::take_made() {
  return std::exchange(made_, {});
}

bool RunQueue::is_idle() const {
  return std::ranges::all_of(runs_, [](const Run& run) { return run.status.is_over(); });
}

void RunQueue::cancel(std::uint64_t id) {
  const auto run = std::ranges::find(runs_, id, &Run::id);
  if (run == runs_.end()) return;
  run->job.cancel();
  // Its turn may be long in coming, and then it ends at once.
  if (run->job.status().state == JobState::waiting) run->status.state = JobState::cancelled;
}

std::string RunQueue::flag_for(const Run& run, Again how) {
  if (how == Again::same) return "";
  const CommandSpec* own = nullptr;  // "simulate retrieval" before "simulate"
  for (const CommandSpec& command : commands()) {
    const auto name = split_words(command.name, ' ');
    const bool fits =
        name.size() <= run.words.size() && std::equal(name.begin(), name.end(), run.words.begin());
    if (fits && (own == nullptr || own->name.size() < command.name.size())) own = &command;
  }
  for (const char* flag : {"resume", "overwrite"}) {
    const bool fits = (how == Again::resume) == (flag == std::string_view("resume"));
    if (fits && own != nullptr && own->find(flag) != nullptr) return flag;
  }
  return "";
}

void RunQueue::again(std::uint64_t id, Again how) {
  const auto found = std::ranges::find(runs_, id, &Run::id);
  if (found == runs_.end()) return;
  Run same = *found;
  if (const std::string flag = flag_for(same, how); !flag.empty()) {
    for (const Again other : {Again::resume, Again::replace})
      std::erase(same.words, "--" + flag_for(same, other));  // they contradict each other
    same.words.push_back("--" + flag);
  }
  add(same.words, same.out, same.opens ? AtEnd::open : AtEnd::leave);
}

void RunQueue::forget(std::uint64_t id) {
  std::erase_if(runs_, [&](const Run& run) { return run.id == id && run.status.is_over(); });
}

void RunQueue::ask_again() {
  catalogue_.reset();
  problem_.clear();
}

const std::vector<CommandSpec>& RunQueue::commands() {
  if (!catalogue_) {
    catalogue_ = std::make_shared<Catalogue>();
    catalogue_->job = jobs_.start(
        "Asking kvscope for its commands", Lane::questions,
        [program = program_](JobContext& context) -> std::any {
          const ProgramEnd end = run_program(
              {program, "help", "--json"}, [](const std::string&) {}, context.stop);
          if (end.code() != kOk) {
            throw IoError(
                "{} does not tell its commands (code {}): it should be of this program's version",
                program, end.code());
          }
          return read_commands(end.out);
        },
        [weak = std::weak_ptr<Catalogue>(catalogue_)](std::any commands) {
          if (const auto alive = weak.lock())
            alive->commands = std::any_cast<std::vector<CommandSpec>>(std::move(commands));
        });
  }
  const JobStatus status = catalogue_->job.status();
  const bool is_cancelled = status.state == JobState::cancelled;
  if (problem_.empty())
    problem_ =
        is_cancelled ? "kvscope was not asked for its commands: that was cancelled" : status.error;
  return catalogue_->commands;
}

}  // namespace kvscope::gui
