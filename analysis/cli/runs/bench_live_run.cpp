#include "analysis/cli/runs/bench_live_run.hpp"

#include <algorithm>

#include "analysis/cli/models/model_source.hpp"
#include "analysis/cli/models/prompt.hpp"
#include "core/base/error.hpp"
#include "core/base/stopwatch.hpp"
#include "core/sim/live.hpp"

namespace kvscope::cli {

LiveSeconds time_live(const Transformer& model, const ReplayPair* pair,
                      std::span<const TokenId> text, Index chunk, Index n_steps, ThreadPool& pool,
                      const std::stop_token& stop) {
  const auto capacity = static_cast<Index>(text.size()) + n_steps;
  const auto step = static_cast<std::size_t>(chunk);
  const auto check = [&] {
    if (stop.stop_requested()) throw Interrupted("the benchmark of the model was stopped");
  };
  const auto each_chunk = [&](auto&& call) {  // (tokens, which logits)
    for (std::size_t at = 0; at < text.size(); at += step) {
      check();
      call(text.subspan(at, std::min(step, text.size() - at)),
           at + step >= text.size() ? Logits::last : Logits::none);
    }
  };
  const auto greedy = [&](auto&& call) {  // (token) -> logits; seconds of each step
    std::vector<double> seconds;
    TokenId next = text.back();
    for (Index i = 0; i < n_steps; ++i) {
      check();
      const Stopwatch watch;
      next = argmax(call(std::span(&next, 1)).flat());
      seconds.push_back(watch.seconds());
    }
    return seconds;
  };
  if (pair != nullptr) {
    LiveSequence live(model, {pair->selector, pair->budget, std::nullopt}, capacity, pool);
    each_chunk([&](std::span<const TokenId> tokens, Logits logits) {
      live.prefill(tokens, chunk, PrefillMode::sparse, logits);
    });
    const LiveTimes times = live.stats().times;
    return {times, greedy([&](std::span<const TokenId> token) {
              return live.run(Phase::decode, token, Logits::last);
            })};
  }
  const auto cache = model.make_store(capacity);
  ForwardTimes times;
  ForwardOptions options;
  options.times = &times;
  const Stopwatch watch;
  each_chunk([&](std::span<const TokenId> tokens, Logits logits) {
    options.logits = logits;
    model.forward(tokens, *cache, pool, options);
  });
  const LiveTimes prefill{watch.seconds(), times.attention_seconds, 0.0};
  return {prefill, greedy([&](std::span<const TokenId> token) {
            return model.forward(token, *cache, pool, {.logits = Logits::last});
          })};
}

std::vector<TokenId> book_tokens(const ModelConfig& config, Index length) {
  const Tokenizer tokenizer = load_tokenizer(model_dir("verifier"));
  PromptOptions options{.max_tokens = length};
  const std::vector<TokenId> book = options.load(&tokenizer).ids;
  std::vector<TokenId> text(static_cast<std::size_t>(length));
  for (std::size_t i = 0; i < text.size(); ++i)
    text[i] = book[i % book.size()] % static_cast<TokenId>(config.n_vocab);
  return text;
}

}  // namespace kvscope::cli
