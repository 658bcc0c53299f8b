// Compiled alone: the parser of TOML is one large header.
#include "analysis/study/study_file.hpp"

#include <fmt/format.h>

#include <toml++/toml.h>
#include <algorithm>
#include <initializer_list>
#include <utility>

#include "core/base/error.hpp"
#include "core/base/json_reader.hpp"
#include "core/base/number_text.hpp"
#include "core/base/suggest.hpp"
#include "core/base/whole_file.hpp"

namespace kvscope {

namespace {

namespace fs = std::filesystem;

constexpr std::size_t kMostBytes = 1 << 20;

int line_of(const toml::source_region& source) {
  return static_cast<int>(source.begin.line);
}

std::string describe(const toml::node& node) {
  if (const auto* text = node.as_string()) return quote(text->get());
  if (node.is_array()) return "a list";
  if (node.is_table()) return "a table";
  if (node.is_boolean()) return "true or false";
  return node.is_number() ? "a number" : "a date";
}

/// One table of the file: hands out its keys, and refuses those that nobody asked for.
class Keys {
 public:
  Keys(const toml::table& table, const StudyFile& study, std::string path)
      : table_(table), study_(study), path_(std::move(path)) {}

  void allow(std::initializer_list<std::string_view> known) const {
    const std::vector<std::string> names(known.begin(), known.end());
    for (const auto& [key, value] : table_) {
      const std::string name(key.str());
      if (std::ranges::find(names, name) == names.end())
        fail(key.source(), fmt::format("unknown key {}, expected {}{}", quote(path_ + name),
                                       fmt::join(names, ", "), did_you_mean(name, names)));
    }
  }
  const toml::node* find(std::string_view key) const { return table_.get(key); }

  [[noreturn]] void fail(const toml::source_region& source, const std::string& what) const {
    throw ConfigError(fmt::format("{}: {}", study_.at(line_of(source)), what));
  }
  /// A text or a number, as it would stand on a command line.
  std::string word(const toml::node& node, std::string_view key) const {
    if (const auto* text = node.as_string()) {
      if (!text->get().empty()) return text->get();
    } else if (const auto* whole = node.as_integer()) {
      return fmt::format("{}", whole->get());
    } else if (const auto* number = node.as_floating_point()) {
      return fmt::format("{}", number->get());
    }
    fail(node.source(),
         fmt::format("{}{}: expected a text or a number, found {}", path_, key, describe(node)));
  }
  std::string text(const toml::node& node, std::string_view key) const {
    if (!node.is_string())
      fail(node.source(),
           fmt::format("{}{}: expected a text in quotes, found {}", path_, key, describe(node)));
    return word(node, key);
  }
  const toml::table& table(const toml::node& node, std::string_view key) const {
    if (const auto* table = node.as_table()) return *table;
    fail(node.source(),
         fmt::format("{}{}: expected a table, found {}", path_, key, describe(node)));
  }
  /// The words of a list (or of a single one) with their lines; empty if the key is not there.
  std::vector<std::pair<std::string, toml::source_region>> list(std::string_view key) const {
    std::vector<std::pair<std::string, toml::source_region>> words;
    const toml::node* const node = find(key);
    if (node == nullptr) return words;
    const auto* array = node->as_array();
    if (array == nullptr) return {{word(*node, key), node->source()}};
    if (array->empty())
      fail(node->source(),
           fmt::format("{}{}: expected at least one, found an empty list", path_, key));
    for (const toml::node& one : *array) words.emplace_back(word(one, key), one.source());
    return words;
  }
  /// Keys of a table in the order of the file.
  static std::vector<std::pair<const toml::key*, const toml::node*>> in_order(
      const toml::table& table) {
    std::vector<std::pair<const toml::key*, const toml::node*>> keys;
    for (const auto& [key, node] : table) keys.emplace_back(&key, &node);
    std::ranges::sort(keys, {}, [](const auto& one) {
      const toml::source_position& at = one.first->source().begin;
      return std::pair(at.line, at.column);
    });
    return keys;
  }

