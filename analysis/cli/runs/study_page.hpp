// A study as one page: question, setup with hashes, tables and figures by task, failures, and the
// commands that computed it; as HTML that needs no other file, and as LaTeX beside the pictures.
#pragma once

#include <string>
#include <utility>
#include <vector>

#include "analysis/papers/page.hpp"
#include "analysis/study/study_items.hpp"
#include "analysis/study/study_state.hpp"

namespace kvscope::cli {

/// What a task asked and found.
struct StudySection {
  std::string task;
  std::string command;  // "kvscope sweep --chunk=32": with the options of the file
  std::vector<papers::DrawnPicture> pictures;
};

struct StudyReport {
  std::string title;
  std::string question;  // in words
  std::string writer;    // program, version, commit
  std::string command_line;
  std::vector<std::pair<std::string, std::string>> setup;  // "Models", "verifier (2f...)"
  std::vector<StudyCounts> counts;                         // by task, then all
  double seconds = 0.0;                                    // of processor, of all that is known
  std::vector<StudySection> tasks;
  std::vector<std::string> failures;
  std::vector<std::string> left_out;
  std::vector<std::string> commands;  // that compute and draw it again
  std::string source;                 // the study file
};

/// The question as its lists say it, where its writer gave none.
std::string question_of_study(const StudyFile& study);
/// Names with the hashes that decide numbers: models, drafts, texts, recordings, methods, budgets,
/// protocols, the options of recordings, the code.
std::vector<std::pair<std::string, std::string>> setup_of_study(const StudyFile& study,
                                                                const StudyInputs& inputs);

std::string study_html(const StudyReport& report);
std::string study_tex(const StudyReport& report);

}  // namespace kvscope::cli
