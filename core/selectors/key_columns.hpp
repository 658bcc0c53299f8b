// A second copy of the keys that lies channel by channel and grows with the cache, for methods that
// score with a part of the channels (SparQ) or with a few directions (Loki): a decode step then
// reads that part only.
//
// Costs width * 4 bytes per key and KV head beside the cache, from the first call that asks for it.
// A chunk of many queries does not need it: it reads the cache once for all of them.
#pragma once

#include <functional>
#include <span>
#include <vector>

#include "core/selectors/selector.hpp"

namespace kvscope {

/// The columns themselves are kept by the call's engine, under the address of this object.
class KeyColumns {
 public:
  KeyColumns() = default;
  KeyColumns(const KeyColumns&) = delete;
  KeyColumns& operator=(const KeyColumns&) = delete;

  /// Appends what is new of the call's keys, on all threads. directions(kv_head): [>= width,
  /// d_head] whose products with a key are its columns; null: its channels are (width = d_head).
  using Directions = std::function<TensorView<const double>(Index kv_head)>;
  void append_up_to(const SelectCall& call, Index width, const Directions& directions = nullptr);

  /// The same with columns that a method makes itself: make(kv_head) returns what writes the
  /// columns [width] of one key [d_head]; it is used by one thread.
  using WriteColumns = std::function<void(std::span<const float> key, std::span<float> columns)>;
  void append_made(const SelectCall& call, Index width,
                   const std::function<WriteColumns(Index kv_head)>& make);

  /// What one KV head scores with: rows [n_rows, channels.size()] of queries in the
  /// columns named, ascending; none named: in all.
  struct Question {
    std::vector<float> q;
    std::vector<Index> channels;
  };
  /// out[i][t] = product of row i % n_rows of questions[i / n_rows] with the key at keys.begin + t,
  /// on all threads; in f64 summed in f64, channel by channel.
  void scores(const SelectCall& call, std::span<const Question> questions, TokenRange keys,
              std::span<const std::span<double>> out) const;
};

}  // namespace kvscope
