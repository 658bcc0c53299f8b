// The grammar of Jinja's blocks.
#include <fmt/format.h>

#include <algorithm>

#include "core/base/error.hpp"
#include "core/model/chat/jinja_parser.hpp"

namespace kvscope::jinja {

Body parse_template(std::string_view source) {
  return Parser(tokens_of(source)).parse();
}

Body Parser::parse() {
  return parse_body({});
}

void Parser::end_block() {
  expect(TokenKind::block_end, "%}");
}

Body Parser::parse_body(const Words& ends) {
  const Nested nested(*this);
  Body body;
  while (now().kind != TokenKind::end) {
    const int line = now().line;
    if (now().kind == TokenKind::block_begin) {
      const Token& word = ahead(1);
      const bool ends_here = word.kind == TokenKind::name &&
                             std::find(ends.begin(), ends.end(), word.text) != ends.end();
      ++at_;
      if (ends_here) return body;
      body.push_back(parse_block());
    } else if (now().kind == TokenKind::variable_begin) {
      ++at_;
      Statement output;
      output.kind = StatementKind::output;
      output.expression = parse_tuple(Ternary::allowed);
      expect(TokenKind::variable_end, "}}");
      body.push_back(std::move(output));
    } else {
      Statement text;
      text.text = tokens_[at_++].text;
      body.push_back(std::move(text));
    }
    body.back().line = line;
  }
  if (!ends.empty())
    refuse(fmt::format("expected {{% {} %}}", fmt::join(ends.begin(), ends.end(), " or ")));
  return body;
}

Statement Parser::parse_block() {
  if (is_word("if")) return parse_if();
  if (is_word("for")) return parse_for();
  if (is_word("set")) return parse_set();
  if (is_word("macro")) return parse_macro();
  if (is_word("generation")) return parse_group();
  Statement leave;
  if (n_loops_ > 0 && (is_word("break") || is_word("continue"))) {
    leave.kind = is_word("break") ? StatementKind::leave : StatementKind::next;
    ++at_;
    end_block();
    return leave;
  }
  refuse("expected if, for, set, macro, generation, or break or continue in a loop");
}

Statement Parser::parse_if() {
  Statement whole;
  whole.kind = StatementKind::condition;
  Statement* arm = &whole;
  int n_arms = 1;
  ++at_;
  while (true) {  // the arms of an elif chain hang one below the other, made without recursion
    arm->kind = StatementKind::condition;
    arm->expression = parse_tuple(Ternary::refused);
    end_block();
    arm->body = parse_body({"elif", "else", "endif"});
    if (take_word("elif")) {
      if (++n_arms > kMostNesting) refuse("an if has too many elif");
      arm->other.emplace_back();
      arm = &arm->other.back();
      continue;
    }
    if (take_word("else")) {
      end_block();
      arm->other = parse_body({"endif"});
    }
    if (!take_word("endif")) refuse("expected endif");
    end_block();
    return whole;
  }
}

std::vector<std::string> Parser::parse_names() {
  const bool in_brackets = take_sign("(");
  std::vector<std::string> names = {expect_name()};
  while (take_sign(",")) names.push_back(expect_name());
  if (in_brackets) expect_sign(")");
  return names;
}

Statement Parser::parse_for() {
  Statement loop;
  loop.kind = StatementKind::loop;
  ++at_;
  loop.names = parse_names();
  if (!take_word("in")) refuse("expected in");
  loop.expression = parse_tuple(Ternary::refused);
  if (take_word("if")) loop.filter = parse_expression();
  end_block();
  ++n_loops_;
  loop.body = parse_body({"endfor", "else"});
  --n_loops_;
  if (take_word("else")) {
    end_block();
    loop.other = parse_body({"endfor"});
  }
  if (!take_word("endfor")) refuse("expected endfor");
  end_block();
  return loop;
}

Statement Parser::parse_set() {
  Statement set;
  set.kind = StatementKind::set;
  ++at_;
  set.names = parse_names();
  if (set.names.size() == 1 && take_sign(".")) set.attribute = expect_name();
  if (take_sign("=")) {
    set.expression = parse_tuple(Ternary::allowed);
    end_block();
    return set;
  }
  set.kind = StatementKind::set_block;
  if (is_sign("|")) {
    set.filter = parse_filters(make(ExpressionKind::name, "body"));
  }
  end_block();
  set.body = parse_body({"endset"});
  ++at_;
  end_block();
  return set;
}

Statement Parser::parse_macro() {
  Statement statement;
  statement.kind = StatementKind::macro;
  statement.macro = std::make_unique<Macro>();
  ++at_;
  statement.macro->name = expect_name();
  expect_sign("(");
  while (!take_sign(")")) {
    if (!statement.macro->parameters.empty()) expect_sign(",");
    if (take_sign(")")) break;
    std::string name = expect_name();
    ExpressionPtr value = take_sign("=") ? parse_expression() : nullptr;
    statement.macro->parameters.emplace_back(std::move(name), std::move(value));
  }
  end_block();
  const int n_loops = std::exchange(n_loops_, 0);  // a macro's body is in no loop
  statement.macro->body = parse_body({"endmacro"});
  n_loops_ = n_loops;
  ++at_;
  end_block();
  return statement;
}

Statement Parser::parse_group() {
  Statement group;
  group.kind = StatementKind::group;
  ++at_;
  end_block();
  group.body = parse_body({"endgeneration"});
  ++at_;
  end_block();
  return group;
}

}  // namespace kvscope::jinja
