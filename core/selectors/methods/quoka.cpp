// quoka: query-oriented KV selection for chunked prefill (arXiv 2602.08722, ICLR 2026). No public
// code.
//
// Idea: queries that point away from the chunk's mean query are the ones that attend to something
// particular. Per query head keep the n-queries of lowest cosine to the mean; make them unit
// vectors; average slot j over the heads of a KV group without normalising again; a key's score is
// the largest product of its unit vector with these slots; keep the best. One list per KV head
// serves the whole chunk and all heads of the group; attention uses the original keys and all
// queries.
//
// Cost per call and layer, T the keys that compete (those before the call, with scope=whole its own
// too): choosing queries by cosine 4 n_q C d; scores 2 n_kv N_Q T d, the largest n_kv N_Q T, key
// norms 3 n_kv T d (none for dot products). It reads every such key once (n_kv T d b), so in decode
// it cannot save more than half of the traffic.
//
// Stores nothing (a real system would cache the key norms).
//
// Fails when the decisive query is close to the mean, and when a key matters by its length rather
// than its direction.
//
// Decided where the paper is silent: past keys only are scored and the chunk is forced
// (scope=past); budgets apply to the past; scope=whole lets chunk keys compete inside the budget,
// with non-causal pairs out of the scores (mask-scores; a key that no chosen query sees ranks last)
// and each query's own position forced (force-self). Slots pair by rank. Zero vectors score 0. In
// decode the single query is the slot. Ratios are of the candidates of the active scope.
#include <algorithm>

#include "core/attention/quoka_scores.hpp"
#include "core/base/splitmix64.hpp"
#include "core/selectors/cost_units.hpp"
#include "core/selectors/key_lists.hpp"
#include "core/selectors/registry.hpp"
#include "core/selectors/shared_scores.hpp"

namespace kvscope {

namespace {

enum class Scope { past, whole };

/// A well mixed word for (seed, layer, head, position): the same draw whatever was drawn before.
std::uint64_t mixed(std::initializer_list<Index> words) {
  std::uint64_t state = 0;
  for (const Index word : words)
    state = splitmix64_mix(state + static_cast<std::uint64_t>(word) + kSplitMix64Step);
  return state;
}

class Quoka final : public SharedScoreSelector, QuokaRules {
 public:
  Scope scope_ =
      option(scope_, "scope", Scope::past,
             "past: the chunk is forced on top of the budget; whole: its keys compete within it");

  SelectorCaps caps() const override {
    return {.budgets = kTokenBudgets,
            .forced_inside_budget = scope_ == Scope::whole,
            .dense_layers = dense_layers};
  }

  std::optional<ListPlan> plan(const Budget& budget, Phase) const override {
    const Quoka usual;
    const bool is_usual = scope_ == usual.scope_ && queries == usual.queries &&
                          mean == usual.mean && pairing == usual.pairing &&
                          aggregate == usual.aggregate && similarity == usual.similarity;
    if (!is_usual || budget.kind != Budget::Kind::tokens) return std::nullopt;
    return ListPlan{.by = ListPlan::By::far_cosines,
                    .budget = static_cast<Index>(budget.value),
                    .n_queries = n_queries,
                    .eps = eps};
  }

  std::string why_no_scores() const override {
    const bool has_row_lists = scope_ == Scope::whole && force_self;
    return has_row_lists ? "gives each query a list with its own position (expected scope=past)"
                         : "";
  }

  HostRows host_rows() const override {
    return scope_ == Scope::past && aggregate == QuokaAggregate::max ? HostRows::queries
                                                                     : HostRows::all;
  }
  SelectCost cost(const SelectCall& call, const Selection& selection) const override {
    if (selection.is_dense) return {};
    const auto d = static_cast<double>(call.q.dim(2));
    const auto n_tok = static_cast<double>(call.n_tok);
    const double n_keys = alive_keys(call, scored_range(call));  // of all KV heads
    const double n_slots = leaves_out_queries(call) ? static_cast<double>(n_queries) : n_tok;
    SelectCost cost = products_cost(n_slots, n_keys, d);
    if (takes_cosines(call))
      cost.score_flops += 4.0 * static_cast<double>(call.q.dim(0)) * n_tok * d;
    if (similarity == QuokaSimilarity::cosine) cost.score_flops += 3.0 * n_keys * d;
    cost.score_flops += n_slots * n_keys;
    return cost;
  }

 protected:
  bool scores_keys_apart() const override { return true; }

