#include "core/sim/speculative.hpp"

#include "core/base/stopwatch.hpp"

#include <limits>
#include <numeric>

#include "core/base/error.hpp"

namespace kvscope {

SpeculativeResult decode_speculatively(LiveSequence& verifier, DraftRunner& draft, TokenId last,
                                       Index n_new, Index gamma, const TokenCount& on_tokens) {
  if (gamma < 1)
    throw ConfigError("speculative decoding: expected gamma of at least 1, found {}", gamma);
  if (draft.n_tokens() != verifier.n_tokens()) {
    throw ConfigError("speculative decoding: the draft holds {} tokens, the verifier {}",
                      draft.n_tokens(), verifier.n_tokens());
  }
  const Stopwatch start;
  SpeculativeResult result;
  const ProposalRows rows =
      verifier.selector_run().caps().needs_draft ? ProposalRows::kept : ProposalRows::none;
  std::vector<TokenId> unseen = {last};  // known tokens that the draft has not run
  while (static_cast<Index>(result.tokens.size()) < n_new) {
    const Index begin = verifier.n_tokens();
    const Stopwatch draft_start;
    const DraftProposal proposal = draft.propose(unseen, gamma, rows);
    result.draft_seconds += draft_start.seconds();

    std::vector<TokenId> call = {last};
    call.insert(call.end(), proposal.tokens.begin(), proposal.tokens.end());
    const Tensor<float> logits = verifier.run(Phase::verify, call, Logits::all, proposal.rows);
    Index n_accepted = 0;
    while (n_accepted < gamma && argmax(logits.view().row(n_accepted)) ==
                                     proposal.tokens[static_cast<std::size_t>(n_accepted)]) {
      ++n_accepted;
    }
    const TokenId next = argmax(logits.view().row(n_accepted));
    result.accepted.push_back(n_accepted);
    result.tokens.insert(result.tokens.end(), proposal.tokens.begin(),
                         proposal.tokens.begin() + n_accepted);
    result.tokens.push_back(next);

    const Index n_kept = begin + 1 + n_accepted;
    verifier.rollback(n_kept);
    unseen.clear();
    if (draft.n_tokens() > n_kept) {
      draft.truncate(n_kept);
    } else if (draft.n_tokens() <
               n_kept) {  // the last draft was accepted: only the verifier ran it
      unseen.push_back(proposal.tokens.back());
    }
    unseen.push_back(next);
    last = next;
    if (on_tokens && !on_tokens(static_cast<Index>(result.tokens.size()))) break;
  }
  if (static_cast<Index>(result.tokens.size()) > n_new) {
    result.tokens.resize(static_cast<std::size_t>(n_new));
  }
  result.total_seconds = start.seconds();
  return result;
}

std::vector<TokenId> decode_greedily(LiveSequence& model, TokenId last, Index n_new,
                                     const TokenCount& on_tokens) {
  std::vector<TokenId> tokens;
  while (static_cast<Index>(tokens.size()) < n_new) {
    last = argmax(model.run(Phase::decode, {&last, 1}, Logits::last).flat());
    tokens.push_back(last);
    if (on_tokens && !on_tokens(static_cast<Index>(tokens.size()))) break;
  }
  return tokens;
}

}  // namespace kvscope
