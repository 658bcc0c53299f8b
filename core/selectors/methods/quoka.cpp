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
#include <cstdint>
#include <limits>
#include <numeric>

#include "core/attention/quoka_scores.hpp"
#include "core/attention/topk.hpp"
#include "core/selectors/cost_units.hpp"
#include "core/selectors/registry.hpp"
#include "core/selectors/shared_scores.hpp"

namespace kvscope {

namespace {

enum class Scope { past, whole };
enum class QueryChoice { farthest, nearest, random, last, all };
enum class Aggregate { max, mean };
enum class Similarity { cosine, dot };

}  // namespace

template <>
struct EnumNames<Scope> {
  static constexpr std::array<std::string_view, 2> value = {"past", "whole"};
};
template <>
struct EnumNames<QueryChoice> {
  static constexpr std::array<std::string_view, 5> value = {"farthest", "nearest", "random", "last",
                                                            "all"};
};
template <>
struct EnumNames<Aggregate> {
  static constexpr std::array<std::string_view, 2> value = {"max", "mean"};
};
template <>
struct EnumNames<Similarity> {
  static constexpr std::array<std::string_view, 2> value = {"cosine", "dot"};
};

namespace {

struct QuokaSelectorOptions {
  Index n_queries = 16;
  QueryChoice queries = QueryChoice::farthest;
  QuokaMean mean = QuokaMean::raw;
  QuokaPairing pairing = QuokaPairing::rank;
  Scope scope = Scope::past;
  Aggregate aggregate = Aggregate::max;
  Similarity similarity = Similarity::cosine;
  bool mask_scores = true;
  bool force_self = true;
  Index dense_layers = 0;
  Index seed = 0;
  double eps = 1e-12;

  template <class Self, class Visit>
  static void visit_fields(Self& self, Visit&& visit) {
    visit(Field{"n-queries", "queries of a chunk that score keys (N_Q)"}.at_least(1),
          self.n_queries);
    visit(Field{"queries", "which queries score: by cosine to the chunk's mean query, or by rule"},
          self.queries);
    visit(Field{"mean", "mean of the raw queries or of their unit vectors"}, self.mean);
    visit(Field{"pairing", "which tokens of a group's heads share a slot"}, self.pairing);
    visit(Field{"scope",
                "past: the chunk is forced beside the budget; whole: its keys compete inside"},
          self.scope);
    visit(Field{"aggregate", "over the slots of a chunk"}, self.aggregate);
    visit(Field{"similarity", "cosine, or the dot product of the published ablation"},
          self.similarity);
    visit(Field{"mask-scores", "scope=whole: a query does not score later keys"}, self.mask_scores);
    visit(Field{"force-self", "scope=whole: every query keeps its own position"}, self.force_self);
    visit(Field{"dense-layers", "leading layers kept dense"}.at_least(0), self.dense_layers);
    visit(Field{"seed", "queries=random: the draw"}.at_least(0), self.seed);
    visit(Field{"eps", "vectors are divided by max(norm, eps)"}.at_least(0.0), self.eps);
  }
};

/// A key that no slot may score: behind every other one, but still there for a budget that takes
/// everything.
constexpr double kUnscored = std::numeric_limits<double>::lowest();

/// A well mixed word for (seed, layer, head, position): the same draw whatever was drawn before
/// (splitmix64's mixer).
std::uint64_t mixed(std::initializer_list<Index> words) {
  std::uint64_t state = 0;
  for (const Index word : words) {
    state += static_cast<std::uint64_t>(word) + 0x9E3779B97F4A7C15ULL;
    state = (state ^ (state >> 30)) * 0xBF58476D1CE4E5B9ULL;
    state = (state ^ (state >> 27)) * 0x94D049BB133111EBULL;
    state ^= state >> 31;
  }
  return state;
}

class Quoka final : public SharedScoreSelector {
 public:
  explicit Quoka(const QuokaSelectorOptions& options) : options_(options) {}
  std::string_view name() const override { return "quoka"; }
  SelectorCaps caps() const override {
    SelectorCaps caps;
    caps.prefill = caps.decode = caps.verify = true;
    caps.owner = ListOwner::kv_head;
    caps.budgets = {Budget::Kind::tokens, Budget::Kind::ratio};
    caps.forced_inside_budget = options_.scope == Scope::whole;
    caps.dense_layers = options_.dense_layers;
    return caps;
  }

