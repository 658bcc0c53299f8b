// Compiled alone: the parser of TOML is one large header.
#include "analysis/study/study_file.hpp"

#include <fmt/format.h>

#include <toml++/toml.h>
#include <algorithm>
#include <cstdlib>
#include <initializer_list>
#include <utility>

#include "core/base/error.hpp"
#include "core/base/file_kind.hpp"
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

/// A member of a list: a word, which is its own name, or a name with a word or a table.
struct Entry {
  std::string name;
  std::string word;
  const toml::table* table = nullptr;
  int line = 0;
  int column = 0;
};

class Reader {
 public:
  explicit Reader(StudyFile& study) : study_(study) {}

  void read(const toml::table& top) {
    allow(top, "",
          {"question", "models", "texts", "recordings", "methods", "budgets", "protocols", "record",
           "tasks", "store"});
    if (const auto* question = top.get("question")) study_.question = word(*question, "question");
    const toml::node* const store = top.get("store");
    if (store != nullptr && !store->is_string())
      fail(line_of(store->source()), "store: expected a folder's name in quotes");
    study_.store =
        beside(store == nullptr ? "study-store" : word(*store, "store")).lexically_normal();
    for (const Entry& entry : entries(top, "models")) read_model(entry);
    for (const Entry& entry : entries(top, "texts"))
      study_.texts.push_back(source(entry, /*is_book=*/entry.word == kBook));
    for (const Entry& entry : entries(top, "recordings"))
      study_.recordings.push_back(source(entry, /*is_book=*/false));
    read_each(top, "methods", [&](const Entry& entry) {
      study_.methods.push_back({MethodSpec(entry.word), entry.line});
      return study_.methods.back().spec.text();
    });
    read_each(top, "budgets", [&](const Entry& entry) {
      const bool is_bare = number_from<double>(entry.word).has_value();
      if (is_bare && !number_from<Index>(entry.word))
        throw ConfigError("expected a kind, as ratio={0}, found {0}", entry.word);
      study_.budgets.push_back(Budget::parse((is_bare ? "tokens=" : "") + entry.word));
      return study_.budgets.back().to_string();
    });
    read_each(top, "protocols", [&](const Entry& entry) {
      if (entry.word != kChunks && entry.word != kSteps)
        throw ConfigError("expected {} or {}, found {}", kChunks, kSteps, quote(entry.word));
      study_.protocols.push_back(entry.word);
      return entry.word;
    });
    if (const auto* record = top.get("record"))
      study_.record = options(table(*record, "record"), "record");
    for (const Entry& entry : entries(top, "tasks")) read_task(entry);
    require_lists();
  }

 private:
  [[noreturn]] void fail(int line, const std::string& what) const {
    throw ConfigError("{}: {}", study_.at(line), what);
  }

  void allow(const toml::table& table, const std::string& path,
             std::initializer_list<std::string_view> known) const {
    const std::vector<std::string> names(known.begin(), known.end());
    for (const auto& [key, value] : table) {
      const std::string name(key.str());
      if (std::ranges::find(names, name) == names.end())
        fail(line_of(key.source()), fmt::format("unknown key {}, expected {}{}", quote(path + name),
                                                fmt::join(names, ", "), did_you_mean(name, names)));
    }
  }

  /// A text or a number, as it would stand on a command line.
  std::string word(const toml::node& node, std::string_view where) const {
    if (const auto* text = node.as_string(); text != nullptr && !text->get().empty())
      return text->get();
    if (const auto* whole = node.as_integer()) return fmt::format("{}", whole->get());
    if (const auto* number = node.as_floating_point()) return fmt::format("{}", number->get());
    fail(line_of(node.source()), fmt::format("{}: expected a text or a number, found {}", where,
                                             node.is_array()     ? "a list"
                                             : node.is_table()   ? "a table"
                                             : node.is_boolean() ? "true or false"
                                             : node.is_string()  ? "an empty text"
                                                                 : "a date"));
  }

  const toml::table& table(const toml::node& node, std::string_view where) const {
    if (const auto* table = node.as_table()) return *table;
    fail(line_of(node.source()), fmt::format("{}: expected a table of options", where));
  }

