#include "core/sim/attended.hpp"

#include <algorithm>
#include <cassert>
#include <numeric>

#include "core/attention/row_kernels.hpp"
#include "core/attention/visible.hpp"
#include "core/base/evenly_spaced.hpp"
#include "core/selectors/candidates.hpp"
#include "core/selectors/owners.hpp"
#include "core/selectors/softmax_votes.hpp"
#include "core/tensor/soft_cap_kernel.hpp"

namespace kvscope {

namespace {

std::vector<KeyPos> positions(TokenRange range) {
  std::vector<KeyPos> keys(static_cast<std::size_t>(range.size()));
  std::iota(keys.begin(), keys.end(), static_cast<KeyPos>(range.begin));
  return keys;
}

}  // namespace

std::span<const KeyPos> inside(std::span<const KeyPos> keys, TokenRange range) {
  if (keys.empty() || (keys.front() >= range.begin && keys.back() < range.end)) return keys;
  const auto first = std::lower_bound(keys.begin(), keys.end(), range.begin);
  return {first, std::lower_bound(first, keys.end(), range.end)};
}

std::vector<KeyPos> attended_keys(const Selection& selection, Index group, Index q_head,
                                  Index pos_begin, Index row, std::optional<Index> window) {
  const TokenRange visible = visible_keys(pos_begin + row, window);
  if (selection.is_dense) return positions(visible);
  const auto keys =
      inside(selection.list(owner_of(selection.owner, q_head, group), row).keys, visible);
  return {keys.begin(), keys.end()};
}

std::vector<double> summary_scores(const Summaries& summaries, Index kv_head,
                                   std::span<const double> scaled_query, double score_cap) {
  std::vector<double> scores;
  if (summaries.has_stated_share()) return scores;
  for (Index i = 0; i < summaries.count(kv_head); ++i) {
    const Index row = summaries.begin_of(kv_head) + i;
    const ScoreRule capped{.cap = score_cap};
    scores.push_back(capped.of(dot_of(scaled_query, widened(summaries.k.view().row(row)))) +
                     static_cast<double>(summaries.log_count[static_cast<std::size_t>(row)]));
  }
  return scores;
}

ListProbs::ListProbs(const SelectCall& call, const Selection& selection)
    : call_(call), selection_(selection), group_(call.q.dim(0) / call.k.dim(0)) {
  layer = call.layer;
  pos_begin = call.pos_begin;
  n_tok = call.n_tok;
}

const ListProbs::Gathered& ListProbs::gathered(Index q_head, Index row) const {
  const Index kv_head = q_head / group_;
  ListView list;
  if (!selection_.is_dense) list = selection_.list(owner_of(selection_.owner, q_head, group_), row);
  const KeyPos* place = list.keys.data();
  if (gathered_ && gathered_->list == place && gathered_->kv_head == kv_head && !list.keys.empty())
    return *gathered_;
  if (gathered_ && selection_.is_dense && gathered_->kv_head == kv_head) return *gathered_;
  gathered_ = Gathered{kv_head, place, /*keys=*/{}, list.log_weight, /*table=*/std::nullopt};
  const TensorView<const float> k = call_.k.sub(kv_head);
  gathered_->keys = selection_.is_dense ? positions({0, k.dim(0)})
                                        : std::vector<KeyPos>(list.keys.begin(), list.keys.end());
  Tensor<float> rows(Shape{static_cast<Index>(gathered_->keys.size()), k.dim(1)});
  for (std::size_t i = 0; i < gathered_->keys.size(); ++i) {
    const auto key = k.row(gathered_->keys[i]);
    std::copy(key.begin(), key.end(), rows.data() + static_cast<Index>(i) * k.dim(1));
  }
  gathered_->table.emplace(rows.view());
  return *gathered_;
}

void ListProbs::row(Index q_head, Index row, std::span<float> probs) const {
  assert(static_cast<Index>(probs.size()) == call_.k.dim(1));
  std::fill(probs.begin(), probs.end(), 0.0f);
  const Gathered& list = gathered(q_head, row);
  const auto visible = inside(list.keys, visible_keys(call_.pos_begin + row, call_.window));
  if (visible.empty()) return;
  const Index first = visible.data() - list.keys.data();
  const TokenRange range{first, first + static_cast<Index>(visible.size())};
  const ScoreRule score = call_.score_rule();
  const std::vector<double> query = widened(call_.q.sub(q_head).row(row), score.scale);
  scores_.compute(query, /*n_rows=*/1, *list.table, range);
  const std::span<double> weights = scores_.row(0, range);
  soft_cap(weights, score.cap);
  if (!list.log_weight.empty()) {
    for (std::size_t i = 0; i < weights.size(); ++i)
      weights[i] += static_cast<double>(list.log_weight[static_cast<std::size_t>(first) + i]);
  }
  std::optional<double> others = sink_logit_of(call_, q_head);  // scores without a key of the list
  std::vector<double> extra =
      summary_scores(selection_.summaries, q_head / group_, query, score.cap);
  if (!extra.empty()) {
    if (others) extra.push_back(*others);
    others = log_sum_exp(extra);
  }
  softmax_in_place(weights, others);
  for (std::size_t i = 0; i < visible.size(); ++i) {
    probs[static_cast<std::size_t>(visible[i])] = static_cast<float>(weights[i]);
  }
}

void ListProbs::add_votes(ListOwner owner, TokenRange rows, double factor,
                          std::span<std::vector<double>> sums) const {
  ScoreEngine& engine = engine_of(call_);
  const Index n_kv = call_.k.dim(0);
  const bool has_plain_lists = selection_.is_dense || (selection_.n_row_blocks() == 1 &&
                                                       selection_.owner != ListOwner::q_head &&
                                                       selection_.log_weights().empty());
  if (engine.precision() == ScorePrecision::f32 && has_plain_lists &&
      selection_.summaries.empty()) {
    const std::vector<Index> voters = all_in(rows.begin, rows.end);
    std::vector<std::span<const KeyPos>> lists;
    for (Index kv_head = 0; kv_head < n_kv && !selection_.is_dense; ++kv_head)
      lists.push_back(
          selection_.list(owner_of(selection_.owner, kv_head * group_, group_), 0).keys);
    const VoteQuestion question{
        .owner = ListOwner::kv_head, .rows = voters, .keys = {0, call_.k.dim(1)}, .factor = factor};
    if (owner == ListOwner::kv_head) {
      add_votes_f32(call_, question, lists, rows_of(sums));
      return;
    }
    const std::size_t n = sums[0].size();
    const auto memory = engine.scratch<double>(ScoreEngine::Use::scores_of_owners,
                                               static_cast<std::size_t>(n_kv) * n);
    std::vector<std::span<double>> by_head;
    for (std::size_t i = 0; i < static_cast<std::size_t>(n_kv); ++i)
      by_head.push_back(memory.subspan(i * n, n));
    engine.run(n_kv, [&](Index kv_head, ScoreWorker&) {
      std::ranges::fill(by_head[static_cast<std::size_t>(kv_head)], 0.0);
    });
    add_votes_f32(call_, question, lists, by_head);
    constexpr Index kPositions = 4096;  // of a task
    engine.run((static_cast<Index>(n) + kPositions - 1) / kPositions, [&](Index part,
                                                                          ScoreWorker&) {
      const auto first = static_cast<std::size_t>(part * kPositions);
      const std::size_t n_part = std::min(n - first, static_cast<std::size_t>(kPositions));
      for (const std::span<double> votes : by_head)
        add_scaled(votes.subspan(first, n_part), 1.0, std::span(sums[0]).subspan(first, n_part));
    });
    return;
  }
  const auto add = [&](const ListProbs& probs, TokenRange q_heads, std::vector<double>& votes) {
    std::vector<float> weights(votes.size());
    for (Index q_head = q_heads.begin; q_head < q_heads.end; ++q_head) {
      for (Index row = rows.begin; row < rows.end; ++row) {
        probs.row(q_head, row, weights);
        for (std::size_t j = 0; j < votes.size(); ++j)
          votes[j] += factor * static_cast<double>(weights[j]);
      }
    }
  };
  if (owner != ListOwner::kv_head) {
    add(*this, {0, call_.q.dim(0)}, sums[0]);
    return;
  }
  engine.run(n_kv, [&](Index kv_head, ScoreWorker&) {
    add(ListProbs(call_, selection_), {kv_head * group_, (kv_head + 1) * group_},
        sums[static_cast<std::size_t>(kv_head)]);
  });
}

}  // namespace kvscope
