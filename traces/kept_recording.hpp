// What a recording that was killed left in OUT.part, for a run of the same one that goes on with
// it.
//
// Its keys and values are the model's memory of the calls that are whole, so the model runs the
// rest only, and the file becomes what it would have been: a recording is gone on with from a file
// that has them all, bit by bit.
#pragma once

#include <filesystem>
#include <memory>
#include <span>
#include <stop_token>
#include <string>
#include <vector>

#include "core/base/progress.hpp"
#include "core/model/kv_store.hpp"
#include "core/trace/info.hpp"

namespace kvscope {

/// Why a recording of this plan could not be gone on with after a kill: a clause; empty if it
/// could.
std::string why_not_resumable(const TraceInfo& plan);

class KeptRecording {
 public:
  /// Looks at OUT.part, or (or_whole) at OUT where there is none, and compares all of it with its
  /// checksums; holds nothing open. Without both, and where no call is whole, nothing is kept.
  /// Throws IoError (another process records into it; OUT is no complete trace), FormatError (no
  /// recording), Interrupted.
  explicit KeptRecording(const std::filesystem::path& out, const ProgressFn& progress = {},
                         const std::stop_token& stop = {}, bool or_whole = true);

  /// OUT has its name already: there is nothing to go on with.
  bool is_complete() const { return is_complete_; }
  /// Calls that stay, from the first on. Not all that are whole where decoding follows: the last
  /// one runs again, since its logits choose the next token.
  Index n_calls() const { return n_calls_; }
  Index n_tokens() const;
  /// The token at a position that was recorded, or of the prompt.
  TokenId token(Index pos) const { return tokens_[static_cast<std::size_t>(pos)]; }

  /// TraceInfo's, of the calls so far.
  const std::vector<float>& moved_scores() const { return plan_.moved_scores; }

  /// Throws ConfigError, saying what differs, unless a recording of `info` and this prompt would
  /// have begun with the calls that stay; also what why_not_resumable says.
  /// `may_end`: decoding may have ended by itself before the planned steps.
  void check(const TraceInfo& info, std::span<const TokenId> prompt, bool may_end = false) const;

  /// Keys and values of the tokens that stay, [n_kv, n_tokens, d_head] of one layer in memory at a
  /// time. Reads the file while it is recorded into.
  std::unique_ptr<KvStore> rows() const;

 private:
  [[noreturn]] void refuse(const std::string& what) const;

  std::filesystem::path growing_;  // OUT.part, or OUT
  bool is_complete_ = false;
  TraceInfo plan_;  // as its header says
  Index n_calls_ = 0;
  std::vector<TokenId> tokens_;  // the prompt, and what was decoded
};

}  // namespace kvscope
