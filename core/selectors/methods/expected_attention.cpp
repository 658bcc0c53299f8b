// expected-attention: keep the keys that queries to come will attend to on the average (Devoto et
// al., Expected Attention, arXiv 2510.00636; kvpress).
//
// Idea: the prompt's queries before rotation are taken for a Gaussian, of mean mu and covariance C
// per query head; a query at one of the next n-future positions is such a query under a rotation,
// here the mean rotation R over these positions. A key's expected weight is exp(s (R mu).k + s^2
// k'(R C R')k / 2) (s the score scale), softmaxed over the keys and averaged over the KV group; the
// length of its value times that is its score. Cost per prefill call and layer with n alive keys:
// 2 n_q n d^2 FLOPs for the quadratic form, 2 n_q n_tok d^2 for the covariance; one read of keys
// and values. Stores n_q d^2 numbers per layer. Fails where what is asked at the end is not like
// the prompt: one Gaussian has no needles in it.
//
// Decided here: in chunked prefill the moments are of all queries so far and the cache is shrunk
// after every chunk; decoded tokens are appended and never evicted. The first n-sink queries do not
// count, the first n-sink keys stay (inside the budget) and are in no softmax. Equal to kvpress 0.5
// for a prompt in one call, where the model's score scale is 1 / sqrt(d_head), as kvpress takes it
// to be; a soft cap is left out, as there. Queries are turned back by the model's own rotation, so
// the recording's config.json must be of a family that is computed here.
#include <Eigen/Dense>
#include <algorithm>
#include <cmath>

#include "core/attention/score_rows.hpp"
#include "core/base/error.hpp"
#include "core/selectors/cost_units.hpp"
#include "core/selectors/eviction.hpp"
#include "core/selectors/key_rotation.hpp"
#include "core/selectors/owners.hpp"
#include "core/selectors/registry.hpp"
#include "core/selectors/shared_options.hpp"

namespace kvscope {

namespace {

/// Sums over the queries of one head before rotation.
struct QueryMoments {
  double n = 0.0;
  Eigen::VectorXd sum;
  Eigen::MatrixXd squares;
  void truncate(Index) {}  // of prompts, which are not rejected
};

class ExpectedAttention final : public EvictingMethod {
 public:
  Index n_future_ = option(n_future_, "n-future", 512,
                           "positions behind the call that are expected", in(1, 1 << 20));
  Index n_sink_ = first_keys_option(n_sink_);
  bool covariance_ = option(covariance_, "covariance", true, "the spread of the queries counts");
  bool value_norm_ =
      option(value_norm_, "value-norm", true, "scores are multiplied by the values' lengths");
  double epsilon_ =
      option(epsilon_, "epsilon", 0.0, "added to a weight before the value's length multiplies it",
             in(0.0, 1.0));

  SelectorCaps caps() const override {
    SelectorCaps caps = EvictingMethod::caps();
    caps.needs_values = value_norm_;
    caps.needs_rotation = true;
    return caps;
  }
  void reset(const AttentionShape& shape) override { shape_ = shape; }

  void evict(const SelectCall& call, AliveMask& alive) override {
    if (!evicts_after(call)) return;
    engine_of(call).run(call.q.dim(0), [&](Index head, ScoreWorker&) {
      add_queries(call, head, moments(call, head));
    });
    EvictingMethod::evict(call, alive);
  }

  SelectCost cost(const SelectCall& call, const Selection& selection) const override {
    if (call.phase != Phase::prefill) return {};
    const auto n_q = static_cast<double>(call.q.dim(0));
    const auto d = static_cast<double>(call.k.dim(2));
    const double n_keys = attended_keys_of(call, selection);  // of all KV heads
    const double group = n_q / static_cast<double>(call.k.dim(0));
    const double width = covariance_ ? d * d : d;
    return {.score_flops = 2.0 * (group * n_keys + n_q * static_cast<double>(call.n_tok)) * width,
            .score_bytes = (value_norm_ ? 2.0 : 1.0) * n_keys * d * kBytesPerElement,
            .metadata_bytes = n_q * width * kBytesPerElement};
  }

 protected:
  bool evicts_after(const SelectCall& call) const override { return call.phase == Phase::prefill; }
  Index n_sink() const override { return n_sink_; }

