// One random question to a selector, with naive exact attention beside it.
#pragma once

#include <algorithm>
#include <cmath>
#include <limits>
#include <random>
#include <vector>

#include "core/base/parallel.hpp"
#include "core/selectors/registry.hpp"
#include "core/trace/source.hpp"
#include "tests/core/selectors/lists.hpp"

namespace kvscope::test {

struct CallShape {
  Index n_q = 4;
  Index n_kv = 2;
  Index d_head = 16;
  Index n_past = 40;
  Index n_tok = 5;
  Phase phase = Phase::prefill;
  Index layer = 5;
  unsigned seed = 1;
  bool has_ties = false;  // small whole numbers: many equal scores
};

/// One decode step after n_past keys.
inline CallShape step_shape(Index n_past, unsigned seed = 1) {
  return {.n_past = n_past, .n_tok = 1, .phase = Phase::decode, .seed = seed};
}

inline Tensor<float> random_tensor(Shape shape, std::mt19937& rng, bool has_ties = false) {
  Tensor<float> out(shape);
  std::normal_distribution<float> normal;
  for (float& x : out.flat()) x = has_ties ? std::round(normal(rng)) : normal(rng);
  return out;
}

class CallFixture {
 public:
  explicit CallFixture(const CallShape& shape = {}) : alive(shape.n_kv) {
    std::mt19937 rng(shape.seed);
    const Index n_ctx = shape.n_past + shape.n_tok;
    q = random_tensor({shape.n_q, shape.n_tok, shape.d_head}, rng, shape.has_ties);
    k = random_tensor({shape.n_kv, n_ctx, shape.d_head}, rng, shape.has_ties);
    v = random_tensor({shape.n_kv, n_ctx, shape.d_head}, rng);
    alive.append(n_ctx);
    call.layer = shape.layer;
    call.phase = shape.phase;
    call.pos_begin = shape.n_past;
    call.n_tok = shape.n_tok;
    call.score_scale = 1.0f / std::sqrt(static_cast<float>(shape.d_head));
    bind();
  }
  CallFixture(const CallFixture&) = delete;
  CallFixture& operator=(const CallFixture&) = delete;

  /// After a tensor was replaced.
  void bind() {
    call.q = q.view();
    call.k = k.view();
    call.v = v.view();
    call.alive = &alive;
    call.context = &context;
  }

  Index group() const { return q.dim(0) / k.dim(0); }
  AttentionShape attention() const {
    return {8, q.dim(0), k.dim(0), q.dim(2), k.dim(1), call.score_scale, call.score_cap};
  }
  double logit(Index q_head, Index row, Index pos) const {
    double dot = 0.0;
    for (Index c = 0; c < q.dim(2); ++c) {
      dot +=
          static_cast<double>(q(q_head, row, c)) * static_cast<double>(k(q_head / group(), pos, c));
    }
    return call.score_rule().of(dot);
  }
  bool sees(Index q_head, Index row, Index pos) const {
    const Index own = call.pos_begin + row;
    return pos <= own && (!call.window || pos > own - *call.window) &&
           alive.is_alive(q_head / group(), static_cast<KeyPos>(pos));
  }
  /// Exact softmax weights of a row over what it sees, [n_ctx].
  std::vector<double> weights(Index q_head, Index row) const {
    std::vector<double> out(static_cast<std::size_t>(k.dim(1)), 0.0);
    double sum = 0.0;
    for (Index pos = 0; pos < k.dim(1); ++pos) {
      if (!sees(q_head, row, pos)) continue;
      out[pos] = std::exp(logit(q_head, row, pos));
      sum += out[pos];
    }
    for (double& w : out) w /= sum;
    return out;
  }

  Tensor<float> q, k, v;
  AliveMask alive;
  CrossLayerContext context;
  SelectCall call;
};

/// A step of many: every third seed verifies four drafts, every second has lost keys.
class SeededStep : public CallFixture {
 public:
  SeededStep(Index n_past, unsigned seed) : CallFixture(shape_of(n_past, seed)) {
    if (seed % 2 != 0) return;
    for (Index pos = 10; pos < n_past / 2; pos += 3) alive.kill(1, static_cast<KeyPos>(pos));
  }

 private:
  static CallShape shape_of(Index n_past, unsigned seed) {
    CallShape shape = step_shape(n_past, seed);
    if (seed % 3 != 0) return shape;
    shape.phase = Phase::verify;
    shape.n_tok = 4;
    return shape;
  }
};

/// The k best of positions [0, scores.size()) that are candidates, ascending; equal scores by
/// position.
inline std::vector<KeyPos> naive_top_k(const std::vector<double>& scores, Index k) {
  std::vector<bool> is_kept(scores.size(), false);
  for (Index n = 0; n < k; ++n) {
    std::size_t best = scores.size();
    for (std::size_t i = 0; i < scores.size(); ++i) {
      if (is_kept[i] || scores[i] == -std::numeric_limits<double>::infinity()) continue;
      if (best == scores.size() || scores[i] > scores[best]) best = i;
    }
    if (best == scores.size()) break;
    is_kept[best] = true;
  }
  std::vector<KeyPos> kept;
  for (std::size_t i = 0; i < scores.size(); ++i) {
    if (is_kept[i]) kept.push_back(static_cast<KeyPos>(i));
  }
  return kept;
}

inline std::vector<KeyPos> positions(Index begin, Index end) {
  std::vector<KeyPos> out;
  for (Index pos = begin; pos < end; ++pos) out.push_back(static_cast<KeyPos>(pos));
  return out;
}

/// The keys of pages of `size`, as far as there are n_keys.
inline std::vector<KeyPos> keys_of_pages(const std::vector<KeyPos>& pages, Index size,
                                         Index n_keys) {
  std::vector<KeyPos> keys;
  for (const KeyPos page : pages) {
    for (const KeyPos pos : positions(page * size, std::min((page + 1) * size, n_keys)))
      keys.push_back(pos);
  }
  return keys;
}

inline std::unique_ptr<Selector> made(std::string_view spec, const CallFixture& fixture) {
  auto selector = selector_registry().make(spec);
  selector->reset(fixture.attention());
  return selector;
}

/// A method that learns, after it has learned from `text`.
inline std::unique_ptr<Selector> made_from(const TraceSource& text, std::string_view spec,
                                           const CallFixture& fixture) {
  auto selector = selector_registry().make(spec);
  ThreadPool pool(2);
  selector->calibrate(text, text.info().layers, pool);
  selector->reset(fixture.attention());
  return selector;
}

}  // namespace kvscope::test
