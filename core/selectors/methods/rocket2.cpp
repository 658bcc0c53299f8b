// rocket2: the second stage of RocketKV, hybrid top-k on chunks of the keys and channels of the
// query (ICML 2025, arXiv 2502.14051; from the paper's description alone, its program has a
// non-commercial licence and was not read).
//
// Idea: a compression of c is split between the two axes of the keys. Of every chunk of ceil(sqrt
// c) consecutive keys the channel-wise largest and smallest key are kept; a group's query reads r =
// floor(d chunk / c) channels of them, those of largest mean |q|, and of each the side that the
// sign of the group's sum of q names. The products are Quest's bound on r channels, a softmax over
// tokens (each has its chunk's score, so that a short last chunk weighs less) with SparQ's
// temperature makes them comparable between heads, their mean over the group ranks chunks, and the
// best tokens are attended to.
//
// Cost per call and layer with m chunks before it: n_q n_tok d FLOPs to rank channels, 2 n_q n_tok
// m r to score; reads m r elements per KV head, 2 T r / chunk bytes; stores 2 m d elements.
//
// Time of a choice over dense attention of one decode step at 32k keys (8 query and 2 KV heads of
// 64 channels, one thread): 0.5 to 0.7. Boxes lie chunk by chunk, so that all channels pass through
// the processor's caches although a quarter is read, and every token has a score of its own.
//
// Fails as Quest does where one outlier channel dominates, and where heads of a group disagree
// about the sign of a channel.
//
// Decided where the description is silent: chunks are of the keys that are alive, in order, as rows
// of a compacted cache are; the temperature multiplies the model's own score scale by sqrt(|q|_1 /
// |q_r|_1); a group's sum of zero reads the largest side; at least one channel is read; tokens of
// one chunk tie, and the first win. In verification rows count as heads do. The call's own keys are
// kept. Decode and verification; in prefill it rests.
#include <algorithm>
#include <cmath>
#include <limits>

#include "core/attention/row_kernels.hpp"
#include "core/attention/score_rows.hpp"
#include "core/attention/topk.hpp"
#include "core/base/raw_vector.hpp"
#include "core/selectors/cost_units.hpp"
#include "core/selectors/page_rows.hpp"
#include "core/selectors/registry.hpp"
#include "core/selectors/shared_options.hpp"
#include "core/selectors/shared_scores.hpp"
#include "core/tensor/soft_cap_kernel.hpp"

namespace kvscope {

namespace {

/// Boxes of consecutive alive keys of one KV head.
class AliveChunks {
 public:
  /// Brings the boxes up to `keys` (ascending), of which a beginning is usually known.
  void update(TensorView<const float> k, std::span<const KeyPos> keys, Index chunk) {
    const auto known =
        std::mismatch(keys_.begin(), keys_.end(), keys.begin(), keys.end()).first - keys_.begin();
    const Index first = known / chunk;  // chunks that are whole and unchanged
    keys_.assign(keys.begin(), keys.end());
    const auto n_chunks = (static_cast<Index>(keys.size()) + chunk - 1) / chunk;
    const auto width = static_cast<std::size_t>(2 * k.dim(1));
    boxes_.resize(static_cast<std::size_t>(n_chunks) * width);
    PageBox box;
    for (Index i = first; i < n_chunks; ++i) {
      const auto begin = static_cast<std::size_t>(i * chunk);
      const std::size_t end = std::min(keys_.size(), begin + static_cast<std::size_t>(chunk));
      box.clear(k.dim(1));
      for (std::size_t at = begin; at < end; ++at) box.include(k.row(keys_[at]));
      box.store(std::span(boxes_).subspan(static_cast<std::size_t>(i) * width, width));
    }
  }
  void truncate(Index n_keys) {
    while (!keys_.empty() && keys_.back() >= n_keys) keys_.pop_back();
  }
  std::span<const KeyPos> keys() const { return keys_; }
  std::span<const float> boxes() const {
    return boxes_;
  }  // [n_chunks, 2 d]: largest, then smallest

 private:
  std::vector<KeyPos> keys_;
  std::vector<float> boxes_;
};

class Rocket2 final : public SharedScoreSelector {
 public:
  double compression_ = option(
      compression_, "compression", 16.0,
      "keys read densely over elements read here (c): chunks of sqrt(c) keys", in(1.0, 4096.0));
  Index dense_layers_ = dense_layers_option(dense_layers_);

  void configure() override { chunk_ = static_cast<Index>(std::ceil(std::sqrt(compression_))); }
  SelectorCaps caps() const override {
    return {.prefill = false, .budgets = kTokenBudgets, .dense_layers = dense_layers_};
  }

  SelectCost cost(const SelectCall& call, const Selection& selection) const override {
    if (selection.is_dense) return {};
    const auto d = static_cast<double>(call.k.dim(2));
    double n_chunks = 0.0;  // of all KV heads
    for (Index kv_head = 0; kv_head < call.k.dim(0); ++kv_head) {
      const Index n = count_candidates(call, kv_head, past_range(call));
      n_chunks += static_cast<double>((n + chunk_ - 1) / chunk_);
    }
    return products_cost(queries_per_kv_head(call), n_chunks,
                         static_cast<double>(n_channels(call.k.dim(2)))) +
           flops_cost(static_cast<double>(call.q.dim(0) * call.n_tok) * d) +
           held_cost(2.0 * n_chunks * d);
  }

