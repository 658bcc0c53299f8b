// A method as people write it, read once: what it is, its options, the stages of a stack.
//
//   quest                                    a method of the registry
//   quest-kernel                             a preset of one: its name stands for assignments
//   quoka:n-queries=8,pairing=rank           with options
//   keydiff@tokens=2048+quest:page-size=32   a stack (core/selectors/stack.hpp); every stage but
//                                            the last carries its own budget, unless it takes none
//   quest+coarsen:owner=layer+every=4        wrappers (core/selectors/wrappers.hpp) around the
//                                            method before them, which keeps the budget
//
// Everything that runs a method holds a MethodSpec; tables, files and keys of caches hold its text.
#pragma once

#include <fmt/format.h>

#include <concepts>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "core/selectors/registry.hpp"
#include "core/selectors/wrappers.hpp"

namespace kvscope {

class MethodSpec {
 public:
  struct Stage {
    const SelectorEntry* method = nullptr;  // the registry's
    std::string name;                       // as written: the method's, or one of its presets'
    /// As written and in that order, each name once; what a preset stands for is not among them.
    std::vector<std::pair<std::string, std::string>> options;
    std::optional<Budget> budget;  // of a lower stage of a stack
    std::vector<WrapperSpec>
        wrappers;       // as written, inner ones first; a preset's own are not among them
    SelectorCaps caps;  // with these options and wrappers

    bool takes(std::string_view option) const;
    bool sets(std::string_view option) const;
    /// What the preset and the options assign together.
    SelectorOptions assignments() const;
    /// The method with its options inside its wrappers. Throws ConfigError where these do not fit.
    std::unique_ptr<Selector> make() const;
  };

  /// No method: empty text, no stages. Nothing but text(), empty() and comparing is of use.
  MethodSpec() = default;
  /// A method of selector_registry(), written as above. Throws as parse() does.
  template <std::convertible_to<std::string_view> Text>
  MethodSpec(const Text& text)  // NOLINT: a text that names a method is meant as that method
      : MethodSpec(parse(selector_registry(), text)) {}

  /// `registry` must outlive the spec. Throws ConfigError for an unknown method (naming the
  /// nearest), an option that it does not have or a value that does not fit, a stage without the
  /// budget it needs or with one that it does not take, a budget where there is no stack or on its
  /// last stage, the same method twice, a wrapper before any method, twice, or around a method that
  /// it does not fit.
  static MethodSpec parse(const SelectorRegistry& registry, std::string_view text);

  /// The canonical text, which parse() takes back: names and options as they were written, options
  /// in that order, an option that was given twice with its last value.
  const std::string& text() const { return text_; }
  bool empty() const { return stages_.empty(); }
  const std::vector<Stage>& stages() const { return stages_; }
  /// True if it is a method's bare name: no preset, no options, no stack, no wrapper.
  bool is_plain() const { return stages_.size() == 1 && text_ == stages_[0].method->name; }

  /// What make()->caps() would say.
  const SelectorCaps& caps() const { return caps_; }
  std::unique_ptr<Selector> make() const;

  /// True if a stage has the option and its text leaves it to the default (or to its preset).
  bool leaves_open(std::string_view option) const;
  /// Assigns an option in every stage that has it. Throws ConfigError, and changes nothing, if no
  /// stage has it or the value does not fit.
  template <class T>
  void set(std::string_view option, const T& value) {
    assign(option, fmt::format("{}", value), /*everywhere=*/true);
  }
  /// Assigns an option in those stages that leave it open; in none, if none does. Throws
  /// ConfigError, and changes nothing, if the value does not fit.
  template <class T>
  void fill(std::string_view option, const T& value) {
    assign(option, fmt::format("{}", value), /*everywhere=*/false);
  }

  friend bool operator==(const MethodSpec& a, const MethodSpec& b) { return a.text_ == b.text_; }
  template <std::convertible_to<std::string_view> Text>
  friend bool operator==(const MethodSpec& a, const Text& text) {
    return a.text_ == std::string_view(text);
  }

 private:
  void assign(std::string_view option, const std::string& value, bool everywhere);
  void update();  // text_ and caps_ from stages_

  std::vector<Stage> stages_;
  std::string text_;
  SelectorCaps caps_;
};

/// The method's name in the text of a specification that this build need not understand (of a
/// result file, say): what stands before the options. A stack is a name of its own.
std::string_view method_name(std::string_view text);

/// True for what chooses by the exact attention, to compare with: "oracle-topk", "ceiling:level=1".
bool is_oracle(std::string_view text);

}  // namespace kvscope

template <>
struct fmt::formatter<kvscope::MethodSpec> : fmt::formatter<std::string_view> {
  template <class Context>
  auto format(const kvscope::MethodSpec& spec, Context& context) const {
    return fmt::formatter<std::string_view>::format(spec.text(), context);
  }
};
