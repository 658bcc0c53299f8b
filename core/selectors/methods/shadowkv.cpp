// shadowkv: chunks of keys by their landmarks, with outlier chunks kept always (Sun et al., arXiv
// 2410.21465, ICML 2025; official code).
//
// Idea: in decode, chunks of 8 keys have a landmark, their mean key (rotary embedding included).
// Chunks that a mean cannot stand for, the 48 whose least similar key has the smallest cosine with
// the landmark, are kept always; so are the last 4 whole chunks and what comes after them. A
// query's softmax over the other landmarks scores the others: the largest over the group ranks
// them, and the best budget / 8 chunks are attended to. Prefill stays dense.
//
// ShadowKV holds no keys but rebuilds those of the chosen chunks from a factorisation of rank 160
// of the keys before rotation, all KV heads together (160 of 1024 channels). keys=exact, the
// default, leaves that out: the choice alone. keys=rebuilt (or a file of kvscope fit shadowkv
// behind rotation) has the error of it: each chosen key joins the softmax with the score of its
// rebuilt copy, which a list per query head carries as the difference of both scores (a
// log-weight). The chosen keys are the same; outliers, the latest and what comes after them are
// exact, as published, and so are landmarks. How a model turns keys, a recording with the keys
// before it teaches (capture k-pre-rope); then any recording and live run of that model will do.
//
// NOT modelled: values in the host's memory, and the bytes that rebuilding saves. Both count as
// read from the cache.
//
// Cost per decode step and layer: 2 n_q d N FLOPs for the N chunks of a KV head that compete, n_kv
// d N elements read: 1 / 16 of the cache's bytes. Stores a landmark of each chunk. keys=rebuilt of
// rank r: 2 r d more for each chosen key of a KV head and 2 r n_kv d for each token of the call;
// reads the basis, r n_kv d, and r elements of each position that some KV head chose; stores the
// basis and r elements of every position. (The factorisation, once after the prompt, is left out.)
//
// Fails where the wanted key is an outlier of its chunk and 48 others are worse; keys=rebuilt also
// where a key lies outside of what the prompt's others span.
//
// Decided where the sources are silent: outliers are those of the chunks that are there when asked
// (the original fixes them after prefill, and keeps whatever is decoded; here decoded chunks
// compete once 4 younger ones are whole), so that rejected drafts leave nothing. The budget buys
// whole chunks, at least one; outliers and the latest come on top, 48 * 8 + 4 * 8 = 416 tokens and
// the remainder, absolute as published. A verification's rows share one choice: the largest over
// group and rows. Dead keys leave landmarks and cosines; a key of zero length has cosine 0. The
// rank is a share, 160 / 1024, so that models with fewer channels lose as much. Keys are factored
// when first asked (the original: after prefill) and again when they have doubled; later ones are
// projected on the same basis.
#include <Eigen/Dense>
#include <algorithm>
#include <cmath>
#include <limits>
#include <map>
#include <nlohmann/json.hpp>

#include "core/attention/row_kernels.hpp"
#include "core/attention/score_rows.hpp"
#include "core/attention/topk.hpp"
#include "core/selectors/block_outcomes.hpp"
#include "core/selectors/calibration_rows.hpp"
#include "core/selectors/candidates.hpp"
#include "core/selectors/cost_units.hpp"
#include "core/selectors/fit_history.hpp"
#include "core/selectors/key_pools.hpp"
#include "core/selectors/key_rotation.hpp"
#include "core/selectors/learned.hpp"
#include "core/selectors/owners.hpp"
#include "core/selectors/registry.hpp"
#include "core/selectors/shared_options.hpp"
#include "core/selectors/shared_scores.hpp"
#include "core/tensor/soft_cap_kernel.hpp"

namespace kvscope {

namespace {

/// Keys rebuilt from a factorisation of low rank of the keys before rotation, all KV heads of a
/// layer together: what a method attends to that keeps no keys.
class LowRankKeys {
 public:
  /// share: of the n_kv * d_head channels of a token's keys, at least one.
  LowRankKeys(KeyRotation rotation, double share) : rotation_(std::move(rotation)), share_(share) {}

