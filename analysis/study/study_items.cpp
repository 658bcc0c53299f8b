#include "analysis/study/study_items.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <map>
#include <nlohmann/json.hpp>
#include <set>
#include <utility>

#include "analysis/base/checked_lines.hpp"
#include "analysis/base/replay_pairs.hpp"
#include "analysis/study/code_version.hpp"
#include "core/base/error.hpp"

namespace kvscope {

namespace {

namespace fs = std::filesystem;
using Json = nlohmann::ordered_json;
using Words = std::vector<std::string>;

Json json_of(std::span<const StudyOption> options) {
  Json json = Json::object();
  for (const StudyOption& option : options) json[option.name] = option.values;
  return json;
}

/// A model on a text, or a recording of other origin: what a task works on.
struct Place {
  const StudyModel* model = nullptr;
  const StudySource* text = nullptr;  // of the model, or the recording itself
  std::string model_hash, draft_hash, text_hash;
  std::string draft;  // as --draft takes it; empty: none
};

class Planner {
 public:
  Planner(const StudyFile& study, const StudyInputs& inputs,
          const std::vector<StudyProtocols>& protocols)
      : study_(study), inputs_(inputs), protocols_(protocols) {}

  StudyPlan plan() {
    for (std::size_t m = 0; m < study_.models.size(); ++m) {
      const StudyModel& model = study_.models[m];
      std::string draft = model.draft.value_or("");
      if (draft.empty() && model.word == "verifier") draft = "draft";  // as kvscope simulate does
      for (std::size_t t = 0; t < study_.texts.size(); ++t)
        add_place({&model, &study_.texts[t], inputs_.models[m], inputs_.drafts[m], inputs_.texts[t],
                   draft});
    }
    for (std::size_t r = 0; r < study_.recordings.size(); ++r)
      add_place({nullptr, &study_.recordings[r], "", "", inputs_.recordings[r], ""});
    return std::move(plan_);
  }

 private:
  void add_place(const Place& place) {
    for (std::size_t t = 0; t < study_.tasks.size(); ++t) {
      const StudyTask& task = study_.tasks[t];
      if (place.model == nullptr && task.command != "sweep") continue;
      const bool is_asked = !protocols_[t].option.empty() && !study_.protocols.empty();
      for (const std::string& protocol : is_asked ? study_.protocols : Words{""}) {
        for (const StudyMethod& method : study_.methods)
          add_method(place, task, protocols_[t].option, protocol, method);
      }
    }
  }

  void add_method(const Place& place, const StudyTask& task, const std::string& option,
                  const std::string& protocol, const StudyMethod& method) {
    const bool is_sweep = task.command == "sweep";
    if (is_sweep && method.spec.caps().needs_calibration) {
      leave_out(fmt::format("{}: {} needs a recording to learn from, which a study does not make",
                            task.name, method.spec));
      return;
    }
    if (method.spec.caps().needs_draft && place.draft.empty()) {
      if (place.model == nullptr) {
        leave_out(fmt::format("{}: {} needs a draft's recording", task.name, method.spec));
        return;
      }
      throw ConfigError(fmt::format(
          "{}: {} needs a draft, and the model {} has none: expected models.{} = {{ model = ..., "
          "draft = ... }}",
          study_.at(method.line), method.spec, place.model->name, place.model->name));
    }
    const std::vector<ReplayPair> pairs = pairs_of(task, protocol, method);
    if (pairs.empty()) return;
    StudyJob job;
    job.task = task.name;
    job.method = fmt::format("{} {}", task.command, method.spec);
    job.label = fmt::format("{}: {} on {}{}{}", task.name, method.spec,
                            place.model == nullptr ? "" : place.model->name + ", ",
                            place.text->name, protocol.empty() ? "" : ", " + protocol);
    Json what = {{"command", task.command}, {"options", json_of(task.options)}};
    if (!protocol.empty()) what["protocol"] = protocol;
    Json kind = what;
    job.words = command_words(place, task, method, job, what, kind);
    const Words options = option_words(task.options);
    job.words.insert(job.words.end(), options.begin(), options.end());
    if (!protocol.empty())
      job.words.insert(job.words.end(),
                       {"--" + option, protocol == kChunks ? "prefill" : "decode"});
    job.kind = kind.dump();
    what["method"] = method.spec.text();
    for (const ReplayPair& pair : pairs) {
      const std::string budget = pair.budget ? pair.budget->to_string() : "";
      Json asked = what;
      asked["budget"] = budget;
      StudyItem item = item_of(asked);
      item.task = task.name;
      item.model = place.model == nullptr ? "" : place.model->name;
      item.text = place.text->name;
      item.protocol = protocol;
      item.method = method.spec.text();
      item.budget = budget;
      add_item(std::move(item), job);
    }
    finish(std::move(job));
  }

