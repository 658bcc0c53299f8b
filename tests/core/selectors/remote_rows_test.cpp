// Methods whose queries and keys lie elsewhere: they ask a RemoteRows, look at no data of their
// own, and answer as they do with the tensors at hand. tests/cuda/live_test.cpp has the GPU's.
#include "core/attention/remote_rows.hpp"

#include "tests/core/selectors/kit.hpp"

namespace kvscope::test::remote_rows_test {

/// One layer of a sequence's call, by loops.
class LoopRows final : public RemoteRows {
 public:
  LoopRows(const Sequence& sequence, Index layer, Index begin, Index n_tok)
      : sequence_(sequence), layer_(layer), begin_(begin), n_tok_(n_tok) {}

  std::vector<std::vector<double>> softmax_votes(std::span<const std::span<const KeyPos>> lists,
                                                 Index first_row, Index end_row) const override {
    const AttentionShape& shape = sequence_.shape;
    std::vector<std::vector<double>> votes;
    for (Index kv_head = 0; kv_head < shape.n_kv; ++kv_head) {
      std::set<KeyPos> allowed = first_keys(begin_ + n_tok_);
      if (!lists.empty()) {
        const auto list = lists[kv_head];
        allowed = {list.begin(), list.end()};
      }
      REQUIRE(allowed.contains(static_cast<KeyPos>(begin_)));
      REQUIRE(*allowed.rbegin() == begin_ + n_tok_ - 1);
      std::vector<double> sums(static_cast<std::size_t>(begin_ + n_tok_), 0.0);
      for (Index row = first_row; row < end_row; ++row) {
        for (Index head = kv_head * shape.group(); head < (kv_head + 1) * shape.group(); ++head) {
          const auto weights = naive_weights(sequence_, layer_, head, begin_ + row, allowed);
          for (std::size_t i = 0; i < weights.size(); ++i) sums[i] += weights[i];
        }
      }
      votes.emplace_back();
      for (const KeyPos pos : allowed) votes.back().push_back(sums[pos]);
    }
    return votes;
  }

  std::vector<std::vector<double>> mean_cosines(std::span<const std::span<const KeyPos>> lists,
                                                bool takes_unit, double eps) const override {
    std::vector<std::vector<double>> cosines;
    for (std::size_t kv_head = 0; kv_head < lists.size(); ++kv_head) {
      const auto k = sequence_.k[layer_].view().sub(static_cast<Index>(kv_head));
      const auto norm = [&](const auto& x) {
        double square = 0.0;
        for (const auto value : x)
          square += static_cast<double>(value) * static_cast<double>(value);
        return std::max(std::sqrt(square), eps);
      };
      std::vector<double> mean(static_cast<std::size_t>(k.dim(1)), 0.0);
      for (const KeyPos pos : lists[kv_head]) {
        const double weight = takes_unit ? 1.0 / norm(k.row(pos)) : 1.0;
        for (std::size_t c = 0; c < mean.size(); ++c)
          mean[c] += weight * static_cast<double>(k.row(pos)[c]) /
                     static_cast<double>(lists[kv_head].size());
      }
      cosines.emplace_back();
      for (const KeyPos pos : lists[kv_head]) {
        double product = 0.0;
        for (std::size_t c = 0; c < mean.size(); ++c)
          product += mean[c] * static_cast<double>(k.row(pos)[c]);
        cosines.back().push_back(product / norm(k.row(pos)) / norm(mean));
      }
    }
    return cosines;
  }

  std::vector<std::vector<double>> inverse_norms(std::span<const std::span<const KeyPos>> lists,
                                                 double eps) const override {
    std::vector<std::vector<double>> norms;
    for (Index kv_head = 0; kv_head < sequence_.shape.n_kv; ++kv_head) {
      norms.emplace_back();
      const auto add = [&](Index pos) {
        const auto key = key_of(kv_head, pos);
        norms.back().push_back(1.0 / std::max(std::sqrt(dot(key, key)), eps));
      };
      if (lists.empty()) {
        for (Index pos = 0; pos < begin_ + n_tok_; ++pos) add(pos);
      } else {
        std::ranges::for_each(lists[kv_head], add);
      }
    }
    return norms;
  }

  void linear_scores(std::span<const double> vectors, TokenRange keys,
                     std::span<const std::span<double>> out) const override {
    const auto d = static_cast<std::size_t>(sequence_.shape.d_head);
    REQUIRE(vectors.size() == out.size() * d);
    REQUIRE(keys.end <= begin_ + n_tok_);
    const auto per_head = static_cast<Index>(out.size()) / sequence_.shape.n_kv;
    for (std::size_t i = 0; i < out.size(); ++i) {
      for (Index pos = keys.begin; pos < keys.end; ++pos)
        out[i][pos - keys.begin] =
            dot(vectors.subspan(i * d, d), key_of(static_cast<Index>(i) / per_head, pos));
    }
  }

  void largest_scores(std::span<const double> vectors, TokenRange keys,
                      std::span<const std::span<double>> out) const override {
    const std::size_t n =
        vectors.size() / out.size() / static_cast<std::size_t>(sequence_.shape.d_head);
    std::vector<std::vector<double>> each(out.size() * n, std::vector<double>(out[0].size()));
    const std::vector<std::span<double>> rows(each.begin(), each.end());
    linear_scores(vectors, keys, rows);
    for (std::size_t i = 0; i < out.size(); ++i) {
      for (std::size_t t = 0; t < out[i].size(); ++t) {
        out[i][t] = each[i * n][t];
        for (std::size_t j = 1; j < n; ++j) out[i][t] = std::max(out[i][t], each[i * n + j][t]);
      }
    }
  }

