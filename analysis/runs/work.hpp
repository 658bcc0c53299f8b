// What a command has to do, cut into items, and the loop that does what a store does not know yet.
//
// An item is the smallest piece that is kept: a method in a layer, a prompt under a method, a job
// of a study. Everything that computes for long is a list of them, whoever runs it: this process,
// or workers that an engine started, all of which go through the same loop (run_items).
#pragma once

#include <cstddef>
#include <functional>
#include <initializer_list>
#include <nlohmann/json.hpp>
#include <optional>
#include <span>
#include <stop_token>
#include <string>
#include <vector>

#include "analysis/runs/leases.hpp"
#include "analysis/runs/store.hpp"
#include "core/base/progress.hpp"

namespace kvscope {

enum class ItemState {
  to_do,
  waits,  // for another item
  done,   // or it failed, or cannot be done
};

struct Work {
  std::string command;            // "sweep", "simulate retrieval"
  nlohmann::ordered_json config;  // everything that decides the numbers
  std::vector<std::string> keys;  // of its items
  /// [items] the first of those that are computed together, and taken by one worker as they are
  /// not known; empty: each alone.
  std::vector<std::size_t> groups;
  bool may_lack = false;  // whether a result can be made where items failed

  /// Predicted of a group, on one core, up to a factor: longer ones are begun first. Empty: all
  /// alike.
  std::function<double(std::size_t)> seconds;
  /// Empty: an item is done once the store has its key.
  std::function<ItemState(std::size_t, const Store&)> state;
  /// The lines of the answers of items of one group, each with a key (answer_of). Throws Error if
  /// they cannot be done.
  std::function<std::vector<nlohmann::ordered_json>(std::span<const std::size_t>, const Lease*,
                                                    const ProgressFn&, std::stop_token)>
      run;
  /// Lines that say that it failed; empty: one, of the item's key.
  std::function<std::vector<nlohmann::ordered_json>(std::size_t, const std::string& sentence)> fail;

  /// True of an item that two workers cannot do side by side. Empty: none is such.
  std::function<bool(std::size_t)> is_exclusive;

  /// Steps of an item's progress, and their name.
  std::function<std::int64_t(std::size_t)> steps;
  std::string step_name = "items";

  /// Of the command, its configuration and the code, by contents (without_names).
  std::string hash() const;
  /// The same of a part: the configuration without some fields and with others.
  std::string hash(std::initializer_list<const char*> without,
                   const nlohmann::ordered_json& with) const;
  /// Indices of the items of a group, by its first.
  std::vector<std::size_t> group_of(std::size_t first) const;
};

/// A configuration without names of models, texts and recordings whose hashes it holds: what is
/// called otherwise and holds the same is the same.
nlohmann::ordered_json without_names(nlohmann::ordered_json config);

/// Keys HASH-000000 and on for `n` items, of Work::hash(): items of other inputs are called
/// otherwise.
void name_items(Work& work, std::size_t n);

/// {"key": key, "answer": answer}, the one line of an item.
std::vector<nlohmann::ordered_json> answer_of(const std::string& key,
                                              nlohmann::ordered_json answer);
/// The answer in an item's line. Throws FormatError if the store does not know it.
nlohmann::ordered_json answer_in(const Store& store, const std::string& key);

ItemState state_of(const Work& work, std::size_t item, const Store& store);

/// What an item's error does.
enum class OnFailure {
  keep,  // it is the item's answer, and the others go on
  stop,  // the work ends
};

/// Does every item that the store does not know, longest first, and returns when all are done, here
/// or elsewhere. Throws Interrupted on a stop, IoError if the store cannot be written, and with
/// OnFailure::stop the error of an item; what is finished stays.
void run_items(const Work& work, Store& store, OnFailure on_failure, const ProgressFn& progress,
               const std::stop_token& stop);

struct FailedItem {
  std::size_t item = 0;
  std::string key;
  std::string sentence;
};
std::vector<FailedItem> failed_items(const Work& work, const Store& store);

/// A store in memory in which every item failed: of it, a table has all rows and no numbers.
Store all_failed(const Work& work);

/// "item 3 failed, its rows are empty: ...", for a result's list of what it lacks.
std::vector<std::string> lacking_sentences(const Work& work, const Store& store);

}  // namespace kvscope
