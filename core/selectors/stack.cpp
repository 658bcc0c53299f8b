#include "core/selectors/stack.hpp"

#include <algorithm>
#include <numeric>

#include "core/selectors/candidates.hpp"
#include "core/selectors/eviction.hpp"
#include "core/selectors/list_owner.hpp"

namespace kvscope {

namespace {

/// The finer of two owners: lists per query head can express lists per KV head, and those the
/// layer's.
ListOwner finer(ListOwner a, ListOwner b) {
  if (a == ListOwner::q_head || b == ListOwner::q_head) return ListOwner::q_head;
  return a == ListOwner::kv_head || b == ListOwner::kv_head ? ListOwner::kv_head : ListOwner::layer;
}

/// The part of a list that `allowed` (ascending) holds, with its weights.
KeyList common_keys(const ListView& list, std::span<const KeyPos> allowed) {
  return list.where([allowed, next = allowed.begin()](KeyPos key) mutable {
    next = std::lower_bound(next, allowed.end(), key);
    return next != allowed.end() && *next == key;
  });
}

/// The keys of `selection` that `before` also holds, per head and row. What was forced stays
/// forced.
Selection cut(Selection selection, const Selection& before, const SelectCall& call) {
  if (before.is_dense) return selection;
  if (selection.is_dense) {
    Selection same = before.lists_alone();
    same.summaries = std::move(selection.summaries);
    return same;
  }
  const Index n_q = call.q.dim(0);
  const Index group = n_q / call.k.dim(0);
  Selection both(finer(selection.owner, before.owner), call.n_tok,
                 std::gcd(selection.rows_per_list, before.rows_per_list));
  both.summaries = std::move(selection.summaries);
  const Index n_lists = n_owners(both.owner, n_q, n_q / group);
  const Index heads_per_owner = n_q / n_lists;
  for (Index owner = 0; owner < n_lists; ++owner) {
    const Index q_head = owner * heads_per_owner;
    for (Index row = 0; row < call.n_tok; row += both.rows_per_list) {
      const ListView allowed = before.list(owner_of(before.owner, q_head, group), row);
      both.add(
          common_keys(selection.list(owner_of(selection.owner, q_head, group), row), allowed.keys));
    }
  }
  return both;
}

/// `alive` without the keys of each KV head that no list of `kept` holds.
AliveMask hide_unselected(const AliveMask& alive, const Selection& kept, const SelectCall& call) {
  const Index n_kv = call.k.dim(0);
  const Index group = call.q.dim(0) / n_kv;
  AliveMask narrowed = alive;
  for (Index kv_head = 0; kv_head < n_kv; ++kv_head) {
    std::vector<bool> is_kept(static_cast<std::size_t>(alive.n_keys()), false);
    for (Index q_head = kv_head * group; q_head < (kv_head + 1) * group; ++q_head) {
      for (Index row = 0; row < call.n_tok; row += kept.rows_per_list) {
        const ListView list = kept.list(owner_of(kept.owner, q_head, group), row);
        for (const KeyPos pos : list.keys) is_kept[static_cast<std::size_t>(pos)] = true;
      }
      if (kept.owner != ListOwner::q_head) break;
    }
    for (Index pos = 0; pos < alive.n_keys(); ++pos) {
      if (!is_kept[static_cast<std::size_t>(pos)]) narrowed.kill(kv_head, static_cast<KeyPos>(pos));
    }
  }
  return narrowed;
}

class Stack final : public Selector {
 public:
  Stack(std::string name, SelectorCaps caps, std::vector<StackStage> stages)
      : name_(std::move(name)),
        caps_(std::move(caps)),
        stages_(std::move(stages)),
        asked_(stages_.size()) {}

  std::string_view name() const override { return name_; }
  SelectorCaps caps() const override { return caps_; }

  void calibrate(const TraceSource& text, std::span<const Index> layers,
                 ThreadPool& pool) override {
    for (StackStage& stage : stages_) {
      if (stage.caps.needs_calibration) stage.selector->calibrate(text, layers, pool);
    }
  }
  std::vector<ArtifactOrigin> artifacts() const override {
    std::vector<ArtifactOrigin> all;
    for (const StackStage& stage : stages_) {
      for (ArtifactOrigin& origin : stage.selector->artifacts()) all.push_back(std::move(origin));
    }
    return all;
  }
  void reset(const AttentionShape& shape) override {
    for (StackStage& stage : stages_) stage.selector->reset(shape);
  }
  void observe(const SelectCall& call, const ObservedProbs& probs) override {
    for (StackStage& stage : stages_) {
      if (stage.caps.needs_probs) stage.selector->observe(call, probs);
    }
  }