  /// The slots of every KV head, and its keys' norms, before threads share them.
  void prepare(const SelectCall& call) override {
    if (call.trace != nullptr) {
      call.trace->cosines.resize(static_cast<std::size_t>(call.q.dim(0)));
      call.trace->picks.resize(static_cast<std::size_t>(call.q.dim(0)));
      call.trace->has_zero_mean.assign(static_cast<std::size_t>(call.k.dim(0)), 0);
    }
    const Index group = call.q.dim(0) / call.k.dim(0);
    slots_.resize(static_cast<std::size_t>(call.k.dim(0)));
    engine_of(call).run(call.k.dim(0), [&](Index kv_head, ScoreWorker&) {
      if (similarity == QuokaSimilarity::cosine && call.engine != nullptr &&
          call.remote == nullptr) {
        call.engine->inverse_norms(call.layer, kv_head, call.k.sub(kv_head), scored_range(call),
                                   eps);
      }
      slots_[static_cast<std::size_t>(kv_head)] =
          slots_of(call, {kv_head, {kv_head * group, (kv_head + 1) * group}, kv_head});
    });
  }

  TokenRange scored_range(const SelectCall& call) const override {
    return scope_ == Scope::past ? past_range(call) : call_range(call);
  }

  bool score_owners(const SelectCall& call, ListOwner, TokenRange keys,
                    std::span<const std::span<double>> scores) override {
    if (call.remote == nullptr) return false;
    std::vector<double> vectors;
    for (const Slots& slots : slots_)
      vectors.insert(vectors.end(), slots.means.flat().begin(), slots.means.flat().end());
    call.remote->largest_scores(vectors, keys, scores);
    if (similarity != QuokaSimilarity::cosine) return true;
    const KeyValues factors = call.remote->inverse_norms({}, eps);
    for (std::size_t i = 0; i < scores.size(); ++i) {
      const double* const of_head = factors[i].data() + keys.begin;
      for (std::size_t t = 0; t < scores[i].size(); ++t) scores[i][t] *= of_head[t];
    }
    return true;
  }

  std::vector<double> score_keys(const SelectCall& call, const Owner& owner, TokenRange keys,
                                 ScoreWorker& worker) override {
    const auto& [slots, slot_end] = slots_[static_cast<std::size_t>(owner.kv_head)];
    const auto k = call.k.sub(owner.kv_head);
    std::vector<double> scores(static_cast<std::size_t>(keys.size()));
    if (aggregate == QuokaAggregate::max) {
      worker.dots.compute_largest(slots.flat(), slots.dim(0), k, keys, slot_end, kQuokaUnscored,
                                  scores);
    } else {
      mean_products(slots, slot_end, k, keys, worker, scores);
    }
    if (similarity == QuokaSimilarity::cosine) {
      const std::span<const double> factors =
          engine_of(call).inverse_norms(call.layer, owner.kv_head, k, keys, eps);
      for (std::size_t t = 0; t < scores.size(); ++t) {
        if (scores[t] > kQuokaUnscored) scores[t] *= factors[t];
      }
    }
    return scores;
  }

  KeyList make_list(const SelectCall& call, const Owner& owner, std::span<const double> scores,
                    TokenRange keys, ScoreWorker& worker, Summaries& summaries) override {
    if (scope_ == Scope::past) {
      return SharedScoreSelector::make_list(call, owner, scores, keys, worker, summaries);
    }
    const Index n_candidates = count_candidates(call, owner.kv_head, keys);
    return top_k_list(scores, keys, call.budget.tokens(n_candidates, /*page_size=*/1));
  }

  /// scope=whole: one list per query, so that each can hold its own position.
  void finish(const SelectCall& call, Selection& selection) const override {
    if (scope_ != Scope::whole || !force_self) return;
    Selection per_row(selection.owner, call.n_tok, /*list_rows=*/1);
    for (Index kv_head = 0; kv_head < selection.n_lists(); ++kv_head) {
      const KeyList shared{selection.at(kv_head).scored(), selection.at(kv_head).forced(), {}};
      for (Index row = 0; row < call.n_tok; ++row) {
        KeyList list = shared;
        const Index pos = call.pos_begin + row;
        force_keys(list, candidates(call, kv_head, TokenRange{pos, pos + 1}));
        per_row.add(list);
      }
    }
    selection = std::move(per_row);
  }

 private:
  /// What scores the keys of one KV head.
  struct Slots {
    Tensor<double> means;    // [n_slots, d_head]
    std::vector<Index> end;  // [n_slots] the end of the keys that each may score
  };

  Slots slots_of(const SelectCall& call, const Owner& owner) const {
    std::vector<TensorView<const float>> heads;
    for (Index q_head = owner.q_heads.begin; q_head < owner.q_heads.end; ++q_head)
      heads.push_back(call.q.sub(q_head));
    QuokaCosines cosines;
    if (call.trace != nullptr || takes_cosines(call)) {
      cosines = quoka_group_cosines(heads, mean, eps);
    }
    const std::vector<std::vector<Index>> picks = pick_queries(call, owner, cosines.heads);
    if (call.trace != nullptr) trace_queries(*call.trace, owner, cosines, picks);
    return {quoka_slot_means(heads, picks, /*unit=*/similarity == QuokaSimilarity::cosine, eps),
            slot_ends(call, picks)};
  }

