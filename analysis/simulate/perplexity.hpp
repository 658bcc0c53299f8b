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
  PerplexityMode mode = PerplexityMode::decode;
  Index n_tokens = 2048;
  double prefill = 0.1;
  Index offset = 5000;
  Index windows = 1;

  template <class Self, class Visit>
  static void visit_fields(Self& self, Visit&& visit) {
    visit(Field{"mode", "decode: one token at a time after the prefill; prefill: by chunks"},
          self.mode);
    visit(Field{"max-tokens", "tokens of a window, the prefill included"}.in(3, 100'000'000),
          self.n_tokens);
    visit(
        Field{"prefill", "share of a window that is filled in densely and not scored"}.in(0.0, 1.0),
        self.prefill);
    visit(Field{"offset", "first token of a text's first window"}.in(0, 1'000'000'000),
          self.offset);
    visit(Field{"windows", "windows of a text, one after the other"}.in(1, 1'000'000),
          self.windows);
  }
};

/// Throws ConfigError for a text shorter than asked and windows beyond the model's positions.
std::unique_ptr<SimulationTask> make_perplexity_task(const SimulationSetup& setup,
                                                     const PerplexityOptions& options);

/// Negative log-likelihood in nats of `target` under logits [n_vocab], in f64.
double negative_log_likelihood(std::span<const float> logits, TokenId target);

}  // namespace kvscope