  /// Channels that stand for n of them.
  static Index rank_of(double share, Index n);

  /// Factors the keys before the call where that is due: at first, and when they have doubled. Dead
  /// keys count as zeros.
  void factor(const SelectCall& call);
  /// Forgets what was factored in calls that reach beyond n_keys.
  void truncate(Index n_keys) { bases_.truncate(n_keys); }

  /// The keys at `keys` of one KV head as they come back from `rank` numbers each, rotated again:
  /// of all matrices of that rank the nearest to those that were factored. [keys.size(), d_head]
  Tensor<double> rebuilt(const SelectCall& call, Index kv_head, std::span<const KeyPos> keys) const;

 private:
  /// The keys of a position before rotation, head after head; dead ones 0. out [n_kv * d_head]
  void before_rotation(const SelectCall& call, Index pos, std::span<double> out) const;

  KeyRotation rotation_;
  double share_;
  FitHistory<Tensor<double>> bases_;  // [rank, n_kv * d_head], orthonormal rows
};

Index LowRankKeys::rank_of(double share, Index n) {
  return std::clamp<Index>(static_cast<Index>(std::floor(share * static_cast<double>(n))), 1, n);
}

void LowRankKeys::before_rotation(const SelectCall& call, Index pos, std::span<double> out) const {
  const auto d = static_cast<std::size_t>(call.k.dim(2));
  std::fill(out.begin(), out.end(), 0.0);
  for (Index head = 0; head < call.k.dim(0); ++head) {
    if (!is_alive(call, head, pos)) continue;
    const auto part = out.subspan(static_cast<std::size_t>(head) * d, d);
    const auto key = call.k.sub(head).row(pos);
    std::copy(key.begin(), key.end(), part.begin());
    rotation_.turn_back(pos, part);
  }
}

void LowRankKeys::factor(const SelectCall& call) {
  if (!bases_.is_due(call.pos_begin)) return;
  constexpr Index kColumns = 256;
  const Index n = call.k.dim(0) * call.k.dim(2);
  Eigen::MatrixXd block(n, kColumns);
  Eigen::MatrixXd scatter = Eigen::MatrixXd::Zero(n, n);
  for (Index first = 0; first < call.pos_begin; first += kColumns) {
    const Index count = std::min(kColumns, call.pos_begin - first);
    for (Index i = 0; i < count; ++i)
      before_rotation(call, first + i, {block.col(i).data(), static_cast<std::size_t>(n)});
    scatter.selfadjointView<Eigen::Lower>().rankUpdate(block.leftCols(count));
  }
  // The right singular vectors of the keys, a row each, are the eigenvectors of their scatter.
  const Eigen::SelfAdjointEigenSolver<Eigen::MatrixXd> solved(scatter);
  const Index rank = rank_of(share_, n);
  Tensor<double> basis(Shape{rank, n});
  for (Index r = 0; r < rank; ++r) {
    for (Index c = 0; c < n; ++c) basis(r, c) = solved.eigenvectors()(c, n - 1 - r);
  }
  bases_.add(call.pos_begin, call.pos_begin + call.n_tok, std::move(basis));
}

Tensor<double> LowRankKeys::rebuilt(const SelectCall& call, Index kv_head,
                                    std::span<const KeyPos> keys) const {
  const Index d = call.k.dim(2);
  Tensor<double> out(Shape{static_cast<Index>(keys.size()), d});
  if (keys.empty()) return out;
  const Tensor<double>& basis = bases_.current();
  const auto n = static_cast<std::size_t>(basis.dim(1));
  std::vector<double> whole(n);
  for (std::size_t i = 0; i < keys.size(); ++i) {
    before_rotation(call, keys[i], whole);
    const auto key = out.view().row(static_cast<Index>(i));
    std::fill(key.begin(), key.end(), 0.0);
    for (Index r = 0; r < basis.dim(0); ++r) {
      const double* axis = basis.data() + r * basis.dim(1);
      double code = 0.0;
      for (std::size_t c = 0; c < n; ++c) code += axis[c] * whole[c];
      for (Index c = 0; c < d; ++c)
        key[static_cast<std::size_t>(c)] += code * axis[kv_head * d + c];
    }
    rotation_.turn(keys[i], key);
  }
  return out;
}

enum class ShadowKeys { exact, rebuilt };

constexpr double kNoChunk = -std::numeric_limits<double>::infinity();

/// The smallest cosine of a chunk's alive keys with their mean; no alive key: 1.
double least_cosine(const SelectCall& call, Index kv_head, TokenRange chunk,
                    std::span<const float> landmark, bool is_whole) {
  const auto k = call.k.sub(kv_head);
  double least = 1.0;
  double norm = 0.0;
  for (const float x : landmark) norm += static_cast<double>(x) * static_cast<double>(x);
  for (Index pos = chunk.begin; pos < chunk.end; ++pos) {
    if (!is_whole && !is_alive(call, kv_head, pos)) continue;
    const auto key = k.row(pos);
    double dot = 0.0;
    double squared = 0.0;
    for (std::size_t c = 0; c < key.size(); ++c) {
      dot += static_cast<double>(key[c]) * static_cast<double>(landmark[c]);
      squared += static_cast<double>(key[c]) * static_cast<double>(key[c]);
    }
    const double product = norm * squared;
    least = std::min(least, product > 0.0 ? dot / std::sqrt(product) : 0.0);
  }
  return least;
}

/// What is kept of one KV head's chunks: it grows with the cache.
struct ChunkLandmarks {
  KeyPools means;
  std::vector<double> cosines;  // [chunks]
  void truncate(Index n_keys) {
    means.truncate(n_keys);
    cosines.resize(std::min(cosines.size(), static_cast<std::size_t>(means.means().dim(0))));
  }
};

class ShadowKv final : public Selector {
 public:
  Index page_size_ = option(page_size_, "page-size", 8, "tokens per chunk", in(1, 1 << 20));
  Index outliers_ =
      option(outliers_, "outliers", 48,
             "chunks that are kept because a key of theirs is unlike the landmark", in(0, 1 << 30));
  Index local_chunks_ = option(local_chunks_, "local-chunks", 4,
                               "latest whole chunks that are always kept", in(0, 1 << 30));
  Index dense_layers_ = dense_layers_option(dense_layers_);
  ShadowKeys keys_ = option(keys_, "keys", ShadowKeys::exact,
                            "chosen keys as they are, or rebuilt from a factorisation of low rank");
  std::string rotation_ =
      option(rotation_, "rotation", "",
             "a file of kvscope fit shadowkv: keys are rebuilt (overrides keys); without one, "
             "keys=rebuilt needs a calibration text with keys before rotation");
  double rank_share_ =
      option(rank_share_, "rank-share", 0.15625,
             "rank of the factorisation as a share of the channels of all KV heads, at least one",
             in(0.0, 1.0));

