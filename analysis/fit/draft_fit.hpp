// A draft model from a verifier's own first layers: an early exit whose head is fitted in closed
// form.
//
// The draft is the verifier's embedding, its first N layers, a final norm without weights, and a
// head of its own. Its head is the verifier's head times a matrix W [d_model, d_model], which maps
// the normed state behind layer N to the normed (and weighted) state behind the last layer:
//
//     min_W  sum over tokens |W u_N - x_L|^2 + ridge * |W - diag(g)|^2
//
// u_N: the state behind layer N, normed; x_L: the final state as the verifier's head sees it; g:
// the final norm's weights, so that no data means the plain early exit, which reads the state
// behind layer N with the verifier's own norm and head. No gradient and no training: one pass of
// the verifier over a text, and a linear system. What comes out is an ordinary model of the same
// family.
#pragma once

#include <filesystem>
#include <span>
#include <stop_token>

#include "core/base/parallel.hpp"
#include "core/base/progress.hpp"
#include "core/model/transformer.hpp"

namespace kvscope {

struct DraftFitOptions {
  Index n_layers = 4;  // of the draft, fewer than the verifier has
  Index window = 512;  // tokens that are read at a time, each stretch from position 0
};

/// What was fitted.
struct DraftFit {
  Tensor<float> head;         // [n_vocab, d_model], reads the normed state behind layer N
  double ridge = 0.0;         // relative to the mean square of u_N; chosen on held-out windows
  double plain_error = 0.0;   // mean |g u_N - x_L|^2 / mean |x_L|^2 on those windows: W = diag(g)
  double fitted_error = 0.0;  // the same of the fitted W
  Index n_tokens = 0;         // read, the held-out windows included
};

/// Reads `tokens` with the verifier in the folder or file `model`. Every fifth window is held out
/// for the choice of the ridge, then all are used. Throws ConfigError for layers or a text that do
/// not do, what loading throws, Interrupted on a stop.
DraftFit fit_draft(const std::filesystem::path& model, std::span<const TokenId> tokens,
                   const DraftFitOptions& options, ThreadPool& pool, const ProgressFn& progress,
                   const std::stop_token& stop);

/// The shape of a model's first n layers. Throws ConfigError unless it has more than those.
ModelConfig first_layers(ModelConfig config, Index n_layers);

/// How often a verifier takes what a draft proposes, token by token along a text (teacher-forced).
struct DraftAcceptance {
  double greedy = 0.0;   // share of tokens at which both have the same likeliest next one
  double sampled = 0.0;  // mean of sum_t min(p_verifier(t), p_draft(t)), at temperature 1
  Index n_tokens = 0;
};

/// Over windows of `tokens` as in fitting, the first token of each left out. Throws ConfigError if
/// vocabularies differ or the text has no two tokens, Interrupted on a stop.
DraftAcceptance measure_acceptance(const Transformer& verifier, const Transformer& draft,
                                   std::span<const TokenId> tokens, Index window, ThreadPool& pool,
                                   const std::stop_token& stop);

}  // namespace kvscope
