// All methods by name: what they are, which options they take, how to make one.
//
// A method is one file in core/selectors/methods/: NAME.cpp defines `void
// register_NAME(SelectorRegistry&)`, with dashes of the method's name as underscores. CMake writes
// the table that calls these functions (objects that register themselves would be dropped by the
// linker of a static library).
#pragma once

#include <deque>
#include <functional>
#include <map>
#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "core/base/fields.hpp"
#include "core/selectors/method_family.hpp"
#include "core/selectors/selector.hpp"

namespace kvscope {

/// One option of a method, as text for listings.
struct SelectorOption {
  std::string name;
  std::string help;
  std::string default_value;
  std::string expected;  // "a whole number", "one of a, b"
};

/// Assignments "name" -> "value".
using SelectorOptions = std::map<std::string, std::string, std::less<>>;

/// What makes a method without a budget keep more or fewer keys: the option that a search for
/// equal cost turns (core/selectors/budget_setting.hpp). A method that takes a budget is turned by
/// that and declares none.
struct SettingRange {
  std::string option;  // empty: the budget that the method takes once `sets` is assigned
  double low = 0.0;    // numbers of the option that make sense
  double high = 1.0;
  bool falls = false;  // a larger number keeps fewer keys
  bool is_whole = false;
  bool is_log = false;    // numbers are tried by their ratios; low > 0
  SelectorOptions where;  // the budget setting of these assignments (defaults count); empty: of all
  SelectorOptions sets;   // assigned beside it
};

struct SelectorEntry {
  std::string name;    // "quoka"
  std::string title;   // "QuoKA: query-oriented KV selection"
  std::string source;  // paper and identifier
  std::string idea;    // one sentence
  /// Its heading in listings: usual_family unless its file says another.
  MethodFamily family = MethodFamily::keys;
  SelectorCaps caps;  // with default options
  std::vector<SelectorOption> options;
  std::map<std::string, SelectorOptions> presets;  // "quest-kernel" -> its assignments
  /// What a preset puts around the method besides, inner ones first: "lserve" ->
  /// "coarsen:page=64+every=4" (core/selectors/wrappers.hpp).
  std::map<std::string, std::string> preset_wrappers;
  std::function<std::unique_ptr<Selector>(const SelectorOptions&)> make;
  std::vector<SettingRange> settings;  // the first one whose `where` holds is turned
  bool is_own = false;                 // came at run time: put_own_selector
};

/// Options as text, with the values that an object has.
std::vector<SelectorOption> option_texts(std::span<const Option> options, void* object);
/// Sets an object's options; throws ConfigError for an unknown one, or one that does not fit.
void assign_options(std::string_view owner, const SelectorOptions& assignments,
                    std::span<const Option> options, void* object);

class SelectorRegistry {
 public:
  /// Adds a method: a class whose members are its options (core/base/fields.hpp).
  template <class S>
  SelectorEntry& add(std::string name, std::string title, std::string source, std::string idea) {
    SelectorEntry entry;
    entry.name = std::move(name);
    entry.title = std::move(title);
    entry.source = std::move(source);
    entry.idea = std::move(idea);
    entry.make = [method =
                      entry.name](const SelectorOptions& assignments) -> std::unique_ptr<Selector> {
      auto made = std::make_unique<S>();
      made->set_name(method);
      assign_options("selector " + method, assignments, options_of<S>(), made.get());
      made->configure();
      return made;
    };
    S defaults;
    entry.caps = defaults.caps();
    entry.family = usual_family(entry.source, entry.caps);
    entry.options = option_texts(options_of<S>(), &defaults);
    entries_.push_back(std::move(entry));
    return entries_.back();
  }

  /// Adds a method at run time, or puts it in the place of the one that came so under its name.
  /// Throws ConfigError for a name of this build, or one that a MethodSpec could not hold
  /// (lower-case letters, digits, dashes).
  void put(SelectorEntry entry);

  /// Says which part of the published method a method or preset of this name does not have, in
  /// words that follow "lacks".
  void say_lacking(std::string name, std::string part) {
    lacking_[std::move(name)] = std::move(part);
  }
  /// The same by name; of those that say so.
  const std::map<std::string, std::string, std::less<>>& lacking() const { return lacking_; }

  /// References stay good while methods are added.
  const std::deque<SelectorEntry>& entries() const { return entries_; }
  /// Throws ConfigError with the nearest name if there is none.
  const SelectorEntry& find(std::string_view name) const;
  /// The selector of a text, as "quest:page-size=32"; core/selectors/method_spec.hpp describes them
  /// all. Throws ConfigError.
  std::unique_ptr<Selector> make(std::string_view spec) const;

 private:
  std::deque<SelectorEntry> entries_;
  std::map<std::string, std::string, std::less<>> lacking_;
};

/// Every method of this build, sorted by name; behind them those that came at run time.
const SelectorRegistry& selector_registry();

/// Adds a method to selector_registry(), as put() does: of a program that has this library
/// (Python). Not while another thread reads the registry; selectors that were made before stay
/// what they are.
void put_own_selector(SelectorEntry entry);

}  // namespace kvscope
