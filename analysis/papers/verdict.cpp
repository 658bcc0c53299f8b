#include "analysis/papers/verdict.hpp"

#include <fmt/format.h>

#include <cctype>

#include "core/base/error.hpp"
#include "core/base/number_text.hpp"

namespace kvscope::papers {

namespace {

enum class Answer { yes, open, no };

/// One side of a check.
struct Side {
  const Value* value = nullptr;  // null: a plain number
  Measured measured;
};

Side side_of(const Item& item, const std::vector<Measured>& measured, const std::string& word) {
  for (std::size_t i = 0; i < item.values.size(); ++i) {
    if (item.values[i].key == word) return {&item.values[i], measured[i]};
  }
  const auto number = number_from<double>(word);
  if (!number) {
    throw ConfigError(fmt::format("{}: a check names {}, which is no value", item.id, word));
  }
  Side side;
  side.measured.value = side.measured.low = side.measured.high = *number;
  return side;
}

/// A range over layers says nothing of how sure the mean is: then the value alone is compared.
Measured comparable(Measured measured, Role role) {
  if (measured.is_range || role == Role::needs) measured.low = measured.high = measured.value;
  return measured;
}

Answer answer_of(const Check& check, const Measured& left, const Measured& right) {
  switch (check.op) {
    case Op::above:
      return left.low > right.high                             ? Answer::yes
             : left.high < right.low || left.high == right.low ? Answer::no
                                                               : Answer::open;
    case Op::below:
      return left.high < right.low                             ? Answer::yes
             : left.low > right.high || left.low == right.high ? Answer::no
                                                               : Answer::open;
    case Op::at_least: {
      const double bar = right.value - check.slack;
      return left.low >= bar ? Answer::yes : left.high < bar ? Answer::no : Answer::open;
    }
    case Op::at_most:
      break;
  }
  const double bar = right.value + check.slack;
  return left.high <= bar ? Answer::yes : left.low > bar ? Answer::no : Answer::open;
}

std::string words_of(const Side& side, Unit unit) {
  if (side.value == nullptr) return plain_number(side.measured.value, unit);
  return fmt::format("{} ({})", side.value->label, number_of(side.measured, unit));
}

/// "reaches", "is not shown to reach", "does not reach", for the answers yes, open, no.
std::string relation(Op op, Answer answer) {
  const auto one = [&](const char* yes, const char* open, const char* no) {
    return std::string(answer == Answer::yes ? yes : answer == Answer::open ? open : no);
  };
  switch (op) {
    case Op::above:
      return one("is above", "cannot be told apart from", "is not above");
    case Op::below:
      return one("is below", "cannot be told apart from", "is not below");
    case Op::at_least:
      return one("reaches", "is not shown to reach", "does not reach");
    case Op::at_most:
      break;
  }
  return one("stays within", "is not shown to stay within", "exceeds");
}

std::string sentence(const Check& check, const Side& left, const Side& right, Answer answer) {
  const Unit unit = left.value != nullptr ? left.value->unit : Unit::number;
  std::string bar = words_of(right, unit);
  if (right.value == nullptr) {
    const double sign = check.op == Op::at_least ? -1.0 : check.op == Op::at_most ? 1.0 : 0.0;
    const double shifted = right.measured.value + sign * check.slack;
    bar = plain_number(shifted, unit);
    if (bar == plain_number(right.measured.value, unit)) bar = words_of(right, unit);
  } else if (check.slack != 0.0) {
    bar += fmt::format(" to within {}", plain_number(check.slack, unit));
  }
  std::string text = fmt::format("{} {} {}", words_of(left, unit), relation(check.op, answer), bar);
  text[0] = static_cast<char>(std::toupper(static_cast<unsigned char>(text[0])));
  if (answer != Answer::yes && !check.says.empty()) text += ": " + check.says;
  return text + ".";
}

/// The answers of the checks of one role, the first that is not yes, and the first that is.
struct RoleAnswer {
  Answer worst = Answer::yes;
  std::string bad;   // the sentence of the worst
  std::string good;  // of the first one that holds
};

}  // namespace

Judgement judge(const Item& item, const std::vector<Measured>& measured) {
  if (!item.never.empty()) return {Verdict::cannot_test, item.never};
  for (const Check& check : item.checks) {
    for (const std::string& word : {check.left, check.right}) {
      const Side side = side_of(item, measured, word);
      if (side.measured.not_run)
        return {Verdict::not_run,
                fmt::format("{} was not run: {}.", side.value->label, side.measured.missing)};
    }
  }
  RoleAnswer by_role[3];
  for (const Role role : {Role::needs, Role::form, Role::size}) {
    RoleAnswer& sum = by_role[static_cast<int>(role)];
    for (const Check& check : item.checks) {
      if (check.role != role) continue;
      const Side left = side_of(item, measured, check.left);
      const Side right = side_of(item, measured, check.right);
      for (const Side* side : {&left, &right}) {
        if (!side->measured.missing.empty() && role != Role::size) {
          return {Verdict::cannot_test, fmt::format("{} was not measured: {}.", side->value->label,
                                                    side->measured.missing)};
        }
      }
      const bool missing = !left.measured.missing.empty() || !right.measured.missing.empty();
      const Answer answer = missing ? Answer::open
                                    : answer_of(check, comparable(left.measured, role),
                                                comparable(right.measured, role));
      const std::string text = sentence(check, left, right, answer);
      if (answer == Answer::yes && sum.good.empty()) sum.good = text;
      if (static_cast<int>(answer) > static_cast<int>(sum.worst)) {
        sum.worst = answer;
        sum.bad = text;
      }
    }
    if (role == Role::needs && sum.worst != Answer::yes) return {Verdict::cannot_test, sum.bad};
    if (role == Role::form && sum.worst == Answer::no) return {Verdict::does_not_hold, sum.bad};
    if (role == Role::form && sum.worst == Answer::open) return {Verdict::cannot_test, sum.bad};
  }
  const RoleAnswer& form = by_role[static_cast<int>(Role::form)];
  const RoleAnswer& size = by_role[static_cast<int>(Role::size)];
  if (size.worst != Answer::yes) {
    return {Verdict::in_form, form.good.empty() ? size.bad : form.good + " " + size.bad};
  }
  return {Verdict::holds, !size.good.empty() && form.good.empty() ? size.good : form.good};
}

}  // namespace kvscope::papers
