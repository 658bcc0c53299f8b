// One run of a template: its variables, what it has written, and how much work it may still do.
//
// A template comes with a model that somebody else made, so a run is bounded: a step (evaluating a
// node, visiting an item) costs one unit, 16 bytes of text that is made cost one, and calls nest at
// most kMostCalls deep. What goes beyond throws FormatError.
#pragma once

#include <map>

#include "core/base/vocabulary.hpp"
#include "core/model/chat/jinja_nodes.hpp"
#include "core/model/chat/jinja_value.hpp"

namespace kvscope::jinja {

inline constexpr int kMostCalls = 800;
inline constexpr std::int64_t kMostWork = 4'000'000;

/// The values of a call's arguments.
struct Arguments {
  std::vector<Value> values;
  std::vector<Entry> named;

  /// The argument at this place or of this name, or null.
  const Value* find(std::size_t place, std::string_view name) const;
};

class Run {
 public:
  /// `more_work`: units beside kMostWork, for long conversations.
  Run(const Body& body, std::vector<Entry> globals, std::int64_t more_work);
  ~Run();
  Run(const Run&) = delete;
  Run& operator=(const Run&) = delete;

  /// What the template writes. Throws FormatError, with the line.
  std::string write();

  // for filters, tests, methods and functions

  /// Pays for work before it is done.
  void pay(std::int64_t units);
  void pay_text(std::size_t bytes) { pay(1 + static_cast<std::int64_t>(bytes / 16)); }
  Value text(std::string text);
  /// The items that a for loop would visit. Throws for what has none.
  std::vector<Value> items_of(const Value& value);
  /// As {{ value }} writes it.
  std::string shown(const Value& value);
  bool test(const std::string& name, const Value& value, const Arguments& arguments);
  Value filter(const std::string& name, const Value& value, const Arguments& arguments);
  Value attribute(const Value& of, const std::string& name);
  Value item(const Value& of, const Value& key);
  bool is_in(const Value& value, const Value& container);

 private:
  enum class Flow { on, leave, next };
  struct Scope {
    std::map<std::string, Value, std::less<>> names;
    Scope* outer = nullptr;
  };
  class Deeper;

  // statements
  Flow execute(const Body& body, Scope& scope, std::string& out);
  Flow execute(const Statement& statement, Scope& scope, std::string& out);
  Flow execute_loop(const Statement& loop, Scope& scope, std::string& out);
  void execute_set(const Statement& set, Scope& scope);
  static void bind(const std::vector<std::string>& names, const Value& value, Scope& scope,
                   Run& run);
  void append(std::string& out, std::string_view text);

  // expressions
  Value evaluate(const Expression& node, Scope& scope);
  Value evaluate_kind(const Expression& node, Scope& scope);
  Value evaluate_mapping(const Expression& node, Scope& scope);
  Value evaluate_binary(const Expression& node, Scope& scope);
  bool evaluate_compare(const Expression& node, Scope& scope);
  Value evaluate_slice(const Expression& node, Scope& scope);
  Value evaluate_call(const Expression& node, Scope& scope);
  Value call_macro(const Macro& macro, const Arguments& arguments);
  Arguments arguments_of(const Expression& node, Scope& scope);
  Value arithmetic(const std::string& sign, const Value& a, const Value& b);
  Value look_up(const std::string& name, const Scope& scope) const;

  // functions by name
  Value call_function(const std::string& name, const Arguments& arguments);
  Value call_method(const Value& of, const std::string& name, const Arguments& arguments);
  Value call_text_method(const std::string& of, const std::string& name,
                         const Arguments& arguments);

  // filters by what they take
  std::optional<Value> filter_text(const std::string& name, const Value& value,
                                   const Arguments& arguments);
  std::optional<Value> filter_list(const std::string& name, const Value& value,
                                   const Arguments& arguments);
  Value filter_selected(const std::string& name, const Value& value, const Arguments& arguments);
  Value filter_map(const Value& value, const Arguments& arguments);
  Value attribute_path(const Value& of, const std::string& path);

  const Body& body_;
  Scope globals_;
  Scope root_;
  std::int64_t work_left_;
  int depth_ = 0;
  int line_ = 1;
  std::vector<std::shared_ptr<Namespace>> namespaces_;  // emptied at the end: they may form rings
};

/// Python's repr(), which lists and mappings are written with.
std::string python_text(Run& run, const Value& value);

/// A number that is not whole, as Python writes it: "1.0", "nan".
std::string python_number(double value);

/// json.dumps(value, ensure_ascii=False) with its options.
std::string json_text(Run& run, const Value& value, const Arguments& arguments);

/// Characters of a text.
std::int64_t length_of(std::string_view text);

/// Which items [begin:end:step] takes of n, as Python does; step is not 0.
std::vector<std::int64_t> slice_places(std::int64_t n, std::optional<std::int64_t> begin,
                                       std::optional<std::int64_t> end, std::int64_t step);

/// `text` without white space (or without characters of `signs`) at its ends.
std::string_view stripped(std::string_view text, const std::string* signs, bool at_begin,
                          bool at_end);

/// Every occurrence replaced, `most` at most (negative: all).
std::string replaced(std::string_view text, std::string_view from, std::string_view to,
                     std::int64_t most);

/// A text in other letters: "upper", "lower", "title", "capitalize".
std::string recased(std::string_view text, std::string_view how);

/// Lines without their ends, as Python's splitlines.
std::vector<std::string> lines_of(std::string_view text);

/// The argument's text or number. Throws FormatError naming the function for another kind.
const std::string& text_argument(const Value& value, std::string_view of);
std::int64_t integer_argument(const Value& value, std::string_view of);

}  // namespace kvscope::jinja