  SelectCost cost(const SelectCall& call, const Selection& selection) const override {
    if (selection.is_dense) return {};
    const auto d = static_cast<double>(call.q.dim(2));
    const auto n_tok = static_cast<double>(call.n_tok);
    const double n_keys = alive_keys(call, scored_range(call));  // of all KV heads
    const bool sub_selects =
        options_.queries != QueryChoice::all && call.n_tok > options_.n_queries;
    const bool takes_cosines = sub_selects && (options_.queries == QueryChoice::farthest ||
                                               options_.queries == QueryChoice::nearest);
    const double n_slots = sub_selects ? static_cast<double>(options_.n_queries) : n_tok;
    SelectCost cost;
    if (takes_cosines) cost.score_flops += 4.0 * static_cast<double>(call.q.dim(0)) * n_tok * d;
    if (options_.similarity == Similarity::cosine) cost.score_flops += 3.0 * n_keys * d;
    cost.score_flops += 2.0 * n_slots * n_keys * d + n_slots * n_keys;
    cost.score_bytes = n_keys * d * kBytesPerElement;
    return cost;
  }

 protected:
  bool is_dense(const SelectCall& call) const override {
    return call.layer < options_.dense_layers;
  }

  bool scores_keys_apart() const override { return true; }

  void begin_call(const SelectCall& call, Summaries&) override {
    if (options_.similarity == Similarity::cosine && call.engine != nullptr) {  // before threads read them
      call.engine->run(call.k.dim(0), [&](Index kv_head, ScoreWorker&) {
        call.engine->inverse_norms(call.layer, kv_head, call.k.sub(kv_head), scored_range(call), options_.eps);
      });
    }
    if (call.trace == nullptr) return;
    call.trace->cosines.resize(static_cast<std::size_t>(call.q.dim(0)));
    call.trace->picks.resize(static_cast<std::size_t>(call.q.dim(0)));
    call.trace->has_zero_mean.assign(static_cast<std::size_t>(call.k.dim(0)), 0);
  }

  TokenRange scored_range(const SelectCall& call) const override {
    return options_.scope == Scope::past ? past_range(call) : call_range(call);
  }

  std::vector<double> score_keys(const SelectCall& call, const Owner& owner, TokenRange keys,
                                 ScoreWorker& worker) override {
    std::vector<TensorView<const float>> heads;
    for (Index q_head = owner.q_heads.begin; q_head < owner.q_heads.end; ++q_head)
      heads.push_back(call.q.sub(q_head));
    const std::vector<std::vector<Index>> picks = pick_queries(call, owner, heads);
    if (call.trace != nullptr) trace_queries(*call.trace, owner, heads, picks);
    const Tensor<double> slots = quoka_slot_means(
        heads, picks, /*unit=*/options_.similarity == Similarity::cosine, options_.eps);
    const std::vector<Index> slot_end = slot_ends(call, picks);
    const auto k = call.k.sub(owner.kv_head);
    std::vector<double> scores(static_cast<std::size_t>(keys.size()));
    if (options_.aggregate == Aggregate::max) {
      worker.dots.compute_largest(slots.flat(), slots.dim(0), k, keys, slot_end, kUnscored, scores);
    } else {
      mean_products(slots, slot_end, k, keys, worker, scores);
    }
    if (options_.similarity == Similarity::cosine) {
      const std::span<const double> factors =
          engine_of(call).inverse_norms(call.layer, owner.kv_head, k, keys, options_.eps);
      for (std::size_t t = 0; t < scores.size(); ++t) {
        if (scores[t] > kUnscored) scores[t] *= factors[t];
      }
    }
    return scores;
  }

  KeyList make_list(const SelectCall& call, const Owner& owner, std::span<const double> scores,
                    TokenRange keys, ScoreWorker& worker, Summaries& summaries) override {
    if (options_.scope == Scope::past) {
      return SharedScoreSelector::make_list(call, owner, scores, keys, worker, summaries);
    }
    const auto n_candidates = static_cast<Index>(candidates(call, owner.kv_head, keys).size());
    return top_k_list(scores, keys, call.budget.tokens(n_candidates, /*page_size=*/1));
  }

