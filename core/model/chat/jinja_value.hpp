// A value of a chat template as it runs: what Jinja calls undefined, none, truth values, numbers,
// texts (UTF-8, positions count characters), lists, mappings, namespaces and functions.
//
// A list or mapping never changes once it is made and nests at most kMostValueDepth deep, so
// walking through one may recurse. A namespace is the one value that changes; it counts as opaque.
#pragma once

#include <variant>

#include "core/base/vocabulary.hpp"

namespace kvscope::jinja {

inline constexpr int kMostValueDepth = 64;

class Value;
struct Macro;  // jinja_nodes.hpp

using Text = std::shared_ptr<const std::string>;
using Entry = std::pair<std::string, Value>;

/// What stands for a name or field that is not there; the name is for messages.
struct Undefined {
  std::string name;
};
struct None {};

struct List {
  std::vector<Value> items;
  int depth = 1;
  std::int64_t weight = 1;
};

/// Texts to values in the order in which they were added.
struct Mapping {
  std::vector<Entry> entries;
  int depth = 1;
  std::int64_t weight = 1;

  const Value* find(std::string_view key) const;
};

/// What {% set ns.x = ... %} writes to.
struct Namespace {
  Mapping fields;
};

/// Something that can be called: a macro, or a function known by its name.
struct Function {
  const Macro* macro = nullptr;
  std::string name;
};

class Value {
 public:
  using Held =
      std::variant<Undefined, None, bool, std::int64_t, double, Text, std::shared_ptr<const List>,
                   std::shared_ptr<const Mapping>, std::shared_ptr<Namespace>, Function>;

  Value() : held_(Undefined{}) {}
  Value(Held held) : held_(std::move(held)) {}  // NOLINT(google-explicit-constructor)

  static Value undefined(std::string name) { return Held(Undefined{std::move(name)}); }
  static Value none() { return Held(None{}); }
  static Value truth(bool value) { return Held(value); }
  static Value integer(std::int64_t value) { return Held(value); }
  static Value number(double value) { return Held(value); }
  static Value text(std::string value) {
    return Held(std::make_shared<const std::string>(std::move(value)));
  }
  /// Throw FormatError for what nests too deep.
  static Value list(std::vector<Value> items);
  static Value mapping(std::vector<Entry> entries);

  bool is_undefined() const { return std::holds_alternative<Undefined>(held_); }
  bool is_none() const { return std::holds_alternative<None>(held_); }
  bool is_integer() const { return std::holds_alternative<std::int64_t>(held_); }
  const bool* as_truth() const { return std::get_if<bool>(&held_); }
  const std::int64_t* as_integer() const { return std::get_if<std::int64_t>(&held_); }
  const double* as_number() const { return std::get_if<double>(&held_); }
  const std::string* as_text() const;
  const List* as_list() const;
  /// Of a namespace its fields.
  const Mapping* as_mapping() const;
  Namespace* as_namespace() const;
  const Function* as_function() const { return std::get_if<Function>(&held_); }

  bool is_true() const;
  int depth() const;
  /// Work of walking through all of it: a list may hold one value many times.
  std::int64_t weight() const;
  /// "a text", "a list", ... for messages.
  std::string_view kind() const;
  /// Numbers, truth values included, as one; false if it is none.
  bool get_number(double& number) const;

 private:
  Held held_;
};

/// Python's ==.
bool are_equal(const Value& a, const Value& b);

/// Python's < between two numbers, two texts or two lists; throws FormatError for other pairs.
bool is_less(const Value& a, const Value& b);

}  // namespace kvscope::jinja
