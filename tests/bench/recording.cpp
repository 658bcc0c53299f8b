// How fast a model's recording is, against the bare prefill in the same run.
//
//   bench_recording [--model MODEL] [--lengths N] [--dir DIR] [--dtype TYPE] ...
#include <unistd.h>

#include <algorithm>
#include <filesystem>

#include "analysis/cli/models/capture_options.hpp"
#include "analysis/cli/models/model_source.hpp"
#include "analysis/cli/runs/bench_live_run.hpp"
#include "analysis/cli/runs/bench_report.hpp"
#include "core/base/error.hpp"
#include "core/base/json.hpp"
#include "tests/bench/bench_program.hpp"

namespace kvscope::cli {
namespace {

namespace fs = std::filesystem;

class BenchRecording final : public BenchProgram {
 public:
  CommandCard card() const override {
    return {"bench_recording", "speed of recording, against the bare prefill in the same run",
            "Prefill and recording take turns, so that both meet the same machine. The trace is "
            "written into --dir and removed."};
  }

 private:
  void declare_bench(OptionSet& options) override {
    options.add("model", "MODEL", kModelHelp, model_).kind = ValueKind::file;
    options.add("lengths", "N", "prompt length", n_tokens_, in(1, 1'000'000'000));
    options.add("chunk", "N", "tokens per prefill call", capture_.chunk, at_least(1));
    options.add("repeat", "N", "measured runs, after one that is not", n_repeats_, in(1, 1000));
    options.add("dir", "DIR", "folder for the trace: which disk to measure", dir_);
    options.add("dtype", "TYPE", "storage type of q, k and v", capture_.dtype);
    options.add("capture", "LIST", "as in kvscope record", capture_.capture);
    options.add("compression", "HOW", "as in kvscope record", capture_.compression);
    engine_.declare(options);
  }

  Json measure(Working& means) const override {
    const fs::path dir = model_dir(model_);
    const Transformer model = load_transformer(dir, engine_);
    const std::vector<TokenId> prompt = book_tokens(model.config(), n_tokens_);
    RecordOptions options = capture_.record_options();
    options.origin.model_name = model_name(dir);
    options.origin.model_config = config_json_of(dir);
    options.origin.text_source = "embedded book";
    WriterOptions writer = capture_.writer_options(/*overwrite=*/true);
    if (model.backend().name() == "cuda") writer.write_beside(means.pool.n_threads());
    const fs::path file = dir_ / fmt::format("kvscope-bench-{}.h5", ::getpid());
    std::int64_t n_bytes = 0;
    const auto record = [&] {
      const auto receiver = create_trace(file, writer);
      n_bytes = record_trace(model, nullptr, prompt, options, *receiver, means.pool, {}, means.stop)
                    .bytes_written;
    };
    std::vector<double> bare, recording, ratios;
    try {
      take_turns({"record", n_repeats_}, 1, means, [&](std::size_t, bool counted) {
        const double plain =
            time_live(model, nullptr, prompt, capture_.chunk, 0, means.pool, means.stop).total;
        const double recorded = seconds_of(record);
        fs::remove(file);
        if (!counted) return;
        bare.push_back(plain);
        recording.push_back(recorded);
        ratios.push_back(recorded / plain);  // turn by turn: a slow spell of the machine hits both
      });
    } catch (...) {
      std::error_code ignored;
      fs::remove(file, ignored);
      fs::remove(fs::path(file.string() + ".part"), ignored);
      throw;
    }
    return {{"model", options.origin.model_name},
            {"tokens", n_tokens_},
            {"chunk", capture_.chunk},
            {"dtype", std::string(enum_name(capture_.dtype))},
            {"device", engine_.device},
            {"threads", means.pool.n_threads()},
            {"prefill_seconds", bare},
            {"record_seconds", recording},
            {"record_over_prefill", median(ratios)},
            {"bytes_written", n_bytes},
            {"bytes_per_second", static_cast<double>(n_bytes) / median(recording)}};
  }

  std::string model_ = "verifier";
  EngineOptions engine_;
  CaptureOptions capture_;
  Index n_tokens_ = 4096;
  Index n_repeats_ = 5;
  fs::path dir_ = ".";
};

}  // namespace
}  // namespace kvscope::cli

int main(int argc, char** argv) {
  kvscope::cli::BenchRecording command;
  return kvscope::cli::run_bench_program(command, argc, argv);
}