  /// In the order of the file. A name that is there twice is refused.
  std::vector<Entry> entries(const toml::table& top, std::string_view list) const {
    std::vector<Entry> entries;
    const toml::node* const node = top.get(list);
    if (node == nullptr) return entries;
    if (const auto* table = node->as_table()) {
      for (const auto& [key, value] : *table) {
        Entry entry{std::string(key.str()), "", value.as_table(), line_of(key.source()),
                    static_cast<int>(key.source().begin.column)};
        if (entry.table == nullptr) entry.word = word(value, list);
        entries.push_back(std::move(entry));
      }
      std::ranges::sort(entries, {},
                        [](const Entry& one) { return std::pair(one.line, one.column); });
    } else if (const auto* array = node->as_array()) {
      for (const toml::node& one : *array)
        entries.push_back({word(one, list), word(one, list), nullptr, line_of(one.source()), 0});
    } else {
      entries.push_back(
          {word(*node, list), word(*node, list), nullptr, line_of(node->source()), 0});
    }
    if (entries.empty())
      fail(line_of(node->source()), fmt::format("{}: expected at least one, found none", list));
    require_different(entries, list);
    return entries;
  }

  void require_different(const std::vector<Entry>& entries, std::string_view list) const {
    for (auto one = entries.begin(); one != entries.end(); ++one) {
      const auto first = std::ranges::find(entries.begin(), one, one->name, &Entry::name);
      if (first != one)
        fail(one->line, fmt::format("{}: {} is listed twice, first in line {}", list,
                                    quote(one->name), first->line));
    }
  }

  /// `parse` gives back how an entry is spelled, whatever its words were.
  template <class Parse>
  void read_each(const toml::table& top, std::string_view list, Parse&& parse) const {
    std::vector<Entry> list_entries = entries(top, list);
    for (Entry& entry : list_entries) {
      try {
        entry.name = parse(entry);
      } catch (const ConfigError& error) {
        fail(entry.line, fmt::format("{}: {}", list, error.what()));
      }
    }
    require_different(list_entries, list);
  }

  /// Files are named from the study's folder, or from the user's ("~/").
  fs::path beside(const std::string& name) const {
    const char* const home = std::getenv("HOME");
    if (home != nullptr && name.starts_with("~/")) return fs::path(home) / name.substr(2);
    return fs::absolute(study_.file).parent_path() / name;
  }
  std::string model_word(const std::string& name) const {
    std::error_code error;
    const bool is_embedded = name == "verifier" || name == "draft";
    return !is_embedded && fs::exists(beside(name), error) ? beside(name).string() : name;
  }

  void read_model(const Entry& entry) {
    StudyModel model{entry.name, model_word(entry.word), std::nullopt, entry.line};
    if (entry.table != nullptr) {
      const std::string path = "models." + entry.name;
      allow(*entry.table, path + ".", {"model", "draft"});
      const toml::node* const own = entry.table->get("model");
      if (own == nullptr) fail(entry.line, path + ": expected model = ..., found none");
      model.word = model_word(word(*own, path));
      if (const auto* draft = entry.table->get("draft"))
        model.draft = model_word(word(*draft, path));
    }
    if (!model.draft && model.word == "verifier")
      model.draft = "draft";  // as kvscope simulate does
    study_.models.push_back(std::move(model));
  }

  StudySource source(const Entry& entry, bool is_book) const {
    if (is_book) return {entry.name, {}, entry.line};
    std::error_code error;
    if (entry.word.empty() || !fs::is_regular_file(beside(entry.word), error))
      fail(entry.line, fmt::format("there is no {}file {}",
                                   fs::exists(beside(entry.word), error) ? "regular " : "",
                                   beside(entry.word).string()));
    return {entry.name, beside(entry.word), entry.line};
  }

