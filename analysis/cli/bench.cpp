// kvscope bench: how fast prefill, recording and decoding run on this machine.
#include <unistd.h>

#include <thread>

#include "analysis/base/number_formats.hpp"
#include "analysis/base/statistics.hpp"
#include "analysis/cli/bench_report.hpp"
#include "analysis/cli/capture_options.hpp"
#include "analysis/cli/kit.hpp"
#include "analysis/cli/model_source.hpp"
#include "analysis/cli/prompt.hpp"
#include "analysis/cli/stopwatch.hpp"
#include "core/model/flop_count.hpp"

namespace kvscope::cli {
namespace {

constexpr Index kMostTokens = 1'000'000'000;  // sums of a few such numbers do not overflow

/// What all three measurements share: a model, a prompt, repeats after one warm-up, a report.
class BenchCommand : public BenchReportCommand {
 protected:
  struct Session {
    const Transformer& model;
    const fs::path& dir;
    const std::vector<TokenId>& prompt;
    ThreadPool& pool;
    std::stop_token stop;
    ProgressFn progress;
  };

  virtual void declare_more(OptionSet&) {}
  virtual Index n_extra_tokens() const { return 0; }
  virtual void measure_model(const Session& session, Json& report) const = 0;

  void declare_bench(OptionSet& options) final {
    options.add("model", "MODEL", kModelHelp, model_).kind = ValueKind::file;
    options.renamed("tokens", "lengths");
    options.add("lengths", "N", "prompt length; the embedded book is repeated if it is too short",
                n_tokens_, in(1, kMostTokens));
    options.add("chunk", "N", "tokens per prefill call", chunk_, at_least(1));
    options.add("repeat", "N", "measured runs, after one that is not", n_repeats_, in(1, 1000));
    declare_more(options);
    engine_.declare(options);
  }

  Json measure(const Means& means) const final {
    const fs::path dir = model_dir(model_);
    const ModelConfig config = load_config(dir);
    if (n_tokens_ + n_extra_tokens() > config.max_positions) {
      throw UsageError("{} tokens exceed the model's context of {} positions",
                       n_tokens_ + n_extra_tokens(), config.max_positions);
    }
    const Transformer model = load_transformer(dir, engine_);
    const std::vector<TokenId> prompt = make_prompt(config);
    Json report = {{"bench", name().substr(6)},
                   {"model", model_name(dir)},
                   {"model_hash", hash_of_model(dir, model)},
                   {"n_parameters", config.n_parameters()},
                   {"tokens", n_tokens_},
                   {"chunk", chunk_},
                   {"repeat", n_repeats_},
                   {"matmul", engine_.matmul_name()},
                   {"kv_dtype", engine_.kv_dtype},
                   {"device", engine_.device},
                   {"threads", means.pool.n_threads()},
                   {"vector_target", vector_targets().empty() ? "" : vector_targets().front()}};
    measure_model({model, dir, prompt, means.pool, means.stop, means.progress}, report);
    return report;
  }

  // Repeats with progress; the first call is not counted. Stops between calls if asked to.
  void repeat(const Session& session, const std::string& stage,
              const std::function<void(bool counted)>& once) const {
    for (Index i = 0; i <= n_repeats_; ++i) {
      if (session.stop.stop_requested()) throw Interrupted("{} stopped", name());
      once(/*counted=*/i > 0);
      if (session.progress) session.progress({stage, i, n_repeats_, "runs"});
    }
  }

  // The prompt through the model in chunks, into a fresh cache.
  double prefill(const Session& session, KvStore& cache) const {
    return seconds_of([&] {
      const std::span<const TokenId> tokens = session.prompt;
      for (std::size_t at = 0; at < tokens.size(); at += static_cast<std::size_t>(chunk_)) {
        if (session.stop.stop_requested()) throw Interrupted("{} stopped", name());
        const std::size_t n = std::min(tokens.size() - at, static_cast<std::size_t>(chunk_));
        session.model.forward(tokens.subspan(at, n), cache, session.pool);
      }
    });
  }

