// loki: scores in the leading principal directions of the keys (arXiv 2406.02542, NeurIPS 2024;
// official code).
//
// Idea: keys of a head lie close to a subspace. Fit their principal directions P on a calibration
// text, keep keys rotated (k P), score with the first r coordinates of rotated queries and keys,
// keep the best k, attend exactly.
//
// Cost per call and layer with T keys before it: rotation 2 (n_q + n_kv) n_tok d^2, scores 2 n_q
// n_tok T r FLOPs; reads n_kv T r elements.
//
// Stores n_kv d^2 elements per layer; rotated keys replace the keys.
//
// Fails when the calibration text does not resemble the real one, and when the directions that
// queries care about carry little variance of the keys.
//
// Decided where the sources differ or are silent: directions of post-rotary keys per KV head, by
// variance about the mean; nothing is subtracted when scoring; logits keep 1 / sqrt(d). Decode:
// lists per query head as in the code, or per KV head by the mean of the group's logits
// (owner=kv_head). Chunked prefill and verification: mean logits over chunk and group per KV head,
// past scored, chunk forced. basis=self (default) fits the directions on the keys that are there
// when a layer is first asked about (the first chunk; in decode the prompt) and leaves them: no
// calibration is needed, and no later key leaks into a score. basis=calibrated is the published
// way: a replay takes another recording for it (--calibration) and refuses without one, a live run
// the end of its text; directions=FILE loads what `kvscope fit loki` wrote instead. On one novel,
// calibrated on another, at 16 of 64 directions the two differ by 0.04 of mass, self being the
// lower. Half of the directions score unless rank says how many: the published 64 are of 128
// channels. More directions than d_head means all: then scores are exact. Scores of chunks, and all
// in f64, use (P_r P_r^T q).k, which is the same number without a rotated copy of the cache; live
// decode (f32) keeps the r coordinates of each key beside the cache and reads only them.
#include <algorithm>

#include "core/attention/head_share.hpp"
#include "core/selectors/artifact.hpp"
#include "core/selectors/cost_units.hpp"
#include "core/selectors/key_columns.hpp"
#include "core/selectors/learned_heads.hpp"
#include "core/selectors/linear_scores.hpp"
#include "core/selectors/registry.hpp"
#include "core/selectors/shared_options.hpp"
#include "core/selectors/shared_scores.hpp"
#include "core/tensor/principal_axes.hpp"

namespace kvscope {

namespace {

/// Orthonormal directions of keys [n_keys, d_head] as rows [d_head, d_head], by falling variance
/// about the mean key.
Tensor<double> directions_of(TensorView<const float> keys) {
  return principal_axes({&keys, 1}).directions;
}

enum class Basis { calibrated, self };
enum class DecodeOwner { q_head, kv_head };

class Loki final : public SharedScoreSelector {
 public:
  Index rank_ = option(rank_, "rank", 0,
                       "principal directions that score (r); 0: rank-share of the head's channels",
                       at_least(0));
  double rank_share_ =
      option(rank_share_, "rank-share", 0.5,
             "directions as a share of the head's channels, at least one", in(0.0, 1.0));
  Basis basis_ = option(
      basis_, "basis", Basis::self,
      "self: of the keys present when a layer is first asked about, never later ones; calibrated: "
      "of a calibration text, as published");
  std::string directions_ =
      option(directions_, "directions", "",
             "a file of kvscope fit loki: directions of a calibration text; overrides basis");
  DecodeOwner owner_ = option(owner_, "owner", DecodeOwner::q_head,
                              "decode: one list per query head or per KV head");
  Index dense_layers_ = dense_layers_option(dense_layers_);

  SelectorCaps caps() const override {
    return {.owner = owner_ == DecodeOwner::q_head ? ListOwner::q_head : ListOwner::kv_head,
            .needs_calibration = basis_ == Basis::calibrated && !file_.is_named(),
            .budgets = kTokenBudgets,
            .dense_layers = dense_layers_,
            .artifact_option = "directions"};
  }

  void calibrate(const TraceSource& text, std::span<const Index> layers,
                 ThreadPool& pool) override {
    const TraceInfo& info = text.info();
    bases_.learn(layers, info.n_kv, pool, [&](Index layer, Index kv_head) {
      return flat(directions_of(text.read_k(layer, kv_head, {0, info.n_tokens}).view()));
    });
  }
  Learned learned() const override {
    return bases_.learned("bases", "orthogonal directions of the keys");
  }
  std::vector<ArtifactOrigin> artifacts() const override { return file_.origins(); }

  void reset(const AttentionShape& shape) override {
    Selector::reset(shape);
    if (file_.is_named()) {
      bases_.load(file_, "bases", shape, shape.d_head * shape.d_head);
    } else if (basis_ == Basis::self) {
      bases_.clear();
    }
  }

