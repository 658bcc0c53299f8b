// Attention probabilities of recorded rows, recomputed from q, the cached keys and the log-sum-exp.
#pragma once

#include <cstdint>
#include <optional>
#include <span>
#include <vector>

#include "core/tensor/score_rule.hpp"
#include "core/tensor/tensor.hpp"

namespace kvscope {

/// probs [n >= pos + 1]: prob[j] = exp(scale * q.k[j] - lse) for the visible j <= pos, 0 elsewhere.
/// q [d_head]; keys [>= pos + 1, d_head].
void attention_row(std::span<const float> q, TensorView<const float> keys, Index pos,
                   std::optional<Index> window, const ScoreRule& rule, float lse,
                   std::span<float> probs);

/// The largest entries of probs [begin, end) by falling value, lower position first among equals;
/// -1 and 0 pad. `order` is scratch memory that is reused between calls.
void largest_entries(std::span<const float> probs, Index begin, Index end,
                     std::vector<std::int32_t>& order, std::span<std::int32_t> pos,
                     std::span<float> prob);

}  // namespace kvscope
