#include "analysis/cli/runs/study_setup.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <map>

#include "analysis/cli/frame/command.hpp"
#include "analysis/cli/frame/list_options.hpp"
#include "analysis/cli/frame/output.hpp"
#include "analysis/cli/models/model_source.hpp"
#include "analysis/cli/runs/run_job.hpp"
#include "analysis/cost/hardware.hpp"
#include "core/base/data_dir.hpp"
#include "core/base/error.hpp"
#include "core/base/json_reader.hpp"
#include "core/model/model_hash.hpp"
#include "traces/hash.hpp"
#include "traces/reader.hpp"

namespace kvscope::cli {

namespace {

namespace fs = std::filesystem;

std::unique_ptr<Command> command_called(const std::string& name) {
  for (auto& command : all_commands()) {
    if (command->name() == name) return std::move(command);
  }
  return nullptr;
}

/// What the lists of a study decide, and what would let a number rest on a file that no key knows.
bool is_of_study(const OptionSpec& spec, bool has_protocols) {
  constexpr std::string_view kLists[] = {"selector", "budget", "match",  "model",
                                         "draft",    "text",   "prompt", "config"};
  if (spec.kind != ValueKind::text) return true;
  if (has_protocols && (spec.name == "phase" || spec.name == "mode")) return true;
  return std::ranges::find(kLists, spec.name) != std::end(kLists) ||
         std::ranges::find(kOptionsOfNoNumber, spec.name) != std::end(kOptionsOfNoNumber);
}

/// Each option by itself, as on the command line, so that a refusal knows its line.
void check_options(const StudyFile& study, const std::string& command,
                   std::span<const StudyOption> options, const std::string& place) {
  for (const StudyOption& option : options) {
    const auto fresh = command_called(command);
    OptionSet set;
    fresh->declare(set);
    const auto refuse = [&](const std::string& why) {
      throw ConfigError("{}: {}: {}", study.at(option.line), place, why);
    };
    for (const OptionSpec& spec : set.options()) {
      if (spec.name == option.name && is_of_study(spec, !study.protocols.empty()))
        refuse(fmt::format("--{} is set by the study: expected another option of kvscope {}",
                           option.name, command));
    }
    try {
      std::vector<std::string> words = option_words(std::span(&option, 1));
      if (command.starts_with("analyze ")) words.emplace_back("trace.h5");
      set.parse(words);
      for (const std::string& value : option.values) {
        if (option.name == "layers" || option.name == "heads") index_list_of(value, option.name);
        if (option.name == "hardware") find_hardware(value);
      }
    } catch (const SpokenError& error) {
      refuse(error.what());
    }
  }
}

/// How the task's command calls its protocols: StudyInputs.
std::string protocol_option(const StudyFile& study, const StudyTask& task) {
  const auto command = command_called(task.command);
  if (command == nullptr)
    throw ConfigError(
        "{}: tasks.{}: expected the command sweep, a kind of kvscope simulate or of kvscope "
        "analyze, found {}",
        study.at(task.line), task.name, quote(task.command));
  check_options(study, task.command, task.options, "tasks." + task.name);
  OptionSet set;
  command->declare(set);
  try {
    if (task.is_analysis()) set.parse(std::vector<std::string>{"trace.h5"});
  } catch (const UsageError& error) {  // of two recordings
    throw ConfigError("{}: tasks.{}: {}: expected an analysis of one recording",
                      study.at(task.line), task.name, error.what());
  }
  for (const OptionSpec& spec : set.options()) {
    if (spec.name == "phase" || spec.name == "mode") return spec.name;
  }
  return "";
}

/// Hashes of what a study names. The same input is looked at once.
class InputHashes {
 public:
  explicit InputHashes(const StudyFile& study) : study_(study) {}

  StudyInputs all() {
    StudyInputs inputs;
    for (const StudyModel& model : study_.models) {
      const auto hash = [&](const std::string& word) {
        return at(model.line, "model", word, [&] { return model_hash(model_dir(word)); });
      };
      inputs.models.push_back(hash(model.word));
      inputs.drafts.push_back(model.draft ? hash(*model.draft) : "");
    }
    for (const StudySource& text : study_.texts) {
      const fs::path file = text.file.empty() ? embedded_text() : text.file;
      inputs.texts.push_back(at(text.line, "text", file.string(), [&] { return hash_file(file); }));
    }
    for (const StudySource& trace : study_.recordings) {
      inputs.recordings.push_back(at(trace.line, "recording", trace.file.string(), [&] {
        return TraceFile::open(trace.file, {}).info().content_hash;
      }));
    }
    add_files(study_.record, inputs);
    for (const StudyTask& task : study_.tasks) {
      inputs.protocols.push_back(protocol_option(study_, task));
      add_files(task.options, inputs);
    }
    return inputs;
  }

 private:
  void add_files(const std::vector<StudyOption>& options, StudyInputs& inputs) {
    for (const StudyOption& option : options) {
      for (const std::string& value : option.values) {
        std::error_code error;
        if (value.find_first_of("./") != value.npos && fs::is_regular_file(value, error))
          inputs.files[value] = at(option.line, "file", value, [&] { return hash_file(value); });
      }
    }
  }

  template <class Make>
  std::string at(int line, std::string_view kind, const std::string& name, Make&& make) {
    const std::string input = fmt::format("{} {}", kind, name);
    if (const auto found = known_.find(input); found != known_.end()) return found->second;
    try {
      return known_[input] = make();
    } catch (const Error& error) {
      throw ConfigError("{}: {}", study_.at(line), error.what());
    }
  }

  const StudyFile& study_;
  std::map<std::string, std::string> known_;
};

}  // namespace

LoadedStudy load_study(const fs::path& file) {
  StudyFile study = read_study_file(file);
  check_options(study, "record", study.record, "record");
  StudyInputs inputs = InputHashes(study).all();
  StudyPlan plan = plan_study(study, inputs);
  Store store(study.store);
  return {std::move(study), std::move(inputs), std::move(plan), std::move(store)};
}

void require_task(const LoadedStudy& study, const std::string& task) {
  if (std::ranges::find(study.file.tasks, task, &StudyTask::name) == study.file.tasks.end())
    throw UsageError("--task: {} has no task {}", study.file.file.string(), quote(task));
}

void note_left_out(const StudyPlan& plan) {
  constexpr std::size_t kTold = 10;
  for (std::size_t i = 0; i < std::min(kTold, plan.left_out.size()); ++i)
    note("kvscope: left out: {}", plan.left_out[i]);
  if (plan.left_out.size() > kTold)
    note("kvscope: and {} more are left out", plan.left_out.size() - kTold);
}

}  // namespace kvscope::cli