  // best, median and rates of a list of times; flops of one run.
  Json timing(const std::vector<double>& seconds, double n_tokens, double flops) const {
    const double best = *std::ranges::min_element(seconds);
    const double mid = median(seconds);
    return {{"seconds_best", best},
            {"seconds_median", mid},
            {"tokens_per_second", n_tokens / mid},
            {"gflops_per_second", flops / mid / 1e9},
            {"gflop", flops / 1e9},
            {"seconds", seconds}};
  }

  double prefill_flops(const ModelConfig& config) const {
    return count_forward_flops(config, 0, n_tokens_, 0).total();
  }

  Index n_tokens_ = 4096;
  Index chunk_ = 512;
  Index n_repeats_ = 5;

 private:
  std::vector<TokenId> make_prompt(const ModelConfig& config) const {
    // The embedded tokenizer's ids serve any vocabulary: speed does not depend on which tokens they
    // are.
    const Tokenizer tokenizer = load_tokenizer(model_dir("verifier"));
    PromptOptions options{.max_tokens = n_tokens_};
    const std::vector<TokenId> book = options.load(&tokenizer).ids;
    std::vector<TokenId> prompt(static_cast<std::size_t>(n_tokens_));
    for (std::size_t i = 0; i < prompt.size(); ++i)
      prompt[i] = book[i % book.size()] % static_cast<TokenId>(config.n_vocab);
    return prompt;
  }

  std::string describe(const Json& report) const final {
    std::string out =
        fmt::format("{} of {}: {} tokens in chunks of {}, {} threads on {}\n",
                    report.at("bench").get<std::string>(), report.at("model").get<std::string>(),
                    report.at("tokens").get<Index>(), report.at("chunk").get<Index>(),
                    report.at("threads").get<int>(), report.at("cpu").get<std::string>());
    out += NumberFormats::of(report).line();
    for (const auto& [key, value] : report.items()) {
      if (value.is_object() && value.contains("seconds_median")) {
        out += fmt::format("  {:<8} {:>8.0f} tokens/s  {:>7.1f} GFLOP/s  median {}, best {}\n", key,
                           value["tokens_per_second"].get<double>(),
                           value["gflops_per_second"].get<double>(),
                           seconds_text(value["seconds_median"].get<double>()),
                           seconds_text(value["seconds_best"].get<double>()));
      }
    }
    if (report.contains("record_over_prefill")) {
      out += fmt::format("  recording takes {:.2f} times the bare prefill and writes {}/s\n",
                         report["record_over_prefill"].get<double>(),
                         bytes_text(report["bytes_per_second"].get<double>()));
    }
    return out;
  }

  std::string model_ = "verifier";
  EngineOptions engine_;
};

class BenchPrefill final : public BenchCommand {
 public:
  std::string name() const override { return "bench prefill"; }
  std::string summary() const override { return "speed of running the model over a prompt"; }
  std::vector<Example> examples() const override {
    return {{"kvscope bench prefill --lengths 4096 --threads 2 --json",
             "tokens/s and GFLOP/s as JSON"}};
  }

 private:
  void measure_model(const Session& session, Json& report) const override {
    std::vector<double> seconds;
    repeat(session, "prefill", [&](bool counted) {
      const auto cache = session.model.make_store(n_tokens_);
      const double s = prefill(session, *cache);
      if (counted) seconds.push_back(s);
    });
    report["prefill"] =
        timing(seconds, static_cast<double>(n_tokens_), prefill_flops(session.model.config()));
  }
};

class BenchRecord final : public BenchCommand {
 public:
  CommandCard card() const override {
    return {"bench record",
            "speed of recording, against the bare prefill in the same run",
            "Prefill and recording take turns, so that both meet the same machine. The trace is "
            "written into --dir and removed.",
            {{"kvscope bench record --dtype bf16 --dir . --json",
              "bytes/s and record_over_prefill as JSON"}}};
  }

 private:
  void declare_more(OptionSet& options) override {
    options.add("dir", "DIR", "folder for the trace: which disk to measure", dir_).kind =
        ValueKind::folder;
    options.add("dtype", "TYPE", "storage type of q, k and v", capture_.dtype);
    options.add("capture", "LIST", "as in kvscope record", capture_.capture);
    options.add("compression", "HOW", "as in kvscope record", capture_.compression);
  }

