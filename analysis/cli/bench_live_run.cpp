#include "analysis/cli/bench_live_run.hpp"

#include <algorithm>
#include <chrono>

#include "analysis/cli/model_source.hpp"
#include "analysis/cli/prompt.hpp"
#include "core/base/error.hpp"
#include "core/sim/live.hpp"

namespace kvscope::cli {

PrefillSeconds time_prefill(const Transformer& model, const ReplayPair* pair,
                            std::span<const TokenId> text, Index chunk, ThreadPool& pool,
                            const std::stop_token& stop) {
  using Clock = std::chrono::steady_clock;
  const auto capacity = static_cast<Index>(text.size());
  const auto step = static_cast<std::size_t>(chunk);
  const auto each_chunk = [&](auto&& call) {  // (tokens, which logits)
    for (std::size_t at = 0; at < text.size(); at += step) {
      if (stop.stop_requested()) throw Interrupted("the benchmark of prefill was stopped");
      call(text.subspan(at, std::min(step, text.size() - at)),
           at + step >= text.size() ? Logits::last : Logits::none);
    }
  };
  if (pair != nullptr) {
    LiveSequence live(model, {pair->selector, pair->budget, std::nullopt}, capacity, pool);
    each_chunk([&](std::span<const TokenId> tokens, Logits logits) {
      live.prefill(tokens, chunk, PrefillMode::sparse, logits);
    });
    const LiveTimes& times = live.stats().times;
    return {times.total, times.attention, times.selection};
  }
  const auto cache = model.make_store(capacity);
  ForwardTimes times;
  ForwardOptions options;
  options.times = &times;
  const auto start = Clock::now();
  each_chunk([&](std::span<const TokenId> tokens, Logits logits) {
    options.logits = logits;
    model.forward(tokens, *cache, pool, options);
  });
  return {std::chrono::duration<double>(Clock::now() - start).count(), times.attention_seconds,
          0.0};
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
