// The grammar of Jinja's expressions, from what binds least to what binds most.
#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <charconv>

#include "core/base/error.hpp"
#include "core/base/json_reader.hpp"
#include "core/base/number_text.hpp"
#include "core/model/chat/jinja_parser.hpp"

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
  throw FormatError(fmt::format("line {}: {}, found {}", now().line, what,
                                now().kind == TokenKind::end            ? "its end"
                                : now().kind == TokenKind::block_end    ? "%}"
                                : now().kind == TokenKind::variable_end ? "}}"
                                                                        : quote(now().text, 40)));
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

namespace {

template <class... Nodes>
std::vector<ExpressionPtr> parts_of(Nodes... nodes) {
  std::vector<ExpressionPtr> parts;
  (parts.push_back(std::move(nodes)), ...);
  return parts;
}

}  // namespace

ExpressionPtr Parser::parse_tuple(Ternary ternary) {
  const auto parse_one = [&] {
    return ternary == Ternary::allowed ? parse_expression() : parse_or();
  };
  ExpressionPtr first = parse_one();
  if (!is_sign(",")) return first;
  ExpressionPtr list = make(ExpressionKind::list, "");
  list->parts.push_back(std::move(first));
  while (take_sign(",")) {
    const bool ends =
        now().kind == TokenKind::block_end || now().kind == TokenKind::variable_end || is_sign(")");
    if (ends) break;
    list->parts.push_back(parse_one());
  }
  return made(std::move(list));
}

ExpressionPtr Parser::parse_expression() {
  const Nested nested(*this);
  ExpressionPtr node = parse_or();
  while (take_word("if")) {
    ExpressionPtr test = parse_or();
    ExpressionPtr other = take_word("else") ? parse_expression() : nullptr;
    node = make(ExpressionKind::condition, "",
                parts_of(std::move(node), std::move(test), std::move(other)));
  }
  return node;
}

ExpressionPtr Parser::parse_or() {
  ExpressionPtr node = parse_and();
  while (take_word("or"))
    node = make(ExpressionKind::binary, "or", parts_of(std::move(node), parse_and()));
  return node;
}

ExpressionPtr Parser::parse_and() {
  ExpressionPtr node = parse_not();
  while (take_word("and"))
    node = make(ExpressionKind::binary, "and", parts_of(std::move(node), parse_not()));
  return node;
}

ExpressionPtr Parser::parse_not() {
  const Nested nested(*this);
  if (take_word("not")) return make(ExpressionKind::unary, "not", parts_of(parse_not()));
  return parse_compare();
}

ExpressionPtr Parser::parse_compare() {
  ExpressionPtr first = parse_sum();
  std::vector<ExpressionPtr> parts;
  std::vector<std::string> words;
  constexpr std::array<std::string_view, 6> kSigns = {"==", "!=", "<=", ">=", "<", ">"};
  while (true) {
    const auto sign = std::find_if(kSigns.begin(), kSigns.end(),
                                   [&](std::string_view text) { return is_sign(text); });
    std::string word;
    if (sign != kSigns.end()) {
      word = *sign;
      ++at_;
    } else if (is_word("in")) {
      word = "in";
      ++at_;
    } else if (is_word("not") && ahead(1).kind == TokenKind::name && ahead(1).text == "in") {
      word = "not in";
      at_ += 2;
    } else {
      break;
    }
    words.push_back(std::move(word));
    parts.push_back(parse_sum());
  }
  if (words.empty()) return first;
  parts.insert(parts.begin(), std::move(first));
  ExpressionPtr node = make(ExpressionKind::compare, "", std::move(parts));
  node->words = std::move(words);
  return node;
}

ExpressionPtr Parser::parse_sum() {
  ExpressionPtr node = parse_joined();
  while (is_sign("+") || is_sign("-")) {
    const std::string sign = tokens_[at_++].text;
    node = make(ExpressionKind::binary, sign, parts_of(std::move(node), parse_joined()));
  }
  return node;
}

ExpressionPtr Parser::parse_joined() {
  ExpressionPtr node = parse_product();
  while (take_sign("~"))
    node = make(ExpressionKind::binary, "~", parts_of(std::move(node), parse_product()));
  return node;
}

ExpressionPtr Parser::parse_product() {
  ExpressionPtr node = parse_power();
  while (is_sign("*") || is_sign("/") || is_sign("//") || is_sign("%")) {
    const std::string sign = tokens_[at_++].text;
    node = make(ExpressionKind::binary, sign, parts_of(std::move(node), parse_power()));
  }
  return node;
}

ExpressionPtr Parser::parse_power() {
  ExpressionPtr node = parse_unary(/*with_filters=*/true);
  while (take_sign("**"))
    node = make(ExpressionKind::binary, "**",
                parts_of(std::move(node), parse_unary(/*with_filters=*/true)));
  return node;
}

ExpressionPtr Parser::parse_unary(bool with_filters) {
  const Nested nested(*this);
  ExpressionPtr node;
  if (is_sign("-") || is_sign("+")) {
    const std::string sign = tokens_[at_++].text;
    node = make(ExpressionKind::unary, sign, parts_of(parse_unary(/*with_filters=*/false)));
  } else {
    node = parse_primary();
  }
  node = parse_postfix(std::move(node));
  return with_filters ? parse_filters(std::move(node)) : std::move(node);
}

