// The draft model of speculative decoding: proposes tokens greedily and tells what it attended to.
#pragma once

#include <span>
#include <vector>

#include "core/base/parallel.hpp"
#include "core/model/transformer.hpp"

namespace kvscope {

/// What the draft hands to the verifier.
struct DraftProposal {
  std::vector<TokenId> tokens;  // [gamma]
  /// [n_draft_layers][gamma, n_ctx] rows of the queries that proposed them, averaged over the
  /// heads; zero where nothing is seen.
  std::vector<Tensor<float>> rows;
};

/// Whether a proposal comes with the attention rows of its queries, a quarter of its time and more.
enum class ProposalRows { none, kept };

/// A dense draft model over one sequence.
class DraftRunner {
 public:
  /// Throws ConfigError if capacity exceeds the draft's positions.
  DraftRunner(const Transformer& model, Index capacity, ThreadPool& pool);

  /// Fills in tokens without keeping attention rows.
  void prefill(std::span<const TokenId> tokens, Index chunk);

  /// Runs `tokens` in one call and returns their rows [n_draft_layers][n_tok, n_ctx], as of a draft
  /// that proposed exactly these tokens (teacher forcing).
  std::vector<Tensor<float>> consume(std::span<const TokenId> tokens);

  /// Runs `unseen` (at least one token, the last one the query of the first proposal) and
  /// then proposes gamma tokens one by one, each the arg max. Without rows,
  /// DraftProposal::rows is empty.
  DraftProposal propose(std::span<const TokenId> unseen, Index gamma,
                        ProposalRows rows = ProposalRows::kept);

  Index n_tokens() const { return cache_->n_tokens(); }
  void truncate(Index n_tokens) { cache_->truncate(n_tokens); }

 private:
  const Transformer& model_;
  ThreadPool& pool_;
  std::unique_ptr<KvStore> cache_;
};

/// Throws ConfigError unless every id stands for the same bytes in both; names the first that does
/// not.
void require_same_tokenizer(const Tokenizer& verifier, const Tokenizer& draft);

}  // namespace kvscope
