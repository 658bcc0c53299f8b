// kvscope bench machine: this machine as a hardware profile of kvscope cost.
#include <fmt/format.h>

#include <filesystem>

#include "analysis/cli/frame/command.hpp"
#include "analysis/cli/frame/common_options.hpp"
#include "analysis/cli/frame/output.hpp"
#include "analysis/cli/frame/save_text.hpp"
#include "analysis/cost/measure_machine.hpp"
#include "core/base/cpu.hpp"
#include "core/base/json.hpp"
#include "core/base/number_text.hpp"

namespace kvscope::cli {
namespace {

std::string describe_machine(const HardwareProfile& profile) {
  std::string text = fmt::format(
      "{}: {} f32 GFLOP/s; dense attention {}, lists {}, scoring {} of that\n", profile.title,
      number_text(1e-9 * profile.peak_flops()), percent_text(profile.attend.value),
      percent_text(profile.kernels.at("lists").value), percent_text(profile.score.value));
  text += "reading:";
  for (const auto& [bytes, rate] : profile.bandwidth.points)
    text += fmt::format(" {} at {} GB/s;", bytes_text(bytes), number_text(1e-9 * rate, 3));
  text += "\nruns of:";
  for (const auto& [bytes, share] : profile.gather.points)
    text += fmt::format(" {} {};", bytes_text(bytes), percent_text(share));
  text += fmt::format("\nranking {} ns per score, a parallel loop {} us\n",
                      number_text(1e9 * profile.topk.value, 3),
                      number_text(1e6 * profile.launch.value, 3));
  return text;
}

class BenchMachine final : public Command {
 public:
  CommandCard card() const override {
    return {
        "bench machine",
        "this machine as a profile of kvscope cost",
        "Measures with the program's own kernels the constants of predicted times: bandwidth by "
        "the size of a read, the rates of products, attention and scoring, gathering by "
        "the length of runs, ranking, a parallel loop. The file is a hardware profile: every "
        "number has its source. Nothing else should run at the same time.",
        {{"kvscope bench machine --out here.json",
          "then kvscope cost trace.h5 ... --hardware ./here.json"}}};
  }
  void declare(OptionSet& options) override {
    options.add("out", "FILE", "write the profile as JSON", out_).short_name = 'o';
    options.flag("overwrite", "replace an existing file", overwrite_);
    work_.declare(options);
    declare_json(options, json_);
  }
  int run(const OptionSet&, const std::string&) override {
    if (out_) check_new_output(*out_, overwrite_, "--overwrite");
    Working run(work_);
    const HardwareProfile profile = measure_machine(cpu_name(), run.pool, run.progress, run.stop);
    const Json json = hardware_json(profile);
    if (out_) save_text(*out_, json.dump(1) + "\n", overwrite_);
    json_ ? print_json(json) : print(describe_machine(profile));
    return kOk;
  }

 private:
  std::optional<std::filesystem::path> out_;
  bool overwrite_ = false;
  bool json_ = false;
  WorkOptions work_;
};

}  // namespace

KVSCOPE_COMMAND(375, BenchMachine)

}  // namespace kvscope::cli
