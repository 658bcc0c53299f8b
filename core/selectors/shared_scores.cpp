#include "core/selectors/shared_scores.hpp"

#include <algorithm>
#include <limits>

#include "core/attention/nucleus.hpp"
#include "core/attention/score_rows.hpp"
#include "core/base/evenly_spaced.hpp"
#include "core/tensor/soft_cap_kernel.hpp"

namespace kvscope {

namespace {

// Of one owner, below which sharing them among threads costs more than it saves.
constexpr Index kKeysOfPart = 1024;

/// The smallest set of positions that holds a share p of all weight.
KeyList nucleus_list(std::span<const double> weights, TokenRange range, double p) {
  std::vector<float> row(weights.size());
  std::transform(weights.begin(), weights.end(), row.begin(),
                 [](double w) { return w > 0.0 ? static_cast<float>(w) : 0.0f; });
  KeyList list;
  for (const Index i : nucleus(row, p, NucleusMode::exact)) {
    list.scored.push_back(static_cast<KeyPos>(range.begin + i));
  }
  return list;
}

}  // namespace

std::vector<Selection> SharedScoreSelector::do_select_budgets(SelectCall call,
                                                              std::span<const Budget> budgets) {
  const ListOwner owner_kind = owner_of_call(call);
  std::vector<Summaries> summaries(budgets.size());
  prepare(call);
  for (Summaries& one : summaries) begin_call(call, one);
  const TokenRange keys = scored_range(call);
  if (call.trace != nullptr) {
    call.trace->scored = keys;
    call.trace->scores.resize(
        static_cast<std::size_t>(owner_kind == ListOwner::q_head ? call.q.dim(0) : call.k.dim(0)));
  }
  const Index n_owners = owner_kind == ListOwner::q_head ? call.q.dim(0) : call.k.dim(0);
  const auto n_keys = static_cast<std::size_t>(std::max<Index>(keys.size(), 0));
  const std::span<double> memory = engine_of(call).scratch<double>(
      ScoreEngine::Use::scores_of_owners, static_cast<std::size_t>(n_owners) * n_keys);
  std::vector<std::span<double>> rows;
  for (Index i = 0; i < n_owners; ++i)
    rows.push_back(memory.subspan(static_cast<std::size_t>(i) * n_keys, n_keys));
  const bool is_shared =
      score_owners(call, owner_kind, keys, rows) || share_score_keys(call, owner_kind, keys, rows);
  std::vector<Selection> selections = select_by_owner(
      call, owner_kind, call.n_tok, budgets.size(),
      [&](const Owner& owner, ScoreWorker& worker, std::span<Selection> parts) {
        SelectCall question = call;
        std::vector<double> own;
        if (!is_shared) own = score_keys(call, owner, keys, worker);
        const std::span<double> scores =
            is_shared ? rows[static_cast<std::size_t>(owner.index)] : std::span<double>(own);
        leave_out_dead(call, owner.kv_head, keys, scores);
        if (call.trace != nullptr)
          call.trace->scores[static_cast<std::size_t>(owner.index)].assign(scores.begin(),
                                                                           scores.end());
        for (std::size_t i = 0; i < budgets.size(); ++i) {
          question.budget = budgets[i];
          parts[i].add(make_list(question, owner, scores, keys, worker, summaries[i]));
        }
      });
  for (std::size_t i = 0; i < budgets.size(); ++i) {
    selections[i].summaries = std::move(summaries[i]);
    call.budget = budgets[i];
    finish(call, selections[i]);
  }
  return selections;
}

bool SharedScoreSelector::share_score_keys(const SelectCall& call, ListOwner owner_kind,
                                           TokenRange keys,
                                           std::span<const std::span<double>> scores) {
  ScoreEngine& engine = engine_of(call);
  const Index group = call.q.dim(0) / call.k.dim(0);
  const Index heads_per_owner = owner_kind == ListOwner::q_head ? 1 : group;
  const Index n_owners = call.q.dim(0) / heads_per_owner;
  const Index most_parts = keys.size() / kKeysOfPart;
  const Index n_parts = std::min(most_parts, (4 * engine.n_workers() + n_owners - 1) / n_owners);
  if (!scores_keys_apart() || call.trace != nullptr || n_owners >= 2 * engine.n_workers() ||
      n_parts < 2)
    return false;
  engine.run(n_owners * n_parts, [&](Index task, ScoreWorker& worker) {
    const Index index = task / n_parts;
    const Index part = task % n_parts;
    const Index first_head = index * heads_per_owner;
    const Owner owner{index, {first_head, first_head + heads_per_owner}, first_head / group};
    const TokenRange range{keys.begin + keys.size() * part / n_parts,
                           keys.begin + keys.size() * (part + 1) / n_parts};
    const std::vector<double> values = score_keys(call, owner, range, worker);
    std::copy(values.begin(), values.end(),
              scores[static_cast<std::size_t>(index)].begin() + (range.begin - keys.begin));
  });
  return true;
}

KeyList SharedScoreSelector::make_list(const SelectCall& call, const Owner& owner,
                                       std::span<const double> scores, TokenRange keys,
                                       ScoreWorker&, Summaries&) {
  const auto is_candidate = [](double score) {
    return score > -std::numeric_limits<double>::infinity();
  };
  const auto n_candidates =
      static_cast<Index>(std::count_if(scores.begin(), scores.end(), is_candidate));
  KeyList list = call.budget.kind == Budget::Kind::mass
                     ? nucleus_list(scores, keys, call.budget.value)
                     : top_k_list(scores, keys, call.budget.tokens(n_candidates, /*page_size=*/1));
  force_keys(list, candidates(call, owner.kv_head, chunk_range(call)));
  return list;
}

std::vector<double> mean_query(const SelectCall& call, TokenRange q_heads) {
  std::vector<double> mean(static_cast<std::size_t>(call.q.dim(2)), 0.0);
  for (Index q_head = q_heads.begin; q_head < q_heads.end; ++q_head) {
    const auto rows = call.q.sub(q_head);
    for (Index row = 0; row < call.n_tok; ++row) {
      const auto q = rows.row(row);
      for (std::size_t c = 0; c < mean.size(); ++c) mean[c] += static_cast<double>(q[c]);
    }
  }
  const double share = 1.0 / static_cast<double>(q_heads.size() * call.n_tok);
  for (double& value : mean) value *= share;
  return mean;
}

std::vector<double> query_rows(const SelectCall& call, Index q_head, std::span<const Index> rows,
                               double factor) {
  std::vector<double> out;
  out.reserve(rows.size() * static_cast<std::size_t>(call.q.dim(2)));
  const auto q = call.q.sub(q_head);
  for (const Index row : rows) {
    for (const float value : q.row(row)) out.push_back(factor * static_cast<double>(value));
  }
  return out;
}

std::vector<Index> all_rows(const SelectCall& call) {
  return all_in(0, call.n_tok);
}

void softmax_over_visible(const SelectCall& call, Index kv_head, Index row, TokenRange keys,
                          std::span<double> scores, std::optional<double> sink_logit) {
  const TokenRange seen = row_range(call, row);
  const Index begin = std::clamp(seen.begin, keys.begin, keys.end);
  const Index end = std::clamp(seen.end, begin, keys.end);
  std::fill(scores.begin(), scores.begin() + (begin - keys.begin), 0.0);
  std::fill(scores.begin() + (end - keys.begin), scores.end(), 0.0);
  const auto visible = scores.subspan(static_cast<std::size_t>(begin - keys.begin),
                                      static_cast<std::size_t>(end - begin));
  mask_dead(call, kv_head, {begin, end}, visible);
  if (visible.empty() || *std::max_element(visible.begin(), visible.end()) ==
                             -std::numeric_limits<double>::infinity()) {
    std::fill(visible.begin(), visible.end(), 0.0);
    return;
  }
  softmax_in_place(visible, sink_logit);
}

void for_each_score_row(const SelectCall& call, Index q_head, Index kv_head,
                        std::span<const Index> rows, KeyDots& dots,
                        const std::function<void(Index, std::span<double>)>& visit,
                        std::size_t most_rows) {
  const TokenRange seen = call.remote != nullptr ? TokenRange{0, call.k.dim(1)} : call_range(call);
  for (std::size_t first = 0; first < rows.size(); first += most_rows) {
    const auto batch = rows.subspan(first, std::min(most_rows, rows.size() - first));
    const Index first_row = batch.front();
    const Index end_row = batch.back() + 1;
    if (call.remote != nullptr) {
      call.remote->scores(q_head, first_row, end_row, dots.take(end_row - first_row, seen.size()));
    } else {
      dots.compute(query_rows(call, q_head, batch, static_cast<double>(call.score_scale)),
                   static_cast<Index>(batch.size()), call.k.sub(kv_head), seen);
    }
    for (std::size_t r = 0; r < batch.size(); ++r) {
      const TokenRange visible = row_range(call, batch[r]);
      const auto scores =
          dots.row(call.remote != nullptr ? batch[r] - first_row : static_cast<Index>(r))
              .subspan(static_cast<std::size_t>(visible.begin - seen.begin),
                       static_cast<std::size_t>(visible.size()));
      soft_cap(scores, call.score_rule().cap);
      visit(batch[r], scores);
    }
  }
}

void add_softmax_weights(const SelectCall& call, TokenRange q_heads, Index kv_head,
                         std::span<const Index> rows, TokenRange keys, double factor, KeyDots& dots,
                         std::span<double> sums) {
  for (Index q_head = q_heads.begin; q_head < q_heads.end; ++q_head) {
    const auto sink = sink_logit_of(call, q_head);
    for_each_score_row(call, q_head, kv_head, rows, dots,
                       [&](Index row, std::span<double> weights) {
                         const TokenRange visible = row_range(call, row);
                         softmax_over_visible(call, kv_head, row, visible, weights, sink);
                         const Index end = std::min(keys.end, visible.end);
                         for (Index pos = std::max(keys.begin, visible.begin); pos < end; ++pos)
                           sums[static_cast<std::size_t>(pos - keys.begin)] +=
                               factor * weights[static_cast<std::size_t>(pos - visible.begin)];
                       });
  }
}

}  // namespace kvscope
