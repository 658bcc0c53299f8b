// Where a recorder puts what the model showed, call by call.
#pragma once

#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <variant>
#include <vector>

#include "core/tensor/tensor.hpp"
#include "core/tensor/typed_rows.hpp"
#include "core/trace/info.hpp"

namespace kvscope {

using AnyRows = std::variant<TypedRows, TensorView<const std::int32_t>>;

/// Rows of one array in one call, already reduced to the recorded heads; those behind the ones that
/// earlier writes of the call brought.
struct ArrayRows {
  Index layer = -1;  // of the model; -1: the array belongs to none
  /// As the file calls it (traces/schema.cpp has the shapes): "q", "stats/k_norm", "/logits". A
  /// literal.
  const char* name = "";
  AnyRows rows;
};

struct CallRows {
  std::vector<ArrayRows> arrays;
  /// What all of them lie in, if they may be read after the call as long as this is kept; null:
  /// the views are valid during the call only.
  std::shared_ptr<const void> memory = nullptr;
};

/// Write access to one trace. Protocol: begin, then per call (in order): write until all rows of
/// its arrays are there, write_tokens, commit_call; at the end finish, or destroy the receiver
/// (what was committed stays recoverable). Any function may throw IoError (disk full); what was
/// committed before stays recoverable.
class TraceReceiver {
 public:
  virtual ~TraceReceiver() = default;
  /// `info` has all shapes of the planned run (n_tokens, calls). Token bytes may be empty.
  virtual void begin(const TraceInfo& info) = 0;
  /// Right after begin(): the ids that prefill calls will bring, so that a killed recording says
  /// which text it was of.
  virtual void announce_prompt(std::span<const TokenId> ids) { (void)ids; }
  /// Throws ConfigError for rows of arrays that the recording does not have.
  virtual void write(const CallRows& rows) = 0;
  /// Ids (and bytes, unless empty) of the call's tokens.
  virtual void write_tokens(std::span<const TokenId> ids, std::span<const std::string> bytes) = 0;
  /// Before commit_call(): TraceInfo::moved_scores so far, as many as begin() was given.
  virtual void write_moved_scores(std::span<const float> by_layer) { (void)by_layer; }
  /// From here on the call survives a kill; where there are n_waiting_calls(), not yet the last
  /// ones.
  virtual void commit_call() = 0;
  /// Makes the trace readable under its final name. `status`: complete (fewer calls than
  /// planned only where decoding ended by itself) or interrupted.
  virtual void finish(TraceStatus status) = 0;
  /// Bytes of tensor data written, and the hash of the contents once finish() returned (else
  /// empty).
  virtual std::int64_t bytes_written() const { return 0; }
  virtual std::string content_hash() const { return {}; }
  /// Calls given to commit_call() that a kill would still lose, since they wait for the disk.
  virtual Index n_waiting_calls() const { return 0; }
  /// What becomes of the committed calls if the recording ends here with an error: a clause for its
  /// message, or empty.
  virtual std::string recovery_hint() const { return {}; }
};

}  // namespace kvscope
