// rocketkv: evict after prefill, then choose among what is left in every step (RocketKV, ICML 2025,
// arXiv 2502.14051; in TensorRT-LLM; from the paper's description alone, its program has a
// non-commercial licence and was not read).
//
// Idea: a stack of two methods of this folder. Stage 1 is SnapKV with a window of 32 queries and
// max-pooling over 63 keys, which keeps prompt-budget keys per KV head for good; stage 2 is rocket2
// on the keys that are left, with the budget of the run. It is what
// "snapkv:window=32,kernel=63,pooling=max@tokens=2048+rocket2" says; this name exists so that
// tables have it.
//
// Cost: the sum of both, stage 2 on the keys that stage 1 left. Stores what rocket2 stores.
//
// Fails where SnapKV does: what the prompt's last queries did not look at never comes back,
// whatever stage 2 would pay for it.
//
// Decided here: as everywhere, SnapKV shrinks the cache after every chunk of a chunked prefill
// (published: once, when the prompt is over); the share of the compression that goes to each stage
// is the user's (published: half of its logarithm).
#include <fmt/format.h>

#include "core/selectors/candidates.hpp"
#include "core/selectors/method_spec.hpp"
#include "core/selectors/registry.hpp"

namespace kvscope {

namespace {

class RocketKv final : public Selector {
 public:
  std::string prompt_budget_ =
      option(prompt_budget_, "prompt-budget", "tokens=2048",
             "keys of the prompt that stay for good, as tokens=2048 or ratio=0.25");
  Index window_ = option(window_, "window", 32,
                         "stage 1: last queries that vote, and last keys that stay", at_least(1));
  Index kernel_ =
      option(kernel_, "kernel", 63, "stage 1: keys that are pooled, an odd number", in(1, 1 << 20));
  double compression_ =
      option(compression_, "compression", 16.0, "stage 2: keys read densely over elements read (c)",
             in(1.0, 4096.0));

  /// The stack is made on first use (here, if options were set): the registry asks for caps while
  /// it is filled.
  void configure() override {
    text_ = fmt::format("snapkv:window={},kernel={},pooling=max@{}+rocket2:compression={}", window_,
                        kernel_, prompt_budget_, compression_);
    if (prompt_budget_ != "tokens=2048" || kernel_ != 63) stack();
  }
  SelectorCaps caps() const override {
    return {.permanent = true, .budgets = kTokenBudgets, .keeps_by_option = true};
  }
  void reset(const AttentionShape& shape) override { stack().reset(shape); }
  Selection do_select(const SelectCall& call) override { return stack().select(call); }
  void evict(const SelectCall& call, AliveMask& alive) override { stack().evict(call, alive); }
  SelectCost cost(const SelectCall& call, const Selection& selection) const override {
    return stack_ == nullptr ? SelectCost{} : stack_->cost(call, selection);
  }

 private:
  Selector& stack() {
    if (stack_ == nullptr) stack_ = MethodSpec(text_).make();
    return *stack_;
  }
  std::string text_;
  std::unique_ptr<Selector> stack_;
};

}  // namespace

void register_rocketkv(SelectorRegistry& registry) {
  registry.add<RocketKv>("rocketkv", "RocketKV: evict, then hybrid top-k", "arXiv 2502.14051",
                         "SnapKV shrinks the prompt for good, then chunks of keys "
                         "and channels of the query choose in every step");
}

}  // namespace kvscope
