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

constexpr Index kKeysAtOnce = 256;  // that lie together for their products

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
    return evicting({.needs_values = value_norm_, .needs_rotation = true});
  }
  bool remembers() const override { return true; }  // sums over the prompt's queries

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
    const std::vector<MeanTurn> turns = mean_turns(rotation_of(call), call.pos_begin + call.n_tok);
    const Index group = call.q.dim(0) / call.k.dim(0);
    KeyValues weights(static_cast<std::size_t>(call.q.dim(0)));
    engine_of(call).run(call.q.dim(0), [&](Index head, ScoreWorker& worker) {
      const std::vector<KeyPos>& list = keys[static_cast<std::size_t>(head / group)];
      weights[static_cast<std::size_t>(head)] =
          expected_weights(call, head / group, list, moments(call, head), turns, worker.dots);
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

  /// The mean rotation over the positions to come: of a pair of channels its mean cosine and sine,
  /// which are those of the middle position times sin(n f / 2) / (n sin(f / 2)), f the frequency.
  struct MeanTurn {
    Index x = 0, y = 0;
    double cosine = 1.0, sine = 0.0;
  };
  std::vector<MeanTurn> mean_turns(const KeyRotation& rotation, Index pos_begin) const {
    std::vector<MeanTurn> turns;
    for (std::size_t i = 0; i < rotation.frequencies.size(); ++i) {
      const double half = rotation.frequencies[i] / 2.0;
      const auto n = static_cast<double>(n_future_);
      const double narrowing =
          std::sin(half) == 0.0 ? 1.0 : std::sin(n * half) / std::sin(half) / n;
      const double middle = (2.0 * static_cast<double>(pos_begin) + n - 1.0) * half;
      const double share = rotation.amplitude * narrowing;
      const auto [x, y] = rotation.pair(i);
      turns.push_back({static_cast<Index>(x), static_cast<Index>(y), share * std::cos(middle),
                       share * std::sin(middle)});
    }
    return turns;
  }
  /// Turns every column.
  static void turn(std::span<const MeanTurn> turns, Eigen::Ref<Eigen::MatrixXd> columns) {
    for (Index c = 0; c < columns.cols(); ++c) {
      auto column = columns.col(c);
      for (const MeanTurn& by : turns) {
        const double x = column(by.x);
        const double y = column(by.y);
        column(by.x) = by.cosine * x - by.sine * y;
        column(by.y) = by.sine * x + by.cosine * y;
      }
    }
  }

  /// Softmax over the keys behind the sinks; 0 for these.
  std::vector<double> expected_weights(const SelectCall& call, Index kv_head,
                                       std::span<const KeyPos> keys, const QueryMoments& of,
                                       std::span<const MeanTurn> turns, KeyDots& dots) const {
    std::vector<double> weights(keys.size(), 0.0);
    const auto first = std::min(static_cast<std::size_t>(n_sink_), keys.size());
    if (of.n == 0.0 || first == keys.size()) return weights;
    const auto scale = static_cast<double>(call.score_scale);
    const Index d = call.k.dim(2);
    // the mean query; and roots of the quadratic form, which is the sum of their squared products
    Eigen::MatrixXd vectors(d, covariance_ ? d + 1 : 1);
    const Eigen::VectorXd mean = of.sum / of.n;
    vectors.col(0) = scale * mean;
    turn(turns, vectors.leftCols(1));
    if (covariance_) {
      Eigen::MatrixXd spread = of.squares / of.n - mean * mean.transpose();
      turn(turns, spread);
      spread.transposeInPlace();
      turn(turns, spread);
      const Eigen::LDLT<Eigen::MatrixXd> parts(scale * scale / 2.0 * spread);
      const Eigen::MatrixXd lower = parts.matrixL();
      vectors.rightCols(d) = parts.transpositionsP().transpose() *
                             (lower * parts.vectorD().cwiseMax(0.0).cwiseSqrt().asDiagonal());
    }
    const std::span<const double> rows(vectors.data(), static_cast<std::size_t>(vectors.size()));
    const auto k = call.k.sub(kv_head);
    Tensor<float> block({kKeysAtOnce, d});
    for (std::size_t begin = first; begin < keys.size(); begin += kKeysAtOnce) {
      const auto part =
          keys.subspan(begin).first(std::min<std::size_t>(kKeysAtOnce, keys.size() - begin));
      for (std::size_t i = 0; i < part.size(); ++i)
        std::ranges::copy(k.row(part[i]), block.view().row(static_cast<Index>(i)).begin());
      dots.compute(rows, vectors.cols(), block.view(), {0, std::ssize(part)});
      const auto to = std::span(weights).subspan(begin, part.size());
      std::ranges::copy(dots.row(0), to.begin());
      for (Index r = 1; r < vectors.cols(); ++r) {
        const std::span<const double> row = dots.row(r);
        for (std::size_t i = 0; i < part.size(); ++i) to[i] += row[i] * row[i];
      }
    }
    softmax_in_place(std::span(weights).subspan(first));
    return weights;
  }
};

}  // namespace

void register_expected_attention(SelectorRegistry& registry) {
  registry.add<ExpectedAttention>(
      "expected-attention", "Expected Attention: what queries to come will read",
      "arXiv 2510.00636", "keeps the keys with the largest attention expected from later queries");
}

}  // namespace kvscope
