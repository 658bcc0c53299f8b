#include "analysis/study/study_items.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <map>
#include <set>
#include <utility>

#include "analysis/base/calibration_notes.hpp"
#include "analysis/base/checked_lines.hpp"
#include "analysis/base/replay_pairs.hpp"
#include "core/base/error.hpp"
#include "core/base/json.hpp"

namespace kvscope {

namespace {

using Words = std::vector<std::string>;

void append(Words& words, const Words& more) {
  words.insert(words.end(), more.begin(), more.end());
}

/// A model on a text, or a recording of other origin: what a task works on.
struct TextPlace {
  const StudyModel* model = nullptr;  // null: `text` is the recording
  const StudySource* text = nullptr;
  std::string model_hash, draft_hash, text_hash;

  bool has_draft() const { return model != nullptr && model->draft.has_value(); }
  Words text_words() const {
    return text->file.empty() ? Words() : Words{"--text", text->file.string()};
  }
  std::string name() const {
    return model == nullptr ? text->name : model->name + ", " + text->name;
  }
};

class Planner {
 public:
  Planner(const StudyFile& study, const StudyInputs& inputs) : study_(study), inputs_(inputs) {}

  StudyPlan plan() {
    for (std::size_t m = 0; m < study_.models.size(); ++m) {
      for (std::size_t t = 0; t < study_.texts.size(); ++t)
        add_place({&study_.models[m], &study_.texts[t], inputs_.models[m], inputs_.drafts[m],
                   inputs_.texts[t]});
    }
    for (std::size_t r = 0; r < study_.recordings.size(); ++r)
      add_place({nullptr, &study_.recordings[r], "", "", inputs_.recordings[r]});
    return std::move(plan_);
  }

 private:
  Json json_of(std::span<const StudyOption> options) const {
    Json json = Json::object();
    for (const StudyOption& option : options) {
      json[option.name] = option.values;
      for (const std::string& value : option.values) {
        if (const auto file = inputs_.files.find(value); file != inputs_.files.end())
          json[option.name + " file"] = file->second;
      }
    }
    return json;
  }

  void add_place(const TextPlace& place) {
    for (std::size_t t = 0; t < study_.tasks.size(); ++t) {
      const StudyTask& task = study_.tasks[t];
      if (task.is_analysis()) add_analysis(place, task);
      if (task.is_analysis() || (place.model == nullptr && task.command != "sweep")) continue;
      const bool is_asked = !inputs_.protocols[t].empty() && !study_.protocols.empty();
      for (const std::string& protocol : is_asked ? study_.protocols : Words{""}) {
        const std::string way = protocol == kChunks ? "prefill" : "decode";
        for (const StudyMethod& method : study_.methods)
          add_method(place, task, protocol,
                     is_asked ? Words{"--" + inputs_.protocols[t], way} : Words(), method);
      }
    }
  }

  void add_analysis(const TextPlace& place, const StudyTask& task) {
    StudyJob job;
    job.task = task.name;
    job.method = task.command;
    job.label = fmt::format("{} on {}", task.name, place.name());
    job.picks = task.picks;
    job.words = {"analyze", task.command.substr(task.command.find(' ') + 1)};
    Json what = {
        {"command", task.command}, {"options", json_of(task.options)}, {"pick", task.picks}};
    Json kind = what;
    read_recording(place, job, what, kind);
    append(job.words, option_words(task.options));
    job.kind = kind.dump();
    add_item({}, what, place.model == nullptr ? "" : place.model->name, place, job);
    add_job(std::move(job));
  }

  void add_method(const TextPlace& place, const StudyTask& task, const std::string& protocol,
                  const Words& protocol_words, const StudyMethod& method) {
    if (!can_do(place, task, method)) return;
    const std::vector<ReplayPair> pairs = pairs_of(task, protocol, method);
    if (pairs.empty()) return;
    StudyJob job;
    job.task = task.name;
    job.method = fmt::format("{} {}", task.command, method.spec);
    job.label = fmt::format("{}: {} on {}{}{}", task.name, method.spec, place.name(),
                            protocol.empty() ? "" : ", ", protocol);
    Json what = {{"command", task.command}, {"options", json_of(task.options)}};
    if (!protocol.empty()) what["protocol"] = protocol;
    Json kind = what;
    task.command == "sweep" ? replay(place, method.spec, job, what, kind)
                            : simulate(place, task, method.spec, job, what, kind);
    append(job.words, option_words(task.options));
    append(job.words, protocol_words);
    job.kind = kind.dump();
    what["method"] = method.spec.text();
    what.update(artifacts_of(method.spec));
    for (const ReplayPair& pair : pairs) {
      StudyItem item;
      item.budget = pair.budget ? pair.budget->to_string() : "";
      item.protocol = protocol;
      item.method = method.spec.text();
      what["budget"] = item.budget;
      add_item(std::move(item), what, place.model == nullptr ? "" : place.model->name, place, job);
    }
    add_job(std::move(job));
  }

