// Families of methods: the headings under which they are listed.
#pragma once

#include <string_view>

#include "core/selectors/selector.hpp"

namespace kvscope {

/// How a method goes about its choice; in the order of listings.
enum class MethodFamily {
  controls,   // references and oracles
  positions,  // looks at positions alone
  keys,       // single keys by a score
  pages,      // pages, blocks or chunks of keys by a score
  patterns,   // blocks, columns and diagonals of a prefill
  eviction,   // keys leave for good
  sampling,   // keys drawn at random, with weights
  summaries,  // clusters that stand for their keys
  layers,     // lists that other layers reuse
  budgets,    // how much each head or row keeps
  guided      // another model or a learned index chooses
};

/// The heading in listings.
std::string_view title_of(MethodFamily family);

/// The family of a method that names none: "control" as its source, else by what its caps say.
MethodFamily usual_family(std::string_view source, const SelectorCaps& caps);

}  // namespace kvscope
