// What one token reads: its attention over the tokens before it, of one head or as a mean over a
// layer's heads or all, and what methods do with each of these keys.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "core/attention/selection.hpp"
#include "gui/model/tokens/token_losses.hpp"
#include "gui/model/tokens/token_view.hpp"

namespace kvscope::gui {

/// Every list that a method makes in some layers of a recording.
struct MethodSelections {
  struct Call {
    TokenRange tokens;
    kvscope::Selection
        selection;  // of one head alone (ListOwner::layer) where only that was asked for
  };
  struct Layer {
    Index layer = 0;
    std::vector<Call> calls;  // ascending; none: a sliding window, which no method touches
    /// The call in which the query is asked about; null if it was not measured.
    const Call* call_of(Index query) const;
    /// It keeps every key.
    bool is_dense() const;
  };
  bool is_one_head = false;
  std::vector<Layer> layers;  // ascending
  /// Null if it was not asked for.
  const Layer* layer(Index number) const;
  std::size_t bytes() const;
};

/// Lists of all heads that are kept at most, in bytes.
inline constexpr std::size_t kMostSelections = std::size_t{256} << 20;

/// Throws what replay_layers throws, and ConfigError for lists beyond kMostSelections.
MethodSelections method_selections(const TraceSource& trace, const TraceSource* draft,
                                   const LossRequest& request, JobContext& job);

struct Reading {
  LossHeads heads = LossHeads::head;
  RankedRow row;           // means over the heads
  KeyUses outcomes;        // under the method
  KeyUses other_outcomes;  // under the one it is compared with
  Index reader() const { return row.row.query; }
  /// One of the kHeavyKeys that it looks at most.
  bool is_heavy(Index pos) const {
    const Index rank = row.rank_of(pos);
    return rank > 0 && rank <= kHeavyKeys;
  }
  std::size_t bytes() const { return row.bytes() + outcomes.of.size() + other_outcomes.of.size(); }
};

struct ReadingRequest {
  Index layer = 0;
  Index q_head = 0;
  Index query = 0;
  LossHeads heads = LossHeads::head;
  std::string key() const;
};

/// Selections may be null: outcomes are not known then. Throws what attention_row throws.
Reading reading_of(const TraceSource& trace, const ReadingRequest& request,
                   const MethodSelections* selections, const MethodSelections* other,
                   JobContext& job);

/// The heaviest keys of a reading, the first one first.
std::vector<Index> heaviest_keys(const Reading& reading, std::size_t n);

/// "kept by rule".
std::string_view outcome_words(KeyUse outcome);

/// "“ Dav” 34.0 % (kept by score), “id” 12.0 % (dropped)": what it reads most.
std::string reading_words(const Reading& reading, const Document& document, std::size_t n);

/// Of the heaviest keys: how many both methods keep, only the one, only the other, neither. Empty
/// where a method's verdict is not known.
std::string difference_words(const Reading& reading, const std::string& method,
                             const std::string& other);

}  // namespace kvscope::gui
