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
#include <functional>
#include <map>
#include <nlohmann/json_fwd.hpp>
#include <set>
#include <span>
#include <string>

#include "analysis/study/file_lock.hpp"

namespace kvscope {

/// What the store knows of an item, its table aside.
struct StoredItem {
  std::string failure;  // empty: it is known
  std::string kind;     // of its job
  std::string method;
  double seconds = 0.0;  // of processor; its share of its job
  double memory = 0.0;   // bytes that the worker had at most
  double bytes = 0.0;    // of a recording
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
  std::filesystem::path folder_;
  std::map<std::string, StoredItem> items_;
  std::set<std::string, std::less<>> questions_;
  std::uintmax_t n_bytes_ = 0;  // of whole lines
};

/// Calls visit for each line of the store, in order; a later line of one key replaces an earlier
/// one. Returns the bytes that count. Throws as StudyStore does.
std::uintmax_t read_study_store(const std::filesystem::path& file,
                                const std::function<void(const nlohmann::ordered_json&)>& visit);

}  // namespace kvscope