  /// The command, its inputs and the method; what they are by contents goes to `what` and `kind`.
  Words command_words(const Place& place, const StudyTask& task, const StudyMethod& method,
                      StudyJob& job, Json& what, Json& kind) {
    const bool needs_draft = method.spec.caps().needs_draft;
    const std::string name = method.spec.text();
    if (task.command == "sweep") {
      Words words = {"sweep"};
      if (place.model == nullptr) {
        words.push_back(place.text->file.string());
        what["recording"] = kind["recording"] = place.text_hash;
      } else {
        const std::size_t recording = recording_of(place);
        words.push_back(recording_file(recording));
        job.needs.push_back(recording);
        what["recording"] = question_of(plan_.items[plan_.jobs[recording].items[0]].key);
        kind["recording"] = plan_.jobs[recording].kind;
        if (needs_draft) {
          const std::size_t draft = draft_recording_of(place, recording);
          job.needs.push_back(draft);
          words.insert(words.end(), {"--draft", recording_file(draft)});
          what["draft"] = question_of(plan_.items[plan_.jobs[draft].items[0]].key);
        }
      }
      words.insert(words.end(), {"--selector", name});
      return words;
    }
    Words words = {"simulate", task.command.substr(task.command.find(' ') + 1)};
    words.insert(words.end(), {"--model", place.model->word});
    what["model"] = kind["model"] = place.model_hash;
    what["text"] = place.text_hash;
    if (!place.text->file.empty()) words.insert(words.end(), {"--text", place.text->file.string()});
    if (!place.draft.empty() && (needs_draft || task.command == "simulate speculative")) {
      words.insert(words.end(), {"--draft", place.draft});
      what["draft"] = place.draft_hash;
    }
    // Beside the dense model, so that a row can say what the method loses.
    words.insert(words.end(), {"--selector", name == "full" ? name : "full," + name});
    return words;
  }

  /// The method with each budget that it takes, in the phases that the task may have.
  std::vector<ReplayPair> pairs_of(const StudyTask& task, const std::string& protocol,
                                   const StudyMethod& method) {
    std::vector<Phase> phases = {Phase::prefill, Phase::decode, Phase::verify};
    if (!protocol.empty()) phases = {protocol == kChunks ? Phase::prefill : Phase::decode};
    if (protocol.empty() && task.command == "sweep") phases = {Phase::prefill};
    for (const StudyOption& option : task.options) {
      if (option.name != "phase" || option.values.size() != 1) continue;
      for (const Phase phase : {Phase::prefill, Phase::decode, Phase::verify}) {
        if (name_of(phase) == option.values[0]) phases = {phase};
      }
    }
    std::string why;
    for (const Phase phase : phases) {
      try {
        PairPlan plan = plan_pairs({method.spec}, study_.budgets, phase, std::nullopt, task.name);
        for (const std::string& sentence : plan.skipped)
          leave_out(fmt::format("{}: {}", task.name, sentence));
        return std::move(plan.pairs);
      } catch (const ConfigError& error) {
        why = error.what();
      }
    }
    leave_out(why);
    return {};
  }

  /// The job that records the place's model on its text, once for all tasks.
  std::size_t recording_of(const Place& place) {
    Json what = {
        {"command", "record"}, {"options", json_of(study_.record)}, {"model", place.model_hash}};
    const std::string kind = what.dump();
    what["text"] = place.text_hash;
    Words words = {"record", "--model", place.model->word};
    if (!place.text->file.empty()) words.insert(words.end(), {"--text", place.text->file.string()});
    return record(place, what, kind, std::move(words), option_words(study_.record),
                  place.model->name);
  }

