#include "analysis/papers/item.hpp"

#include <algorithm>
#include <array>
#include <sstream>
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

/// The text with every {name} replaced.
std::string replace_names(std::string_view text, const Substitute& substitute) {
  std::string out;
  while (!text.empty()) {
    const std::size_t open = text.find('{');
    const std::size_t close = open == text.npos ? text.npos : text.find('}', open);
    if (close == text.npos) return out + std::string(text);
    out += text.substr(0, open);
    out += substitute(text.substr(open + 1, close - open - 1));
    text.remove_prefix(close + 1);
  }
  return out;
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

std::vector<std::string> expand(std::string_view command, const Substitute& substitute) {
  std::vector<std::string> words;
  std::string raw;
  bool is_open = false;
  bool is_quoted = false;  // some of it: such words are never split again
  const auto end_word = [&] {
    const bool is_one_name = raw.starts_with('{') && raw.find('}') == raw.size() - 1;
    std::istringstream lines(replace_names(raw, substitute));
    if (is_one_name && !is_quoted) {
      for (std::string line; std::getline(lines, line);) words.push_back(line);
    } else if (is_quoted || !raw.empty()) {
      words.push_back(lines.str());
    }
    raw.clear();
    is_quoted = false;
  };
  for (const char c : command) {
    if (c == '\'') is_open = !is_open;
    is_quoted |= c == '\'';
    if (c == ' ' && !is_open) end_word();
    if (c != '\'' && (c != ' ' || is_open)) raw += c;
  }
  end_word();
  return words;
}

std::vector<std::string> names_in(std::string_view command) {
  std::vector<std::string> names;
  replace_names(command, [&](std::string_view name) {
    if (std::ranges::find(names, name) == names.end()) names.emplace_back(name);
    return std::string();
  });
  return names;
}

}  // namespace kvscope::papers