  std::vector<Selection> do_select_budgets(SelectCall call,
                                           std::span<const Budget> budgets) override {
    Selection kept = dense_selection(call, ListOwner::layer);
    for (std::size_t i = 0; i + 1 < stages_.size(); ++i) {
      Asked& asked = asked_[i];
      asked.is_active = is_active(stages_[i], call);
      if (!asked.is_active) continue;
      narrow(asked, kept, call);
      SelectCall question = question_for(i, call);
      asked.selection = stages_[i].selector->select(question);
      kept = cut(asked.selection.lists_alone(), kept, call);
    }
    StackStage& last = stages_.back();
    Asked& asked = asked_.back();
    asked.is_active = is_active(last, call);
    std::vector<Selection> selections;
    if (!asked.is_active) {
      for (std::size_t b = 0; b < budgets.size(); ++b) {
        selections.push_back(kept.is_dense ? alive_selection(call) : kept.lists_alone());
      }
      return selections;
    }
    narrow(asked, kept, call);
    const SelectCall question = question_for(stages_.size() - 1, call);
    selections = last.selector->select_budgets(question, budgets);
    for (Selection& selection : selections) selection = cut(std::move(selection), kept, call);
    return selections;
  }

  void evict(const SelectCall& call, AliveMask& alive) override {
    for (std::size_t i = 0; i < stages_.size(); ++i) {
      if (!stages_[i].caps.permanent || call.layer < stages_[i].caps.dense_layers) continue;
      SelectCall question = call;
      question.alive = &alive;
      if (stages_[i].budget) question.budget = *stages_[i].budget;
      stages_[i].selector->evict(question, alive);
    }
  }

  /// The sum over the stages, each for the candidates that it was left.
  SelectCost cost(const SelectCall& call, const Selection& selection) const override {
    SelectCost sum;
    for (std::size_t i = 0; i < stages_.size(); ++i) {
      if (!asked_[i].is_active) continue;
      const bool is_last = i + 1 == stages_.size();
      const Selection& of_stage = is_last ? selection : asked_[i].selection;
      SelectCall question = question_for(i, call);
      const SelectCost one = stages_[i].selector->cost(question, of_stage);
      sum.score_flops += one.score_flops;
      sum.score_bytes += one.score_bytes;
      if (asked_[i].alive) {  // what an earlier stage hides is still held
        question.alive = call.alive;
        sum.metadata_bytes += stages_[i].selector->cost(question, of_stage).metadata_bytes;
      } else {
        sum.metadata_bytes += one.metadata_bytes;
      }
    }
    return sum;
  }

 private:
  /// What a stage was asked in the last call.
  struct Asked {
    bool is_active = false;
    std::optional<AliveMask> alive;  // narrowed; empty = the engine's own
    Selection selection;
  };

  static bool is_active(const StackStage& stage, const SelectCall& call) {
    return stage.caps.is_defined(call.phase) && call.layer >= stage.caps.dense_layers;
  }
  static void narrow(Asked& asked, const Selection& kept, const SelectCall& call) {
    asked.alive.reset();
    if (!kept.is_dense) asked.alive = hide_unselected(*call.alive, kept, call);
  }
  SelectCall question_for(std::size_t i, const SelectCall& call) const {
    SelectCall question = call;
    if (asked_[i].alive) question.alive = &*asked_[i].alive;
    if (stages_[i].budget) question.budget = *stages_[i].budget;
    return question;
  }

  std::string name_;
  SelectorCaps caps_;
  std::vector<StackStage> stages_;
  std::vector<Asked> asked_;
};

}  // namespace

SelectorCaps stacked_caps(const SelectorCaps& lower, SelectorCaps upper) {
  upper.prefill |= lower.prefill;
  upper.decode |= lower.decode;
  upper.verify |= lower.verify;
  upper.needs_probs |= lower.needs_probs;
  upper.needs_calibration |= lower.needs_calibration;
  upper.needs_side |= lower.needs_side;
  upper.needs_draft |= lower.needs_draft;
  upper.needs_values |= lower.needs_values;
  upper.needs_rotation |= lower.needs_rotation;
  upper.needs_projection |= lower.needs_projection;
  upper.needs_all_heads |= lower.needs_all_heads;
  upper.cross_layer |= lower.cross_layer;
  upper.is_static &= lower.is_static;
  upper.uses_pool |= lower.uses_pool;
  upper.steps_per_choice = std::max(upper.steps_per_choice, lower.steps_per_choice);
  upper.dense_layers = std::min(upper.dense_layers, lower.dense_layers);
  if (!lower.permanent) upper.owner = finer(upper.owner, lower.owner);
  // That stage has a budget of its own.
  upper.keeps_by_option |= lower.permanent && !upper.permanent;
  upper.permanent |= lower.permanent;
  upper.divides_budget |= lower.divides_budget;
  return upper;
}

std::unique_ptr<Selector> make_stack(std::string name, SelectorCaps caps,
                                     std::vector<StackStage> stages) {
  return std::make_unique<Stack>(std::move(name), std::move(caps), std::move(stages));
}

}  // namespace kvscope
