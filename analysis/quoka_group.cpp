#include "analysis/quoka_group.hpp"

#include <algorithm>
#include <cmath>
#include <limits>
#include <numeric>

#include "core/attention/exact_rows.hpp"
#include "core/attention/topk.hpp"
#include "core/attention/visible.hpp"
#include "core/base/nan.hpp"

namespace kvscope {

namespace {


/// One KV group of one layer, read once and shared by all chunks.
struct Group {
  Index layer = 0;
  Index kv_slot = 0;
  Index first_head = 0;  // slot of the group's first query head
  std::optional<Index> window;
  bool selects = false;
  double scale = 1.0;
  std::vector<Tensor<float>> q;              // per head [T, d_head]
  std::vector<std::optional<double>> sinks;  // per head
  KeyTable keys;
  KeyTable unit_keys;
};

/// Last position that every token averaged in a slot may see: none of them scores a key after
/// itself.
std::vector<Index> slot_limits(const QuokaQueries& queries, Index chunk_begin) {
  std::vector<Index> limits(queries.picks[0].size(), std::numeric_limits<Index>::max());
  for (const auto& picks : queries.picks) {
    for (std::size_t slot = 0; slot < limits.size(); ++slot) {
      limits[slot] = std::min(limits[slot], chunk_begin + picks[slot]);
    }
  }
  return limits;
}

/// Stage 1: which queries speak for the chunk, how the candidates score, which are kept
/// (ascending).
std::vector<Index> select_keys(const Group& group, const QuokaOptions& options,
                               const QuokaChunk& chunk, Index chunk_index, ScoreRows& scratch,
                               QuokaLayer& out) {
  std::vector<TensorView<const float>> rows;
  for (const auto& head : group.q) {
    rows.push_back(head.view().range(0, chunk.tokens.begin, chunk.tokens.end));
  }
  const QuokaQueries queries = quoka_select_queries(rows, options.scoring());
  out.zero_mean(group.kv_slot, chunk_index) = queries.has_zero_mean;
  for (std::size_t h = 0; h < group.q.size(); ++h) {
    const Index slot = group.first_head + static_cast<Index>(h);
    for (Index i = 0; i < chunk.tokens.size(); ++i) {
      out.s_q(slot, chunk.tokens.begin + i) =
          static_cast<float>(-queries.cosines[h][static_cast<std::size_t>(i)]);
    }
    for (std::size_t j = 0; j < queries.picks[h].size(); ++j) {
      out.selected_queries(slot, chunk_index, static_cast<Index>(j)) =
          static_cast<std::int32_t>(chunk.tokens.begin + queries.picks[h][j]);
    }
  }
  if (!group.selects || chunk.candidates.size() == 0) return {};

  const bool masks = options.scope == QuokaScope::whole_cache && options.mask_scores;
  const std::vector<Index> limits =
      masks ? slot_limits(queries, chunk.tokens.begin) : std::vector<Index>{};
  const std::vector<double> scores =
      quoka_key_scores(queries, group.unit_keys, chunk.candidates, limits, scratch);
  if (options.store_key_scores) {
    float* stored = out.key_scores.view().row(group.kv_slot).data() + chunk.score_begin;
    std::transform(scores.begin(), scores.end(), stored,
                   [](double score) { return static_cast<float>(score); });
  }
  std::vector<Index> kept = top_k_sorted_by_index(scores, chunk.budget);
  for (std::size_t i = 0; i < kept.size(); ++i) {
    out.selected(group.kv_slot, chunk.kept_begin + static_cast<Index>(i)) =
        static_cast<std::int32_t>(kept[i]);
  }
  out.sink_selected(group.kv_slot, chunk_index) = !kept.empty() && kept.front() == 0;
  return kept;
}

/// Probability on the kept keys of the row at `pos`; probs: unnormalised, over all visible keys
/// from 0 on.
double kept_sum(std::span<const double> probs, std::span<const Index> kept, const QuokaChunk& chunk,
                const QuokaOptions& options, Index pos) {
  double sum = 0.0;
  bool has_self = false;
  for (Index key : kept) {
    if (key > pos) break;  // whole_cache: kept for the chunk's later queries
    sum += probs[static_cast<std::size_t>(key)];
    has_self = key == pos;
  }
  if (options.scope == QuokaScope::past_plus_chunk) {
    const auto first = static_cast<std::size_t>(chunk.tokens.begin);
    return sum + sum_of(probs.subspan(first));
  }
  if (options.force_self && !has_self) sum += probs[static_cast<std::size_t>(pos)];
  return sum;
}

/// Stage 2: exact rows of the chunk's queries in every head of the group. best_weight collects, per
/// candidate, the largest probability that any of these rows gives it (the oracle's score); empty
/// if it is not wanted.
void measure_rows(const Group& group, const QuokaOptions& options, const QuokaChunk& chunk,
                  std::span<const Index> kept, ScoreRows& scratch, std::span<double> best_weight,
                  QuokaLayer& out) {
  const bool selected = group.selects && chunk.candidates.size() > 0;
  std::vector<Index> positions(static_cast<std::size_t>(chunk.tokens.size()));
  std::iota(positions.begin(), positions.end(), chunk.tokens.begin);
  for (std::size_t h = 0; h < group.q.size(); ++h) {
    const Index slot = group.first_head + static_cast<Index>(h);
    const auto measure = [&](Index i, std::span<double> row, TokenRange visible) {
      const Index pos = chunk.tokens.begin + i;
      // A sink takes its part of every weight; breadth and mass are about what the keys get.
      const double shift = max_of(row);
      const TokenRange without_first{std::max<Index>(visible.begin, 1), visible.end};
      const LargestWeight largest = largest_weight(row, visible, without_first, /*lse=*/0.0);
      const ExpSums sums = exp_row(row, shift, row);
      const double log_sum = std::log(sums.sum);
      const double lse = lse_with_sink(shift + log_sum, group.sinks[h]);
      out.log_max_weight(slot, pos) = static_cast<float>(largest.log_weight - lse);
      out.breadth(slot, pos) = static_cast<float>(std::exp(log_sum - sums.weighted / sums.sum));
      if (!selected) return;
      out.mass(slot, pos) = static_cast<float>(kept_sum(row, kept, chunk, options, pos) / sums.sum);
      const double inverse = group.sinks[h] ? std::exp(shift - lse) : 1.0 / sums.sum;
      const std::size_t n = std::min(best_weight.size(), row.size());
      for (std::size_t t = 0; t < n; ++t) {
        best_weight[t] = std::max(best_weight[t], inverse * row[t]);
      }
    };
    visit_score_rows({group.q[h].view(), 0, group.keys, group.scale, group.window}, positions,
                     scratch, measure);
  }
}

/// Keys that the chunk's queries load for one KV head; own positions that whole_cache forces are
/// not counted.
Index loaded_keys(const QuokaOptions& options, const QuokaChunk& chunk, bool selects,
                  std::span<const Index> kept) {
  if (!selects || chunk.candidates.size() == 0) return chunk.tokens.end;
  const auto n_kept = static_cast<Index>(kept.size());
  return options.scope == QuokaScope::past_plus_chunk ? n_kept + chunk.tokens.size() : n_kept;
}

/// Share of the oracle's keys that were kept; both ascending.
double overlap(std::span<const Index> oracle, std::span<const Index> kept) {
  std::vector<Index> both;
  std::set_intersection(oracle.begin(), oracle.end(), kept.begin(), kept.end(),
                        std::back_inserter(both));
  return static_cast<double>(both.size()) / static_cast<double>(oracle.size());
}

/// S_q of every position against the mean query of the whole prompt (the paper's figure 2).
void write_prompt_s_q(const TraceInfo& info, const QuokaOptions& options, const Group& group,
                      QuokaLayer& out) {
  const Index n_prompt = std::clamp<Index>(info.n_prompt, 1, info.n_tokens);
  for (std::size_t h = 0; h < group.q.size(); ++h) {
    const auto q = group.q[h].view();
    const auto mean = quoka_mean_query(q.range(0, 0, n_prompt), options.mean, options.eps);
    const auto cosines = quoka_cosines(q, mean, options.eps);
    const auto stored = out.s_q_prompt.view().row(group.first_head + static_cast<Index>(h));
    std::transform(cosines.begin(), cosines.end(), stored.begin(),
                   [](double c) { return static_cast<float>(-c); });
  }
}

}  // namespace

QuokaPlan::QuokaPlan(const TraceInfo& info, const QuokaOptions& options) {
  const Index n_prompt = std::clamp<Index>(info.n_prompt, 0, info.n_tokens);
  for (Index begin = 0; begin < info.n_tokens;) {
    const bool decodes = begin >= n_prompt;
    QuokaChunk chunk;
    chunk.tokens = {begin, decodes ? begin + 1 : std::min(begin + options.chunk, n_prompt)};
    if (!(decodes && options.decode == QuokaDecode::dense)) {
      chunk.candidates = {
          0, options.scope == QuokaScope::whole_cache ? chunk.tokens.end : chunk.tokens.begin};
    }
    const Index n = chunk.candidates.size();
    const double share = options.ratio * static_cast<double>(n);
    const Index wanted = options.budget_kind == BudgetKind::tokens
                             ? options.budget
                             : std::max<Index>(1, static_cast<Index>(share));
    chunk.budget = std::min(wanted, n);
    chunk.score_begin = n_scores;
    chunk.kept_begin = n_kept;
    n_scores += n;
    n_kept += chunk.budget;
    if (!decodes && chunk.tokens.size() == options.chunk) {
      last_whole_chunk = static_cast<Index>(chunks.size());
    }
    chunks.push_back(chunk);
    begin = chunk.tokens.end;
  }
}

QuokaLayer::QuokaLayer(const TraceInfo& info, const QuokaPlan& plan, const QuokaOptions& options) {
  const auto n_q = static_cast<Index>(info.q_heads.size());
  const auto n_kv = static_cast<Index>(info.kv_heads.size());
  const auto n_chunks = static_cast<Index>(plan.chunks.size());
  for (Tensor<float>* t : {&s_q, &s_q_prompt, &mass, &log_max_weight, &breadth}) {
    *t = Tensor<float>({n_q, info.n_tokens});
  }
  selected_queries = Tensor<std::int32_t>({n_q, n_chunks, options.n_queries});
  key_scores = Tensor<float>({n_kv, options.store_key_scores ? plan.n_scores : 0});
  selected = Tensor<std::int32_t>({n_kv, plan.n_kept});
  oracle_recall = Tensor<float>({n_kv, n_chunks});
  loaded = Tensor<std::int32_t>({n_kv, n_chunks});
  sink_selected = Tensor<std::uint8_t>({n_kv, n_chunks});
  zero_mean = Tensor<std::uint8_t>({n_kv, n_chunks});
  std::fill(mass.flat().begin(), mass.flat().end(), 1.0f);
  std::fill(selected_queries.flat().begin(), selected_queries.flat().end(), -1);
  std::fill(selected.flat().begin(), selected.flat().end(), -1);
  std::fill(key_scores.flat().begin(), key_scores.flat().end(), kNanF);
  std::fill(oracle_recall.flat().begin(), oracle_recall.flat().end(), kNanF);
}

bool quoka_selects_in(const TraceInfo& info, const QuokaOptions& options, Index layer) {
  return layer >= options.dense_layers && !window_of(info, layer);
}

void quoka_group(const TraceSource& trace, const QuokaOptions& options, const QuokaPlan& plan,
                 Index layer, Index kv_slot, ThreadPool& pool, std::stop_token stop,
                 QuokaLayer& out) {
  const TraceInfo& info = trace.info();
  const TokenRange all{0, info.n_tokens};
  const Index kv_head = info.kv_heads[static_cast<std::size_t>(kv_slot)];
  const Tensor<float> k = trace.read_k(layer, kv_head, all);
  Group group{layer,
              kv_slot,
              kv_slot * info.group(),
              window_of(info, layer),
              quoka_selects_in(info, options, layer),
              static_cast<double>(info.score_scale),
              {},
              {},
              KeyTable(k.view()),
              KeyTable::unit(k.view(), options.eps)};
  for (Index r = 0; r < info.group(); ++r) {
    const Index q_head = info.q_heads[static_cast<std::size_t>(group.first_head + r)];
    group.q.push_back(trace.read_q(layer, q_head, all));
    group.sinks.push_back(info.sink(layer, q_head));
  }
  write_prompt_s_q(info, options, group, out);

  std::vector<ScoreRows> scratch(static_cast<std::size_t>(pool.n_threads()));
  pool.parallel_for(static_cast<Index>(plan.chunks.size()), [&](Index c, int worker) {
    check_stop(stop, "quoka");
    const QuokaChunk& chunk = plan.chunks[static_cast<std::size_t>(c)];
    ScoreRows& scores = scratch[static_cast<std::size_t>(worker)];
    const std::vector<Index> kept = select_keys(group, options, chunk, c, scores, out);
    out.loaded(kv_slot, c) =
        static_cast<std::int32_t>(loaded_keys(options, chunk, group.selects, kept));
    const bool wants_oracle = group.selects && chunk.cuts();
    std::vector<double> best_weight(
        wants_oracle ? static_cast<std::size_t>(chunk.candidates.size()) : 0, 0.0);
    measure_rows(group, options, chunk, kept, scores, best_weight, out);
    if (wants_oracle) {
      const std::vector<Index> oracle = top_k_sorted_by_index(best_weight, chunk.budget);
      out.oracle_recall(kv_slot, c) = static_cast<float>(overlap(oracle, kept));
    }
  });
}

}  // namespace kvscope
