// twilight: top-p pruning of another selector's list (arXiv 2502.02770; official code).
//
// Idea: let a base selector keep generously many keys (base-budget); estimate their attention with
// a 4-bit copy of the keys; keep the smallest set that holds a share p of the estimate; attend
// exactly to the survivors. How many keys a head needs follows from how peaked it is.
//
// Cost per decode step and layer, besides the base, which really keeps B0 keys for a query head
// and U for the heads of a KV head together: 2 n_q B0 d FLOPs; reads n_kv U (d / 2 + 4) bytes of
// codes and scales, which is also what it stores for every key: n_kv T (d / 2 + 4) bytes
// (here a code has a byte of its own and a key 12 bytes of scales).
//
// Fails where the base misses keys (p is a share of the base's mass, not of all), and saves nothing
// on flat heads.
//
// Decided where the sources are silent: codes are asymmetric per key and head, scale = (max - min)
// / 15; keys that the base forced compete like all others, so nothing is forced; one list per query
// head (group=mean prunes by the mean of the group's estimates, one list per KV head); the exact
// nucleus of weights in 32 bits, because the printed search stops after ten halvings. Decode and
// verification (row by row); prefill stays dense, as in the paper.
#include <algorithm>

#include "core/attention/nucleus.hpp"
#include "core/attention/score_rows.hpp"
#include "core/selectors/candidates.hpp"
#include "core/selectors/cost_units.hpp"
#include "core/selectors/method_on_base.hpp"
#include "core/selectors/owners.hpp"
#include "core/selectors/registry.hpp"
#include "core/selectors/rounded_keys.hpp"
#include "core/selectors/shared_options.hpp"
#include "core/tensor/soft_cap_kernel.hpp"

namespace kvscope {

namespace {

enum class TwilightGroup { per_q_head, mean };

class Twilight final : public MethodOnBase {
 public:
  std::string base_ =
      option(base_, "base", "quest",
             "the selector whose list is pruned, as quest or full or name:option=value");
  std::string base_budget_ = option(base_budget_, "base-budget", "ratio=0.25",
                                    "what the base may keep, as tokens=8192 or ratio=0.25");
  TwilightGroup group_ = option(group_, "group", TwilightGroup::per_q_head,
                                "prune per query head, or per KV head by the mean of its heads");
  Index bits_ =
      option(bits_, "bits", 4,
             "precision of the key copy that estimates attention; 16 keeps keys exact", in(1, 16));
  Index dense_layers_ = dense_layers_option(dense_layers_, 2);

  void configure() override { set_base(base_, base_budget_, "quest"); }

  SelectorCaps caps() const override {
    SelectorCaps caps;
    caps.prefill = false;
    caps.owner = list_owner();
    caps.budgets = {Budget::Kind::mass};
    caps.dense_layers = dense_layers_;
    return with_needs(caps);
  }

  std::vector<Selection> do_select_budgets(SelectCall call,
                                           std::span<const Budget> budgets) override {
    call.budget = budget_of_base_;
    // the base's scores, often of pages, are not what the nucleus keeps by
    call.trace = nullptr;
    // also in our own dense layers: a base that works across layers is asked there
    base_selection_ = base().select(call);
    const Selection& kept = base_selection_;
    if (call.layer < dense_layers_) {
      return dense_selections(call, list_owner(), budgets.size());
    }
    const auto rounded = of_kv_heads(call, [&](Index kv_head, ScoreWorker&) {
      auto& keys = engine_of(call).kept<RoundedKeys>(
          nullptr, call.layer, kv_head, [&] { return RoundedKeys(static_cast<int>(bits_)); },
          static_cast<double>(bits_));
      keys.append_up_to(call.k.sub(kv_head));
      return static_cast<const RoundedKeys*>(&keys);
    });
    return select_by_owner(
        call, list_owner(), /*rows_per_list=*/1, budgets.size(),
        [&](const ListHeads& heads, ScoreWorker&, std::span<Selection> selections) {
          const RoundedKeys& keys = *rounded[static_cast<std::size_t>(heads.kv_head)];
          for (Index row = 0; row < call.n_tok; ++row)
            prune(call, kept, heads.q_heads, row, budgets, keys, selections);
        });
  }

  SelectCost cost(const SelectCall& call, const Selection& selection) const override {
    if (selection.is_dense || made_base() == nullptr) return {};
    const auto d = static_cast<double>(call.k.dim(2));
    const double bytes_per_key = d * static_cast<double>(bits_) / 8.0 + 2.0 * kBytesPerElement;
    SelectCall base_call = call;
    base_call.budget = budget_of_base_;
    SelectCost cost = made_base()->cost(base_call, base_selection_);
    const BaseKeys kept = count_base_keys(call);
    cost.score_flops += 2.0 * kept.n_scored * d;
    cost.score_bytes += kept.n_read * bytes_per_key;
    cost.metadata_bytes += alive_keys(call, {0, call.k.dim(1)}) * bytes_per_key;
    return cost;
  }

