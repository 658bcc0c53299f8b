#include "analysis/kinds/ties_live.hpp"

#include "analysis/base/kit.hpp"
#include "core/sim/live.hpp"

namespace kvscope {

namespace {

constexpr Index kPrefillChunk = 512;

Index likeliest(std::span<const float> logits) {
  return std::ranges::max_element(logits) - logits.begin();
}

}  // namespace

FilledPrompt fill_prompt(const Transformer& model, std::span<const TokenId> prompt,
                         ThreadPool& pool) {
  if (prompt.empty()) throw ConfigError("ties: expected a prompt of at least one token");
  const auto before = prompt.first(prompt.size() - 1);
  LiveSequence dense(model, {}, static_cast<Index>(prompt.size()), pool);
  if (!before.empty()) dense.prefill(before, kPrefillChunk, PrefillMode::dense);
  FilledPrompt filled{model.make_store(static_cast<Index>(prompt.size())), prompt.back()};
  filled.keys->copy_from(dense.cache());
  return filled;
}

TieOrderEffect compare_tie_orders(const Transformer& model, const FilledPrompt& prompt,
                                  const MethodSpec& method, std::string_view type,
                                  const std::optional<Budget>& budget, Index n_new,
                                  ThreadPool& pool,
                                  const std::function<void(Index step)>& on_step) {
  const Index capacity = prompt.keys->n_tokens() + 1 + n_new;
  const auto start = [&](std::string_view order) {
    LiveOptions options;
    options.selector = fmt::format("{}+coarsen:scores={},ties={}", method, type, order);
    options.budget = budget;
    LiveSequence live(model, options, capacity, pool);
    live.adopt(*prompt.keys);
    return live;
  };
  LiveSequence first = start("first");
  LiveSequence last = start("last");
  TieOrderEffect effect;
  TokenId token = prompt.last;
  for (Index step = 0; step < n_new; ++step) {
    if (on_step) on_step(step);
    const Tensor<float> a = first.run(Phase::decode, {&token, 1}, Logits::last);
    const Tensor<float> b = last.run(Phase::decode, {&token, 1}, Logits::last);
    ++effect.n_steps;
    double change = 0.0;
    for (Index i = 0; i < a.count(); ++i) {
      change =
          std::max(change, std::abs(static_cast<double>(a.flat()[static_cast<std::size_t>(i)]) -
                                    static_cast<double>(b.flat()[static_cast<std::size_t>(i)])));
    }
    effect.logit_change = std::max(effect.logit_change, change);
    if (change > 0.0 && effect.first_changed < 0) effect.first_changed = step;
    const Index next = likeliest(a.flat());
    if (next != likeliest(b.flat())) {
      effect.first_token = step;
      break;
    }
    token = static_cast<TokenId>(next);
  }
  return effect;
}

}  // namespace kvscope
