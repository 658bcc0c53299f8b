// The base of methods that go on from another method's list (Twilight prunes it, vAttention samples
// around it): the other one is made from its text, has a budget of its own, and what it needs is
// needed.
#pragma once

#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "core/selectors/selector.hpp"

namespace kvscope {

class MethodOnBase : public Selector {
 public:
  void calibrate(const TraceSource& text, std::span<const Index> layers,
                 ThreadPool& pool) override {
    base().calibrate(text, layers, pool);
  }
  std::vector<ArtifactOrigin> artifacts() const override {
    return base_method_ != nullptr ? base_method_->artifacts() : std::vector<ArtifactOrigin>{};
  }
  void reset(const AttentionShape& shape) override { base().reset(shape); }

 protected:
  /// From configure(). The method of the usual text, which names no file, is made on first use: the
  /// registry asks for the caps of every method while it is filled.
  void set_base(const std::string& text, const std::string& budget, std::string_view usual);
  /// With what the base needs and the phases in which it answers.
  SelectorCaps with_needs(SelectorCaps caps) const;
  Selector& base();
  /// Null: not made yet.
  const Selector* made_base() const { return base_method_.get(); }

  Budget budget_of_base_;
  Selection base_selection_;  // for the last call

 private:
  std::string base_text_;
  std::unique_ptr<Selector> base_method_;
};

}  // namespace kvscope