 private:
  ListOwner list_owner() const {
    return group_ == TwilightGroup::mean ? ListOwner::kv_head : ListOwner::q_head;
  }

  /// Keys that the base kept for one query head and row, cut to what the row sees.
  static std::vector<KeyPos> base_keys(const SelectCall& call, const Selection& kept, Index q_head,
                                       Index row) {
    const Index group = call.q.dim(0) / call.k.dim(0);
    const TokenRange visible = row_range(call, row);
    if (kept.is_dense) return candidates(call, q_head / group, visible);
    std::vector<KeyPos> keys = [&] {
      const ListView list = kept.list(owner_of(kept.owner, q_head, group), row);
      return std::vector<KeyPos>(list.keys.begin(), list.keys.end());
    }();
    std::erase_if(keys, [&](KeyPos pos) {
      return pos < visible.begin || pos >= visible.end || !is_alive(call, q_head / group, pos);
    });
    return keys;
  }

  /// What the base kept in the last call: keys of all rows and query heads, each of which is
  /// scored, and of their unions, which the KV heads read.
  struct BaseKeys {
    double n_scored = 0.0;
    double n_read = 0.0;
  };
  BaseKeys count_base_keys(const SelectCall& call) const {
    BaseKeys count;
    const Index group = call.q.dim(0) / call.k.dim(0);
    for (Index kv_head = 0; kv_head < call.k.dim(0); ++kv_head) {
      std::vector<bool> is_read(static_cast<std::size_t>(call.k.dim(1)), false);
      for (Index q_head = kv_head * group; q_head < (kv_head + 1) * group; ++q_head) {
        for (Index row = 0; row < call.n_tok; ++row) {
          const std::vector<KeyPos> keys = base_keys(call, base_selection_, q_head, row);
          count.n_scored += static_cast<double>(keys.size());
          for (const KeyPos pos : keys) is_read[static_cast<std::size_t>(pos)] = true;
        }
      }
      count.n_read += static_cast<double>(std::count(is_read.begin(), is_read.end(), true));
    }
    return count;
  }

  static void prune(const SelectCall& call, const Selection& kept, TokenRange q_heads, Index row,
                    std::span<const Budget> budgets, const RoundedKeys& rounded,
                    std::span<Selection> selections) {
    std::vector<KeyPos> keys;        // of the one head, or those that any head of the group has
    std::vector<float> row_weights;  // estimates for them
    if (q_heads.size() == 1) {
      keys = base_keys(call, kept, q_heads.begin, row);
      const std::vector<double> weights = estimates(call, q_heads.begin, row, keys, rounded);
      row_weights.assign(weights.begin(), weights.end());
    } else {
      const TokenRange visible = row_range(call, row);
      std::vector<double> mean(static_cast<std::size_t>(visible.size()), 0.0);
      for (Index q_head = q_heads.begin; q_head < q_heads.end; ++q_head) {
        const std::vector<KeyPos> of_head = base_keys(call, kept, q_head, row);
        const std::vector<double> weights = estimates(call, q_head, row, of_head, rounded);
        for (std::size_t i = 0; i < of_head.size(); ++i) {
          mean[static_cast<std::size_t>(of_head[i] - visible.begin)] +=
              weights[i] / static_cast<double>(q_heads.size());
        }
      }
      keys = candidates(call, q_heads.begin / (call.q.dim(0) / call.k.dim(0)), visible);
      for (const KeyPos pos : keys)
        row_weights.push_back(
            static_cast<float>(mean[static_cast<std::size_t>(pos - visible.begin)]));
    }
    for (std::size_t i = 0; i < budgets.size(); ++i) {
      KeyList list;
      for (const Index key : nucleus(row_weights, budgets[i].value, NucleusMode::exact))
        list.scored.push_back(keys[static_cast<std::size_t>(key)]);
      selections[i].add(list);
    }
  }

  /// Softmax weights of one query row over `keys` by their rounded copies.
  static std::vector<double> estimates(const SelectCall& call, Index q_head, Index row,
                                       std::span<const KeyPos> keys, const RoundedKeys& rounded) {
    const auto q = widened(call.q.sub(q_head).row(row), static_cast<double>(call.score_scale));
    std::vector<double> weights(keys.size());
    const Index kv_head = q_head / (call.q.dim(0) / call.k.dim(0));
    rounded.dots(q, call.k.sub(kv_head), keys, engine_of(call).precision(), weights);
    soft_cap(weights, call.score_rule().cap);
    softmax_in_place(weights, sink_logit_of(call, q_head));
    return weights;
  }
};

}  // namespace

void register_twilight(SelectorRegistry& registry) {
  SelectorEntry& entry = registry.add<Twilight>(
      "twilight", "Twilight: top-p on top of a selector", "arXiv 2502.02770",
      "prunes another selector's list to the keys that hold a share p of its mass");
  entry.family = MethodFamily::budgets;
}

}  // namespace kvscope
