// Answered items: a folder that many processes write to at once, and that grows.
//
//   answers/WORKER.journal  checked lines, by the one process that made the file; the first says
//                           what the file is
//   leases/                 items at which somebody is (leases.hpp)
//   recordings/, scratch/   of studies: traces that they made, and what a job is at
//
// A line has the key of an item and its answer, or why there is none ("failure"); {"key","forget"}
// says that an answer counts no more. Keys say what decides the numbers, by contents; so an item
// that anybody asked before is known, and nothing is ever written over.
#pragma once

#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <map>
#include <memory>
#include <nlohmann/json.hpp>
#include <optional>
#include <set>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "analysis/base/checked_lines.hpp"
#include "core/base/stopwatch.hpp"

namespace kvscope {

/// 8 hexadecimal digits over the sources that decide numbers, as they were when this was built
/// (analysis/CMakeLists.txt lists them). Pages, windows, figures and other commands may change
/// without it.
std::string_view code_version();

/// "QUESTION-CODE": the question's checksum, which is the same whatever code answers it, and the
/// code's version.
std::string item_key(const nlohmann::ordered_json& question);
/// The part of a key before the code's version.
std::string_view question_of(std::string_view key);

/// What a store knows of an item, the answer itself aside.
struct StoredAnswer {
  std::string failure;       // empty: it is known
  std::string kind;          // of studies: items that take about as long differ in method alone
  std::string method;        // of studies
  double seconds = 0.0;      // of processor
  double memory = 0.0;       // bytes that the worker had at most
  double bytes = 0.0;        // of a recording
  double at = 0.0;           // when it was written, in seconds since 1970; for rates alone
  std::size_t n_forgot = 0;  // how often the item was forgotten before
  std::size_t segment = 0;   // whose line it is, and where:
  std::uintmax_t begin = 0;
  std::size_t n_bytes = 0;  // 0: the line is in memory alone, as:
  std::string text;
};

/// A command's work.
struct StoredPlan {
  std::string hash;
  std::string command;
  std::size_t n_items = 0;
  std::vector<std::string> questions;  // what keys of its items begin with (question_of), sorted
};

class Store {
 public:
  /// In memory alone.
  Store();
  /// Reads what is there, if anything is. Throws IoError; FormatError for damage, which names file
  /// and line; ConfigError for another folder's files and a store of a newer version.
  explicit Store(std::filesystem::path folder);
  Store(Store&&) noexcept;
  Store& operator=(Store&&) = delete;
  ~Store();

  /// Empty: it is in memory alone.
  const std::filesystem::path& folder() const { return folder_; }
  /// The name of this process among those that write.
  const std::string& worker() const { return worker_; }

  /// Takes in what others wrote since.
  void refresh();

  /// Null if the item is neither known nor failed.
  const StoredAnswer* find(const std::string& key) const;
  bool knows(const std::string& key) const;
  std::size_t n_known() const;
  /// True if only other code has answered the question behind the key.
  bool knew(const std::string& key) const;
  const std::map<std::string, StoredAnswer>& answers() const { return answers_; }
  const std::map<std::string, StoredPlan>& plans() const { return plans_; }
  /// True if all that is in it are items of one command's work.
  bool is_of_one_work() const;
  /// The item's line as JSON's text; empty if there is none. Throws IoError or FormatError.
  std::string line(const std::string& key) const;
  /// Answers in an hour, by the last hundred; 0 if there are too few, or none for ten times as long
  /// as one took.
  double answers_per_hour() const;

  /// Appends lines (each with "key"). They are with the system when this returns, and on the device
  /// within a second, or after sync(). Throws IoError; then the file ends with the line before.
  void add(std::span<const nlohmann::ordered_json> lines);
  void add_plan(const StoredPlan& plan);
  /// Makes the folder, if it is not there. Throws IoError.
  void begin() const;
  /// From now on the item is neither known nor failed.
  void forget(const std::string& key);
  void sync();

  std::filesystem::path leases() const { return folder_ / "leases"; }
  std::filesystem::path scratch() const { return folder_ / "scratch"; }
  std::filesystem::path recordings() const { return folder_ / "recordings"; }

 private:
  struct Segment {
    std::filesystem::path file;
    CheckedEnd end;
    std::unique_ptr<CheckedLinesAt> lines;  // once one is asked for
  };
  void read(std::size_t segment);
  void keep(std::string_view data, std::size_t segment, std::uintmax_t begin, std::size_t n_bytes);
  void write(const nlohmann::ordered_json& line);

  std::filesystem::path folder_;
  std::string worker_;
  mutable std::vector<Segment> segments_;
  std::map<std::string, std::size_t> places_;  // of segments, by their files' names
  std::map<std::string, StoredAnswer> answers_;
  std::map<std::string, std::size_t> forgot_;  // how often
  std::map<std::string, StoredPlan> plans_;
  std::set<std::string, std::less<>> questions_;
  std::optional<CheckedLineWriter> own_;
  std::size_t own_place_ = 0;
  std::optional<Stopwatch> unsynced_;
};

/// True for a folder that holds answers/, and in it a journal or nothing yet.
bool is_store(const std::filesystem::path& folder);

/// Removes a command's store: answers and leases, and the folder if nothing else is in it. Leaves a
/// folder that is none.
void remove_store(const std::filesystem::path& folder);

}  // namespace kvscope
