// kvscope study work: what engines start for a study.
#include "analysis/cli/command.hpp"
#include "analysis/cli/study_runner.hpp"
#include "analysis/cli/unit_job.hpp"

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
    options.add("out", "DIR", "with --unit: the folder of finished units", job_.out).kind =
        ValueKind::folder;
    job_.declare_work(options);
  }
  int run(const OptionSet&, const std::string&) override {
    job_.check();
    if (!job_.units.is_alone())
      throw UsageError("expected --list-units or --unit: kvscope study run does the whole");
    return job_.run_alone(study_work(plan_, job_.work.n_threads()));
  }

 private:
  fs::path plan_;
  UnitJob job_;
};

}  // namespace

KVSCOPE_COMMAND(570, StudyWorkCommand)

}  // namespace kvscope::cli