  SelectorCaps caps() const override {
    return {.prefill = false,
            .owner = list_owner(),
            .needs_calibration = rebuilds() && !file_.is_named(),
            .budgets = {Budget::Kind::tokens, Budget::Kind::pages, Budget::Kind::ratio},
            .page_size = page_size_,
            .dense_layers = dense_layers_,
            .artifact_option = "rotation"};
  }

  void calibrate(const TraceSource& text, std::span<const Index> layers,
                 ThreadPool& pool) override {
    full_attention_layers(text, name());
    std::vector<KeyRotation> fitted(layers.size());
    pool.parallel_for(static_cast<Index>(layers.size()), [&](Index i, int) {
      const auto at = static_cast<std::size_t>(i);
      fitted[at] = fit_rotation(text, layers[at]);
    });
    for (std::size_t i = 0; i < layers.size(); ++i) rotations_[layers[i]] = std::move(fitted[i]);
  }
  Learned learned() const override { return rotations_to_file(rotations_); }
  std::vector<ArtifactOrigin> artifacts() const override { return file_.origins(); }

  void reset(const AttentionShape& shape) override {
    if (file_.is_named()) rotations_ = load_rotations(file_, shape);
  }

  std::vector<Selection> do_select_budgets(SelectCall call,
                                           std::span<const Budget> budgets) override {
    std::vector<Selection> selections = select_by_owner(
        call, ListOwner::kv_head, call.n_tok, budgets.size(),
        [&](const ListHeads& heads, ScoreWorker& worker, std::span<Selection> lists) {
          add_lists(call, heads, budgets, worker, lists);
        });
    if (!rebuilds()) return selections;
    LowRankKeys& keys = low_rank_of(call);
    keys.factor(call);
    for (Selection& selection : selections) selection = with_rebuilt_keys(call, selection, keys);
    return selections;
  }

