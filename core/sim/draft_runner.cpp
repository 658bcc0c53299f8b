#include "core/sim/draft_runner.hpp"

#include <algorithm>

#include "core/base/error.hpp"
#include "core/sim/draft_rows.hpp"

namespace kvscope {

namespace {

/// Dense attention whose head-averaged rows of a call's last queries are kept.
class RowsPolicy final : public AttentionPolicy {
 public:
  RowsPolicy(const ModelConfig& config, Index n_rows, ThreadPool& pool)
      : n_rows_(n_rows), pool_(pool), layers_(static_cast<std::size_t>(config.n_layers)) {
    dense_.is_dense = true;
  }
  bool takes(Index) const override { return true; }
  bool reads_values() const override { return false; }
  HostRows host_rows(Index) override { return HostRows::none; }
  const Selection& choose(const AttentionQuestion& question) override {
    const Index first = question.n_tok - n_rows_;
    layers_[static_cast<std::size_t>(question.layer)] =
        question.remote != nullptr ? question.remote->mean_attention(first, question.n_tok)
                                   : mean_attention(question, first, pool_);
    dense_.n_tok = dense_.rows_per_list = question.n_tok;
    return dense_;
  }
  /// [n_layers][n_rows, n_ctx]; can be taken once.
  std::vector<Tensor<float>> take() { return std::move(layers_); }

 private:
  Index n_rows_;
  ThreadPool& pool_;
  std::vector<Tensor<float>> layers_;
  Selection dense_{ListOwner::layer, 0, 0};
};

}  // namespace

DraftRunner::DraftRunner(const Transformer& model, Index capacity, ThreadPool& pool)
    : model_(model), pool_(pool), cache_(model.make_store(capacity)) {}

void DraftRunner::prefill(std::span<const TokenId> tokens, Index chunk) {
  for (std::size_t at = 0; at < tokens.size(); at += static_cast<std::size_t>(chunk)) {
    model_.forward(
        tokens.subspan(at, std::min(static_cast<std::size_t>(chunk), tokens.size() - at)), *cache_,
        pool_);
  }
}

std::vector<Tensor<float>> DraftRunner::consume(std::span<const TokenId> tokens) {
  RowsPolicy policy(model_.config(), static_cast<Index>(tokens.size()), pool_);
  ForwardOptions options;
  options.policy = &policy;
  model_.forward(tokens, *cache_, pool_, options);
  return policy.take();
}

DraftProposal DraftRunner::propose(std::span<const TokenId> unseen, Index gamma,
                                   ProposalRows rows_wanted) {
  const bool keeps_rows = rows_wanted == ProposalRows::kept;
  DraftProposal proposal;
  std::vector<std::vector<Tensor<float>>> steps;  // [gamma][n_layers][1, n_ctx of the step]
  std::vector<TokenId> input(unseen.begin(), unseen.end());
  for (Index step = 0; step < gamma; ++step) {
    RowsPolicy policy(model_.config(), /*n_rows=*/1, pool_);
    ForwardOptions options;
    options.logits = Logits::last;
    if (keeps_rows) options.policy = &policy;
    const Tensor<float> logits = model_.forward(input, *cache_, pool_, options);
    proposal.tokens.push_back(argmax(logits.flat()));
    input = {proposal.tokens.back()};
    if (keeps_rows) steps.push_back(policy.take());
  }
  if (!keeps_rows) return proposal;
  for (std::size_t layer = 0; layer < steps.front().size(); ++layer) {
    Tensor<float> rows(Shape{gamma, cache_->n_tokens()});
    for (Index step = 0; step < gamma; ++step) {
      const auto row = steps[static_cast<std::size_t>(step)][layer].flat();
      std::copy(row.begin(), row.end(), rows.view().row(step).begin());
    }
    proposal.rows.push_back(std::move(rows));
  }
  return proposal;
}

void require_same_tokenizer(const Tokenizer& verifier, const Tokenizer& draft) {
  if (verifier.n_ids() != draft.n_ids()) {
    throw ConfigError(
        "draft and verifier have different tokenizers: {} and {} tokens, expected the "
        "same vocabulary",
        draft.n_ids(), verifier.n_ids());
  }
  const auto bytes = [](const Tokenizer& tokenizer, TokenId id) -> std::string_view {
    try {
      return tokenizer.bytes_of(id);
    } catch (const ConfigError&) {
      return {};  // vocabularies may have holes
    }
  };
  for (TokenId id = 0; id < verifier.n_ids(); ++id) {
    if (bytes(verifier, id) == bytes(draft, id)) continue;
    throw ConfigError(
        "draft and verifier have different tokenizers: token {} is \"{}\" in the draft "
        "and \"{}\" in the verifier, expected the same vocabulary",
        id, bytes(draft, id), bytes(verifier, id));
  }
}

}  // namespace kvscope
