#include "analysis/papers/item.hpp"

#include <set>

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

Item with_readings(Item item) {
  const Item as_written = item;
  std::set<std::string> own;  // keys that every reading has for itself
  for (const Value& value : as_written.values) {
    if (is_of_readings(value)) own.insert(value.key);
  }
  item.values.clear();
  item.checks.clear();
  const auto key_under = [&](const std::string& key, std::size_t reading) {
    const bool is_later = reading > 0 && own.contains(key);
    return is_later ? key + "@" + as_written.readings[reading].method : key;
  };
  const auto value_under = [&](Value value, std::size_t i, const std::string& suffix) {
    const Reading& reading = as_written.readings[i];
    for (std::string* text : {&value.run, &value.column, &value.where})
      *text = replaced(replaced(*text, "{method}", reading.method + suffix), "{at}", reading.at);
    value.key = key_under(value.key, i);
    value.than = key_under(value.than, i);
    if (!reading.label.empty()) value.label += ", " + reading.label;
    return value;
  };
  for (const Value& value : as_written.values) {
    if (!own.contains(value.key)) item.values.push_back(value);
    for (std::size_t i = 0; own.contains(value.key) && i < as_written.readings.size(); ++i)
      item.values.push_back(value_under(value, i, ""));
  }
  for (const Check& check : as_written.checks) {
    const bool is_own = own.contains(check.left) || own.contains(check.right);
    for (std::size_t i = 0; i < (is_own ? as_written.readings.size() : 1); ++i) {
      Check& copy = item.checks.emplace_back(check);
      copy.left = key_under(check.left, i);
      copy.right = key_under(check.right, i);
      if (is_own) copy.reading = as_written.readings[i].label;
    }
  }
  for (const Value& value : as_written.values) {
    for (std::size_t i = 0; value.has_control && i < as_written.readings.size(); ++i) {
      const std::string key = key_under(value.key, i);
      Value& control = item.values.emplace_back(value_under(value, i, as_written.control));
      control.key = key + "@random";
      control.label += ", " + as_written.control_label;
      item.checks.push_back({.left = key,
                             .op = value.column == "perplexity" ? Op::below : Op::above,
                             .right = control.key,
                             .says = "a choice at random does as well",
                             .reading = as_written.readings[i].label});
    }
  }
  return item;
}

std::span<const Item> items() {
  static const std::vector<Item> all = [] {
    constexpr std::pair<Paper, ItemList*> kLists[] = {{Paper::quoka, quoka_geometry_items},
                                                      {Paper::quoka, quoka_accuracy_items},
                                                      {Paper::quoka, quoka_cost_items},
                                                      {Paper::quest, quest_motivation_items},
                                                      {Paper::quest, quest_quality_items},
                                                      {Paper::quest, quest_speed_items},
                                                      {Paper::specattn, specattn_method_items},
                                                      {Paper::specattn, specattn_quality_items},
                                                      {Paper::specattn, specattn_speed_items},
                                                      {Paper::quoka, quoka_errors},
                                                      {Paper::quest, quest_errors},
                                                      {Paper::specattn, specattn_errors}};
    std::vector<Item> list;
    for (const auto& [paper, make] : kLists) {
      for (Item& item : make()) {
        item.paper = paper;
        list.push_back(with_readings(std::move(item)));
      }
    }
    return list;
  }();
  return all;
}

}  // namespace kvscope::papers