  /// What the files hold that the method names, by contents; each is read once.
  const Json& artifacts_of(const MethodSpec& method) {
    const auto [at, is_new] = artifacts_.try_emplace(method.text(), Json::object());
    if (is_new) add_artifacts({method}, at->second);
    return at->second;
  }

  /// False: the task leaves the method out, and a sentence says why.
  bool can_do(const TextPlace& place, const StudyTask& task, const StudyMethod& method) {
    const SelectorCaps& caps = method.spec.caps();
    if (task.command == "sweep" && caps.needs_calibration) {
      leave_out(fmt::format("{}: {} needs a recording to learn from, which a study does not make",
                            task.name, method.spec));
      return false;
    }
    if (!caps.needs_draft || place.has_draft()) return true;
    if (place.model != nullptr)
      throw ConfigError(
          "{}: {} needs a draft, and the model {} has none: expected models.{} = {{ model = ..., "
          "draft = ... }}",
          study_.at(method.line), method.spec, place.model->name, place.model->name);
    leave_out(fmt::format("{}: {} needs a draft's recording", task.name, method.spec));
    return false;
  }

  /// kvscope sweep; what its inputs are by contents goes to `what`, and to `kind` but for the text.
  void replay(const TextPlace& place, const MethodSpec& method, StudyJob& job, Json& what,
              Json& kind) {
    job.words = {"sweep"};
    read_recording(place, job, what, kind);
    if (place.model != nullptr && method.caps().needs_draft) {
      const std::size_t draft = draft_recording_of(place, job.needs.front());
      job.needs.push_back(draft);
      append(job.words, {"--draft", file_of(draft)});
      what["draft"] = question(draft);
    }
    append(job.words, {"--selector", method.text()});
  }

  void read_recording(const TextPlace& place, StudyJob& job, Json& what, Json& kind) {
    if (place.model == nullptr) {
      job.words.push_back(place.text->file.string());
      what["recording"] = kind["recording"] = place.text_hash;
      return;
    }
    const std::size_t own = recording_of(place);
    job.words.push_back(file_of(own));
    job.needs.push_back(own);
    what["recording"] = question(own);
    kind["recording"] = plan_.jobs[own].kind;
  }

  /// kvscope simulate, beside the dense model, so that a row can say what the method loses.
  void simulate(const TextPlace& place, const StudyTask& task, const MethodSpec& method,
                StudyJob& job, Json& what, Json& kind) {
    job.words = {"simulate", task.command.substr(task.command.find(' ') + 1), "--model",
                 place.model->word};
    what["model"] = kind["model"] = place.model_hash;
    what["text"] = place.text_hash;
    append(job.words, place.text_words());
    if (place.has_draft() &&
        (method.caps().needs_draft || task.command == "simulate speculative")) {
      append(job.words, {"--draft", *place.model->draft});
      what["draft"] = place.draft_hash;
    }
    append(job.words, {"--selector", method == "full" ? "full" : "full," + method.text()});
  }

  /// The method with each budget that it takes, in the phases that the task may have.
  std::vector<ReplayPair> pairs_of(const StudyTask& task, const std::string& protocol,
                                   const StudyMethod& method) {
    std::vector<Phase> phases = {Phase::prefill, Phase::decode, Phase::verify};
    std::string named = protocol == kChunks ? "prefill" : protocol == kSteps ? "decode" : "";
    if (named.empty() && task.command == "sweep") named = "prefill";
    for (const StudyOption& option : task.options) {
      if (option.name == "phase" && option.values.size() == 1) named = option.values[0];
    }
    if (!named.empty())
      std::erase_if(phases, [&](Phase phase) { return enum_name(phase) != named; });
    std::string why;
    for (const Phase phase : phases) {
      try {
        PairPlan plan = plan_pairs({method.spec}, study_.budgets, {phase}, std::nullopt, task.name);
        for (const std::string& sentence : plan.skipped)
          leave_out(fmt::format("{}: {}", task.name, sentence));
        return std::move(plan.pairs);
      } catch (const ConfigError& error) {
        why = error.what();
        if (const std::size_t said = why.rfind(": "); said != std::string::npos)
          why = task.name + why.substr(said);
      }
    }
    leave_out(why);
    return {};
  }

