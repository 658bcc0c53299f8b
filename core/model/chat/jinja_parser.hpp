// What the parts of the parser share: the tokens and a place in them.
#pragma once

#include <algorithm>

#include "core/base/vocabulary.hpp"
#include "core/model/chat/jinja_lexer.hpp"
#include "core/model/chat/jinja_nodes.hpp"

namespace kvscope::jinja {

/// Parts of a new node.
template <class... Nodes>
std::vector<ExpressionPtr> parts_of(Nodes... nodes) {
  std::vector<ExpressionPtr> parts;
  (parts.push_back(std::move(nodes)), ...);
  return parts;
}

/// Reads tokens one after the other: jinja_parser.cpp takes tokens and makes nodes,
/// jinja_expressions.cpp has the operators, jinja_operands.cpp what stands between them,
/// jinja_statements.cpp the statements.
class Parser {
 public:
  explicit Parser(std::vector<Token> tokens) : tokens_(std::move(tokens)) {}

  /// Everything up to the end of the template.
  Body parse();

 private:
  using Words = std::vector<std::string_view>;

  // tokens
  const Token& now() const { return tokens_[at_]; }
  const Token& ahead(std::size_t n) const { return tokens_[std::min(at_ + n, tokens_.size() - 1)]; }
  bool is(TokenKind kind, std::string_view text) const {
    return now().kind == kind && now().text == text;
  }
  bool is_sign(std::string_view text) const { return is(TokenKind::sign, text); }
  bool is_word(std::string_view text) const { return is(TokenKind::name, text); }
  bool take_sign(std::string_view text);
  bool take_word(std::string_view text);
  void expect(TokenKind kind, std::string_view what);
  void expect_sign(std::string_view text);
  std::string expect_name();
  [[noreturn]] void refuse(const std::string& what) const;

  // expressions
  enum class Ternary { allowed, refused };
  /// One expression, or several between commas as a list.
  ExpressionPtr parse_tuple(Ternary ternary);
  ExpressionPtr parse_expression();
  ExpressionPtr parse_or();
  ExpressionPtr parse_and();
  ExpressionPtr parse_not();
  ExpressionPtr parse_compare();
  ExpressionPtr parse_sum();
  ExpressionPtr parse_joined();
  ExpressionPtr parse_product();
  ExpressionPtr parse_power();
  ExpressionPtr parse_unary(bool with_filters);
  ExpressionPtr parse_primary();
  ExpressionPtr parse_mapping();
  ExpressionPtr parse_postfix(ExpressionPtr node);
  ExpressionPtr parse_call(ExpressionPtr node);
  ExpressionPtr parse_subscript(ExpressionPtr node);
  ExpressionPtr parse_filters(ExpressionPtr node);
  ExpressionPtr parse_test(ExpressionPtr node);
  void parse_arguments(Expression& call);
  /// A new node; refuses to nest deeper than kMostNesting.
  ExpressionPtr make(ExpressionKind kind, std::string text, std::vector<ExpressionPtr> parts = {});
  ExpressionPtr made(ExpressionPtr node) const;

  // statements
  /// Up to a block that one of `ends` names; empty: up to the end of the template.
  Body parse_body(const Words& ends);
  Statement parse_block();
  Statement parse_if();
  Statement parse_for();
  Statement parse_set();
  Statement parse_macro();
  Statement parse_group();
  std::vector<std::string> parse_names();
  void end_block();

  std::vector<Token> tokens_;
  std::size_t at_ = 0;
  int nesting_ = 0;  // of calls of this parser
  int n_loops_ = 0;  // around the statement that is read

  friend class Nested;
};

/// Counts one level of nesting while it lives.
class Nested {
 public:
  explicit Nested(Parser& parser);
  ~Nested() { --parser_.nesting_; }
  Nested(const Nested&) = delete;
  Nested& operator=(const Nested&) = delete;

 private:
  Parser& parser_;
};

}  // namespace kvscope::jinja