  HostRows host_rows() const override {
    return basis_ == Basis::self && !file_.is_named() ? HostRows::all : HostRows::queries;
  }
  SelectCost cost(const SelectCall& call, const Selection& selection) const override {
    if (selection.is_dense) return {};
    const auto d = static_cast<double>(call.k.dim(2));
    return products_cost(queries_per_kv_head(call), alive_keys(call, past_range(call)),
                         static_cast<double>(n_directions(call.k.dim(2)))) +
           own_products_cost(call, d) + held_cost(static_cast<double>(call.k.dim(0)) * d * d);
  }

 protected:
  ListOwner owner_of_call(const SelectCall& call) const override {
    return is_decode(call) && owner_ == DecodeOwner::q_head ? ListOwner::q_head
                                                            : ListOwner::kv_head;
  }

  void begin_call(const SelectCall& call, Summaries&) override {
    for (Index kv_head = 0; kv_head < call.k.dim(0); ++kv_head) basis_of(call, kv_head);
  }

  bool score_owners(const SelectCall& call, ListOwner owner_kind, TokenRange keys,
                    std::span<const std::span<double>> scores) override {
    const Index heads_per_owner = owner_kind == ListOwner::q_head ? 1 : shape_.group();
    const bool reads_columns = is_decode(call) && call.remote == nullptr &&
                               engine_of(call).precision() == ScorePrecision::f32;
    if (reads_columns) {
      columns_.append_up_to(call, n_directions(call.k.dim(2)),
                            [&](Index kv_head) { return basis_of(call, kv_head); });
    }
    std::vector<double> queries;
    std::vector<KeyColumns::Question> questions(
        reads_columns ? static_cast<std::size_t>(call.k.dim(0)) : 0);
    for (Index first = 0; first < call.q.dim(0); first += heads_per_owner) {
      const Index kv_head = first / shape_.group();
      const std::vector<double> coordinates =
          query_coordinates(call, {first, first + heads_per_owner}, kv_head);
      if (reads_columns) {
        std::vector<float>& q = questions[static_cast<std::size_t>(kv_head)].q;
        q.insert(q.end(), coordinates.begin(), coordinates.end());
        continue;
      }
      std::vector<double> projected(static_cast<std::size_t>(call.q.dim(2)), 0.0);
      for (std::size_t r = 0; r < coordinates.size(); ++r) {
        const auto direction = basis_of(call, kv_head).row(static_cast<Index>(r));
        for (std::size_t c = 0; c < projected.size(); ++c)
          projected[c] += coordinates[r] * direction[c];
      }
      queries.insert(queries.end(), projected.begin(), projected.end());
    }
    if (reads_columns) {
      columns_.scores(call, questions, keys, scores);
    } else {
      linear_scores(call, queries, keys, scores);
    }
    return true;
  }

 private:
  Index n_directions(Index d_head) const { return channels_of(rank_, rank_share_, d_head); }

  /// The first r coordinates of the heads' mean query, scaled.
  std::vector<double> query_coordinates(const SelectCall& call, TokenRange q_heads, Index kv_head) {
    const TensorView<const double> basis = basis_of(call, kv_head);
    const std::vector<double> q = mean_query(call, q_heads);
    std::vector<double> coordinates;
    for (Index r = 0; r < std::min(n_directions(basis.dim(1)), basis.dim(0)); ++r) {
      const auto direction = basis.row(r);
      double coordinate = 0.0;
      for (std::size_t c = 0; c < q.size(); ++c) coordinate += direction[c] * q[c];
      coordinates.push_back(coordinate * static_cast<double>(call.score_scale));
    }
    return coordinates;
  }

  static std::vector<double> flat(const Tensor<double>& basis) {
    return {basis.data(), basis.data() + basis.count()};
  }

  /// [d_head, d_head] directions as rows.
  TensorView<const double> basis_of(const SelectCall& call, Index kv_head) {
    if (basis_ == Basis::self && !file_.is_named() && bases_.find(call.layer, kv_head).empty()) {
      // Drafts that are rejected leave no trace.
      const bool has_drafts = call.phase == Phase::verify && call.pos_begin > 0;
      const Index n_keys = has_drafts ? call.pos_begin : call.k.dim(1);
      bases_.put(call.layer, kv_head, flat(directions_of(call.k.sub(kv_head).range(0, 0, n_keys))));
    }
    const Index d = call.k.dim(2);
    return {bases_.of_channels("loki", "directions", call, kv_head, /*per_channel=*/d).data(),
            {d, d}};
  }

  ArtifactFile file_{"loki", directions_};
  KeyColumns columns_;          // live decode
  LearnedHeads<double> bases_;  // [d_head, d_head] each
};

}  // namespace

void register_loki(SelectorRegistry& registry) {
  registry.add<Loki>("loki", "Loki: low-rank keys", "arXiv 2406.02542",
                     "scores keys in the few directions along which they vary most");
}

}  // namespace kvscope