  SelectCost cost(const SelectCall& call, const Selection& selection) const override {
    if (selection.is_dense) return {};
    const auto d = static_cast<double>(call.k.dim(2));
    const Index n_far = first_local_chunk(call);
    double n_scored = 0.0;  // of all KV heads
    for (Index kv_head = 0; kv_head < call.k.dim(0); ++kv_head) {
      Index n_alive = 0;  // chunks
      for (Index chunk = 0; chunk < n_far; ++chunk)
        n_alive += count_candidates(call, kv_head, chunk_keys(chunk)) > 0 ? 1 : 0;
      n_scored += static_cast<double>(std::max<Index>(0, n_alive - outliers_));
    }
    const double n_held = alive_pages(call, {0, call.pos_begin / page_size_}, page_size_);
    const SelectCost cost =
        products_cost(queries_per_kv_head(call), n_scored, d) + held_cost(n_held * d);
    return rebuilds() ? cost + rebuilding_cost(call, selection) : cost;
  }

 private:
  bool rebuilds() const { return file_.is_named() || keys_ == ShadowKeys::rebuilt; }
  ListOwner list_owner() const { return rebuilds() ? ListOwner::q_head : ListOwner::kv_head; }

  LowRankKeys& low_rank_of(const SelectCall& call) const {
    const auto rotation = rotations_.find(call.layer);
    if (rotation == rotations_.end()) {
      throw ConfigError(
          "shadowkv: how keys turn in layer {} is not known: calibrate on a text with keys before "
          "rotation (kvscope record --capture k-pre-rope), or name a file with rotation=FILE "
          "(kvscope fit shadowkv TRACE --out FILE)",
          call.layer);
    }
    return engine_of(call).kept<LowRankKeys>(this, call.layer, /*kv_head=*/0, [&] {
      return LowRankKeys(rotation->second, rank_share_);
    });
  }

  /// The same keys for every query head and row; scored ones with the score of
  /// their rebuilt copies.
  static Selection with_rebuilt_keys(const SelectCall& call, const Selection& of_kv_heads,
                                     const LowRankKeys& keys) {
    const Index n_q = call.q.dim(0);
    const Index group = n_q / call.k.dim(0);
    std::vector<std::vector<KeyList>> lists(static_cast<std::size_t>(n_q));  // [n_q][n_tok]
    engine_of(call).run(call.k.dim(0), [&](Index kv_head, ScoreWorker& worker) {
      const ListView list = of_kv_heads.at(kv_head);
      KeyList one{.scored = list.scored(), .forced = list.forced(), .log_weight = {}};
      const Tensor<double> rebuilt = keys.rebuilt(call, kv_head, one.scored);
      for (Index q_head = kv_head * group; q_head < (kv_head + 1) * group; ++q_head) {
        for (Index row = 0; row < call.n_tok; ++row) {
          const std::vector<double> q = widened(call.q.sub(q_head).row(row));
          worker.dots.compute_listed(q, call.k.sub(kv_head), one.scored);
          const std::span<double> products = worker.dots.row(0);
          one.log_weight.clear();
          for (std::size_t i = 0; i < one.scored.size(); ++i) {
            const double as_rebuilt = dot_of(q, rebuilt.view().row(static_cast<Index>(i)));
            one.log_weight.push_back(static_cast<float>(call.score_rule().of(as_rebuilt) -
                                                        call.score_rule().of(products[i])));
          }
          lists[static_cast<std::size_t>(q_head)].push_back(one);
        }
      }
    });
    Selection out(ListOwner::q_head, call.n_tok, /*list_rows=*/1);
    for (const auto& of_rows : lists) {
      for (const KeyList& list : of_rows) out.add(list);
    }
    return out;
  }

