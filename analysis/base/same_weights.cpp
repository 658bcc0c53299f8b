#include "analysis/base/same_weights.hpp"

#include <fmt/format.h>

#include "core/base/error.hpp"
#include "core/base/json.hpp"

namespace kvscope {

namespace {

constexpr const char* kHashes[] = {"model_hash", "draft_hash"};

/// Empty if there is none.
std::string hash_in(const Json& json, const char* name) {
  if (!json.is_object()) return "";
  const auto found = json.find(name);
  return found != json.end() && found->is_string() ? found->get<std::string>() : "";
}

}  // namespace

std::string units_text(const std::vector<std::size_t>& units) {
  constexpr std::size_t kNamed = 5;
  if (units.empty()) return "its units";
  if (units.size() == 1) return fmt::format("unit {}", units.front());
  if (units.back() - units.front() + 1 == units.size())
    return fmt::format("units {} to {}", units.front(), units.back());
  if (units.size() > kNamed)
    return fmt::format("{} units ({} to {})", units.size(), units.front(), units.back());
  return fmt::format("units {} and {}", fmt::join(units.begin(), units.end() - 1, ", "),
                     units.back());
}

Json weights_of(const Json& config) {
  Json weights;
  for (const char* name : kHashes) {
    if (const std::string hash = hash_in(config, name); !hash.empty()) weights[name] = hash;
  }
  return weights;
}

void require_same_weights(const Json& now, const Json& then, const std::string& where,
                          const std::vector<std::size_t>& units, const std::string& advice) {
  for (const char* name : kHashes) {
    const std::string ours = hash_in(now, name);
    const std::string theirs = hash_in(then, name);
    if (ours.empty() || theirs.empty() || ours == theirs) continue;
    throw ConfigError("{}: other weights than those that {} made with: {} is {}, was {}; {}", where,
                      units_text(units) + (units.size() == 1 ? " was" : " were"), name, ours,
                      theirs, advice);
  }
}

}  // namespace kvscope