  /// scope=whole: one list per query, so that each can hold its own position.
  void finish(const SelectCall& call, Selection& selection) const override {
    if (options_.scope != Scope::whole || !options_.force_self) return;
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
  /// Says which queries were chosen and how far each is from its head's mean query.
  void trace_queries(SelectionTrace& trace, const Owner& owner, std::span<const TensorView<const float>> heads,
                     const std::vector<std::vector<Index>>& picks) const {
    for (std::size_t h = 0; h < heads.size(); ++h) {
      const auto q_head = static_cast<std::size_t>(owner.q_heads.begin) + h;
      const std::vector<double> mean = quoka_mean_query(heads[h], options_.mean, options_.eps);
      if (norm_of(mean) <= options_.eps) trace.has_zero_mean[static_cast<std::size_t>(owner.kv_head)] = 1;
      trace.cosines[q_head] = quoka_cosines(heads[h], mean, options_.eps);
      trace.picks[q_head] = picks[h];
    }
  }

  /// Mean product of each key with the slots that may score it; kUnscored where there is none.
  static void mean_products(const Tensor<double>& slots, std::span<const Index> slot_end, TensorView<const float> k,
                            TokenRange keys, ScoreWorker& worker, std::span<double> scores) {
    worker.dots.compute(slots.flat(), slots.dim(0), k, keys);
    std::vector<Index> n_scoring(scores.size());
    for (Index slot = 0; slot < slots.dim(0); ++slot) {
      const auto row = worker.dots.row(slot);
      const Index end = std::min(keys.end, slot_end[static_cast<std::size_t>(slot)]);
      for (std::size_t t = 0; t < static_cast<std::size_t>(std::max<Index>(end - keys.begin, 0)); ++t) {
        scores[t] += row[t];
        ++n_scoring[t];
      }
    }
    for (std::size_t t = 0; t < scores.size(); ++t) {
      scores[t] = n_scoring[t] > 0 ? scores[t] / static_cast<double>(n_scoring[t]) : kUnscored;
    }
  }

  /// [group][n_slots] rows of the call.
  std::vector<std::vector<Index>> pick_queries(
      const SelectCall& call, const Owner& owner,
      std::span<const TensorView<const float>> heads) const {
    const Index n = std::min(options_.n_queries, call.n_tok);
    std::vector<Index> rule = all_rows(call);
    if (call.n_tok <= options_.n_queries || options_.queries == QueryChoice::all) {
      return std::vector<std::vector<Index>>(heads.size(), rule);
    }
    switch (options_.queries) {
      case QueryChoice::farthest:
        return quoka_select_queries(heads, {n, options_.mean, options_.pairing, options_.eps})
            .picks;
      case QueryChoice::nearest:
        return nearest_queries(heads, n);
      case QueryChoice::last:
        rule.erase(rule.begin(), rule.end() - n);
        break;
      case QueryChoice::random: {
        const auto draw = [&](Index row) {
          return mixed({options_.seed, call.layer, owner.index, call.pos_begin + row});
        };
        std::sort(rule.begin(), rule.end(), [&](Index a, Index b) {
          const std::uint64_t x = draw(a);
          const std::uint64_t y = draw(b);
          return x != y ? x < y : a < b;
        });
        rule.resize(static_cast<std::size_t>(n));
        std::sort(rule.begin(), rule.end());
        break;
      }
      case QueryChoice::all:
        break;
    }
    return std::vector<std::vector<Index>>(heads.size(), rule);
  }

  /// The queries most like the mean query, with the pairing of the method.
  std::vector<std::vector<Index>> nearest_queries(std::span<const TensorView<const float>> heads,
                                                  Index n) const {
    std::vector<std::vector<double>> cosines;
    for (const auto& head : heads) {
      cosines.push_back(
          quoka_cosines(head, quoka_mean_query(head, options_.mean, options_.eps), options_.eps));
    }
    if (options_.pairing == QuokaPairing::shared_tokens) {
      std::vector<double> mean(cosines[0].size(), 0.0);
      for (const auto& head : cosines) {
        for (std::size_t i = 0; i < mean.size(); ++i)
          mean[i] += head[i] / static_cast<double>(cosines.size());
      }
      return std::vector<std::vector<Index>>(heads.size(), top_k(mean, n));
    }
    std::vector<std::vector<Index>> picks;
    for (const auto& head : cosines) {
      picks.push_back(options_.pairing == QuokaPairing::rank ? top_k(head, n)
                                                             : top_k_sorted_by_index(head, n));
    }
    return picks;
  }

  /// The end of the keys that a slot may score: no later key than any of its tokens sees.
  std::vector<Index> slot_ends(const SelectCall& call,
                               const std::vector<std::vector<Index>>& picks) const {
    std::vector<Index> ends(picks[0].size(), chunk_range(call).end);
    if (options_.scope == Scope::past || !options_.mask_scores) return ends;
    for (const auto& head : picks) {
      for (std::size_t slot = 0; slot < ends.size(); ++slot) {
        ends[slot] = std::min(ends[slot], call.pos_begin + head[slot] + 1);
      }
    }
    return ends;
  }

  QuokaSelectorOptions options_;
};

}  // namespace

void register_quoka(SelectorRegistry& registry) {
  registry.add<Quoka, QuokaSelectorOptions>("quoka", "QuoKA: query-oriented KV selection",
                                            "arXiv 2602.08722",
                                            "scores keys by their largest cosine with the queries "
                                            "that differ most from the chunk's mean query");
}

}  // namespace kvscope