  SelectCost rebuilding_cost(const SelectCall& call, const Selection& selection) const {
    const Index n_kv = call.k.dim(0);
    const Index group = call.q.dim(0) / n_kv;
    const auto n = static_cast<double>(n_kv * call.k.dim(2));
    const auto rank = static_cast<double>(LowRankKeys::rank_of(rank_share_, n_kv * call.k.dim(2)));
    std::vector<bool> is_read(static_cast<std::size_t>(call.k.dim(1)), false);
    double n_rebuilt = 0.0;
    for (Index kv_head = 0; kv_head < n_kv; ++kv_head) {
      const std::vector<KeyPos> chosen = selection.list(kv_head * group, /*row=*/0).scored();
      n_rebuilt += static_cast<double>(chosen.size());
      for (const KeyPos pos : chosen) is_read[static_cast<std::size_t>(pos)] = true;
    }
    const auto n_read = static_cast<double>(std::count(is_read.begin(), is_read.end(), true));
    return flops_cost(2.0 * rank *
                      (n_rebuilt * static_cast<double>(call.k.dim(2)) +
                       static_cast<double>(call.n_tok) * n)) +
           read_cost((n_read + n) * rank) +
           held_cost((static_cast<double>(call.k.dim(1)) + n) * rank);
  }

  TokenRange chunk_keys(Index chunk) const {
    return {chunk * page_size_, (chunk + 1) * page_size_};
  }
  /// From here on everything is kept.
  Index first_local_chunk(const SelectCall& call) const {
    return std::max<Index>(0, call.pos_begin / page_size_ - local_chunks_);
  }

  void add_lists(const SelectCall& call, const ListHeads& heads, std::span<const Budget> budgets,
                 ScoreWorker& worker, std::span<Selection> selections) const {
    auto& kept = engine_of(call).kept<ChunkLandmarks>(this, call.layer, heads.kv_head, [&] {
      return ChunkLandmarks{KeyPools(call.k.dim(2), page_size_, page_size_), {}};
    });
    kept.means.append_up_to(call.k.sub(heads.kv_head));
    for (auto chunk = static_cast<Index>(kept.cosines.size()); chunk < kept.means.means().dim(0);
         ++chunk)
      kept.cosines.push_back(least_cosine(call, heads.kv_head, chunk_keys(chunk),
                                          kept.means.means().row(chunk), true));
    const PoolMeans chunks = kept.means.means_in(call, heads.kv_head, call.k);
    std::vector<double> cosines(kept.cosines);
    for (Index chunk = 0; chunk < std::ssize(chunks.n_alive); ++chunk)
      cosines[static_cast<std::size_t>(chunk)] =
          least_cosine(call, heads.kv_head, chunk_keys(chunk), chunks.means.row(chunk), false);
    const Index n_far = first_local_chunk(call);
    BlockOutcomes outcomes(page_size_, call_range(call));
    outcomes.force({n_far, outcomes.blocks.end});
    force_outliers(std::span<const double>(cosines).first(static_cast<std::size_t>(n_far)), chunks,
                   outcomes);
    const std::vector<double> scores = scores_of(call, heads, chunks, outcomes, worker);
    Index n_keys = 0;
    Index n_chunks = 0;
    for (Index chunk = outcomes.blocks.begin; chunk < n_far; ++chunk) {
      if (scores[static_cast<std::size_t>(chunk - outcomes.blocks.begin)] == kNoChunk) continue;
      n_keys += count_candidates(call, heads.kv_head, chunk_keys(chunk));
      ++n_chunks;
    }
    for (std::size_t b = 0; b < budgets.size(); ++b) {
      BlockOutcomes chosen = outcomes;
      if (n_chunks > 0) {
        const Index budget = budgets[b].tokens(n_keys, page_size_);
        chosen.keep_best(scores, blocks_bought(budget, page_size_, n_keys, n_chunks));
      }
      selections[b].add(chosen.list(call, heads.kv_head));
    }
  }

