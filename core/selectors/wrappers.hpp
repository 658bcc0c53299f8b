// What can be put around a method with a plus sign behind it, unlike a stage of a stack, which is a
// method of its own:
//
//   quest+every=4                                choose at each 4th step
//   quest:page-size=16+coarsen:owner=layer       one list for all heads
//   quest+coarsen:page=64,scores=bf16+every=4    both: the first is the inner one
//   keydiff@tokens=2048+quest+every=4            the last stage of a stack reuses its lists
//
// A wrapper takes no budget: the method before it does.
#pragma once

#include <memory>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "core/selectors/registry.hpp"

namespace kvscope {

/// One wrapper with its assignments, as written and in that order.
struct WrapperSpec {
  std::string name;
  std::vector<std::pair<std::string, std::string>> options;

  std::string text() const;  // "coarsen:owner=layer", "every=4"
};

/// What a listing shows of a wrapper.
struct WrapperEntry {
  std::string name;
  std::string idea;
  std::vector<SelectorOption> options;
};
const std::vector<WrapperEntry>& wrapper_entries();

/// True if a word of a method's text ("every=4") begins with a wrapper's name.
bool is_wrapper(std::string_view word);

/// Reads such a word. Throws ConfigError for a budget, an unknown option or a value that does not
/// fit.
WrapperSpec parse_wrapper(std::string_view word);

/// The method inside the wrapper. Throws ConfigError where they do not fit.
std::unique_ptr<Selector> wrap(const WrapperSpec& wrapper, std::unique_ptr<Selector> method);

}  // namespace kvscope
