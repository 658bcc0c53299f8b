// A study as a person writes it (analysis/study.md): lists of models, texts, methods, budgets,
// protocols and tasks in a TOML file. Every value knows its line, for messages.
#pragma once

#include <filesystem>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "core/selectors/method_spec.hpp"

namespace kvscope {

/// An option of a command: --name with these values; a flag has none.
struct StudyOption {
  std::string name;  // without dashes
  std::vector<std::string> values;
  int line = 0;
};

struct StudyModel {
  std::string name;                  // in tables
  std::string word;                  // as --model takes it
  std::optional<std::string> draft;  // as --draft takes it
  int line = 0;
};

/// A text, or a recording that is there already.
struct StudySource {
  std::string name;
  std::filesystem::path file;  // empty: the embedded book
  int line = 0;
};

struct StudyMethod {
  MethodSpec spec;
  int line = 0;
};

struct StudyTask {
  std::string name;
  std::string command;  // "sweep", "simulate perplexity", "analyze geometry"
  std::vector<StudyOption> options;
  std::vector<std::string> picks;  // of an analysis: numbers of its JSON, as "totals.rope_share"
  int line = 0;

  /// One question for each recording, whatever the methods and budgets.
  bool is_analysis() const { return command.starts_with("analyze "); }
};

/// What a pick is called in tables: "rope_share" of "totals.rope_share"; of what is no total, as
/// "layers.0.rope_share", all of it.
inline std::string column_of_pick(const std::string& pick) {
  constexpr std::string_view kTotals = "totals.";
  const bool is_total = pick.starts_with(kTotals) && pick.find('.', kTotals.size()) == pick.npos;
  return is_total ? pick.substr(kTotals.size()) : pick;
}

struct StudyFile {
  std::filesystem::path file;
  std::string name;             // the file's, without its ending
  std::string question;         // what it is for, in its writer's words; may be empty
  std::filesystem::path store;  // the folder of results, absolute
  std::vector<StudyModel> models;
  std::vector<StudySource> texts;
  std::vector<StudySource> recordings;  // that the study does not make
  std::vector<StudyMethod> methods;
  std::vector<Budget> budgets;
  std::vector<std::string> protocols;  // "chunks", "steps"; empty: each task's own
  std::vector<StudyOption> record;     // of kvscope record
  std::vector<StudyTask> tasks;

  /// "small.toml, line 7".
  std::string at(int line) const;
};

/// The name that stands for the embedded book among texts.
inline constexpr std::string_view kBook = "book";
inline constexpr std::string_view kChunks = "chunks";
inline constexpr std::string_view kSteps = "steps";

/// Throws IoError if it cannot be read, FormatError if it is no TOML, ConfigError for everything
/// that makes no study: an unknown key or method, a value of another type, an empty or missing
/// list, two of one name, a text that is not there. Each names the line.
StudyFile read_study_file(const std::filesystem::path& file);

}  // namespace kvscope