  std::vector<std::vector<double>> value_sums(TokenRange keys) const override {
    std::vector<std::vector<double>> sums;
    for (Index kv_head = 0; kv_head < sequence_.shape.n_kv; ++kv_head) {
      sums.emplace_back(static_cast<std::size_t>(sequence_.shape.d_head), 0.0);
      for (Index pos = keys.begin; pos < keys.end; ++pos) {
        const auto value = sequence_.v[layer_].view().sub(kv_head).row(pos);
        for (std::size_t c = 0; c < value.size(); ++c)
          sums.back()[c] += static_cast<double>(value[c]);
      }
    }
    return sums;
  }

 private:
  template <class T>
  static double dot(std::span<T> a, std::span<const float> b) {
    double sum = 0.0;
    for (std::size_t c = 0; c < a.size(); ++c)
      sum += static_cast<double>(a[c]) * static_cast<double>(b[c]);
    return sum;
  }
  std::span<const float> key_of(Index kv_head, Index pos) const {
    return sequence_.k[layer_].view().sub(kv_head).row(pos);
  }

  const Sequence& sequence_;
  Index layer_, begin_, n_tok_;
};

/// All calls of the sequence, and a verification of which one token stays before every decode step.
std::vector<Answer> answers_of(const std::string& spec, const Sequence& sequence, bool is_remote) {
  SelectorRun run(make_selector(spec, sequence), sequence.shape, {{Budget::Kind::tokens, 12.0}},
                  std::nullopt, ScorePrecision::f32);
  REQUIRE(run.host_rows() != HostRows::all);
  std::vector<Answer> answers;
  const auto ask = [&](Phase phase, Index n_tok) {
    const Index begin = run.n_keys();
    const Index end = begin + n_tok;
    run.begin_call(phase, n_tok);
    for (Index layer = 0; layer < sequence.shape.n_layers; ++layer) {
      const auto at = static_cast<std::size_t>(layer);
      const LoopRows rows(sequence, layer, begin, n_tok);
      LayerCall call{.layer = layer,
                     .q = sequence.q[at].view().range(1, begin, end),
                     .k = sequence.k[at].view().range(1, 0, end),
                     .v = sequence.v[at].view().range(1, 0, end)};
      if (is_remote) {
        if (run.host_rows() == HostRows::none) call.q = {nullptr, call.q.shape()};
        call.k = {nullptr, call.k.shape()};
        call.v = {nullptr, call.v.shape()};
        call.remote = &rows;
      }
      answers.push_back(answer_of(run.layer_call(call)[0]));
    }
  };
  for (const auto& [phase, n_tok] : sequence.calls) {
    if (phase == Phase::decode && run.n_keys() + 3 <= sequence.n_tokens()) {
      const Index begin = run.n_keys();
      ask(Phase::verify, 3);
      run.rollback(begin + 1);
      if (run.n_keys() + n_tok > sequence.n_tokens()) break;
    }
    ask(phase, n_tok);
    if (run.n_keys() == sequence.n_tokens()) break;
  }
  return answers;
}

TEST_CASE("remote rows: the same lists as from tensors at hand") {
  const std::string spec =
      GENERATE("tova", "tova-kvpress", "snapkv:window=4", "snapkv:window=3,kernel=3,pooling=max",
               "keydiff", "keydiff:anchor=raw,recent-share=0.25", "adakv:window=4,kernel=3", "h2o",
               "h2o:normalise=window,vote-window=5", "knorm", "kascade:anchors=0,tile=8",
               "lessismore:dense-layers=0,correction-layer=1", "qfilters", "quoka:n-queries=3",
               "quoka:similarity=dot", "sparq:mean-value=false", "sparq",
               "loki:rank=4,basis=calibrated", "bigbird", "random");
  const std::uint64_t seed = GENERATE(1u, 2u, 3u);
  CAPTURE(spec, seed);
  const Sequence sequence =
      random_sequence({.n_tokens = 60, .n_decode = 12, .has_ties = false, .seed = seed});
  const auto expected = answers_of(spec, sequence, /*is_remote=*/false);
  const auto found = answers_of(spec, sequence, /*is_remote=*/true);
  REQUIRE(expected.size() == found.size());
  std::size_t n_sparse = 0;
  for (std::size_t i = 0; i < expected.size(); ++i) {
    CHECK(expected[i] == found[i]);
    n_sparse += expected[i].is_dense ? 0 : 1;
  }
  CHECK(n_sparse > 0);
}

TEST_CASE("remote rows: asked in f32, by methods that need not see what they ask about") {
  const AttentionShape shape{.n_layers = 1, .n_q = 4, .n_kv = 2, .d_head = 8, .max_tokens = 16};
  const auto needed = [&](const char* method, ScorePrecision precision = ScorePrecision::f32) {
    return SelectorRun(MethodSpec(method).make(), shape, {{Budget::Kind::tokens, 12.0}},
                       std::nullopt, precision)
        .host_rows();
  };
  for (const char* method : {"tova", "snapkv", "keydiff", "adakv", "h2o", "knorm", "random",
                             "kascade:anchors=0", "recent", "longformer"}) {
    INFO(method);
    CHECK(needed(method) == HostRows::none);
    CHECK(needed(method, ScorePrecision::f64) == HostRows::all);
  }
  CHECK(needed("lessismore") == HostRows::queries);
  for (const char* method : {"snapkv-official-mha", "quest", "kascade:anchors=0,list=q_head",
                             "tova@tokens=8+quest", "lagkv"}) {
    INFO(method);
    CHECK(needed(method) == HostRows::all);
  }
  CHECK(MethodSpec("critical").make()->host_rows() == HostRows::all);
}

}  // namespace kvscope::test::remote_rows_test
