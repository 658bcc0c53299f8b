#include "core/selectors/method_on_base.hpp"

#include <algorithm>

#include "core/base/error.hpp"
#include "core/selectors/registry.hpp"

namespace kvscope {

void MethodOnBase::set_base(const std::string& text, const std::string& budget,
                            std::string_view usual) {
  base_text_ = text;
  budget_of_base_ = Budget::parse(budget);
  if (text != usual) base();
}

SelectorCaps MethodOnBase::with_needs(SelectorCaps caps) const {
  if (base_method_ == nullptr) return caps;
  const SelectorCaps base = base_method_->caps();
  caps.decode = base.decode;
  caps.verify = base.verify;
  caps.needs_calibration = base.needs_calibration;
  caps.needs_draft = base.needs_draft;
  caps.needs_values = base.needs_values;
  caps.needs_side = base.needs_side;
  caps.needs_all_heads |= base.needs_all_heads;
  caps.cross_layer = base.cross_layer;
  // A base that works across layers is asked wherever it works.
  if (base.cross_layer) caps.dense_layers = std::min(caps.dense_layers, base.dense_layers);
  caps.uses_pool = base.uses_pool;
  return caps;
}

Selector& MethodOnBase::base() {
  if (base_method_ != nullptr) return *base_method_;
  auto made = selector_registry().make(base_text_);
  if (made->name() == name() || made->caps().permanent || made->caps().needs_probs) {
    throw ConfigError(
        "{}: base={}: it evicts, votes or is {} itself, and has no list to go on from: expected a "
        "selector that chooses anew in every call",
        name(), base_text_, name());
  }
  base_method_ = std::move(made);
  return *base_method_;
}

}  // namespace kvscope
