#include "core/selectors/window_votes.hpp"

#include <algorithm>
#include <numeric>

#include "core/base/error.hpp"
#include "core/base/evenly_spaced.hpp"
#include "core/selectors/candidates.hpp"
#include "core/selectors/cost_units.hpp"
#include "core/selectors/owners.hpp"
#include "core/selectors/softmax_votes.hpp"

namespace kvscope {

namespace {

/// Pools over `kernel` neighbours (an odd number) with stride 1. The average counts missing
/// neighbours as zero, as zero padding does.
std::vector<double> pooled_votes(std::span<const double> votes, Index kernel, Pooling pooling) {
  std::vector<double> out(votes.begin(), votes.end());
  if (pooling == Pooling::none) return out;
  const auto n = static_cast<Index>(votes.size());
  for (Index j = 0; j < n; ++j) {
    const Index first = std::max<Index>(0, j - kernel / 2);
    const Index last = std::min(n, j - kernel / 2 + kernel);
    const auto part =
        votes.subspan(static_cast<std::size_t>(first), static_cast<std::size_t>(last - first));
    out[static_cast<std::size_t>(j)] =
        pooling == Pooling::max
            ? *std::max_element(part.begin(), part.end())
            : std::accumulate(part.begin(), part.end(), 0.0) / static_cast<double>(kernel);
  }
  return out;
}

}  // namespace

WindowVotes::WindowVotes(Index window, Index kernel, Pooling pooling)
    : window_(option(window_, "window", window,
                     "last queries that vote, and last keys that stay in every head, inside the "
                     "budget",
                     in(1, 1 << 20))),
      kernel_(
          option(kernel_, "kernel", kernel, "keys that are pooled, an odd number", in(1, 1 << 20))),
      pooling_(option(pooling_, "pooling", pooling, "how votes of neighbours are combined")) {}

void WindowVotes::configure() {
  if (kernel_ % 2 == 0)
    throw ConfigError("{}: kernel: expected an odd number, found {}", name(), kernel_);
}

SelectCost WindowVotes::cost(const SelectCall& call, const Selection&) const {
  if (call.phase != Phase::prefill) return {};
  return exact_scoring_cost(call, call_range(call), std::min(window_, call.n_tok));
}

std::vector<Index> WindowVotes::voting_rows(const SelectCall& call) const {
  return all_in(std::max<Index>(0, call.n_tok - window_), call.n_tok);
}

std::vector<double> WindowVotes::pooled(const SelectCall& call, std::span<const KeyPos> keys,
                                        std::span<const double> sums) const {
  const TokenRange seen = call_range(call);
  const auto n_keys = static_cast<Index>(keys.size());
  const Index n_voted = n_keys - std::min({window_, budget_of(call), n_keys});
  std::vector<double> votes(static_cast<std::size_t>(n_voted), 0.0);
  for (std::size_t i = 0; i < votes.size(); ++i) {
    if (keys[i] >= seen.begin) votes[i] = sums[static_cast<std::size_t>(keys[i] - seen.begin)];
  }
  std::vector<double> out = pooled_votes(votes, kernel_, pooling_);
  out.resize(keys.size(), 0.0);
  return out;
}

KeyValues WindowVotes::scores(const SelectCall& call, const KeyLists& keys) {
  const std::vector<Index> voters = voting_rows(call);
  KeyValues values = softmax_votes(
      call, {.owner = ListOwner::kv_head,
             .rows = voters,
             .keys = call_range(call),
             .factor = static_cast<double>(call.k.dim(0)) / static_cast<double>(call.q.dim(0))});
  engine_of(call).run(static_cast<Index>(keys.size()), [&](Index kv_head, ScoreWorker&) {
    std::vector<double>& head = values[static_cast<std::size_t>(kv_head)];
    head = pooled(call, keys[static_cast<std::size_t>(kv_head)], head);
  });
  return values;
}

}  // namespace kvscope