  void measure_model(const Session& session, Json& report) const override {
    CaptureOptions capture = capture_;
    capture.chunk = chunk_;
    RecordOptions options = capture.record_options();
    options.model_name = report["model"].get<std::string>();
    options.model_config_json = config_json_of(session.dir);
    options.text_source = "embedded book";
    WriterOptions writer = capture_.writer_options(/*overwrite=*/true);
    if (session.model.backend().name() == "cuda") writer.write_beside(session.pool.n_threads());
    const fs::path file = dir_ / fmt::format("kvscope-bench-{}.h5", ::getpid());
    std::vector<double> bare, recording;
    std::int64_t n_bytes = 0;
    try {
      repeat(session, "record", [&](bool counted) {
        double s = 0;
        {
          const auto cache = session.model.make_store(n_tokens_);
          s = prefill(session, *cache);
        }
        if (counted) bare.push_back(s);
        s = seconds_of([&] {
          const auto receiver = create_trace(file, writer);
          n_bytes = record_trace(session.model, nullptr, session.prompt, options, *receiver,
                                 session.pool, {}, session.stop)
                        .bytes_written;
        });
        if (counted) recording.push_back(s);
        fs::remove(file);
      });
    } catch (...) {
      std::error_code ignored;
      fs::remove(file, ignored);
      fs::remove(fs::path(file.string() + ".part"), ignored);
      throw;
    }
    const double flops = prefill_flops(session.model.config());
    report["prefill"] = timing(bare, static_cast<double>(n_tokens_), flops);
    report["record"] = timing(recording, static_cast<double>(n_tokens_), flops);
    // Turn by turn, so that a slow spell of the machine hits both.
    std::vector<double> ratios;
    for (std::size_t i = 0; i < bare.size(); ++i) ratios.push_back(recording[i] / bare[i]);
    report["record_over_prefill"] = median(ratios);
    report["bytes_written"] = n_bytes;
    report["bytes_per_second"] = static_cast<double>(n_bytes) / median(recording);
    report["dtype"] = std::string(name_of(capture_.dtype));
  }

  fs::path dir_ = ".";
  CaptureOptions capture_;
};

class BenchDecode final : public BenchCommand {
 public:
  std::string name() const override { return "bench decode"; }
  std::string summary() const override { return "speed of greedy decoding after a prompt"; }
  std::vector<Example> examples() const override {
    return {
        {"kvscope bench decode --lengths 2048 --steps 64", "64 steps after 2048 tokens of prompt"}};
  }

 private:
  void declare_more(OptionSet& options) override {
    options.add("steps", "N", "decode steps of one run", n_steps_, at_least(1));
  }
  Index n_extra_tokens() const override { return n_steps_; }

  void measure_model(const Session& session, Json& report) const override {
    const ModelConfig& config = session.model.config();
    const auto cache = session.model.make_store(n_tokens_ + n_steps_);
    prefill(session, *cache);
    std::vector<double> seconds;
    repeat(session, "decode", [&](bool counted) {
      cache->truncate(n_tokens_);
      const double s = seconds_of([&] {
        TokenId next = session.prompt.back();
        for (Index step = 0; step < n_steps_; ++step) {
          ForwardOptions options{.logits = Logits::last};
          const Tensor<float> logits =
              session.model.forward({&next, 1}, *cache, session.pool, options);
          next = argmax(logits.flat());
        }
      });
      if (counted) seconds.push_back(s);
    });
    const double flops = count_forward_flops(config, n_tokens_, n_steps_, n_steps_).total();
    report["steps"] = n_steps_;
    report["decode"] = timing(seconds, static_cast<double>(n_steps_), flops);
    // As a table too, so that runs over several lengths can be put side by side.
    report["rows"] = Json::array({{{"selector", "full"},
                                   {"length", n_tokens_},
                                   {"steps", n_steps_},
                                   {"seconds", median(seconds)},
                                   {"seconds_low", *std::ranges::min_element(seconds)},
                                   {"seconds_high", *std::ranges::max_element(seconds)}}});
  }

  Index n_steps_ = 64;
};

}  // namespace

KVSCOPE_COMMAND(810, BenchPrefill)
KVSCOPE_COMMAND(820, BenchRecord)
KVSCOPE_COMMAND(830, BenchDecode)

}  // namespace kvscope::cli
