// Reads items.toml, which is part of the program.
#include <toml++/toml.h>

#include <algorithm>

#include "analysis/papers/item.hpp"
#include "core/base/embedded_file.hpp"
#include "core/base/enum_names.hpp"
#include "core/base/error.hpp"

namespace kvscope {
std::span<const EmbeddedFile> papers_data();  // items.toml alone (analysis/CMakeLists.txt)
}

namespace kvscope::papers {

namespace {

std::string text_in(const toml::table& table, std::string_view name) {
  return table[name].value_or(std::string());
}

/// The value of that name; `otherwise` where the table has none.
template <class Enum>
Enum word_in(const toml::table& table, std::string_view name, Enum otherwise = Enum{}) {
  const std::string word = text_in(table, name);
  if (word.empty()) return otherwise;
  if (const auto value = enum_from_name<Enum>(word)) return *value;
  throw FormatError("items.toml: {} cannot be {}", name, word);
}

/// Calls each(table) for the tables of a list.
template <class Each>
void for_each_table(const toml::table& table, std::string_view list, Each&& each) {
  if (const toml::array* const all = table[list].as_array()) {
    for (const toml::node& one : *all) each(*one.as_table());
  }
}

Value value_from(const toml::table& table) {
  return {.key = text_in(table, "key"),
          .label = text_in(table, "label"),
          .run = text_in(table, "run"),
          .column = text_in(table, "column"),
          .where = text_in(table, "where"),
          .unit = word_in<Unit>(table, "unit"),
          .spread = word_in<Spread>(table, "spread"),
          .derive = word_in<Derive>(table, "derive"),
          .than = text_in(table, "than"),
          .reduce = word_in<Reduce>(table, "reduce"),
          .factor = table["factor"].value_or(1.0)};
}

Check check_from(const toml::table& table) {
  return {.role = word_in(table, "role", Role::form),
          .left = text_in(table, "left"),
          .op = word_in<Op>(table, "op"),
          .right = text_in(table, "right"),
          .slack = table["slack"].value_or(0.0),
          .says = text_in(table, "says"),
          .counts = table["counts"].value_or(0.0),
          .in_every_layer = table["in_every_layer"].value_or(false),
          .reading = text_in(table, "reading")};
}

Item item_from(const toml::table& table) {
  Item item{.id = text_in(table, "id"),
            .paper = word_in<Paper>(table, "paper"),
            .place = text_in(table, "place"),
            .title = text_in(table, "title"),
            .claim = text_in(table, "claim"),
            .words = text_in(table, "words"),
            .published = text_in(table, "published"),
            .control = text_in(table, "control"),
            .control_label = text_in(table, "control_label"),
            .note = text_in(table, "note"),
            .never = text_in(table, "never"),
            .kind = word_in<Kind>(table, "kind"),
            .only_form = text_in(table, "only_form")};
  for_each_table(table, "values",
                 [&](const toml::table& one) { item.values.push_back(value_from(one)); });
  for_each_table(table, "checks",
                 [&](const toml::table& one) { item.checks.push_back(check_from(one)); });
  for_each_table(table, "readings", [&](const toml::table& one) {
    item.readings.push_back({text_in(one, "label"), text_in(one, "method"), text_in(one, "at")});
  });
  if (const toml::array* const pictures = table["pictures"].as_array()) {
    for (const toml::node& one : *pictures) item.pictures.push_back(one.value_or(std::string()));
  }
  return item;
}

/// With {list:NAME} put in.
std::string command_in(const toml::table& table, std::string_view name, const toml::table& lists) {
  std::string command = text_in(table, name);
  for (const auto& [list, text] : lists) {
    const std::string word = "{list:" + std::string(list.str()) + "}";
    for (std::size_t at = command.find(word); at != command.npos; at = command.find(word))
      command.replace(at, word.size(), text.value_or(std::string()));
  }
  return command;
}

struct Data {
  std::vector<Run> runs;
  std::vector<Item> items;
};

const Data& data() {
  static const Data all = [] {
    Data read;
    const toml::table top = toml::parse(papers_data().front().text);
    const toml::table& lists = *top["lists"].as_table();
    for_each_table(top, "runs", [&](const toml::table& run) {
      read.runs.push_back({text_in(run, "name"), text_in(run, "ending"),
                           command_in(run, "command", lists), command_in(run, "quick", lists),
                           run["constructed"].value_or(false)});
    });
    for_each_table(top, "items", [&](const toml::table& item) {
      read.items.push_back(with_readings(item_from(item)));
    });
    return read;
  }();
  return all;
}

}  // namespace

std::span<const Run> runs() {
  return data().runs;
}

std::span<const Item> items() {
  return data().items;
}

const Run* run_named(std::string_view name) {
  const auto at = std::ranges::find(runs(), name, &Run::name);
  return at == runs().end() ? nullptr : &*at;
}

}  // namespace kvscope::papers