 private:
  const toml::table& table_;
  const StudyFile& study_;
  std::string path_;
};

template <class Named>
void require_new(const Keys& keys, const std::vector<Named>& known, const std::string& name,
                 std::string_view list, const toml::source_region& source) {
  for (const Named& one : known) {
    if (one.name == name)
      keys.fail(source, fmt::format("{}: {} is defined twice, first in line {}", list, quote(name),
                                    one.line));
  }
}

/// Files are named from the study's folder; what is not there may be a name that a command knows.
fs::path beside(const StudyFile& study, const std::string& word) {
  return fs::absolute(study.file).parent_path() / word;
}

std::string model_word(const StudyFile& study, const std::string& word) {
  std::error_code error;
  const bool is_embedded = word == "verifier" || word == "draft";
  return !is_embedded && fs::exists(beside(study, word), error) ? beside(study, word).string()
                                                                : word;
}

void read_models(StudyFile& study, const Keys& top) {
  const auto add = [&](StudyModel model, const toml::source_region& source) {
    require_new(top, study.models, model.name, "models", source);
    model.line = line_of(source);
    study.models.push_back(std::move(model));
  };
  const toml::node* const node = top.find("models");
  if (node == nullptr || !node->is_table()) {
    for (const auto& [word, source] : top.list("models"))
      add({word, model_word(study, word), std::nullopt, 0}, source);
    return;
  }
  for (const auto& [key, value] : Keys::in_order(*node->as_table())) {
    StudyModel model;
    model.name = key->str();
    if (const auto* table = value->as_table()) {
      const Keys keys(*table, study, fmt::format("models.{}.", model.name));
      keys.allow({"model", "draft"});
      const toml::node* const word = keys.find("model");
      if (word == nullptr)
        keys.fail(key->source(),
                  fmt::format("models.{}: expected a model, found none", model.name));
      model.word = model_word(study, keys.text(*word, "model"));
      if (const auto* draft = keys.find("draft"))
        model.draft = model_word(study, keys.text(*draft, "draft"));
    } else {
      model.word = model_word(study, top.text(*value, "models." + model.name));
    }
    add(std::move(model), key->source());
  }
}

void read_sources(StudyFile& study, const Keys& top, std::string_view list,
                  std::vector<StudySource>& sources) {
  const auto add = [&](const std::string& name, const std::string& word,
                       const toml::source_region& source) {
    require_new(top, sources, name, list, source);
    StudySource one{name, {}, line_of(source)};
    if (&sources != &study.texts || word != kBook) {
      one.file = beside(study, word);
      std::error_code error;
      if (!fs::is_regular_file(one.file, error))
        top.fail(source, fmt::format("{}: there is no file {}", list, one.file.string()));
    }
    sources.push_back(std::move(one));
  };
  const toml::node* const node = top.find(list);
  if (node == nullptr || !node->is_table()) {
    for (const auto& [word, source] : top.list(list)) add(word, word, source);
    return;
  }
  for (const auto& [key, value] : Keys::in_order(*node->as_table()))
    add(std::string(key->str()), top.text(*value, list), key->source());
}

/// What a list says once each, as `parse` reads it.
template <class Parse>
void read_list(const Keys& top, std::string_view list, Parse&& parse) {
  std::vector<std::pair<std::string, int>> seen;
  for (const auto& [word, source] : top.list(list)) {
    std::string text;
    try {
      text = parse(word, line_of(source));
    } catch (const ConfigError& error) {
      top.fail(source, fmt::format("{}: {}", list, error.what()));
    }
    for (const auto& [other, line] : seen) {
      if (other == text)
        top.fail(source,
                 fmt::format("{}: {} is listed twice, first in line {}", list, quote(text), line));
    }
    seen.emplace_back(std::move(text), line_of(source));
  }
}

std::vector<StudyOption> read_options(const Keys& keys, const toml::table& table,
                                      std::string_view but) {
  std::vector<StudyOption> options;
  for (const auto& [key, value] : table) {
    if (key.str() == but) continue;
    StudyOption option;
    for (const char c : key.str()) option.name += c == '_' ? '-' : c;
    option.line = line_of(key.source());
    if (const auto* flag = value.as_boolean()) {
      if (!flag->get()) continue;
    } else {
      for (auto& [word, source] : keys.list(key.str())) option.values.push_back(word);
    }
    options.push_back(std::move(option));
  }
  return options;
}

void read_tasks(StudyFile& study, const Keys& top, const toml::node& node) {
  for (const auto& [key, value] : Keys::in_order(top.table(node, "tasks"))) {
    StudyTask task;
    task.name = key->str();
    task.line = line_of(key->source());
    const toml::table& table = top.table(*value, "tasks." + task.name);
    const Keys keys(table, study, fmt::format("tasks.{}.", task.name));
    const toml::node* const command = keys.find("command");
    task.command = command == nullptr ? task.name : keys.text(*command, "command");
    if (task.command != "sweep" && !task.command.starts_with("simulate "))
      task.command = "simulate " + task.command;
    task.options = read_options(keys, table, "command");
    study.tasks.push_back(std::move(task));
  }
}

void require_lists(const StudyFile& study) {
  const auto require = [&](bool is_there, std::string_view what) {
    if (!is_there) throw ConfigError(fmt::format("{}: expected {}", study.file.string(), what));
  };
  require(!study.methods.empty(), "a list of methods, as methods = [\"quest\", \"h2o\"]");
  require(!study.tasks.empty(), "at least one task, as a line [tasks.sweep]");
  const bool has_pairs = !study.models.empty() && !study.texts.empty();
  require(has_pairs || !study.recordings.empty(),
          "lists of models and of texts, as models = [\"verifier\"] and texts = [\"book\"], or "
          "one of recordings");
  require(study.models.empty() == study.texts.empty(),
          "models and texts together: each model reads each text");
  for (const StudyTask& task : study.tasks) {
    if (task.command != "sweep" && !has_pairs)
      throw ConfigError(fmt::format("{}: the task {} runs a model: expected models and texts",
                                    study.at(task.line), task.name));
  }
}

}  // namespace

std::string StudyFile::at(int line) const {
  return fmt::format("{}, line {}", file.string(), line);
}

StudyFile read_study_file(const fs::path& file) {
  StudyFile study;
  study.file = file;
  study.name = file.stem().string();
  toml::table table;
  try {
    table = toml::parse(read_whole_file(file, kMostBytes), file.string());
  } catch (const toml::parse_error& error) {
    const int line = line_of(error.source());
    throw FormatError(fmt::format("{}: {}", study.at(line), error.description()));
  }
  const Keys top(table, study, "");
  top.allow({"models", "texts", "recordings", "methods", "budgets", "protocols", "record", "tasks",
             "store"});
  const toml::node* const store = top.find("store");
  study.store = beside(study, store == nullptr ? "study-store" : top.text(*store, "store"));
  study.store = study.store.lexically_normal();
  read_models(study, top);
  read_sources(study, top, "texts", study.texts);
  read_sources(study, top, "recordings", study.recordings);
  read_list(top, "methods", [&](const std::string& word, int line) {
    study.methods.push_back({MethodSpec(word), line});
    return study.methods.back().spec.text();
  });
  read_list(top, "budgets", [&](const std::string& word, int) {
    const bool is_bare = number_from<double>(word).has_value();
    if (is_bare && !number_from<Index>(word))
      throw ConfigError(fmt::format("expected a kind, as ratio={}, found {}", word, word));
    study.budgets.push_back(Budget::parse(is_bare ? "tokens=" + word : word));
    return study.budgets.back().to_string();
  });
  read_list(top, "protocols", [&](const std::string& word, int) {
    if (word != kChunks && word != kSteps)
      throw ConfigError(fmt::format("expected {} or {}, found {}", kChunks, kSteps, quote(word)));
    study.protocols.push_back(word);
    return word;
  });
  if (const auto* node = top.find("record")) {
    const toml::table& record = top.table(*node, "record");
    study.record = read_options(Keys(record, study, "record."), record, "");
  }
  if (const auto* node = top.find("tasks")) read_tasks(study, top, *node);
  require_lists(study);
  return study;
}

}  // namespace kvscope
