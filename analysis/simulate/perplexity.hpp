// Perplexity under a selector: teacher-forced decoding after a dense prefill, or chunked prefill.
//
// decode, SpecAttn's protocol (arXiv 2510.27641, table 1): of n_tokens tokens the first floor(share
// * n_tokens) are filled in densely, then every further token is a decode step and its logits are
// scored against the token that follows. share 0 is Quest's protocol: every token from an empty
// cache. Methods that need a draft verify gamma tokens at a time, the draft consuming the same
// reference tokens. prefill, QuoKA's setting: the text goes in by chunks and every position is
// scored.
//
// perplexity = exp(mean negative log-likelihood in nats) over the scored tokens of all windows
// of all texts.
#pragma once

#include "analysis/simulate/simulation.hpp"
#include "core/base/fields.hpp"

namespace kvscope {

enum class PerplexityMode { decode, prefill };

struct PerplexityOptions {
  PerplexityMode mode = option(mode, "mode", PerplexityMode::decode,
                               "decode: one token at a time after the prefill; prefill: by chunks");
  Index n_tokens = option(n_tokens, "max-tokens", 2048, "tokens of a window, the prefill included",
                          in(3, 100'000'000));
  double prefill =
      option(prefill, "prefill", 0.1, "share of a window that is filled in densely and not scored",
             in(0.0, 1.0));
  Index offset =
      option(offset, "offset", 5000, "first token of a text's first window", in(0, 1'000'000'000));
  Index windows =
      option(windows, "windows", 1, "windows of a text, one after the other", in(1, 1'000'000));
};

/// Throws ConfigError for a text shorter than asked and windows beyond the model's positions.
std::unique_ptr<SimulationTask> make_perplexity_task(const SimulationSetup& setup,
                                                     const PerplexityOptions& options);

/// Negative log-likelihood in nats of `target` under logits [n_vocab], in f64.
double negative_log_likelihood(std::span<const float> logits, TokenId target);

}  // namespace kvscope