 protected:
  void prepare(const SelectCall& call) override {
    ScoreEngine& engine = engine_of(call);
    engine.run(call.k.dim(0), [&](Index kv_head, ScoreWorker&) {
      engine.kept<AliveChunks>(this, call.layer, kv_head)
          .update(call.k.sub(kv_head), candidates(call, kv_head, past_range(call)), chunk_);
    });
  }

  std::vector<double> score_keys(const SelectCall& call, const Owner& owner, TokenRange keys,
                                 ScoreWorker& worker) override {
    std::vector<double> scores(static_cast<std::size_t>(std::max<Index>(keys.size(), 0)),
                               -std::numeric_limits<double>::infinity());
    const AliveChunks& chunks =
        *engine_of(call).known<AliveChunks>(this, call.layer, owner.kv_head);
    const std::span<const KeyPos> alive = chunks.keys();
    const auto n_chunks =
        (alive.size() + static_cast<std::size_t>(chunk_) - 1) / static_cast<std::size_t>(chunk_);
    if (n_chunks == 0) return scores;
    const Sketch sketch = sketch_of(call, owner);
    const auto d = static_cast<std::size_t>(call.k.dim(2));
    const std::size_t r = sketch.places.size();
    RawVector<float> extremes(n_chunks * r);  // what is read, side by side
    for (std::size_t i = 0; i < n_chunks; ++i) {
      const float* box = chunks.boxes().data() + i * 2 * d;
      for (std::size_t c = 0; c < r; ++c) extremes[i * r + c] = box[sketch.places[c]];
    }
    const auto n_rows = static_cast<Index>(n_chunks);
    const auto n_queries = static_cast<Index>(sketch.q.size() / r);
    const Shape shape{n_rows, static_cast<Index>(r)};
    worker.dots.compute(sketch.q, n_queries, TensorView<const float>(extremes.data(), shape),
                        {0, n_rows});
    std::vector<double> of_chunk(n_chunks, 0.0);
    // Weights of tokens: those of chunks over the sum of chunk sizes times them.
    const auto n_missing =  // in the last chunk
        static_cast<double>(n_chunks * static_cast<std::size_t>(chunk_) - alive.size());
    for (Index query = 0; query < n_queries; ++query) {
      const std::span<double> row = worker.dots.row(query);
      soft_cap(row, call.score_rule().cap);
      softmax_in_place(row);
      add_scaled(row, 1.0 / (static_cast<double>(chunk_) - n_missing * row.back()), of_chunk);
    }
    for (std::size_t j = 0; j < alive.size(); ++j)
      scores[static_cast<std::size_t>(alive[j] - keys.begin)] =
          of_chunk[j / static_cast<std::size_t>(chunk_)];
    return scores;
  }

 private:
  /// What a group reads of a box, and its queries there.
  struct Sketch {
    std::vector<std::size_t> places;  // [r] elements of a box [2 d]
    std::vector<double> q;            // [n_heads * n_tok, r], scaled
  };

  Index n_channels(Index d_head) const {
    const auto r =
        static_cast<Index>(std::floor(static_cast<double>(d_head * chunk_) / compression_));
    return std::clamp<Index>(r, 1, d_head);
  }

  Sketch sketch_of(const SelectCall& call, const Owner& owner) const {
    const auto d = static_cast<std::size_t>(call.q.dim(2));
    std::vector<double> size(d, 0.0);
    std::vector<double> sum(d, 0.0);
    const auto for_each_query = [&](const auto& visit) {
      for (Index q_head = owner.q_heads.begin; q_head < owner.q_heads.end; ++q_head) {
        for (Index row = 0; row < call.n_tok; ++row) visit(call.q.sub(q_head).row(row));
      }
    };
    for_each_query([&](std::span<const float> q) {
      for (std::size_t c = 0; c < d; ++c) {
        size[c] += std::abs(static_cast<double>(q[c]));
        sum[c] += static_cast<double>(q[c]);
      }
    });
    const std::vector<Index> channels = top_k_sorted_by_index(size, n_channels(call.q.dim(2)));
    Sketch out;
    for (const Index c : channels) {
      const auto channel = static_cast<std::size_t>(c);
      out.places.push_back(sum[channel] >= 0.0 ? channel : d + channel);
    }
    for_each_query([&](std::span<const float> q) {
      double all = 0.0;
      double read = 0.0;
      for (const float x : q) all += std::abs(static_cast<double>(x));
      for (const Index c : channels)
        read += std::abs(static_cast<double>(q[static_cast<std::size_t>(c)]));
      const double scale =
          static_cast<double>(call.score_scale) * (read > 0.0 ? std::sqrt(all / read) : 1.0);
      for (const Index c : channels)
        out.q.push_back(scale * static_cast<double>(q[static_cast<std::size_t>(c)]));
    });
    return out;
  }

  Index chunk_ = 1;
};

}  // namespace

void register_rocket2(SelectorRegistry& registry) {
  registry.add<Rocket2>("rocket2", "RocketKV, stage 2: hybrid top-k", "arXiv 2502.14051",
                        "scores chunks of keys by their extremes in the few "
                        "channels where the group's query is largest");
}

}  // namespace kvscope
