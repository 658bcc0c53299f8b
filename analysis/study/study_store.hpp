// The results of studies: a folder that any study can use, and that grows.
//
//   results.journal   a checked line for each item that is known or has failed (the last one
//                     counts); the first line says what the file is
//   recordings/       KEY.h5, traces that studies made
//   work/             units that workers finish while a study runs (analysis/units)
//   scratch/          what a job was at when its worker ended, from where it goes on
//   lock              held by who writes results.journal
#pragma once

#include <cstddef>
#include <filesystem>
#include <map>
#include <nlohmann/json_fwd.hpp>
#include <optional>
#include <set>
#include <span>
#include <string>

#include "analysis/base/checked_lines.hpp"
#include "analysis/study/file_lock.hpp"

namespace kvscope {

/// What the store knows of an item, its table aside.
struct StoredItem {
  std::string failure;  // empty: it is known
  std::string kind;     // of its job
  std::string method;
  double seconds = 0.0;      // of processor; its share of its job
  double memory = 0.0;       // bytes that the worker had at most
  double bytes = 0.0;        // of a recording
  std::uintmax_t begin = 0;  // of its line in results.journal, as CheckedText has it
  std::size_t n_bytes = 0;   // 0: it is in memory alone, as:
  std::string text;          // its data
};

class StudyStore {
 public:
  /// Reads what is there, if anything is. Throws IoError, FormatError, or ConfigError for a store
  /// of a newer version.
  explicit StudyStore(std::filesystem::path folder);

  const std::filesystem::path& folder() const { return folder_; }
  /// Null if the item is neither known nor failed.
  const StoredItem* find(const std::string& key) const;
  bool knows(const std::string& key) const;
  std::size_t n_known() const;
  /// True if only other code has answered the question behind the key.
  bool knew(const std::string& key) const;
  const std::map<std::string, StoredItem>& items() const { return items_; }

  /// Appends lines (each with "key"), and returns when they are on the device. Only under lock().
  void add(std::span<const nlohmann::ordered_json> lines);

  /// As add(), but in memory alone: what workers have finished, for who only looks.
  void note(const nlohmann::ordered_json& line);

  /// Makes the folder. Throws IoError that names who writes there now.
  FileLock lock() const;
  /// Who writes there now; empty: nobody.
  std::string writer() const;

  std::filesystem::path file() const { return folder_ / "results.journal"; }
  std::filesystem::path work() const { return folder_ / "work"; }
  std::filesystem::path scratch() const { return folder_ / "scratch"; }

 private:
  /// What the data of an item's line says; the line stands at `line`'s place.
  StoredItem& keep(const CheckedText& line);

  std::filesystem::path folder_;
  std::map<std::string, StoredItem> items_;
  std::set<std::string, std::less<>> questions_;
  std::uintmax_t n_bytes_ = 0;  // of whole lines
};

/// The whole lines of known items, read when they are asked for.
class StudyLines {
 public:
  /// `store` must outlive it.
  explicit StudyLines(const StudyStore& store) : store_(store) {}
  /// The item's newest line as JSON's text; empty if there is none. Throws IoError or FormatError.
  std::string data(const std::string& key) const;

 private:
  const StudyStore& store_;
  mutable std::optional<CheckedLinesAt> file_;
};

}  // namespace kvscope