  KeyValues scores(const SelectCall& call, const KeyLists& keys) override {
    const Eigen::MatrixXd rotation =
        mean_rotation(rotation_of(call), call.pos_begin + call.n_tok, call.k.dim(2));
    const Index group = call.q.dim(0) / call.k.dim(0);
    KeyValues weights(static_cast<std::size_t>(call.q.dim(0)));
    engine_of(call).run(call.q.dim(0), [&](Index head, ScoreWorker&) {
      const std::vector<KeyPos>& list = keys[static_cast<std::size_t>(head / group)];
      weights[static_cast<std::size_t>(head)] =
          expected_weights(call, head / group, list, moments(call, head), rotation);
    });
    KeyValues scores(keys.size());
    for (std::size_t i = 0; i < keys.size(); ++i) {
      scores[i].assign(keys[i].size(), 0.0);
      for (Index head = 0; head < group; ++head) {
        const auto& of_head =
            weights[i * static_cast<std::size_t>(group) + static_cast<std::size_t>(head)];
        for (std::size_t j = 0; j < of_head.size(); ++j)
          scores[i][j] += of_head[j] / static_cast<double>(group);
      }
      const auto v = value_norm_ ? call.v.sub(static_cast<Index>(i)) : TensorView<const float>();
      for (std::size_t j = 0; value_norm_ && j < keys[i].size(); ++j)
        scores[i][j] = (scores[i][j] + epsilon_) * norm_of(v.row(keys[i][j]));
    }
    return scores;
  }

 private:
  QueryMoments& moments(const SelectCall& call, Index head) const {
    const Index d = call.q.dim(2);
    return engine_of(call).kept<QueryMoments>(this, call.layer, head, [&] {
      return QueryMoments{0.0, Eigen::VectorXd::Zero(d), Eigen::MatrixXd::Zero(d, d)};
    });
  }

  const KeyRotation& rotation_of(const SelectCall& call) const {
    if (shape_.rotations == nullptr)
      throw ConfigError("expected-attention: how the model rotates its queries is not known");
    return (*shape_.rotations)[static_cast<std::size_t>(call.layer)];
  }

  void add_queries(const SelectCall& call, Index head, QueryMoments& of) const {
    const KeyRotation& rotation = rotation_of(call);
    const Index first = std::clamp<Index>(n_sink_ - call.pos_begin, 0, call.n_tok);
    Eigen::MatrixXd rows(call.q.dim(2), call.n_tok - first);  // a query per column
    for (Index row = first; row < call.n_tok; ++row) {
      const auto q = call.q.sub(head).row(row);
      double* const to = rows.col(row - first).data();
      std::copy(q.begin(), q.end(), to);
      rotation.turn_back(call.pos_begin + row, {to, q.size()});
    }
    of.n += static_cast<double>(rows.cols());
    of.sum += rows.rowwise().sum();
    if (covariance_) of.squares.noalias() += rows * rows.transpose();
  }

  /// The mean over the positions to come of the rotation's matrix.
  Eigen::MatrixXd mean_rotation(const KeyRotation& rotation, Index pos_begin, Index d) const {
    Eigen::MatrixXd mean = Eigen::MatrixXd::Identity(d, d);
    for (std::size_t i = 0; i < rotation.frequencies.size(); ++i) {
      double cosine = 0.0;
      double sine = 0.0;
      for (Index pos = pos_begin; pos < pos_begin + n_future_; ++pos) {
        cosine += std::cos(static_cast<double>(pos) * rotation.frequencies[i]);
        sine += std::sin(static_cast<double>(pos) * rotation.frequencies[i]);
      }
      const double share = rotation.amplitude / static_cast<double>(n_future_);
      const auto [at_x, at_y] = rotation.pair(i);
      const auto x = static_cast<Index>(at_x);
      const auto y = static_cast<Index>(at_y);
      mean(x, x) = mean(y, y) = share * cosine;
      mean(y, x) = share * sine;
      mean(x, y) = -share * sine;
    }
    return mean;
  }

  /// Softmax over the keys behind the sinks; 0 for these.
  std::vector<double> expected_weights(const SelectCall& call, Index kv_head,
                                       std::span<const KeyPos> keys, const QueryMoments& of,
                                       const Eigen::MatrixXd& rotation) const {
    std::vector<double> weights(keys.size(), 0.0);
    const auto first = std::min(static_cast<std::size_t>(n_sink_), keys.size());
    if (of.n == 0.0 || first == keys.size()) return weights;
    const auto scale = static_cast<double>(call.score_scale);
    const Eigen::VectorXd mean = of.sum / of.n;
    const Eigen::VectorXd query = rotation * mean;
    Eigen::MatrixXd spread;
    if (covariance_) {
      spread = rotation * (of.squares / of.n - mean * mean.transpose()) * rotation.transpose();
    }
    const auto k = call.k.sub(kv_head);
    Eigen::VectorXd key(call.k.dim(2));
    for (std::size_t j = first; j < keys.size(); ++j) {
      const auto row = k.row(keys[j]);
      std::copy(row.begin(), row.end(), key.data());
      weights[j] = scale * query.dot(key);
      if (covariance_) weights[j] += scale * scale * key.dot(spread * key) / 2.0;
    }
    softmax_in_place(std::span(weights).subspan(first));
    return weights;
  }

  AttentionShape shape_;
};

}  // namespace

void register_expected_attention(SelectorRegistry& registry) {
  registry.add<ExpectedAttention>(
      "expected-attention", "Expected Attention: what queries to come will read",
      "arXiv 2510.00636", "keeps the keys with the largest attention expected from later queries");
}

}  // namespace kvscope