  std::vector<StudyOption> options(const toml::table& table, const std::string& path) const {
    std::vector<StudyOption> options;
    for (const auto& [key, value] : table) {
      const bool is_of_task = path != "record" && (key.str() == "command" || key.str() == "pick");
      if (is_of_task) continue;
      StudyOption option;
      for (const char c : key.str()) option.name += c == '_' ? '-' : c;
      option.line = line_of(key.source());
      if (const auto* flag = value.as_boolean()) {
        if (!flag->get())
          fail(option.line, fmt::format("{}.{}: expected no line for a flag that is not set", path,
                                        option.name));
      } else {
        for (const Entry& entry : entries(table, key.str())) {
          if (entry.table != nullptr || value.is_table())
            fail(option.line,
                 fmt::format("{}.{}: expected a value, found a table", path, option.name));
          option.values.push_back(entry.word);
        }
      }
      options.push_back(std::move(option));
    }
    return options;
  }

  void read_task(const Entry& entry) {
    const std::string path = "tasks." + entry.name;
    if (entry.table == nullptr)
      fail(entry.line, fmt::format("tasks: expected a table for each, as [tasks.sweep]"));
    const toml::node* const command = entry.table->get("command");
    StudyTask task{entry.name,
                   command == nullptr ? entry.name : word(*command, path),
                   options(*entry.table, path),
                   {},
                   entry.line};
    if (task.command != "sweep" && !task.command.starts_with("simulate ") && !task.is_analysis())
      task.command = "simulate " + task.command;
    if (const toml::node* const pick = entry.table->get("pick")) {
      if (!task.is_analysis())
        fail(line_of(pick->source()), path + ".pick: expected a task that is an analysis");
      for (const Entry& one : entries(*entry.table, "pick")) {
        if (one.word.find_first_of("/~") != std::string::npos)
          fail(one.line,
               path + ".pick: expected a name as totals.rope_share, found " + quote(one.word));
        if (std::ranges::find(task.picks, column_of_pick(one.word), column_of_pick) !=
            task.picks.end())
          fail(one.line, fmt::format("{}.pick: two are called {}, the name of their column", path,
                                     column_of_pick(one.word)));
        task.picks.push_back(one.word);
      }
    }
    study_.tasks.push_back(std::move(task));
  }

  void require_lists() const {
    const auto require = [&](bool is_there, std::string_view what) {
      if (!is_there) throw ConfigError("{}: expected {}", study_.file.string(), what);
    };
    const bool has_methods = !std::ranges::all_of(study_.tasks, &StudyTask::is_analysis);
    require(!study_.methods.empty() || !has_methods,
            "a list of methods, as methods = [\"quest\", \"h2o\"]");
    require(!study_.tasks.empty(), "at least one task, as a line [tasks.sweep]");
    require(study_.models.empty() == study_.texts.empty(),
            "models and texts together: each model reads each text");
    require(!study_.models.empty() || !study_.recordings.empty(),
            "lists of models and of texts, as models = [\"verifier\"] and texts = [\"book\"], or "
            "one of recordings");
    for (const StudyTask& task : study_.tasks) {
      if (task.command.starts_with("simulate ") && study_.models.empty())
        fail(task.line, fmt::format("tasks.{} runs a model: expected models and texts", task.name));
    }
  }

  StudyFile& study_;
};

}  // namespace

std::string StudyFile::at(int line) const {
  return fmt::format("{}, line {}", file.string(), line);
}

StudyFile read_study_file(const fs::path& file) {
  StudyFile study;
  study.file = file;
  study.name = file.stem().string();
  toml::table table;
  constexpr FileKind kOthers[] = {FileKind::trace, FileKind::result,      FileKind::hdf5,
                                  FileKind::gguf,  FileKind::safetensors, FileKind::session,
                                  FileKind::pdf,   FileKind::manifest,    FileKind::notebook,
                                  FileKind::png,   FileKind::other};
  // A study may look like a table, which has commas in its first line too.
  if (const FileKind kind = kind_of_file(file);
      std::ranges::find(kOthers, kind) != std::end(kOthers) ||
      (kind == FileKind::csv && file.extension() == ".csv"))
    throw FormatError("{}: expected a study file (TOML), found {}", file.string(), words_of(kind));
  try {
    table = toml::parse(read_whole_file(file, kMostBytes), file.string());
  } catch (const toml::parse_error& error) {
    throw FormatError("{}: {}", study.at(line_of(error.source())), error.description());
  }
  Reader(study).read(table);
  return study;
}

}  // namespace kvscope
