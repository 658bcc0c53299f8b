// Commands of kvscope that were started from the window: one after another, each with its progress,
// its end as a sentence, and the file it made.
//
// The window computes nothing of its own here: the program kvscope itself runs, with the words that
// "copy as command" gives, so that a result from the window is one from the command line.
#pragma once

#include <cstdint>
#include <filesystem>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "gui/model/jobs/jobs.hpp"
#include "gui/model/runs/command_form.hpp"

namespace kvscope::gui {

/// One command, waiting, running or over.
struct Run {
  std::uint64_t id = 0;
  std::vector<std::string> words;  // after "kvscope"
  std::filesystem::path out;       // the file it writes; empty: it only prints
  JobStatus status;                // its progress; failed: error holds the sentence
  std::string said;                // its standard output, once it is over
  std::string remark;              // what else it said, or what it left behind
  bool has_made_file = false;      // `out` is its work, as far as it came
  bool opens = true;               // `out` is to be opened once it is whole
  Job job;
  std::shared_ptr<struct RunWords> heard;                 // what its thread hears
  std::optional<std::filesystem::file_time_type> before;  // of `out`, when it was asked for
  std::string title() const;                              // "sweep verifier-sweep.h5"
  std::string command_line() const { return command_line_of(words); }
  /// What a recording grows in until it is whole.
  std::filesystem::path part() const;
  /// Where sweeps and simulations keep what is finished, until all is.
  std::filesystem::path store() const;
};

class RunQueue {
 public:
  /// `program`: kvscope, as run_program finds it.
  RunQueue(JobRunner& jobs, std::string program);
  ~RunQueue();

  /// kvscope, for jobs of their own.
  const std::string& program() const { return program_; }

  /// What becomes of a file once it is made.
  enum class AtEnd { open, leave };
  /// Puts a command at the end of the queue. Returns its id.
  std::uint64_t add(std::vector<std::string> words, std::filesystem::path out = {},
                    AtEnd at_end = AtEnd::open);
  /// Asks a command to stop as Ctrl-C does: a recording keeps what is whole. One that waits never
  /// starts.
  void cancel(std::uint64_t id);
  /// The same command once more: as it was, going on from its store, or in place of what it left.
  enum class Again { same, resume, replace };
  void again(std::uint64_t id, Again how = Again::same);
  /// The flag that makes a command do so ("resume"); empty if it has none, or while the commands
  /// are not known.
  std::string flag_for(const Run& run, Again how);
  /// Takes one that is over from the list. Its files stay.
  void forget(std::uint64_t id);

  /// Looks after what ended; once per frame, after JobRunner::poll. True if anything changed.
  bool update();
  /// In the order in which they were added.
  const std::vector<Run>& runs() const { return runs_; }
  bool is_idle() const;
  /// Commands whose files were made since the last call and are to be opened; and studies that were
  /// run.
  std::vector<Run> take_made();

  /// The commands there are: empty until the program has told them. Asks it at the first call.
  const std::vector<CommandSpec>& commands();
  /// A sentence if it could not be asked.
  const std::string& problem() const { return problem_; }
  /// Forgets that it could not be: the next call of commands() asks.
  void ask_again();

 private:
  void start(Run run);

  JobRunner& jobs_;
  std::string program_;
  std::vector<Run> runs_;
  std::vector<Run> made_;
  std::uint64_t last_id_ = 0;
  struct Catalogue;
  std::shared_ptr<Catalogue> catalogue_;
  std::string problem_;
};

}  // namespace kvscope::gui