  /// The job that records the place's model on its text, once for all tasks.
  std::size_t recording_of(const TextPlace& place) {
    Json what = {
        {"command", "record"}, {"options", json_of(study_.record)}, {"model", place.model_hash}};
    StudyJob job;
    job.kind = what.dump();
    what["text"] = place.text_hash;
    job.words = {"record", "--model", place.model->word};
    append(job.words, place.text_words());
    append(job.words, option_words(study_.record));
    return record(place, what, std::move(job), place.model->name);
  }

  /// The job that records the draft on the tokens of a recording.
  std::size_t draft_recording_of(const TextPlace& place, std::size_t recording) {
    Json what = {{"command", "record"}, {"model", place.draft_hash}};
    StudyJob job;
    job.kind = Json{what, plan_.jobs[recording].kind}.dump();
    what["tokens"] = question(recording);
    job.words = {"record", "--model", *place.model->draft, "--tokens", file_of(recording)};
    job.needs = {recording};
    return record(place, what, std::move(job), *place.model->draft + " as draft");
  }

  std::size_t record(const TextPlace& place, const Json& what, StudyJob job,
                     const std::string& model) {
    const auto [known, is_new] = recordings_.emplace(what.dump(), plan_.jobs.size());
    if (!is_new) return known->second;
    job.is_recording = true;
    job.task = "record";
    job.label = fmt::format("recording: {} on {}", model, place.text->name);
    add_item({}, what, model, place, job);
    add_job(std::move(job));
    return known->second;
  }

  void add_item(StudyItem item, const Json& what, const std::string& model, const TextPlace& place,
                StudyJob& job) {
    item.key = item_key(what);
    item.what = what.dump();
    item.task = job.task;
    item.model = model;
    item.text = place.text->name;
    job.items.push_back(plan_.items.size());
    plan_.items.push_back(std::move(item));
  }

  void add_job(StudyJob job) {
    for (const std::size_t item : job.items) plan_.items[item].job = plan_.jobs.size();
    plan_.jobs.push_back(std::move(job));
  }

  const std::string& key_of(std::size_t recording) const {
    return plan_.items[plan_.jobs[recording].items[0]].key;
  }
  std::string_view question(std::size_t recording) const { return question_of(key_of(recording)); }
  std::string file_of(std::size_t recording) const {
    return study_recording(study_.store, key_of(recording)).string();
  }

  void leave_out(const std::string& sentence) {
    if (std::ranges::find(plan_.left_out, sentence) == plan_.left_out.end())
      plan_.left_out.push_back(sentence);
  }

  const StudyFile& study_;
  const StudyInputs& inputs_;
  StudyPlan plan_;
  std::map<std::string, Json> artifacts_;          // by method
  std::map<std::string, std::size_t> recordings_;  // jobs by what they record
};

}  // namespace

std::filesystem::path study_recording(const std::filesystem::path& store, const std::string& key) {
  return store / "recordings" / (key + ".h5");
}

StudyPlan plan_study(const StudyFile& study, const StudyInputs& inputs) {
  StudyPlan plan = Planner(study, inputs).plan();
  if (plan.items.empty())
    throw ConfigError("{}: nothing is left to do: {}", study.file.string(),
                      fmt::join(plan.left_out, "; "));
  return plan;
}

std::vector<StudyJob> jobs_for(const StudyPlan& plan, const std::vector<bool>& wanted) {
  std::vector<StudyJob> jobs;
  std::set<std::string_view> seen;  // two names of one model ask the same
  for (const StudyJob& job : plan.jobs) {
    std::vector<std::size_t> items;
    for (const std::size_t item : job.items) {
      const std::string& key = plan.items[item].key;
      if (!wanted[item] || !seen.insert(key).second) continue;
      items.push_back(item);
    }
    if (items.empty()) continue;
    jobs.push_back(job);
    jobs.back().items = std::move(items);
    jobs.back().key = plan.items[job.items[0]].key;
  }
  return jobs;
}

Words option_words(std::span<const StudyOption> options) {
  Words words;
  for (const StudyOption& option : options) {
    const std::string value = fmt::format("{}", fmt::join(option.values, ","));
    // "--name=value": a value may begin with a dash.
    words.push_back("--" + option.name + (option.values.empty() ? "" : "=" + value));
  }
  return words;
}

}  // namespace kvscope
