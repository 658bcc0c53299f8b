#include "core/selectors/selector.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <bit>
#include <cmath>
#include <nlohmann/json.hpp>

#include "core/base/error.hpp"
#include "core/base/number_text.hpp"
#include "core/selectors/candidates.hpp"
#include "core/selectors/learned.hpp"

namespace kvscope {

Learned Selector::learned() const {
  return {};
}

std::vector<Selection> Selector::select_budgets(const SelectCall& call,
                                                std::span<const Budget> budgets) {
  const SelectorCaps caps = this->caps();
  if (!caps.budgets.empty()) {
    for (const Budget& budget : budgets) check_budget_kind(name(), caps, budget);
  }
  if (caps.needs_values && call.remote == nullptr && call.v.empty()) {
    throw ConfigError("selector {}: needs the values (v), and layer {} has none", name(),
                      call.layer);
  }
  if (!caps.permanent && call.layer < caps.dense_layers)
    return dense_selections(call, caps.owner, budgets.size());
  return do_select_budgets(call, budgets);
}

Selection Selector::do_select(const SelectCall& call) {
  return std::move(do_select_budgets(call, std::span(&call.budget, 1)).front());
}

std::vector<Selection> Selector::do_select_budgets(SelectCall call,
                                                   std::span<const Budget> budgets) {
  std::vector<Selection> selections;
  for (const Budget& budget : budgets) {
    call.budget = budget;
    selections.push_back(do_select(call));
  }
  return selections;
}

std::string SelectorCaps::not_defined_for(Phase phase) const {
  std::vector<std::string_view> others;
  for (const Phase other : {Phase::prefill, Phase::decode, Phase::verify}) {
    if (is_defined(other)) others.push_back(enum_name(other));
  }
  return fmt::format(" is not defined for {}, but for {}{}", enum_name(phase),
                     fmt::join(others, " and "), needs_draft ? ", with a draft" : "");
}

Budget Budget::parse(std::string_view text) {
  const auto fail = [&](std::string_view expected) {
    throw ConfigError("budget \"{}\": expected {}", text, expected);
  };
  const std::size_t equals = text.find('=');
  const std::string_view kind =
      equals == std::string_view::npos ? "tokens" : text.substr(0, equals);
  const std::string_view number = equals == std::string_view::npos ? text : text.substr(equals + 1);
  Budget budget;
  const auto share = number_from<double>(number);
  const auto count = count_from(number);
  if (number.ends_with('%')) fail("a share as a number: 10 % of the keys are ratio=0.1");
  if (!(share && std::isfinite(*share)) && !count) fail("tokens=N, pages=N, ratio=X or p=X");
  budget.value = share ? *share : static_cast<double>(*count);
  if (kind == "tokens" || kind == "pages") {
    budget.kind = kind == "tokens" ? Kind::tokens : Kind::pages;
    if (budget.value < 1.0 || budget.value != std::floor(budget.value) || budget.value > 1e9) {
      fail("a whole number of at least 1");
    }
  } else if (kind == "ratio" || kind == "p") {
    budget.kind = kind == "ratio" ? Kind::ratio : Kind::mass;
    if (!(budget.value > 0.0 && budget.value <= 1.0)) fail("a number in (0, 1]");
  } else {
    fail("tokens=N, pages=N, ratio=X or p=X");
  }
  return budget;
}

std::string Budget::to_string() const {
  return fmt::format("{}={}", enum_name(kind), value);
}

Index Budget::tokens(Index n_candidates, Index page_size) const {
  switch (kind) {
    case Kind::tokens:
      return static_cast<Index>(value);
    case Kind::pages:
      return static_cast<Index>(value) * page_size;
    case Kind::ratio:
      return std::max<Index>(
          1, static_cast<Index>(std::floor(value * static_cast<double>(n_candidates))));
    case Kind::mass:
      break;
  }
  throw ConfigError(
      "budget {} states a share of attention: this method needs tokens, pages or a ratio",
      to_string());
}

void AliveMask::append(Index n_keys) {
  const auto old_end = static_cast<std::size_t>(n_keys_);
  n_keys_ += n_keys;
  const auto end = static_cast<std::size_t>(n_keys_);
  n_dead_.resize(bits_.size(), 0);
  for (auto& head : bits_) {
    head.resize((end + 63) / 64, ~std::uint64_t{0});
    if (old_end % 64 != 0) head[old_end / 64] |= ~std::uint64_t{0} << (old_end % 64);
    if (end % 64 != 0) head[end / 64] &= ~(~std::uint64_t{0} << (end % 64));
  }
}

void AliveMask::truncate(Index n_keys) {
  if (n_keys >= n_keys_) return;
  n_keys_ = n_keys;
  const auto end = static_cast<std::size_t>(n_keys);
  for (std::size_t h = 0; h < bits_.size(); ++h) {
    bits_[h].resize((end + 63) / 64);
    if (end % 64 != 0) bits_[h][end / 64] &= ~(~std::uint64_t{0} << (end % 64));
    n_dead_[h] = n_keys - n_alive(static_cast<Index>(h), {0, n_keys});
  }
}

void AliveMask::kill(Index kv_head, KeyPos pos) {
  if (!is_alive(kv_head, pos)) return;
  const auto at = static_cast<std::size_t>(pos);
  ++n_dead_[static_cast<std::size_t>(kv_head)];
  bits_[static_cast<std::size_t>(kv_head)][at / 64] &= ~(std::uint64_t{1} << (at % 64));
}

std::uint64_t AliveMask::word(Index kv_head, Index at, TokenRange range) const {
  std::uint64_t alive = bits_[static_cast<std::size_t>(kv_head)][static_cast<std::size_t>(at)];
  if (const Index skipped = range.begin - at * 64; skipped > 0)
    alive &= ~std::uint64_t{0} << skipped;
  if (const Index n_left = range.end - at * 64; n_left < 64)
    alive &= ~(~std::uint64_t{0} << n_left);
  return alive;
}

std::vector<KeyPos> AliveMask::keys(Index kv_head, TokenRange range) const {
  std::vector<KeyPos> keys;
  for (Index at = range.begin / 64; at * 64 < range.end; ++at) {
    for (std::uint64_t left = word(kv_head, at, range); left != 0; left &= left - 1)
      keys.push_back(static_cast<KeyPos>(at * 64 + std::countr_zero(left)));
  }
  return keys;
}

Index AliveMask::n_alive(Index kv_head, TokenRange range) const {
  Index n = 0;
  for (Index at = range.begin / 64; at * 64 < range.end; ++at)
    n += std::popcount(word(kv_head, at, range));
  return n;
}

Index AliveMask::n_alive(Index kv_head) const {
  return n_keys_ - n_dead_[static_cast<std::size_t>(kv_head)];
}

bool AliveMask::all_alive(Index kv_head) const {
  return n_dead_[static_cast<std::size_t>(kv_head)] == 0;
}

}  // namespace kvscope
