// keydiff: evict the keys that look most like all the others (Park et al., arXiv 2504.15364).
//
// Idea: per KV head, the anchor is the mean of the unit vectors of all keys alive; a key's score is
// minus its cosine to the anchor; after each call the budget's best stay. Queries and attention
// weights are never looked at. (Minus the sum of cosines to all keys gives the same order: sum_m
// k_m . k_j = n mu . k_j for unit keys.) Cost per call and KV head with n alive keys: 4 n d FLOPs
// and one read of the alive keys, n d b bytes. Stores nothing by definition; live runs (f32) keep
// each key's norm and the sum of the unit keys, which grow with the cache, so that a call reads the
// alive keys once: in decode that is half of what dense attention over them reads, and a floor,
// since a new anchor changes every cosine. Fails when what matters looks like everything else (a
// needle in similar text), and forgets recent context unless a share of the budget is kept for it.
// Decided here: the anchor is computed anew from all keys alive, after the attention of every call,
// so old and new scores compare. The whole context's budget is N: a call of B tokens attends to up
// to N + B keys. No sinks or recents by default.
#include <algorithm>
#include <cmath>

#include "core/attention/key_kernels.hpp"
#include "core/attention/remote_rows.hpp"
#include "core/attention/score_kernels.hpp"
#include "core/attention/score_rows.hpp"
#include "core/selectors/candidates.hpp"
#include "core/selectors/cost_units.hpp"
#include "core/selectors/eviction.hpp"
#include "core/selectors/owners.hpp"
#include "core/selectors/registry.hpp"

namespace kvscope {

namespace {

enum class Anchor { unit, raw };

class KeyDiff final : public Selector {
 public:
  Anchor anchor_ =
      option(anchor_, "anchor", Anchor::unit, "mean of unit keys, or of keys as they are");
  double recent_share_ = option(recent_share_, "recent-share", 0.0,
                                "share of the budget kept for the latest keys", in(0.0, 1.0));
  double eps_ =
      option(eps_, "eps", 1e-12, "vectors are divided by at least this norm", in(1e-300, 1.0));

  SelectorCaps caps() const override {
    return {.prefill = true,
            .decode = true,
            .verify = true,
            .permanent = true,
            .budgets = kTokenBudgets};
  }
  void reset(const AttentionShape& shape) override {
    shape_ = shape;
    is_kept_ = true;
    heads_.assign(static_cast<std::size_t>(shape.n_layers * shape.n_kv), Head{});
  }

  void on_append(Index layer, Index pos_begin, TensorView<const float> k,
                 TensorView<const float>) override {
    for (Index kv_head = 0; is_kept_ && kv_head < shape_.n_kv; ++kv_head) {
      Head& head = head_of(layer, kv_head);
      // evict() catches up.
      if (static_cast<Index>(head.inverse_norms.size()) != pos_begin) continue;
      add_norms(head, k.sub(kv_head));
      head.sum.resize(static_cast<std::size_t>(k.dim(2)), 0.0);
      add_weighted_rows(weights(head, {pos_begin, pos_begin + k.dim(1)}), k.sub(kv_head), head.sum);
      if (head.n_summed >= 0) head.n_summed += k.dim(1);
    }
  }

  Selection select(const SelectCall& call) override { return alive_selection(call); }

  bool takes_remote_rows() const override { return true; }

  void evict(const SelectCall& call, AliveMask& alive) override {
    const Index budget = eviction_budget(call);
    if (call.remote != nullptr) return evict_remotely(call, budget, alive);
    ScoreEngine& engine = engine_of(call);
    const bool is_exact = engine.precision() == ScorePrecision::f64;
    if (is_exact && is_kept_) {  // scores are made from the keys alone
      is_kept_ = false;
      heads_.assign(heads_.size(), Head{});
    }
    std::vector<Crowded> crowded(static_cast<std::size_t>(call.k.dim(0)));
    engine.run(call.k.dim(0), [&](Index kv_head, ScoreWorker&) {
      Crowded& one = crowded[static_cast<std::size_t>(kv_head)];
      one.keys = candidates(call, kv_head, TokenRange{0, call.pos_begin + call.n_tok});
      if (static_cast<Index>(one.keys.size()) <= budget) {
        one.keys.clear();
      } else if (is_exact) {
        one.scores = key_scores(call.k.sub(kv_head), one.keys);
      } else {
        one.scores.resize(one.keys.size());
        one.anchor = unit_anchor(call, kv_head, one.keys);
      }
    });
    if (!is_exact) score_in_parts(call, crowded, engine);
    engine.run(call.k.dim(0), [&](Index kv_head, ScoreWorker&) {
      const Crowded& one = crowded[static_cast<std::size_t>(kv_head)];
      if (!one.keys.empty()) keep_different(call, kv_head, one, budget, alive);
    });
  }