ExpressionPtr Parser::parse_primary() {
  const Token& token = now();
  ExpressionPtr node = make(ExpressionKind::constant, "");
  switch (token.kind) {
    case TokenKind::name:
      ++at_;
      if (token.text == "true" || token.text == "True")
        node->value = Value::truth(true);
      else if (token.text == "false" || token.text == "False")
        node->value = Value::truth(false);
      else if (token.text == "none" || token.text == "None")
        node->value = Value::none();
      else
        return make(ExpressionKind::name, token.text);
      return node;
    case TokenKind::string: {
      std::string text;
      while (now().kind == TokenKind::string) text += tokens_[at_++].text;
      node->value = Value::text(std::move(text));
      return node;
    }
    case TokenKind::integer: {
      const auto number = number_from<std::int64_t>(token.text);
      if (!number) refuse("expected a whole number of at most 63 bits");
      ++at_;
      node->value = Value::integer(*number);
      return node;
    }
    case TokenKind::real: {
      const auto number = number_from<double>(token.text);
      if (!number) refuse("expected a number");
      ++at_;
      node->value = Value::number(*number);
      return node;
    }
    default:
      break;
  }
  if (take_sign("(")) {
    node = take_sign(")") ? make(ExpressionKind::list, "") : nullptr;
    if (node) return node;
    node = parse_tuple(Ternary::allowed);
    expect_sign(")");
    return node;
  }
  if (take_sign("[")) {
    node->kind = ExpressionKind::list;
    while (!take_sign("]")) {
      if (!node->parts.empty()) expect_sign(",");
      if (take_sign("]")) break;
      node->parts.push_back(parse_expression());
    }
    return made(std::move(node));
  }
  if (take_sign("{")) return parse_mapping();
  refuse("expected a value");
}

ExpressionPtr Parser::parse_mapping() {
  ExpressionPtr node = make(ExpressionKind::mapping, "");
  while (!take_sign("}")) {
    if (!node->parts.empty()) expect_sign(",");
    if (take_sign("}")) break;
    node->parts.push_back(parse_expression());
    expect_sign(":");
    node->parts.push_back(parse_expression());
  }
  return made(std::move(node));
}

ExpressionPtr Parser::parse_postfix(ExpressionPtr node) {
  while (true) {
    if (take_sign(".")) {
      if (now().kind == TokenKind::integer) {
        node = make(ExpressionKind::item, "", parts_of(std::move(node), parse_primary()));
      } else {
        std::string name = expect_name();
        node = make(ExpressionKind::attribute, std::move(name), parts_of(std::move(node)));
      }
    } else if (take_sign("[")) {
      node = parse_subscript(std::move(node));
    } else if (is_sign("(")) {
      node = parse_call(std::move(node));
    } else {
      return node;
    }
  }
}

ExpressionPtr Parser::parse_call(ExpressionPtr node) {
  node = make(ExpressionKind::call, "", parts_of(std::move(node)));
  parse_arguments(*node);
  return made(std::move(node));
}

ExpressionPtr Parser::parse_subscript(ExpressionPtr node) {
  ExpressionPtr bounds[3];
  bool is_slice = false;
  for (int i = 0; i < 3; ++i) {
    if (!is_sign(":") && !is_sign("]")) bounds[i] = parse_expression();
    if (!take_sign(":")) break;
    is_slice = true;
  }
  expect_sign("]");
  if (is_slice) {
    return make(ExpressionKind::slice, "",
                parts_of(std::move(node), std::move(bounds[0]), std::move(bounds[1]),
                         std::move(bounds[2])));
  }
  if (!bounds[0]) refuse("expected a value between [ and ]");
  return make(ExpressionKind::item, "", parts_of(std::move(node), std::move(bounds[0])));
}

void Parser::parse_arguments(Expression& call) {
  expect_sign("(");
  while (!take_sign(")")) {
    if (!call.arguments.empty()) expect_sign(",");
    if (take_sign(")")) break;
    std::string name;
    if (now().kind == TokenKind::name && ahead(1).kind == TokenKind::sign && ahead(1).text == "=") {
      name = now().text;
      at_ += 2;
    }
    call.arguments.emplace_back(std::move(name), parse_expression());
  }
}

ExpressionPtr Parser::parse_filters(ExpressionPtr node) {
  while (true) {
    if (take_sign("|")) {
      std::string name = expect_name();
      node = make(ExpressionKind::filter, std::move(name), parts_of(std::move(node)));
      if (is_sign("(")) parse_arguments(*node);
      node = made(std::move(node));
    } else if (take_word("is")) {
      node = parse_test(std::move(node));
    } else if (is_sign("(")) {
      node = parse_call(std::move(node));
    } else {
      return node;
    }
  }
}

ExpressionPtr Parser::parse_test(ExpressionPtr node) {
  const bool is_not = take_word("not");
  std::string name = expect_name();
  node = make(ExpressionKind::test, std::move(name), parts_of(std::move(node)));
  constexpr std::array<std::string_view, 7> kNoArgument = {"else", "or",  "and", "if",
                                                           "in",   "not", "is"};
  const bool is_value =
      now().kind == TokenKind::string || now().kind == TokenKind::integer ||
      now().kind == TokenKind::real || is_sign("[") || is_sign("{") ||
      (now().kind == TokenKind::name &&
       std::find(kNoArgument.begin(), kNoArgument.end(), now().text) == kNoArgument.end());
  if (is_sign("("))
    parse_arguments(*node);
  else if (is_value)
    node->arguments.emplace_back("", parse_postfix(parse_primary()));
  node = made(std::move(node));
  return is_not ? make(ExpressionKind::unary, "not", parts_of(std::move(node))) : std::move(node);
}

}  // namespace kvscope::jinja
