// The parts of a parsed Jinja template: expressions, statements and macros.
#pragma once

#include "core/base/vocabulary.hpp"
#include "core/model/chat/jinja_value.hpp"

namespace kvscope::jinja {

struct Expression;
using ExpressionPtr = std::unique_ptr<Expression>;

enum class ExpressionKind {
  constant,   // value
  name,       // text
  list,       // parts
  mapping,    // parts: key, value, key, value, ...
  attribute,  // parts[0].text
  item,       // parts[0][parts[1]]
  slice,      // parts[0][parts[1]:parts[2]:parts[3]]; the bounds may be null
  call,       // parts[0](arguments)
  filter,     // parts[0] | text(arguments)
  test,       // parts[0] is text(arguments)
  unary,      // text parts[0]; text: not, -, +
  binary,     // parts[0] text parts[1]; and, or and ~ included
  compare,    // parts[0] words[0] parts[1] words[1] parts[2] ...
  condition,  // parts[0] if parts[1] else parts[2] (null: undefined)
};

struct Expression {
  ExpressionKind kind = ExpressionKind::constant;
  std::string text;
  Value value;
  std::vector<ExpressionPtr> parts;
  std::vector<std::string> words;                                // compare
  std::vector<std::pair<std::string, ExpressionPtr>> arguments;  // name empty: by position
  int line = 1;
  int depth = 1;  // levels from here down
};

struct Statement;
using Body = std::vector<Statement>;

/// A macro's parameters with their defaults, and what it writes.
struct Macro {
  std::string name;
  std::vector<std::pair<std::string, ExpressionPtr>> parameters;  // null: no default
  Body body;
};

enum class StatementKind {
  text,       // text
  output,     // {{ expression }}
  condition,  // {% if expression %} body {% else %} other; elif: one statement in `other`
  loop,       // {% for names in expression if filter %} body {% else %} other
  set,        // {% set names = expression %}; with attribute: names[0].attribute
  set_block,  // {% set names[0] %} body {% endset %}
  macro,      // macro
  leave,      // {% break %}
  next,       // {% continue %}
  group,      // body: {% generation %}, and the arms of an if
};

struct Statement {
  StatementKind kind = StatementKind::text;
  std::string text;
  ExpressionPtr expression;
  ExpressionPtr filter;  // loop: which items; set_block: null or filters over a name "body"
  std::vector<std::string> names;
  std::string attribute;
  Body body;
  Body other;
  std::unique_ptr<Macro> macro;
  int line = 1;
};

/// A parsed template; immutable. Expressions and statements nest at most kMostNesting levels, so
/// that running it may recurse.
inline constexpr int kMostNesting = 200;

/// Throws FormatError with the line for what is not Jinja, and for the parts of Jinja that chat
/// templates do not use (include, extends, block, call, ...), by their names.
Body parse_template(std::string_view source);

}  // namespace kvscope::jinja