  void rollback(Index n_keys) override {
    for (Head& head : heads_) {
      head.inverse_norms.resize(
          std::min(head.inverse_norms.size(), static_cast<std::size_t>(n_keys)));
      head.n_summed = -1;
    }
  }

  SelectCost cost(const SelectCall& call, const Selection& selection) const override {
    double n_alive = 0.0;
    for (Index kv_head = 0; kv_head < call.k.dim(0); ++kv_head) {
      n_alive += static_cast<double>(attended_keys_of(call, selection, kv_head));
    }
    const auto d = static_cast<double>(call.q.dim(2));
    return {.score_flops = 4.0 * n_alive * d, .score_bytes = n_alive * d * kBytesPerElement};
  }

 private:
  /// What grows with the cache of one layer and KV head.
  struct Head {
    std::vector<double> inverse_norms;  // [n_keys]
    std::vector<double> sum;  // [d_head] of the unit keys (anchor=raw: of the keys) that are alive
    Index n_summed = 0;       // how many these are; another number than is alive: to be made anew
  };
  /// The keys of a KV head with more than the budget, and their scores.
  struct Crowded {
    std::vector<KeyPos> keys;
    std::vector<double> scores;
    std::vector<float> anchor;  // f32: [d_head] of length 1
  };
  static constexpr std::size_t kPart = 2048;  // keys that a thread scores at a time

  /// The keys lie elsewhere, and so nothing that grows with them is kept.
  void evict_remotely(const SelectCall& call, Index budget, AliveMask& alive) {
    const Index n_kv = call.k.dim(0);
    std::vector<Crowded> heads(static_cast<std::size_t>(n_kv));
    std::vector<std::span<const KeyPos>> lists;
    bool is_crowded = false;
    for (Index kv_head = 0; kv_head < n_kv; ++kv_head) {
      std::vector<KeyPos>& keys = heads[static_cast<std::size_t>(kv_head)].keys;
      keys = candidates(call, kv_head, TokenRange{0, call.pos_begin + call.n_tok});
      is_crowded = is_crowded || static_cast<Index>(keys.size()) > budget;
      lists.push_back(keys);
    }
    if (!is_crowded) return;
    auto cosines = call.remote->mean_cosines(lists, anchor_ == Anchor::unit, eps_);
    for (Index kv_head = 0; kv_head < n_kv; ++kv_head) {
      Crowded& one = heads[static_cast<std::size_t>(kv_head)];
      if (static_cast<Index>(one.keys.size()) <= budget) continue;
      one.scores = std::move(cosines[static_cast<std::size_t>(kv_head)]);
      for (double& score : one.scores) score = -score;
      keep_different(call, kv_head, one, budget, alive);
    }
  }

  Head& head_of(Index layer, Index kv_head) {
    return heads_[static_cast<std::size_t>(layer * shape_.n_kv + kv_head)];
  }

  void add_norms(Head& head, TensorView<const float> fresh_keys) const {
    const std::size_t n_before = head.inverse_norms.size();
    head.inverse_norms.resize(n_before + static_cast<std::size_t>(fresh_keys.dim(0)));
    const auto fresh = std::span(head.inverse_norms).subspan(n_before);
    squared_norms(fresh_keys, fresh);
    for (double& x : fresh) x = 1.0 / std::max(std::sqrt(x), eps_);
  }

  /// What the keys of a range weigh in the sum.
  std::vector<double> weights(const Head& head, TokenRange keys) const {
    if (anchor_ == Anchor::raw)
      return std::vector<double>(static_cast<std::size_t>(keys.size()), 1.0);
    return {head.inverse_norms.begin() + keys.begin, head.inverse_norms.begin() + keys.end};
  }

  std::vector<float> unit_anchor(const SelectCall& call, Index kv_head,
                                 std::span<const KeyPos> keys) {
    Head& head = head_of(call.layer, kv_head);
    const auto k = call.k.sub(kv_head);
    const auto n_known = static_cast<Index>(head.inverse_norms.size());
    if (n_known < k.dim(0)) {
      add_norms(head, k.range(0, n_known, k.dim(0)));
      head.n_summed = -1;
    }
    if (head.n_summed != static_cast<Index>(keys.size())) {
      head.sum.assign(static_cast<std::size_t>(k.dim(1)), 0.0);
      const TokenRange range{keys.front(), keys.back() + Index{1}};
      add_weighted_rows(weights(head, range), range.begin, keys, k, head.sum);
      head.n_summed = static_cast<Index>(keys.size());
    }
    const double length = std::max(norm_of(head.sum), eps_ * static_cast<double>(keys.size()));
    std::vector<float> anchor;
    for (const double x : head.sum) anchor.push_back(static_cast<float>(x / length));
    return anchor;
  }

