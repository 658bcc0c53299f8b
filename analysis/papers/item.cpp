#include "analysis/papers/item.hpp"

#include <algorithm>
#include <array>
#include <utility>

namespace kvscope::papers {

std::string paper_name(Paper paper) {
  return std::array{"QuoKA", "Quest", "SpecAttn"}[static_cast<std::size_t>(paper)];
}

std::string verdict_word(Verdict verdict) {
  return std::array{"holds",
                    "holds in form",
                    "depends on the reading",
                    "too small to count",
                    "does not hold",
                    "not decided",
                    "cannot be tested",
                    "not run"}[static_cast<std::size_t>(verdict)];
}

namespace {

std::string replaced(std::string text, std::string_view name, const std::string& by) {
  for (std::size_t at = text.find(name); at != text.npos; at = text.find(name, at + by.size()))
    text.replace(at, name.size(), by);
  return text;
}

bool is_of_readings(const Value& value) {
  const std::string text = value.run + value.column + value.where;
  return text.find("{method}") != text.npos || text.find("{at}") != text.npos;
}

}  // namespace

const Value* Item::find(std::string_view key) const {
  const auto at = std::ranges::find(values, key, &Value::key);
  return at == values.end() ? nullptr : &*at;
}

Item with_readings(Item item) {
  const std::vector<Value> values = std::exchange(item.values, {});
  const std::vector<Check> checks = std::exchange(item.checks, {});
  const auto is_own = [&](const std::string& key) {
    const auto at = std::ranges::find(values, key, &Value::key);
    return at != values.end() && is_of_readings(*at);
  };
  const auto key_under = [&](const std::string& key, std::size_t i) {
    return i > 0 && is_own(key) ? key + "@" + item.readings[i].method : key;
  };
  const auto add = [&](Value value, std::size_t i, const std::string& more) {
    const Reading& reading = item.readings[i];
    for (std::string* text : {&value.run, &value.column, &value.where})
      *text = replaced(replaced(*text, "{method}", reading.method + more), "{at}", reading.at);
    value.key = key_under(value.key, i) + (more.empty() ? "" : "@random");
    value.than = key_under(value.than, i);
    if (!reading.label.empty()) value.label += ", " + reading.label;
    if (!more.empty()) value.label += ", " + item.control_label;
    item.values.push_back(std::move(value));
  };
  for (const Value& value : values) {
    if (!is_of_readings(value)) item.values.push_back(value);
    const bool is_error = value.column == "perplexity";
    const bool has_control = !item.control.empty() &&
                             value.where.find("{method}") != std::string::npos &&
                             (value.spread != Spread::none || is_error);
    for (std::size_t i = 0; is_of_readings(value) && i < item.readings.size(); ++i) {
      add(value, i, "");
      if (!has_control) continue;
      add(value, i, item.control);
      item.checks.push_back({.left = key_under(value.key, i),
                             .op = is_error ? Op::below : Op::above,
                             .right = item.values.back().key,
                             .says = "a choice at random does as well",
                             .reading = item.readings[i].label});
    }
  }
  for (const Check& check : checks) {
    const bool is_of_one = is_own(check.left) || is_own(check.right);
    for (std::size_t i = 0; i < (is_of_one ? item.readings.size() : 1); ++i) {
      Check& copy = item.checks.emplace_back(check);
      copy.left = key_under(check.left, i);
      copy.right = key_under(check.right, i);
      if (is_of_one) copy.reading = item.readings[i].label;
    }
  }
  return item;
}

}  // namespace kvscope::papers
