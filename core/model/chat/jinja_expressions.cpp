// Operators of Jinja's expressions, from what binds least to what binds most.
#include <algorithm>

#include "core/model/chat/jinja_parser.hpp"

namespace kvscope::jinja {

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

}  // namespace kvscope::jinja