  void score_in_parts(const SelectCall& call, std::span<Crowded> crowded, ScoreEngine& engine) {
    struct Part {
      Index kv_head;
      std::size_t begin, end;
    };
    std::vector<Part> parts;
    for (std::size_t i = 0; i < crowded.size(); ++i) {
      for (std::size_t at = 0; at < crowded[i].keys.size(); at += kPart)
        parts.push_back({static_cast<Index>(i), at, std::min(at + kPart, crowded[i].keys.size())});
    }
    engine.run(static_cast<Index>(parts.size()), [&](Index i, ScoreWorker&) {
      const Part& part = parts[static_cast<std::size_t>(i)];
      Crowded& one = crowded[static_cast<std::size_t>(part.kv_head)];
      const std::vector<double>& inverse_norms = head_of(call.layer, part.kv_head).inverse_norms;
      const auto k = call.k.sub(part.kv_head);
      std::vector<float> unused;
      for (std::size_t at = part.begin; at < part.end;) {  // runs of neighbouring keys
        std::size_t end = at + 1;
        while (end < part.end && one.keys[end] == one.keys[end - 1] + 1) ++end;
        key_dots_f32(one.anchor, 1, k.range(0, one.keys[at], one.keys[end - 1] + 1), unused,
                     one.scores.data() + at, 0);
        at = end;
      }
      for (std::size_t at = part.begin; at < part.end; ++at)
        one.scores[at] *= -inverse_norms[static_cast<std::size_t>(one.keys[at])];
    });
  }

  /// Evicts what the budget does not pay for, and takes it out of the running sum.
  void keep_different(const SelectCall& call, Index kv_head, const Crowded& one, Index budget,
                      AliveMask& alive) {
    const auto n_recent = static_cast<Index>(recent_share_ * static_cast<double>(budget));
    const std::size_t n_old = one.keys.size() - static_cast<std::size_t>(n_recent);
    keep_best(std::span(one.scores).first(n_old), std::span(one.keys).first(n_old),
              budget - n_recent, kv_head, alive);
    if (one.anchor.empty()) return;
    Head& head = head_of(call.layer, kv_head);
    std::vector<KeyPos> lost;
    for (const KeyPos pos : one.keys) {
      if (!alive.is_alive(kv_head, pos)) lost.push_back(pos);
    }
    const auto n_left = static_cast<Index>(one.keys.size() - lost.size());
    if (static_cast<Index>(lost.size()) > n_left) {
      head.n_summed = -1;
      return;
    }
    const TokenRange range{lost.front(), lost.back() + Index{1}};
    std::vector<double> minus = weights(head, range);
    for (double& weight : minus) weight = -weight;
    add_weighted_rows(minus, range.begin, lost, call.k.sub(kv_head), head.sum);
    head.n_summed = n_left;
  }

  /// Minus the cosine to the anchor, [keys.size()].
  std::vector<double> key_scores(TensorView<const float> k, std::span<const KeyPos> keys) const {
    std::vector<double> anchor(static_cast<std::size_t>(k.dim(1)), 0.0);
    std::vector<double> inverse_norm;
    for (const KeyPos pos : keys) {
      const auto key = k.row(pos);
      inverse_norm.push_back(1.0 / std::max(norm_of(key), eps_));
      const double weight = anchor_ == Anchor::unit ? inverse_norm.back() : 1.0;
      for (std::size_t c = 0; c < anchor.size(); ++c)
        anchor[c] += weight * static_cast<double>(key[c]);
    }
    for (double& value : anchor) value /= static_cast<double>(keys.size());
    const double anchor_norm = std::max(norm_of(anchor), eps_);
    std::vector<double> scores;
    for (std::size_t i = 0; i < keys.size(); ++i) {
      const auto key = k.row(keys[i]);
      double dot = 0.0;
      for (std::size_t c = 0; c < anchor.size(); ++c)
        dot += anchor[c] * static_cast<double>(key[c]);
      scores.push_back(-dot * inverse_norm[i] / anchor_norm);
    }
    return scores;
  }

  AttentionShape shape_;
  bool is_kept_ = true;      // grown by on_append; f64 needs nothing
  std::vector<Head> heads_;  // [n_layers][n_kv]
};

}  // namespace

void register_keydiff(SelectorRegistry& registry) {
  registry.add<KeyDiff>("keydiff", "KeyDiff: eviction by key similarity", "arXiv 2504.15364",
                        "evicts the keys that are most similar to the mean of all keys");
}

}  // namespace kvscope
