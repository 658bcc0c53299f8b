// keydiff: evict the keys that look most like all the others (Park et al., arXiv 2504.15364).
//
// Idea: per KV head, the anchor is the mean of the unit vectors of all keys alive; a key's score is
// minus its cosine to the anchor; after each call the budget's best stay. Queries and attention
// weights are never looked at. (Minus the sum of cosines to all keys gives the same order: sum_m
// k_m . k_j = n mu . k_j for unit keys.) Cost per call and KV head with n alive keys: 4 n d FLOPs
// and one read of the alive keys, n d b bytes. Stores nothing. Fails when what matters looks like
// everything else (a needle in similar text), and forgets recent context unless a share of the
// budget is kept for it. Decided here: the anchor is computed anew from all keys alive, after the
// attention of every call, so old and new scores compare. The whole context's budget is N: a call
// of B tokens attends to up to N + B keys. No sinks or recents by default.
#include <algorithm>

#include "core/attention/score_rows.hpp"
#include "core/selectors/candidates.hpp"
#include "core/selectors/cost_units.hpp"
#include "core/selectors/eviction.hpp"
#include "core/selectors/registry.hpp"

namespace kvscope {

namespace {

enum class Anchor { unit, raw };

}  // namespace

template <>
struct EnumNames<Anchor> {
  static constexpr std::array<std::string_view, 2> value = {"unit", "raw"};
};

namespace {

struct KeyDiffOptions {
  Anchor anchor = Anchor::unit;
  double recent_share = 0.0;
  double eps = 1e-12;
  template <class Self, class Visit>
  static void visit_fields(Self& self, Visit&& visit) {
    visit(Field{"anchor", "mean of unit keys, or of keys as they are"}, self.anchor);
    visit(Field{"recent-share", "share of the budget kept for the latest keys"}.in(0.0, 1.0),
          self.recent_share);
    visit(Field{"eps", "vectors are divided by at least this norm"}.in(1e-300, 1.0), self.eps);
  }
};

class KeyDiff final : public Selector {
 public:
  explicit KeyDiff(const KeyDiffOptions& options) : options_(options) {}
  std::string_view name() const override { return "keydiff"; }
  SelectorCaps caps() const override {
    SelectorCaps caps;
    caps.prefill = caps.decode = caps.verify = true;
    caps.permanent = true;
    caps.budgets = {Budget::Kind::tokens, Budget::Kind::ratio};
    return caps;
  }
  void reset(const AttentionShape&) override {}

  Selection select(const SelectCall& call) override { return alive_selection(call); }

  void evict(const SelectCall& call, AliveMask& alive) override {
    const Index budget = eviction_budget(call);
    const auto n_recent = static_cast<Index>(options_.recent_share * static_cast<double>(budget));
    for (Index kv_head = 0; kv_head < call.k.dim(0); ++kv_head) {
      const std::vector<KeyPos> keys =
          candidates(call, kv_head, TokenRange{0, call.pos_begin + call.n_tok});
      if (static_cast<Index>(keys.size()) <= budget) continue;
      const std::vector<double> scores = key_scores(call.k.sub(kv_head), keys);
      const std::size_t n_old = keys.size() - static_cast<std::size_t>(n_recent);
      keep_best(std::span(scores).first(n_old), std::span(keys).first(n_old), budget - n_recent,
                kv_head, alive);
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
  /// Minus the cosine to the anchor, [keys.size()].
  std::vector<double> key_scores(TensorView<const float> k, std::span<const KeyPos> keys) const {
    std::vector<double> anchor(static_cast<std::size_t>(k.dim(1)), 0.0);
    std::vector<double> inverse_norm;
    for (const KeyPos pos : keys) {
      const auto key = k.row(pos);
      inverse_norm.push_back(1.0 / std::max(norm_of(key), options_.eps));
      const double weight = options_.anchor == Anchor::unit ? inverse_norm.back() : 1.0;
      for (std::size_t c = 0; c < anchor.size(); ++c)
        anchor[c] += weight * static_cast<double>(key[c]);
    }
    for (double& value : anchor) value /= static_cast<double>(keys.size());
    const double anchor_norm = std::max(norm_of(anchor), options_.eps);
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

  KeyDiffOptions options_;
};

}  // namespace

void register_keydiff(SelectorRegistry& registry) {
  registry.add<KeyDiff, KeyDiffOptions>(
      "keydiff", "KeyDiff: eviction by key similarity", "arXiv 2504.15364",
      "evicts the keys that are most similar to the mean of all keys");
}

}  // namespace kvscope
