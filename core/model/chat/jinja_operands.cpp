// What stands between the operators: values, calls, items, filters and tests.
#include <algorithm>

#include "core/base/number_text.hpp"
#include "core/model/chat/jinja_parser.hpp"

namespace kvscope::jinja {

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
