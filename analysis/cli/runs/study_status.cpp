// kvscope study status: how far a study is.
#include <fmt/format.h>

#include <algorithm>
#include <limits>
#include <optional>
#include <set>

#include "analysis/cli/frame/command.hpp"
#include "analysis/cli/frame/common_options.hpp"
#include "analysis/cli/frame/filled_text.hpp"
#include "analysis/cli/frame/output.hpp"
#include "analysis/cli/runs/study_setup.hpp"
#include "analysis/runs/leases.hpp"
#include "core/base/json.hpp"

namespace kvscope::cli {
namespace {

namespace fs = std::filesystem;

class StudyStatusCommand final : public Command {
 public:
  CommandCard card() const override {
    return {"study status", "how far a study is, and what of it failed",
            "May be asked while a run works. The rate is that of the last hundred items; the time "
            "left follows from it, and is unknown if nobody works or has finished one lately."};
  }
  void declare(OptionSet& options) override {
    options.positional("FILE", "the study, a TOML file (analysis/study.md)", file_,
                       /*required=*/true);
    options.add("failures", "N", "name at most so many failed items [all; 50 without --json]",
                failures_);
    declare_json(options, json_);
  }
  int run(const OptionSet&, const std::string&) override {
    const LoadedStudy study = load_study(file_);
    const Json counts = count_study(study.plan, study.store);
    const std::vector<std::string> running = labels_at_work(study);
    const double rate = running.empty() ? 0.0 : study.store.answers_per_hour();
    Json json = {{"kind", "study-status"},
                 {"study", study.file.name},
                 {"store", study.store.folder().string()}};
    json.update(counts);
    json["running"] = running;
    json["items_per_hour"] = rate > 0.0 ? Json(rate) : Json(nullptr);
    json["seconds_left"] =
        rate > 0.0 ? Json(3600.0 * counts.at("to_do").get<double>() / rate) : Json(nullptr);
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

  /// Of jobs at which a worker is now.
  static std::vector<std::string> labels_at_work(const LoadedStudy& study) {
    const std::vector<std::string> keys =
        Leases(study.store.leases(), study.store.worker()).at_work();
    const std::set<std::string> at_work(keys.begin(), keys.end());
    std::vector<std::string> labels;
    for (const StudyJob& job : study.plan.jobs) {
      if (at_work.contains(study.plan.items[job.items[0]].key)) labels.push_back(job.label);
    }
    return labels;
  }

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
    std::string text = filled_in(
        "{study}: {items} items, {known} known, {failed} failed, {to_do} to do in {jobs} jobs\n",
        json);
    for (const Json& label : json.at("running"))
      text += fmt::format("at work: {}\n", label.get<std::string>());
    if (!json.at("items_per_hour").is_null())
      text += filled_in("{items_per_hour:3} items an hour, about {seconds_left:s} left\n", json);
    const Json& failed = json.at("failed_items");
    for (const Json& item : failed)
      text += filled_in("failed: {method} {budget}: {failure}\n", item);
    const auto n_failed = json.at("failed").get<std::size_t>();
    if (n_failed > failed.size())
      text += fmt::format("and {} more, which --json names\n", n_failed - failed.size());
    return text;
  }

  fs::path file_;
  std::optional<Index> failures_;
  bool json_ = false;
};

}  // namespace

KVSCOPE_COMMAND(540, StudyStatusCommand)

}  // namespace kvscope::cli
