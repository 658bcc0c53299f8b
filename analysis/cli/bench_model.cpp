// kvscope bench prefill and bench decode: how fast a model runs on this machine.
#include "analysis/base/number_formats.hpp"
#include "analysis/cli/bench_live_run.hpp"
#include "analysis/cli/bench_report.hpp"
#include "analysis/cli/filled_text.hpp"
#include "analysis/cli/kit.hpp"
#include "analysis/cli/model_source.hpp"
#include "analysis/cli/stopwatch.hpp"
#include "core/base/cpu.hpp"
#include "core/model/flop_count.hpp"

namespace kvscope::cli {
namespace {

constexpr Index kMostTokens = 1'000'000'000;  // sums of a few such numbers do not overflow

enum class Measured { prefill, decode };

class BenchModel final : public BenchReportCommand {
 public:
  explicit BenchModel(Measured what) : what_(what) {}
  CommandCard card() const override {
    if (decodes())
      return {"bench decode",
              "speed of greedy decoding after a prompt",
              "",
              {{"kvscope bench decode --lengths 2048 --steps 64",
                "64 steps after 2048 tokens of prompt"}}};
    return {"bench prefill",
            "speed of running the model over a prompt",
            "",
            {{"kvscope bench prefill --lengths 4096 --threads 2 --json",
              "tokens/s and GFLOP/s as JSON"}}};
  }

 private:
  bool decodes() const { return what_ == Measured::decode; }

  void declare_bench(OptionSet& options) override {
    options.add("model", "MODEL", kModelHelp, model_).kind = ValueKind::file;
    options.renamed("tokens", "lengths");
    options.add("lengths", "N", "prompt length; the embedded book is repeated if it is too short",
                n_tokens_, in(1, kMostTokens));
    options.add("chunk", "N", "tokens per prefill call", chunk_, at_least(1));
    options.add("repeat", "N", "measured runs, after one that is not", n_repeats_, in(1, 1000));
    if (decodes()) options.add("steps", "N", "decode steps of one run", n_steps_, at_least(1));
    engine_.declare(options);
  }

  Json measure(const BenchMeans& means) const override {
    const fs::path dir = model_dir(model_);
    const ModelConfig config = load_config(dir);
    const Index n_most = n_tokens_ + (decodes() ? n_steps_ : 0);
    if (n_most > config.max_positions)
      throw UsageError("{} tokens exceed the model's context of {} positions", n_most,
                       config.max_positions);
    const Transformer model = load_transformer(dir, engine_);
    const std::vector<TokenId> prompt = book_tokens(config, n_tokens_);
    const std::string what = decodes() ? "decode" : "prefill";
    Json report = {{"bench", what},
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
    auto cache = model.make_store(n_most);
    if (decodes()) prefill(model, prompt, *cache, means);
    std::vector<double> seconds;
    take_turns({what, n_repeats_}, 1, means, [&](std::size_t, bool counted) {
      decodes() ? cache->truncate(n_tokens_) : void(cache = model.make_store(n_tokens_));
      const double s = seconds_of([&] {
        decodes() ? decode(model, prompt.back(), *cache, means)
                  : prefill(model, prompt, *cache, means);
      });
      if (counted) seconds.push_back(s);
    });
    const double flops = (decodes() ? count_forward_flops(config, n_tokens_, n_steps_, n_steps_)
                                    : count_forward_flops(config, 0, n_tokens_, 0))
                             .total();
    if (decodes()) report["steps"] = n_steps_;
    report[what] = timing(seconds, static_cast<double>(decodes() ? n_steps_ : n_tokens_), flops);
    if (!decodes()) return report;
    // As a table too, so that runs over several lengths can be put side by side.
    Json row = {{"selector", "full"}, {"length", n_tokens_}, {"steps", n_steps_}};
    add_spread(row, "seconds", seconds);
    report["rows"] = Json::array({std::move(row)});
    return report;
  }

  // The prompt through the model in chunks, into a fresh cache.
  void prefill(const Transformer& model, std::span<const TokenId> tokens, KvStore& cache,
               const BenchMeans& means) const {
    for (std::size_t at = 0; at < tokens.size(); at += static_cast<std::size_t>(chunk_)) {
      if (means.stop.stop_requested()) throw Interrupted("{} stopped", name());
      const std::size_t n = std::min(tokens.size() - at, static_cast<std::size_t>(chunk_));
      model.forward(tokens.subspan(at, n), cache, means.pool);
    }
  }

  void decode(const Transformer& model, TokenId next, KvStore& cache,
              const BenchMeans& means) const {
    const ForwardOptions options{.logits = Logits::last};
    for (Index step = 0; step < n_steps_; ++step)
      next = argmax(model.forward({&next, 1}, cache, means.pool, options).flat());
  }

  // best, median and rates of a list of times; flops of one run.
  static Json timing(const std::vector<double>& seconds, double n_tokens, double flops) {
    const double mid = median(seconds);
    return {{"seconds_best", *std::ranges::min_element(seconds)},
            {"seconds_median", mid},
            {"tokens_per_second", n_tokens / mid},
            {"gflops_per_second", flops / mid / 1e9},
            {"gflop", flops / 1e9},
            {"seconds", seconds}};
  }

  std::string describe(const Json& report) const override {
    const auto what = report.at("bench").get<std::string>();
    const Json& timed = report.at(what);
    return filled_in(
               "{bench} of {model}: {tokens:9} tokens in chunks of {chunk:9}, {threads} threads "
               "on {cpu}\n",
               report) +
           NumberFormats::of(report).line() +
           fmt::format("  {:<8} {:>8.0f} tokens/s  {:>7.1f} GFLOP/s  {}\n", what,
                       timed["tokens_per_second"].get<double>(),
                       timed["gflops_per_second"].get<double>(),
                       filled_in("median {seconds_median:s}, best {seconds_best:s}", timed));
  }

  Measured what_;
  std::string model_ = "verifier";
  EngineOptions engine_;
  Index n_tokens_ = 4096;
  Index chunk_ = 512;
  Index n_repeats_ = 5;
  Index n_steps_ = 64;
};

}  // namespace

KVSCOPE_COMMAND(810, BenchModel, Measured::prefill)
KVSCOPE_COMMAND(830, BenchModel, Measured::decode)

}  // namespace kvscope::cli
