// What a method fits to the keys that are there (a mean, a codebook) and fits again when these have
// doubled: once for a prompt that stays the larger part, and never for long to the first tokens of
// a text that is decoded from nothing.
//
// A fit that was made in a call which is taken back, wholly or in part, is forgotten with it and
// made again, so that rejected drafts leave no trace.
#pragma once

#include <utility>
#include <vector>

#include "core/tensor/tensor.hpp"

namespace kvscope {

template <class Fit>
class FitHistory {
 public:
  bool empty() const { return fits_.empty(); }
  const Fit& current() const { return fits_.back().fit; }
  /// True if n_keys ask for a fit.
  bool is_due(Index n_keys) const {
    return n_keys > 0 && (fits_.empty() || n_keys >= 2 * fits_.back().n_keys);
  }
  /// call_end: keys when the call is over that the fit is made in.
  void add(Index n_keys, Index call_end, Fit fit) {
    fits_.push_back({n_keys, call_end, std::move(fit)});
  }
  /// Forgets the fits of calls that reach beyond n_keys. True if the current one is another, or
  /// there is none now.
  bool truncate(Index n_keys) {
    bool changes = false;
    for (; !fits_.empty() && fits_.back().call_end > n_keys; changes = true) fits_.pop_back();
    return changes;
  }

 private:
  struct Entry {
    Index n_keys;
    Index call_end;
    Fit fit;
  };
  std::vector<Entry> fits_;
};

}  // namespace kvscope
