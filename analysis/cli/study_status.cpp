// kvscope study status: how far a study is.
#include <fmt/format.h>

#include <algorithm>
#include <limits>
#include <optional>

#include "analysis/cli/command.hpp"
#include "analysis/cli/common_options.hpp"
#include "analysis/cli/output.hpp"
#include "analysis/cli/study_setup.hpp"
#include "analysis/study/study_work.hpp"
#include "core/base/json.hpp"
#include "core/base/number_text.hpp"

namespace kvscope::cli {
namespace {

namespace fs = std::filesystem;

class StudyStatusCommand final : public Command {
 public:
  std::string name() const override { return "study status"; }
  std::string summary() const override { return "how far a study is, and what of it failed"; }
  std::string description() const override {
    return "May be asked while a run works. The rate is that of the last hundred jobs; the time "
           "left follows from it, and is unknown if nobody works or has finished one lately.";
  }
  void declare(OptionSet& options) override {
    options.positional("FILE", "the study, a TOML file (analysis/study.md)", file_,
                       /*required=*/true);
    options.add("failures", "N", "name at most so many failed items [all; 50 without --json]",
                failures_);
    declare_json(options, json_);
  }
  int run(const OptionSet&, const std::string&) override {
    LoadedStudy study = load_study(file_);
    const std::string writer = study.store.writer();
    const StudyRunning running = look_at_work(study.store);
    const Json counts = counts_json(count_study(study.plan, study.store));
    const auto n_jobs = counts.at("jobs").get<double>();
    const bool has_rate = !writer.empty() && running.jobs_per_hour > 0.0;
    Json json = {{"kind", "study-status"},
                 {"study", study.file.name},
                 {"store", study.store.folder().string()}};
    json.update(counts);
    json["writer"] = writer.empty() ? Json(nullptr) : Json(writer);
    json["running"] = running.labels;
    json["jobs_per_hour"] = has_rate ? Json(running.jobs_per_hour) : Json(nullptr);
    json["seconds_left"] = has_rate ? Json(3600.0 * n_jobs / running.jobs_per_hour) : Json(nullptr);
    json["failed_items"] =
        failed_items(study, failures_ ? static_cast<std::size_t>(std::max<Index>(*failures_, 0))
                            : json_   ? kAll
                                      : kTold);
    if (json_)
      print_json(json);
    else
      print(status_text(json));
    return kOk;
  }

 private:
  static constexpr std::size_t kTold = 50;
  static constexpr std::size_t kAll = std::numeric_limits<std::size_t>::max();

  static Json failed_items(const LoadedStudy& study, std::size_t most) {
    Json failed = Json::array();
    for (const StudyItem& item : study.plan.items) {
      if (failed.size() >= most) break;
      const std::string sentence = failure_of(study.plan, study.store, item);
      if (sentence.empty()) continue;
      failed.push_back({{"key", item.key},
                        {"task", item.task},
                        {"model", item.model},
                        {"text", item.text},
                        {"protocol", item.protocol},
                        {"method", item.method},
                        {"budget", item.budget},
                        {"failure", sentence}});
    }
    return failed;
  }

  static std::string status_text(const Json& json) {
    const auto count = [&](const char* name) { return json.at(name).get<std::size_t>(); };
    std::string text = fmt::format("{}: {} items, {} known, {} failed, {} to do in {} jobs\n",
                                   json.at("study").get<std::string>(), count("items"),
                                   count("known"), count("failed"), count("to_do"), count("jobs"));
    if (!json.at("writer").is_null())
      text += fmt::format("{} writes to the store\n", json.at("writer").get<std::string>());
    for (const Json& label : json.at("running"))
      text += fmt::format("at work: {}\n", label.get<std::string>());
    if (!json.at("jobs_per_hour").is_null())
      text += fmt::format("{} jobs an hour, about {} left\n",
                          number_text(json.at("jobs_per_hour").get<double>(), 3),
                          seconds_text(json.at("seconds_left").get<double>()));
    const Json& failed = json.at("failed_items");
    for (const Json& item : failed)
      text +=
          fmt::format("failed: {} {}: {}\n", item.at("method").get<std::string>(),
                      item.at("budget").get<std::string>(), item.at("failure").get<std::string>());
    if (count("failed") > failed.size())
      text += fmt::format("and {} more, which --json names\n", count("failed") - failed.size());
    return text;
  }

  fs::path file_;
  std::optional<Index> failures_;
  bool json_ = false;
};

}  // namespace

KVSCOPE_COMMAND(530, StudyStatusCommand)

}  // namespace kvscope::cli
