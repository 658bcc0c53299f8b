// Numbers of a running template, and what + and * do to texts and lists.

#include <algorithm>
#include <cmath>

#include "core/base/error.hpp"
#include "core/model/chat/jinja_run.hpp"

namespace kvscope::jinja {

namespace {

struct IntegerOverflow {};

std::int64_t floor_quotient(std::int64_t a, std::int64_t b) {
  return a / b - (a % b != 0 && (a < 0) != (b < 0) ? 1 : 0);
}

/// Throws IntegerOverflow.
std::int64_t whole_arithmetic(char sign, std::int64_t a, std::int64_t b) {
  std::int64_t result = 0;
  bool overflows = false;
  if (sign == '+') overflows = __builtin_add_overflow(a, b, &result);
  if (sign == '-') overflows = __builtin_sub_overflow(a, b, &result);
  if (sign == '*') overflows = __builtin_mul_overflow(a, b, &result);
  if (overflows) throw IntegerOverflow{};
  return result;
}

}  // namespace

Value Run::arithmetic(const std::string& sign, const Value& a, const Value& b) {
  const auto refuse = [&](std::string_view why) -> Value {
    const auto name = [](const Value& value) {
      const auto* undefined = value.is_undefined() ? "an undefined value" : nullptr;
      return undefined != nullptr ? std::string(undefined) : std::string(value.kind());
    };
    throw FormatError("{} {} {}{}", name(a), sign, name(b), why);
  };
  if (sign == "+" && a.as_text() != nullptr && b.as_text() != nullptr) {
    pay_text(a.as_text()->size() + b.as_text()->size());
    return Value::text(*a.as_text() + *b.as_text());
  }
  if (sign == "+" && a.as_list() != nullptr && b.as_list() != nullptr) {
    std::vector<Value> items = items_of(a);
    for (const Value& item : items_of(b)) items.push_back(item);
    return Value::list(std::move(items));
  }
  if (sign == "*" && (a.as_text() != nullptr) != (b.as_text() != nullptr)) {
    const std::string& word = a.as_text() != nullptr ? *a.as_text() : *b.as_text();
    const Value& count = a.as_text() != nullptr ? b : a;
    if (!count.is_integer()) return refuse(": expected a whole number");
    const std::int64_t n = std::max<std::int64_t>(0, *count.as_integer());
    if (n > 0 && static_cast<std::int64_t>(word.size()) > kMostWork / n * 16) pay(kMostWork * 1024);
    std::string out;
    pay_text(word.size() * static_cast<std::size_t>(n));
    pay(n / 16);
    for (std::int64_t i = 0; i < n && !word.empty(); ++i) out += word;
    return Value::text(std::move(out));
  }
  double x = 0.0;
  double y = 0.0;
  if (!a.get_number(x) || !b.get_number(y)) return refuse(" has no meaning");
  const bool is_whole = a.as_number() == nullptr && b.as_number() == nullptr;
  const bool divides = sign == "/" || sign == "//" || sign == "%";
  if (divides && y == 0.0) return refuse(" divides by zero");
  if (sign == "/") return Value::number(x / y);
  if (sign == "**") {
    const double power = std::pow(x, y);
    if (!is_whole || y < 0.0) return Value::number(power);
    if (!(std::fabs(power) < 9.0e15)) return refuse(" is too large");
    return Value::integer(static_cast<std::int64_t>(power));
  }
  if (!is_whole) {
    if (sign == "+") return Value::number(x + y);
    if (sign == "-") return Value::number(x - y);
    if (sign == "*") return Value::number(x * y);
    if (sign == "//") return Value::number(std::floor(x / y));
    return Value::number(x - y * std::floor(x / y));
  }
  const auto whole = [](const Value& value) {
    return value.as_truth() != nullptr ? std::int64_t{*value.as_truth()} : *value.as_integer();
  };
  const std::int64_t i = whole(a);
  const std::int64_t j = whole(b);
  if (divides && j == -1 && i == INT64_MIN) return refuse(" is too large");
  if (sign == "//") return Value::integer(floor_quotient(i, j));
  if (sign == "%") return Value::integer(i - j * floor_quotient(i, j));
  try {
    return Value::integer(whole_arithmetic(sign.front(), i, j));
  } catch (const IntegerOverflow&) {
    return refuse(" is too large");
  }
}

}  // namespace kvscope::jinja
