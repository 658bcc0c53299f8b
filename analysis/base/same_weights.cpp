#include "analysis/base/same_weights.hpp"

#include <fmt/format.h>

#include "core/base/error.hpp"
#include "core/base/json.hpp"

namespace kvscope {

namespace {

constexpr const char* kHashes[] = {"model_hash", "draft_hash"};

/// "items 0 to 21", "item 3", "items 0, 2 and 5", "17 items (0 to 40)"; ascending.
std::string items_text(const std::vector<std::size_t>& items) {
  constexpr std::size_t kNamed = 5;
  if (items.empty()) return "its items";
  if (items.size() == 1) return fmt::format("item {}", items.front());
  if (items.back() - items.front() + 1 == items.size())
    return fmt::format("items {} to {}", items.front(), items.back());
  if (items.size() > kNamed)
    return fmt::format("{} items ({} to {})", items.size(), items.front(), items.back());
  return fmt::format("items {} and {}", fmt::join(items.begin(), items.end() - 1, ", "),
                     items.back());
}

}  // namespace

Json weights_of(const Json& config) {
  Json weights;
  for (const char* name : kHashes) {
    if (const std::string hash = text_at(config, name); !hash.empty()) weights[name] = hash;
  }
  return weights;
}

void require_same_weights(const Json& now, const Json& then, const std::string& where,
                          const std::vector<std::size_t>& items, const std::string& advice) {
  for (const char* name : kHashes) {
    const std::string ours = text_at(now, name);
    const std::string theirs = text_at(then, name);
    if (ours.empty() || theirs.empty() || ours == theirs) continue;
    throw ConfigError("{}: other weights than those that {} made with: {} is {}, was {}; {}", where,
                      items_text(items) + (items.size() == 1 ? " was" : " were"), name, ours,
                      theirs, advice);
  }
}

}  // namespace kvscope
