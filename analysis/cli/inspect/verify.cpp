// kvscope verify: checks a trace's structure, checksums and arithmetic.
#include "traces/verify.hpp"

#include <fmt/format.h>

#include <chrono>
#include <filesystem>
#include <optional>

#include "analysis/cli/frame/command.hpp"
#include "analysis/cli/frame/common_options.hpp"
#include "analysis/cli/frame/output.hpp"
#include "core/base/json.hpp"

namespace kvscope::cli {
namespace {

class VerifyCommand final : public Command {
 public:
  CommandCard card() const override {
    return {
        "verify",
        "check a trace: structure, checksums, recomputed attention rows",
        "Reads the whole file: every dataset's shape and attributes, every checksum, and "
        "--n-rows sampled rows whose log-sum-exp and attention are computed again from q and k. "
        "Exit code 3 if anything is wrong. For large traces, --time and --share check a part that "
        "--seed chooses; the report says how much.",
        {{"kvscope verify trace.h5", "prints ok, or every problem on its own line"},
         {"kvscope verify trace.h5 --n-rows 1000 --seed 7 --json",
          "more rows, other ones, as JSON"},
         {"kvscope verify million.h5 --time 120", "as much as two minutes allow"}}};
  }
  void declare(OptionSet& options) override {
    options.positional("TRACE", "the file to check", file_, /*required=*/true);
    options.add("n-rows", "N", "sampled rows to compute again", n_rows_, at_least(0));
    options.add("seed", "N", "which rows are sampled", seed_);
    options.add("time", "SECONDS", "look at what can be done in this time [all]", seconds_,
                above(0, 1e7));
    options.add("share", "X",
                "look at this share of the checksums, and of the KV heads whose rows are computed",
                share_, above(0, 1));
    work_.declare(options);
    declare_json(options, json_);
  }

  int run(const OptionSet&, const std::string&) override {
    VerifyOptions options;
    options.n_rows = n_rows_;
    options.bounds.share = share_;
    if (seconds_)
      options.bounds.end =
          VerifyBounds::Clock::now() + std::chrono::round<VerifyBounds::Clock::duration>(
                                           std::chrono::duration<double>(*seconds_));
    options.seed = static_cast<std::uint64_t>(seed_);
    ThreadPool pool(work_.n_threads());
    VerifyReport report;
    {
      ProgressReporter progress(work_.progress);
      report = verify_trace(file_, options, pool, progress.callback());
    }
    if (json_) {
      print_json({{"file", file_.string()},
                  {"ok", report.ok},
                  {"problems", report.problems},
                  {"notes", report.notes},
                  {"n_checksums", report.n_checksums},
                  {"n_all_checksums", report.n_all_checksums},
                  {"n_rows_checked", report.n_rows_checked},
                  {"n_heads_checked", report.n_heads_checked},
                  {"n_all_heads", report.n_all_heads},
                  {"max_lse_error", report.max_lse_error},
                  {"lse_errors", report.lse_errors},
                  {"max_attn_error", report.max_attn_error}});
    } else if (report.ok && !options.bounds.is_all()) {
      print(sample_text(report));
    } else if (report.ok) {
      print("ok: {}: {} checksums, {} rows recomputed, largest lse error {:.2g}\n", file_.string(),
            report.n_checksums, report.n_rows_checked, report.max_lse_error);
    } else {
      for (const auto& problem : report.problems) print(problem + "\n");
    }
    for (const std::string& sentence : report.notes)
      note("kvscope: {}: {}", file_.string(), sentence);
    if (report.ok) return kOk;
    note("kvscope: {} failed verification: {} problem{}", file_.string(), report.problems.size(),
         report.problems.size() == 1 ? "" : "s");
    return kInputError;
  }

 private:
  std::string sample_text(const VerifyReport& report) const {
    return fmt::format(
        "nothing wrong in what was looked at: {}: {} of {} checksums, {} rows recomputed in {} of "
        "{} layers' KV heads, largest lse error {:.2g}\n",
        file_.string(), report.n_checksums, report.n_all_checksums, report.n_rows_checked,
        report.n_heads_checked, report.n_all_heads, report.max_lse_error);
  }

  std::filesystem::path file_;
  std::optional<double> seconds_;
  double share_ = 1.0;
  Index n_rows_ = VerifyOptions{}.n_rows;
  std::int64_t seed_ = 0;
  bool json_ = false;
  WorkOptions work_;
};

}  // namespace

KVSCOPE_COMMAND(140, VerifyCommand)

}  // namespace kvscope::cli
