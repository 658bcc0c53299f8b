// Taking tokens, and making nodes that do not nest too deep.
#include "core/model/chat/jinja_parser.hpp"

#include <fmt/format.h>

#include <algorithm>

#include "core/base/error.hpp"
#include "core/base/json_reader.hpp"

namespace kvscope::jinja {

Nested::Nested(Parser& parser) : parser_(parser) {
  if (++parser_.nesting_ > kMostNesting) {
    --parser_.nesting_;
    parser_.refuse(fmt::format("it nests more than {} levels deep", kMostNesting));
  }
}

bool Parser::take_sign(std::string_view text) {
  if (!is_sign(text)) return false;
  ++at_;
  return true;
}

bool Parser::take_word(std::string_view text) {
  if (!is_word(text)) return false;
  ++at_;
  return true;
}

void Parser::expect(TokenKind kind, std::string_view what) {
  if (now().kind != kind) refuse(fmt::format("expected {}", what));
  ++at_;
}

void Parser::expect_sign(std::string_view text) {
  if (!take_sign(text)) refuse(fmt::format("expected {}", text));
}

std::string Parser::expect_name() {
  if (now().kind != TokenKind::name) refuse("expected a name");
  return tokens_[at_++].text;
}

void Parser::refuse(const std::string& what) const {
  throw FormatError("line {}: {}, found {}", now().line, what,
                    now().kind == TokenKind::end            ? "its end"
                    : now().kind == TokenKind::block_end    ? "%}"
                    : now().kind == TokenKind::variable_end ? "}}"
                                                            : quote(now().text, 40));
}

ExpressionPtr Parser::make(ExpressionKind kind, std::string text,
                           std::vector<ExpressionPtr> parts) {
  auto node = std::make_unique<Expression>();
  node->kind = kind;
  node->text = std::move(text);
  node->parts = std::move(parts);
  node->line = now().line;
  return made(std::move(node));
}

ExpressionPtr Parser::made(ExpressionPtr node) const {
  for (const ExpressionPtr& part : node->parts)
    if (part) node->depth = std::max(node->depth, 1 + part->depth);
  for (const auto& [name, argument] : node->arguments)
    node->depth = std::max(node->depth, 1 + argument->depth);
  if (node->depth > kMostNesting)
    refuse(fmt::format("an expression nests more than {} levels deep", kMostNesting));
  return node;
}

}  // namespace kvscope::jinja