  /// The chunks of least cosine, equal ones by position. cosines [chunks before the latest]
  void force_outliers(std::span<const double> cosines, const PoolMeans& chunks,
                      BlockOutcomes& outcomes) const {
    std::vector<double> unlike;
    for (std::size_t chunk = 0; chunk < cosines.size(); ++chunk) {
      const auto at = static_cast<Index>(chunk);
      const bool has_keys = chunks.has_keys(at) && at >= outcomes.blocks.begin;
      unlike.push_back(has_keys ? -cosines[chunk] : kNoChunk);
    }
    for (const Index chunk : top_k(unlike, outliers_)) outcomes.force({chunk, chunk + 1});
  }

  /// Of the chunks of `outcomes`: the largest weight over heads and rows of those that compete.
  static std::vector<double> scores_of(const SelectCall& call, const ListHeads& heads,
                                       const PoolMeans& chunks, const BlockOutcomes& outcomes,
                                       ScoreWorker& worker) {
    std::vector<double> scores(outcomes.of_block.size(), kNoChunk);
    std::vector<Index> open;  // chunks that compete
    const Index end = std::min(outcomes.blocks.end, chunks.means.dim(0));
    for (Index chunk = outcomes.blocks.begin; chunk < end; ++chunk) {
      if (outcomes.of(chunk) == BlockOutcome::out && chunks.has_keys(chunk)) open.push_back(chunk);
    }
    if (open.empty()) return scores;
    std::vector<double> q;
    for (Index q_head = heads.q_heads.begin; q_head < heads.q_heads.end; ++q_head) {
      const std::vector<double> rows =
          query_rows(call, q_head, all_rows(call), static_cast<double>(call.score_scale));
      q.insert(q.end(), rows.begin(), rows.end());
    }
    const Index n_rows = heads.q_heads.size() * call.n_tok;
    worker.dots.compute(q, n_rows, chunks.means, {0, open.back() + 1});
    std::vector<double> weights(open.size());
    for (Index row = 0; row < n_rows; ++row) {
      const std::span<const double> products = worker.dots.row(row);
      for (std::size_t i = 0; i < open.size(); ++i)
        weights[i] = products[static_cast<std::size_t>(open[i])];
      soft_cap(weights, call.score_rule().cap);
      const double sum = exp_row(weights, max_of(weights), weights).sum;
      for (std::size_t i = 0; i < open.size(); ++i) {
        double& score = scores[static_cast<std::size_t>(open[i] - outcomes.blocks.begin)];
        score = std::max(score, weights[i] / sum);
      }
    }
    return scores;
  }

  ArtifactFile file_{"shadowkv", rotation_};
  std::map<Index, KeyRotation> rotations_;  // by layer
};

}  // namespace

void register_shadowkv(SelectorRegistry& registry) {
  registry.add<ShadowKv>(
      "shadowkv", "ShadowKV: chunk landmarks and outliers", "arXiv 2410.21465",
      "in decode, keeps the chunks whose mean key gets the most attention, and those that a mean "
      "cannot stand for");
  registry.say_lacking(
      "shadowkv",
      "values in host memory; its keys of low rank come with keys=rebuilt (by default they are "
      "exact)");
}

}  // namespace kvscope
