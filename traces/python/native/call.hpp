// One question to a Python selector as Python sees it: arrays on the engine's own memory, good
// while the call lasts.
#pragma once

#include <functional>
#include <memory>
#include <span>
#include <string>

#include "core/base/fields.hpp"
#include "core/selectors/selector.hpp"

namespace kvscope::python {

/// Throws ConfigError, beginning with `what`, for a word that is no value's name.
template <class Enum>
Enum enum_of(std::string_view what, const std::string& word) {
  Enum value{};
  parse_field({.name = what, .help = ""}, word, value);
  return value;
}

/// A selection that Python holds. What a selector returns moves into the engine; the holder is
/// empty from then on.
struct SelectionHolder {
  Selection selection;
  bool is_gone = false;

  const Selection& get() const;
};

/// What a Python object `call` shows. The object may outlive the call, which then ends.
struct CallState {
  const SelectCall* call = nullptr;  // null once the call is over
  std::string method;
  ListOwner owner = ListOwner::kv_head;
  Index page_size = 1;
  bool read_budget = false;  // the function looked at the budget
  /// The answer of a built-in method to the same question.
  std::function<std::shared_ptr<SelectionHolder>(const std::string& spec)> builtin;

  /// Throws ConfigError once the call is over.
  const SelectCall& get() const;
};

/// call.budget: text, number and what it buys in this call.
struct CallBudget {
  std::shared_ptr<CallState> state;
};

}  // namespace kvscope::python
