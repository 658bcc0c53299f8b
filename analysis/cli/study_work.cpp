// kvscope study work: what engines start for a study.
#include "analysis/cli/command.hpp"
#include "analysis/cli/common_options.hpp"
#include "analysis/cli/study_runner.hpp"
#include "analysis/cli/unit_options.hpp"

namespace kvscope::cli {
namespace {

namespace fs = std::filesystem;

class StudyWorkCommand final : public Command {
 public:
  std::string name() const override { return "study work"; }
  std::string summary() const override { return "do jobs of a study; engines start this"; }
  std::string description() const override {
    return "The workers of kvscope study run. PLAN is a file that it writes into its store while "
           "it runs: the jobs, a command line each. --list-units prints them; --unit does some.";
  }
  void declare(OptionSet& options) override {
    options.positional("PLAN", "the jobs, as kvscope study run wrote them", plan_,
                       /*required=*/true);
    options.add("out", "DIR", "with --unit: the folder of finished units", out_).kind =
        ValueKind::folder;
    units_.declare(options);
    work_.declare(options);
    declare_json(options, json_);
  }
  int run(const OptionSet&, const std::string&) override {
    units_.check(out_);
    if (!units_.is_alone())
      throw UsageError("expected --list-units or --unit: kvscope study run does the whole");
    return units_.run_alone(study_work(plan_, work_.n_threads()), out_, json_, work_);
  }

 private:
  fs::path plan_;
  std::optional<fs::path> out_;
  bool json_ = false;
  UnitOptions units_;
  WorkOptions work_;
};

}  // namespace

KVSCOPE_COMMAND(570, StudyWorkCommand)

}  // namespace kvscope::cli