  std::size_t draft_recording_of(const Place& place, std::size_t recording) {
    Json what = {{"command", "record"}, {"model", place.draft_hash}};
    const std::string kind = Json{what, plan_.jobs[recording].kind}.dump();
    what["tokens"] = question_of(plan_.items[plan_.jobs[recording].items[0]].key);
    const std::size_t job =
        record(place, what, kind,
               {"record", "--model", place.draft, "--tokens", recording_file(recording)}, {},
               place.draft + " as draft");
    if (plan_.jobs[job].needs.empty()) plan_.jobs[job].needs.push_back(recording);
    return job;
  }

  std::size_t record(const Place& place, const Json& what, const std::string& kind, Words words,
                     const Words& options, const std::string& model) {
    StudyItem item = item_of(what);
    if (const auto known = recordings_.find(item.key); known != recordings_.end())
      return known->second;
    item.task = "record";
    item.model = model;
    item.text = place.text->name;
    StudyJob job;
    job.is_recording = true;
    job.kind = kind;
    job.task = item.task;
    job.label = fmt::format("recording: {} on {}", model, item.text);
    job.words = std::move(words);
    job.words.insert(job.words.end(), options.begin(), options.end());
    const std::string key = item.key;
    add_item(std::move(item), job);
    finish(std::move(job));
    return recordings_[key] = plan_.jobs.size() - 1;
  }

  std::string recording_file(std::size_t job) const {
    return study_recording(study_.store, plan_.items[plan_.jobs[job].items[0]].key).string();
  }

  static StudyItem item_of(const Json& what) {
    StudyItem item;
    item.key = fmt::format("{}-{}", config_checksum(what), code_version());
    item.what = what.dump();
    return item;
  }

  void add_item(StudyItem item, StudyJob& job) {
    job.items.push_back(plan_.items.size());
    plan_.items.push_back(std::move(item));
  }

  void finish(StudyJob job) {
    for (const std::size_t item : job.items) plan_.items[item].job = plan_.jobs.size();
    plan_.jobs.push_back(std::move(job));
  }

  void leave_out(const std::string& sentence) {
    if (told_.insert(sentence).second) plan_.left_out.push_back(sentence);
  }

  const StudyFile& study_;
  const StudyInputs& inputs_;
  const std::vector<StudyProtocols>& protocols_;
  StudyPlan plan_;
  std::map<std::string, std::size_t> recordings_;  // jobs by their item's key
  std::set<std::string> told_;
};

}  // namespace

fs::path study_recording(const fs::path& store, const std::string& key) {
  return store / "recordings" / (key + ".h5");
}

std::string_view question_of(std::string_view key) {
  return key.substr(0, key.find('-'));
}

StudyPlan plan_study(const StudyFile& study, const StudyInputs& inputs,
                     const std::vector<StudyProtocols>& protocols) {
  return Planner(study, inputs, protocols).plan();
}

std::vector<StudyJob> jobs_for(const StudyPlan& plan, const std::vector<bool>& wanted) {
  std::vector<StudyJob> jobs;
  std::set<std::string> seen;  // two names of one model ask the same
  for (const StudyJob& job : plan.jobs) {
    StudyJob part = job;
    std::erase_if(part.items, [&](std::size_t item) {
      return !wanted[item] || !seen.insert(plan.items[item].key).second;
    });
    if (part.items.empty()) continue;
    Json keys = Json::array();
    for (const std::size_t item : part.items) keys.push_back(plan.items[item].key);
    part.key = config_checksum(keys);
    jobs.push_back(std::move(part));
  }
  return jobs;
}

Words option_words(std::span<const StudyOption> options) {
  Words words;
  for (const StudyOption& option : options) {
    // "--name=value": a value may begin with a dash.
    if (option.values.empty())
      words.push_back("--" + option.name);
    else
      words.push_back(fmt::format("--{}={}", option.name, fmt::join(option.values, ",")));
  }
  return words;
}

}  // namespace kvscope