  /// True if the chunk has more queries than score keys.
  bool leaves_out_queries(const SelectCall& call) const {
    return queries != QuokaQueryChoice::all && call.n_tok > n_queries;
  }
  bool takes_cosines(const SelectCall& call) const {
    return leaves_out_queries(call) &&
           (queries == QuokaQueryChoice::farthest || queries == QuokaQueryChoice::nearest);
  }

  /// Says which queries were chosen and how far each is from its head's mean query.
  static void trace_queries(SelectionTrace& trace, const Owner& owner, const QuokaCosines& cosines,
                            const std::vector<std::vector<Index>>& picks) {
    trace.has_zero_mean[static_cast<std::size_t>(owner.kv_head)] = cosines.has_zero_mean;
    for (std::size_t h = 0; h < picks.size(); ++h) {
      const auto q_head = static_cast<std::size_t>(owner.q_heads.begin) + h;
      trace.cosines[q_head] = cosines.heads[h];
      trace.picks[q_head] = picks[h];
    }
  }

  /// Mean product of each key with the slots that may score it; kQuokaUnscored where there is none.
  static void mean_products(const Tensor<double>& slots, std::span<const Index> slot_end,
                            TensorView<const float> k, TokenRange keys, ScoreWorker& worker,
                            std::span<double> scores) {
    worker.dots.compute(slots.flat(), slots.dim(0), k, keys);
    std::vector<Index> n_scoring(scores.size());
    for (Index slot = 0; slot < slots.dim(0); ++slot) {
      const auto row = worker.dots.row(slot);
      const Index end = std::min(keys.end, slot_end[static_cast<std::size_t>(slot)]);
      for (std::size_t t = 0; t < static_cast<std::size_t>(std::max<Index>(end - keys.begin, 0));
           ++t) {
        scores[t] += row[t];
        ++n_scoring[t];
      }
    }
    for (std::size_t t = 0; t < scores.size(); ++t) {
      scores[t] = n_scoring[t] > 0 ? scores[t] / static_cast<double>(n_scoring[t]) : kQuokaUnscored;
    }
  }

  /// [group][n_slots] rows of the call. cosines [group][n_tok], where the choice goes by them.
  std::vector<std::vector<Index>> pick_queries(const SelectCall& call, const Owner& owner,
                                               std::vector<std::vector<double>> cosines) const {
    const auto group = static_cast<std::size_t>(owner.q_heads.size());
    std::vector<Index> rows = all_rows(call);
    if (!leaves_out_queries(call)) return std::vector(group, rows);
    switch (queries) {
      case QuokaQueryChoice::nearest:
        for (auto& head : cosines) {
          for (double& cosine : head) cosine = -cosine;
        }
        [[fallthrough]];
      case QuokaQueryChoice::farthest:
        return quoka_pick_slots(cosines, n_queries, pairing);
      case QuokaQueryChoice::last:
        rows.erase(rows.begin(), rows.end() - n_queries);
        break;
      case QuokaQueryChoice::random: {
        const auto draw = [&](Index row) {
          return mixed({seed, call.layer, owner.index, call.pos_begin + row});
        };
        std::sort(rows.begin(), rows.end(), [&](Index a, Index b) {
          const std::uint64_t x = draw(a);
          const std::uint64_t y = draw(b);
          return x != y ? x < y : a < b;
        });
        rows.resize(static_cast<std::size_t>(n_queries));
        std::sort(rows.begin(), rows.end());
        break;
      }
      case QuokaQueryChoice::all:
        break;
    }
    return std::vector(group, rows);
  }

  /// The end of the keys that a slot may score: no later key than any of its tokens sees.
  std::vector<Index> slot_ends(const SelectCall& call,
                               const std::vector<std::vector<Index>>& picks) const {
    std::vector<Index> ends(picks[0].size(), chunk_range(call).end);
    if (scope_ == Scope::past || !mask_scores) return ends;
    for (const auto& head : picks) {
      for (std::size_t slot = 0; slot < ends.size(); ++slot) {
        ends[slot] = std::min(ends[slot], call.pos_begin + head[slot] + 1);
      }
    }
    return ends;
  }

  std::vector<Slots> slots_;  // [n_kv] of the running call
};

}  // namespace

void register_quoka(SelectorRegistry& registry) {
  registry.add<Quoka>("quoka", "QuoKA: query-oriented KV selection", "arXiv 2602.08722",
                      "scores keys by their largest cosine with the queries "
                      "that differ most from the chunk's mean query");
}

}  // namespace kvscope
