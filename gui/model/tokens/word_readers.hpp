// Who reads a word: how much attention every head of a recording gives it from later on, and from
// where most.
#pragma once

#include <string>
#include <vector>

#include "core/trace/source.hpp"
#include "gui/model/jobs/jobs.hpp"

namespace kvscope::gui {

struct WordReader {
  Index layer = 0;  // true numbers of the model
  Index q_head = 0;
  double received = 0.0;  // attention of all later queries together
  double most = 0.0;      // of one of them
  Index from = 0;         // that one
};

struct WordReaders {
  TokenRange word;
  std::vector<WordReader> heads;  // all recorded ones, the one that reads it most first
  std::size_t bytes() const { return sizeof *this + heads.size() * sizeof(WordReader); }
};

/// Attention of the recorded queries after the word on its tokens together. Nothing is read by the
/// last token. Throws what AttentionHead::load throws. The same for any number of threads.
WordReaders word_readers(const TraceSource& trace, TokenRange word, JobContext& job);

}  // namespace kvscope::gui
