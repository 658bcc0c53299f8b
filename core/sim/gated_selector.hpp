// A selector that can be told to skip its work in calls whose answers nobody reads.
#pragma once

#include <memory>
#include <utility>
#include <vector>

#include "core/selectors/selector.hpp"

namespace kvscope {

/// Forwards everything to another selector, which still sees every append; while closed, questions
/// are answered with "everything visible". Only for methods whose later answers do not depend on
/// earlier ones.
class GatedSelector final : public Selector {
 public:
  explicit GatedSelector(std::unique_ptr<Selector> selector) : selector_(std::move(selector)) {}
  void set_open(bool open) { is_open_ = open; }

  std::string_view name() const override { return selector_->name(); }
  SelectorCaps caps() const override { return selector_->caps(); }
  void calibrate(Index layer, Index kv_head, TensorView<const float> keys) override {
    selector_->calibrate(layer, kv_head, keys);
  }
  void reset(const AttentionShape& shape) override { selector_->reset(shape); }
  void on_append(Index layer, Index pos_begin, TensorView<const float> k,
                 TensorView<const float> v) override {
    selector_->on_append(layer, pos_begin, k, v);
  }
  Selection select(const SelectCall& call) override {
    return is_open_ ? selector_->select(call) : everything(call);
  }
  std::vector<Selection> select_budgets(SelectCall call, std::span<const Budget> budgets) override {
    if (is_open_) return selector_->select_budgets(call, budgets);
    std::vector<Selection> answers;
    for (std::size_t i = 0; i < budgets.size(); ++i) answers.push_back(everything(call));
    return answers;
  }
  void observe(const ObservedProbs& probs) override { selector_->observe(probs); }
  void evict(const SelectCall& call, AliveMask& alive) override { selector_->evict(call, alive); }
  void rollback(Index n_keys) override { selector_->rollback(n_keys); }
  SelectCost cost(const SelectCall& call, const Selection& selection) const override {
    return selector_->cost(call, selection);
  }

 private:
  static Selection everything(const SelectCall& call) {
    Selection selection;
    selection.owner = ListOwner::layer;
    selection.is_dense = true;
    selection.n_tok = call.n_tok;
    return selection;
  }
  std::unique_ptr<Selector> selector_;
  bool is_open_ = true;
};

}  // namespace kvscope
