#include "core/sim/draft_runner.hpp"

#include <algorithm>

#include "core/base/error.hpp"
#include "core/sim/draft_rows.hpp"

namespace kvscope {

namespace {

/// Keeps the head-averaged attention rows of the last queries of a call.
class RowObserver final : public Observer {
 public:
  RowObserver(const Transformer& model, Index n_rows)
      : config_(model.config()),
        sink_logits_(model.sink_logits()),
        n_rows_(n_rows),
        layers_(static_cast<std::size_t>(config_.n_layers)) {}
  bool wants(Index) const override { return true; }
  void on_attention(const AttentionEvent& event) override {
    const Index n_ctx = event.k_cache.dim(1);
    const Index first = event.n_tok - n_rows_;
    const auto at = static_cast<std::size_t>(event.layer);
    const double share = 1.0 / static_cast<double>(config_.n_q);
    Tensor<double> sums(Shape{n_rows_, n_ctx});
    for (Index kv_head = 0; kv_head < config_.n_kv; ++kv_head) {
      const KeyTable keys(event.k_cache.sub(kv_head));
      for (Index r = 0; r < config_.group(); ++r) {
        const auto q = event.q.sub(kv_head * config_.group() + r).range(0, first, event.n_tok);
        const std::span<const float> rows(q.data(), static_cast<std::size_t>(n_rows_ * q.dim(1)));
        add_attention_rows(
            rows, event.score_rule(), n_rows_, event.pos_begin + first, keys, config_.window[at],
            share, sink_logit_of(sink_logits_, config_, event.layer, kv_head * config_.group() + r),
            scratch_, sums);
      }
    }
    layers_[at] = narrowed(sums);
  }
  /// [n_layers][n_rows, n_ctx]; can be taken once.
  std::vector<Tensor<float>> take() { return std::move(layers_); }

 private:
  const ModelConfig& config_;
  std::vector<float> sink_logits_;
  Index n_rows_;
  ScoreRows scratch_;
  std::vector<Tensor<float>> layers_;
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
  RowObserver observer(model_, static_cast<Index>(tokens.size()));
  ForwardOptions options;
  options.observer = &observer;
  model_.forward(tokens, *cache_, pool_, options);
  return observer.take();
}

DraftProposal DraftRunner::propose(std::span<const TokenId> unseen, Index gamma,
                                   ProposalRows rows_wanted) {
  const bool keeps_rows = rows_wanted == ProposalRows::kept;
  DraftProposal proposal;
  std::vector<std::vector<Tensor<float>>> steps;  // [gamma][n_layers][1, n_ctx of the step]
  std::vector<TokenId> input(unseen.begin(), unseen.end());
  for (Index step = 0; step < gamma; ++step) {
    RowObserver observer(model_, /*n_rows=*/1);
    ForwardOptions options;
    options.logits = Logits::last;
    if (keeps_rows) options.observer = &observer;
    const Tensor<float> logits = model_.forward(input, *cache_, pool_, options);
    proposal.tokens.push_back(argmax(logits.flat()));
    input = {proposal.tokens.back()};
    if (keeps_rows) steps.push_back(observer.take());
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
