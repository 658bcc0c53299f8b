#include "core/selectors/selector.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <charconv>
#include <cmath>
#include <nlohmann/json.hpp>

#include "core/base/error.hpp"
#include "core/selectors/learned.hpp"

namespace kvscope {

Learned Selector::learned() const {
  return {};
}

Budget Budget::parse(std::string_view text) {
  const auto fail = [&](std::string_view expected) {
    throw ConfigError(fmt::format("budget \"{}\": expected {}", text, expected));
  };
  const std::size_t equals = text.find('=');
  const std::string_view kind =
      equals == std::string_view::npos ? "tokens" : text.substr(0, equals);
  const std::string_view number = equals == std::string_view::npos ? text : text.substr(equals + 1);
  Budget budget;
  const auto [end, error] =
      std::from_chars(number.data(), number.data() + number.size(), budget.value);
  if (error != std::errc{} || end != number.data() + number.size() ||
      !std::isfinite(budget.value)) {
    fail("tokens=N, pages=N, ratio=X or p=X");
  }
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
  constexpr std::string_view kNames[] = {"tokens", "pages", "ratio", "p"};
  return fmt::format("{}={}", kNames[static_cast<std::size_t>(kind)], value);
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
  throw ConfigError(fmt::format(
      "budget {} states a share of attention: this method needs tokens, pages or a ratio",
      to_string()));
}

void AliveMask::append(Index n_keys) {
  n_keys_ += n_keys;
  n_dead_.resize(bits_.size(), 0);
  for (auto& head : bits_) head.resize(static_cast<std::size_t>(n_keys_), 1);
}

void AliveMask::truncate(Index n_keys) {
  if (n_keys >= n_keys_) return;
  n_keys_ = n_keys;
  for (std::size_t h = 0; h < bits_.size(); ++h) {
    bits_[h].resize(static_cast<std::size_t>(n_keys));
    n_dead_[h] = static_cast<Index>(std::count(bits_[h].begin(), bits_[h].end(), std::uint8_t{0}));
  }
}

void AliveMask::kill(Index kv_head, KeyPos pos) {
  auto& bit = bits_[static_cast<std::size_t>(kv_head)][static_cast<std::size_t>(pos)];
  n_dead_[static_cast<std::size_t>(kv_head)] += bit;
  bit = 0;
}

bool AliveMask::is_alive(Index kv_head, KeyPos pos) const {
  return bits_[static_cast<std::size_t>(kv_head)][static_cast<std::size_t>(pos)] != 0;
}

Index AliveMask::n_alive(Index kv_head) const {
  return n_keys_ - n_dead_[static_cast<std::size_t>(kv_head)];
}

bool AliveMask::all_alive(Index kv_head) const {
  return n_dead_[static_cast<std::size_t>(kv_head)] == 0;
}

}  // namespace kvscope
