// kvscope study run: does what of a study is not known yet.

#include <nlohmann/json.hpp>

#include "analysis/cli/frame/command.hpp"
#include "analysis/cli/frame/common_options.hpp"
#include "analysis/cli/frame/output.hpp"
#include "analysis/cli/runs/study_runner.hpp"
#include "core/base/error.hpp"

namespace kvscope::cli {
namespace {

namespace fs = std::filesystem;

class StudyRunCommand final : public Command {
 public:
  CommandCard card() const override {
    return {"study run",
            "compute what of a study is not known yet",
            "Records what the tasks replay, then does every item that the store does not know: one "
            "that any study in the same store asked before is not computed again. Items that fail "
            "stop no other; they are named, the code is 4, and they are tried again with "
            "--retry-failed. After Ctrl-C or a kill the same command goes on. Several runs and "
            "--worker processes may share a store: each item is given to one of them.",
            {{"kvscope study run small.toml", "in this process"},
             {"kvscope study run small.toml --engine local --workers 4",
              "in four processes; slurm, mpi and ray as in kvscope sweep"}}};
  }
  void declare(OptionSet& options) override {
    options.positional("FILE", "the study, a TOML file (analysis/study.md)", file_,
                       /*required=*/true);
    workers_.declare(options);
    work_.declare(options);
    declare_json(options, json_);
  }
  int run(const OptionSet& given, const std::string&) override {
    workers_.check();
    LoadedStudy study = load_study(file_);
    if (!workers_.is_worker()) note_left_out(study.plan);
    const std::vector<bool> to_do = study_to_do(study.plan, study.store, workers_.retries_failed());
    if (workers_.retries_failed()) forget_failed(study, to_do);
    const std::size_t n_before = study.store.n_known();
    run_study(study, to_do, workers_, given.words(name(), kOptionsOfNoNumber), work_);
    study.store.refresh();
    return tell(study, study.store.n_known() - n_before);
  }

 private:
  /// Items to do that failed, and recordings whose damage was the reason.
  static void forget_failed(LoadedStudy& study, const std::vector<bool>& to_do) {
    for (std::size_t i = 0; i < to_do.size(); ++i) {
      const std::string& key = study.plan.items[i].key;
      if (to_do[i] && study.store.find(key) != nullptr) study.store.forget(key);
    }
  }

  int tell(const LoadedStudy& study, std::size_t n_new) const {
    constexpr std::size_t kTold = 20;
    const auto counts = count_study(study.plan, study.store);
    const auto n_failed = counts.at("failed").get<std::size_t>();
    if (json_) {
      nlohmann::ordered_json json = {{"kind", "study-run"},
                                     {"study", study.file.name},
                                     {"store", study.store.folder().string()},
                                     {"new", n_new}};
      json.update(counts);
      print_json(json);
    } else {
      const auto n_items = counts.at("items").get<std::size_t>();
      const auto n_known = counts.at("known").get<std::size_t>();
      print("{}{}: {} items, {} known ({} new in the store), {} failed\n", study.file.name,
            n_known == n_items ? " is complete" : "", n_items, n_known, n_new, n_failed);
    }
    std::size_t n_told = 0;
    for (const StudyItem& item : study.plan.items) {
      const std::string sentence = failure_of(study.plan, study.store, item);
      if (!sentence.empty() && n_told++ < kTold)
        note("kvscope: {} {} failed: {}", item.method, item.budget, sentence);
    }
    if (n_failed == 0) return kOk;
    throw PartlyFailed(
        "study run: {} of {} items failed; kvscope study status {} --json names all, "
        "--retry-failed tries them again",
        n_failed, counts.at("items").get<std::size_t>(), file_.string());
  }

  fs::path file_;
  WorkerOptions workers_;
  bool json_ = false;
  WorkOptions work_;
};

}  // namespace

KVSCOPE_COMMAND(530, StudyRunCommand)

}  // namespace kvscope::cli
