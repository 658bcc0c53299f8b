// The dense beginning of a prompt, computed once for all methods without a history.
#pragma once

#include <memory>
#include <span>
#include <stop_token>
#include <vector>

#include "analysis/simulate/simulation.hpp"

namespace kvscope {

class DensePrefix {
 public:
  /// Runs the verifier over the tokens. Throws Interrupted on a stop. Keeps nothing of the pool.
  DensePrefix(const SimulationSetup& setup, std::span<const TokenId> tokens, ThreadPool& pool,
              const std::stop_token& stop);

  std::span<const TokenId> tokens() const { return tokens_; }

  /// Puts the tokens into an empty sequence: the dense store's, or by a dense prefill of its own
  /// where the method has a history and must see them. Statistics begin after them.
  void begin(LiveSequence& live, const std::stop_token& stop) const;

 private:
  std::vector<TokenId> tokens_;
  Index chunk_;
  std::shared_ptr<const KvStore> store_;  // null without tokens
};

}  // namespace kvscope
