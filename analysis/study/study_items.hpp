// What a study consists of: items (one number that is asked for: a task of one model on one text
// under one method, budget and protocol, or a recording), and jobs (the command lines that answer
// them).
//
// An item's key says what decides its numbers, by contents: hashes of model and text, the method's
// and budget's text, options of the command, and the code. No name and no path is part of it, so
// that any later study that asks the same finds the answer.
#pragma once

#include <filesystem>
#include <map>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "analysis/runs/store.hpp"
#include "analysis/study/study_file.hpp"

namespace kvscope {

/// What the lists of a study are besides their words.
struct StudyInputs {
  std::vector<std::string> models;      // hashes, in the order of the list
  std::vector<std::string> drafts;      // of each model's; empty where there is none
  std::vector<std::string> texts;       // hashes
  std::vector<std::string> recordings;  // hashes
  /// Of each task: its command's option for the protocol, "phase" or "mode"; empty: it has one
  /// protocol of its own.
  std::vector<std::string> protocols;
  std::map<std::string, std::string> files;  // hashes of files that values of options name
};

struct StudyItem {
  std::string key;                                          // QUESTION-CODE
  std::string what;                                         // the question as one line of JSON
  std::size_t job = 0;                                      // that answers it
  std::string task, model, text, protocol, method, budget;  // as people call them
};

struct StudyJob {
  std::string key;                 // of its first item, by which workers take it
  std::string kind;                // jobs of one kind differ in method, budgets and text alone
  std::string task;                // "record", or as the file calls it
  std::string method;              // with its command, "sweep quest"; empty of a recording
  std::string label;               // for people: "sweep: quest on verifier, book"
  std::vector<std::string> words;  // of the command line, without budgets and output
  std::vector<std::size_t> needs;  // jobs whose recordings it reads
  std::vector<std::size_t> items;  // what it answers: one method, every budget
  std::vector<std::string> picks;  // of an analysis: StudyTask::picks
  bool is_recording = false;
};

struct StudyPlan {
  std::vector<StudyItem> items;
  std::vector<StudyJob> jobs;         // recordings before what reads them
  std::vector<std::string> left_out;  // sentences: what makes no sense, and why
};

/// The name of an item's recording in the store.
std::filesystem::path study_recording(const std::filesystem::path& store, const std::string& key);

/// Throws ConfigError: a method that needs a draft where the model has none; nothing that makes
/// sense.
StudyPlan plan_study(const StudyFile& study, const StudyInputs& inputs);

/// The jobs for these [items], each with those alone; an item that is asked twice is in the first.
std::vector<StudyJob> jobs_for(const StudyPlan& plan, const std::vector<bool>& wanted);

/// Words of a command line for these options.
std::vector<std::string> option_words(std::span<const StudyOption> options);

}  // namespace kvscope
