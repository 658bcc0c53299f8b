// kvscope merge: the shards of a sweep as one table.
#include "analysis/cli/command.hpp"
#include "analysis/cli/common_options.hpp"
#include "analysis/cli/output.hpp"
#include "analysis/cli/sweep_output.hpp"
#include "analysis/sweep.hpp"

namespace kvscope::cli {
namespace {

namespace fs = std::filesystem;

class MergeCommand final : public Command {
 public:
  std::string name() const override { return "merge"; }
  std::string summary() const override { return "join the shards of a sweep into one table"; }
  std::string description() const override {
    return "Fails if a shard is missing, unfinished, given twice, or of another sweep. The result "
           "has the same bytes as that of one undivided run; an .h5 file, which holds its date, "
           "only if SOURCE_DATE_EPOCH is set.";
  }
  std::vector<Example> examples() const override {
    return {{"kvscope merge sweep.csv.shard-*-of-4 --out sweep.csv", "four shards to one table"}};
  }
  void declare(OptionSet& options) override {
    options.positional("SHARD", "what kvscope sweep --shard wrote", shards_, /*required=*/true);
    options.add("out", "FILE", "write the table as .csv, .json or .h5", out_).short_name = 'o';
    options.flag("force", "replace an existing file", force_);
    declare_json(options, json_);
  }
  int run(const OptionSet&, const std::string&) override {
    if (out_) check_sweep_output(*out_, force_, shards_);
    const SweepResult result = merge_sweep(shards_);
    if (out_) write_sweep_output(result, *out_, force_);
    if (json_) {
      print_json(sweep_json(result));
    } else {
      print(sweep_summary(result));
    }
    return kOk;
  }

 private:
  std::vector<fs::path> shards_;
  std::optional<fs::path> out_;
  bool force_ = false;
  bool json_ = false;
};

}  // namespace

std::unique_ptr<Command> make_merge_command() {
  return std::make_unique<MergeCommand>();
}

}  // namespace kvscope::cli
