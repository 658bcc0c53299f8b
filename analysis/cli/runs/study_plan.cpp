// kvscope study plan: what a study asks, what of it is known, and what the rest will take.
#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <filesystem>
#include <map>
#include <set>

#include "analysis/cli/frame/command.hpp"
#include "analysis/cli/frame/common_options.hpp"
#include "analysis/cli/frame/filled_text.hpp"
#include "analysis/cli/frame/output.hpp"
#include "analysis/cli/frame/signals.hpp"
#include "analysis/cli/runs/run_inside.hpp"
#include "analysis/cli/runs/study_runner.hpp"
#include "analysis/options/exit_code.hpp"
#include "core/base/error.hpp"
#include "core/base/json.hpp"
#include "core/base/json_reader.hpp"
#include "core/base/number_text.hpp"

namespace kvscope::cli {
namespace {

namespace fs = std::filesystem;

class StudyPlanCommand final : public Command {
 public:
  CommandCard card() const override {
    return {"study plan",
            "list what a study asks, what is known of it, and what the rest costs",
            "Checks the study, and computes nothing. An item is a task of one model on one text "
            "with one method, budget and protocol, or a recording. Processor time, memory of a "
            "worker and disk are predicted from what the store has measured of jobs of the same "
            "kind (command, options and model), in this or another study; --probe does two jobs of "
            "each kind and one of each method that nobody has measured, and keeps their results. "
            "Without either they are unknown, except the sizes of recordings, which follow from "
            "model, text and options.",
            {{"kvscope study plan small.toml", "what there is to do"},
             {"kvscope study plan small.toml --probe --workers 16",
              "time two jobs of each kind first; the time of the rest on 16 workers"}}};
  }
  void declare(OptionSet& options) override {
    options.positional("FILE", "the study, a TOML file (analysis/study.md)", file_,
                       /*required=*/true);
    options.flag("probe",
                 "do two jobs of each kind and one of each method that was not measured yet, and "
                 "keep them",
                 probe_);
    options.add("workers", "N", "predict the time on so many workers of one core each", workers_,
                in(1, 1'000'000));
    work_.declare(options);
    declare_json(options, json_);
  }
  int run(const OptionSet&, const std::string&) override {
    LoadedStudy study = load_study(file_);
    note_left_out(study.plan);
    if (probe_) probe(study);
    const Json json = plan_json(study);
    if (json_)
      print_json(json);
    else
      print(plan_text(json));
    return kOk;
  }

 private:
  void probe(LoadedStudy& study) const {
    const std::vector<bool> probes =
        study_probes(study.plan, study.store, study_to_do(study.plan, study.store, false));
    run_study(study, probes, WorkerOptions(), {}, work_);
  }

  Json plan_json(const LoadedStudy& study) const {
    const std::vector<bool> to_do = study_to_do(study.plan, study.store, false);
    std::size_t n_of_other_code = 0;
    for (std::size_t i = 0; i < to_do.size(); ++i)
      n_of_other_code += to_do[i] && study.store.knew(study.plan.items[i].key) ? 1 : 0;
    Json json = {{"kind", "study-plan"},
                 {"study", study.file.name},
                 {"store", study.store.folder().string()}};
    json.update(count_study(study.plan, study.store, planned_bytes(study, to_do)));
    const double wall = wall_seconds(jobs_for(study.plan, to_do), StudyForecast(study.store),
                                     static_cast<std::size_t>(workers_));
    json["workers"] = workers_;
    json["wall_seconds"] = std::isnan(wall) ? Json(nullptr) : Json(wall);
    json["known_of_other_code"] = n_of_other_code;
    json["left_out"] = study.plan.left_out;
    return json;
  }

  /// Of kinds of recordings that nobody has measured: what kvscope record says of the largest text,
  /// without running the model.
  static std::map<std::string, double> planned_bytes(const LoadedStudy& study,
                                                     const std::vector<bool>& to_do) {
    const StudyForecast forecast(study.store);
    const StopOnSignal stop;
    std::map<std::string, double> planned;
    std::set<std::string> told;
    std::size_t n_asked = 0;
    for (const StudyJob& job : jobs_for(study.plan, to_do)) {
      constexpr std::size_t kMostAsked = 50;  // each reads its text
      if (!job.is_recording || !job.needs.empty() || forecast.n_measured(job) > 0) continue;
      if (n_asked++ == kMostAsked) break;
      std::vector<std::string> words = job.words;
      words.insert(words.end(),
                   {"--plan", "--json", "--out",
                    (fs::temp_directory_path() / "planned.h5").string(), "--overwrite"});
      const CommandOutcome outcome = run_inside(words, {}, stop.token());
      if (stop.token().stop_requested()) throw Interrupted("stopped");
      if (outcome.code == kOk) {
        const Json json = parse_ordered_json(outcome.printed, "kvscope record --plan");
        double& bytes = planned[job.kind];
        bytes = std::max(bytes, json.at("bytes").get<double>());
      } else if (told.insert(job.kind).second) {
        note("{}: {}", job.label, outcome.last_note);
      }
    }
    return planned;
  }

  static std::string plan_text(const Json& json) {
    Json rows = json.at("tasks");
    rows.push_back(json);
    rows.back()["task"] = "all";
    std::string text = filled_table(rows, {{"task", "{task}"},
                                           {"items", "{items}"},
                                           {"known", "{known}"},
                                           {"failed", "{failed}"},
                                           {"to do", "{to_do}"},
                                           {"jobs", "{jobs}"},
                                           {"processor", "{seconds:s}"},
                                           {"memory", "{memory:B}"},
                                           {"disk", "{bytes:B}"}});
    const auto n_workers = json.at("workers").get<std::size_t>();
    const Json& wall = json.at("wall_seconds");
    text += fmt::format("on {} worker{} of one core: {}; results in {}\n", n_workers,
                        n_workers == 1 ? "" : "s",
                        wall.is_null() ? "-" : seconds_text(wall.get<double>()),
                        json.at("store").get<std::string>());
    if (wall.is_null())
      text += "-: nothing of the kind was measured yet; --probe does two jobs of each kind\n";
    if (json.at("known_of_other_code") != 0)
      text += fmt::format("{} of the items to do are known of other code, and are done again\n",
                          json.at("known_of_other_code").get<std::size_t>());
    return text;
  }

  fs::path file_;
  bool probe_ = false;
  Index workers_ = 1;
  bool json_ = false;
  WorkOptions work_;
};

}  // namespace

KVSCOPE_COMMAND(520, StudyPlanCommand)

}  // namespace kvscope::cli
