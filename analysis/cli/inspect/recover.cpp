// kvscope recover: turns what a killed recording left into a valid trace.
#include "traces/recover.hpp"

#include <filesystem>

#include "analysis/cli/frame/command.hpp"
#include "analysis/cli/frame/common_options.hpp"
#include "analysis/cli/frame/output.hpp"
#include "analysis/cli/frame/progress_bar.hpp"
#include "analysis/cli/frame/save_text.hpp"
#include "core/base/json.hpp"

namespace kvscope::cli {

namespace fs = std::filesystem;

namespace {

class RecoverCommand final : public Command {
 public:
  CommandCard card() const override {
    return {"recover",
            "make a valid trace from a killed recording's .part file",
            "Copies every forward call (prefill chunk or decode step) that was written whole into "
            "a new "
            "file marked as recovered; the .part file stays as it is.",
            {{"kvscope recover trace.h5.part", "writes trace.h5"},
             {"kvscope recover trace.h5.part --out kept.h5", "writes another name"}}};
  }
  void declare(OptionSet& options) override {
    options.positional("PART", "the unfinished file", part_, /*required=*/true);
    options.add("out", "FILE", "the trace to write [PART without .part]", out_).short_name = 'o';
    options.flag("overwrite", "replace an existing file", overwrite_);
    options.add("progress", "HOW",
                "what to show on standard error; auto is a bar on a terminal, else nothing",
                progress_);
    declare_json(options, json_);
  }

  int run(const OptionSet&, const std::string&) override {
    const fs::path out = output_file();
    check_new_output(out, overwrite_, FileKind::trace);
    RecoverReport report;
    {
      const Running run(progress_);
      report = recover_trace(part_, out, overwrite_, run.progress, run.stop);
    }
    if (json_) {
      print_json({{"part", part_.string()},
                  {"file", out.string()},
                  {"n_units", report.n_calls},
                  {"n_planned_units", report.n_planned_calls},
                  {"n_damaged_units", report.n_damaged_calls},
                  {"n_tokens", report.n_tokens},
                  {"n_planned_tokens", report.n_planned_tokens},
                  {"content_hash", report.content_hash},
                  {"first_problem", report.first_problem}});
    } else {
      note("recovered {}: {} of {} calls, {} of {} tokens", out.string(), report.n_calls,
           report.n_planned_calls, report.n_tokens, report.n_planned_tokens);
    }
    if (report.n_damaged_calls == 0) return kOk;
    note("kvscope: {} calls were left out as damaged: {}", report.n_damaged_calls,
         report.first_problem);
    return kPartlyFailed;
  }

 private:
  fs::path output_file() const {
    if (out_) return *out_;
    if (part_.extension() != ".part") {
      throw UsageError("{} does not end in .part, so the new name is unclear; give --out",
                       part_.string());
    }
    fs::path out = part_;
    return out.replace_extension();
  }

  fs::path part_;
  std::optional<fs::path> out_;
  bool overwrite_ = false;
  bool json_ = false;
  ProgressMode progress_ = ProgressMode::automatic;
};

}  // namespace

KVSCOPE_COMMAND(150, RecoverCommand)

}  // namespace kvscope::cli
