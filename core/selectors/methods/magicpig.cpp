// magicpig: keys are sampled by hash collisions with the query and weighed by the probability of
// theirs (MagicPIG, arXiv 2410.16179, ICLR 2025; Infini-AI-Lab/MagicPIG; sparse-attention-hub).
//
// Idea: L hash tables of K sign bits of random projections. A key that meets the query in at least
// two tables (paper; one: sparse-attention-hub) is attended to. It does so with a probability that
// follows from their angle: p = 1 - angle / pi, u = 1 - (1 - p^K)^L - L p^K (1 - p^K)^(L - 1); with
// its score lowered by log u the estimate of the softmax sum is unbiased. The first and the latest
// keys are always kept, every 16th layer stays dense.
//
// Cost per call and layer with T keys before it: 2 (n_q + n_kv) n_tok K L d FLOPs for the codes of
// the queries and of the call's own keys; reads n_kv T L K / 8 bytes of codes. Stores these for
// every key, and K L (d + 1) elements of projections per KV head. (Here tables are lists of
// positions, 4 L bytes a key, and only the buckets of the query are read: a scan of codes would
// read 1.5 times what dense attention reads of K at 64 channels.) The tables are filled when decode
// begins, K L products a key: at 150 tables of 10 bits that alone costs as much as 750 dense decode
// steps of one query head per KV head.
//
// Time of a choice over dense attention of one decode step at 32k keys (8 query and 2 KV heads
// of 64 channels, one thread): 0.25 to 0.7 with 1.7 % of the keys sampled, 1 to 4 with
// magicpig-hub and 25 %. Each query head scores its own sample key by key and works out each
// key's probability (an arc cosine and four logarithms or exponentials); dense attention reads a
// key once for its group.
//
// Fails where the wanted keys are not nearer to the query than the crowd: at K = 10 and L = 150 a
// key at a right angle is sampled with u = 1 %, and scores of one text lie close together in angle.
// There is no budget: K and L decide how much is kept.
//
// Decided where the sources differ or are silent: keys are centred by the mean and lengthened to
// the largest norm (SimpleLSH) of the keys before the first call that is asked about, and again
// when they have doubled; a longer key that comes later gets no length. Queries are not centred
// (the hub subtracts the keys' mean from them too): a shift of all keys changes no softmax, and so
// no choice here. Projections are named by (seed, layer, KV head). Decode, as published, and
// verification row by row; the call's own keys are kept.
#include <algorithm>
#include <cmath>

#include "core/attention/score_rows.hpp"
#include "core/selectors/candidates.hpp"
#include "core/selectors/cost_units.hpp"
#include "core/selectors/fit_history.hpp"
#include "core/selectors/lsh_tables.hpp"
#include "core/selectors/owners.hpp"
#include "core/selectors/registry.hpp"

namespace kvscope {

namespace {

class MagicPig final : public Selector {
 public:
  Index n_bits_ = option(n_bits_, "bits", 10, "sign bits of a table's code (K)", in(1, 12));
  Index n_tables_ = option(n_tables_, "tables", 150, "hash tables (L)", in(2, 512));
  Index n_needed_ =
      option(n_needed_, "needed", 2, "tables in which a key must meet the query", in(1, 2));
  Index n_sink_ = option(n_sink_, "n-sink", 4, "first tokens, always kept", at_least(0));
  Index n_recent_ =
      option(n_recent_, "n-recent", 64, "latest tokens before the call, always kept", at_least(0));
  Index dense_every_ = option(dense_every_, "dense-every", 16,
                              "layers 0, n, 2n, ... stay dense; 0: none", at_least(0));
  Index seed_ = option(seed_, "seed", 1, "names the random projections", at_least(0));

  SelectorCaps caps() const override {
    return {.prefill = false,
            .owner = ListOwner::q_head,
            .needs_all_heads = true,
            .dense_layers = dense_every_ > 0 ? 1 : 0};
  }

  Selection do_select(const SelectCall& call) override {
    if (is_dense(call.layer)) return dense_selection(call, ListOwner::q_head);
    hash_past(call);
    return select_by_query(call, [&](const ListHeads& heads, Index row, ScoreWorker& worker) {
      return sampled_list(call, heads, row, worker.dots);
    });
  }

  SelectCost cost(const SelectCall& call, const Selection& selection) const override {
    if (selection.is_dense) return {};
    const auto n_bits = static_cast<double>(n_bits_ * n_tables_);
    return codes_cost(call, n_bits / 8.0) + own_products_cost(call, n_bits) +
           held_cost(n_bits * static_cast<double>(call.k.dim(0) * (call.k.dim(2) + 1)));
  }

 private:
  struct Head {
    explicit Head(LshTables hashes) : tables(std::move(hashes)) {}
    FitHistory<LshCentre> centres;
    LshTables tables;
    bool is_stale = true;  // the tables are not those of the current centre
    void truncate(Index n_keys) {
      is_stale = centres.truncate(n_keys) || is_stale;
      tables.truncate(n_keys);
    }
  };

  bool is_dense(Index layer) const { return dense_every_ > 0 && layer % dense_every_ == 0; }

  /// Brings the tables of all KV heads up to the keys before the call.
  void hash_past(const SelectCall& call) const {
    ScoreEngine& engine = engine_of(call);
    engine.run(call.k.dim(0), [&](Index kv_head, ScoreWorker& worker) {
      auto& head = engine.kept<Head>(this, call.layer, kv_head, [&] {
        const CounterRng rng(seed_, call.layer, kv_head);
        return Head(LshTables(rng, call.k.dim(2), n_bits_, n_tables_));
      });
      const auto past = call.k.sub(kv_head).range(0, 0, call.pos_begin);
      if (head.centres.is_due(call.pos_begin)) {
        const std::vector<KeyPos> keys = candidates(call, kv_head, TokenRange{0, call.pos_begin});
        if (keys.empty()) return;
        head.centres.add(call.pos_begin, call.pos_begin + call.n_tok, lsh_centre(past, keys));
        head.is_stale = true;
      }
      if (head.centres.empty()) return;
      if (head.is_stale) head.tables.restart(head.centres.current());
      head.is_stale = false;
      head.tables.append_up_to(past, worker.dots);
    });
  }

  KeyList sampled_list(const SelectCall& call, const ListHeads& heads, Index row,
                       KeyDots& dots) const {
    const Head& head = *engine_of(call).known<Head>(this, call.layer, heads.kv_head);
    const TokenRange visible = row_range(call, row);
    const TokenRange past{visible.begin, std::min(visible.end, call.pos_begin)};
    const Index sampled_begin = std::clamp(n_sink_, past.begin, std::max(past.begin, past.end));
    const Index sampled_end =
        std::clamp(visible.end - 1 - n_recent_, sampled_begin, std::max(sampled_begin, past.end));
    KeyList list;
    list.forced = candidates(call, heads.kv_head, TokenRange{past.begin, sampled_begin});
    const std::vector<KeyPos> latest =
        candidates(call, heads.kv_head, TokenRange{sampled_end, visible.end});
    list.forced.insert(list.forced.end(), latest.begin(), latest.end());
    if (head.tables.n_keys() == 0) return list;

    const auto k = call.k.sub(heads.kv_head);
    const std::vector<double> q = widened(call.q.sub(heads.q_heads.begin).row(row));
    std::vector<std::uint16_t> counts(static_cast<std::size_t>(head.tables.n_keys()), 0);
    head.tables.count_collisions(q, dots, counts);
    for (Index pos = sampled_begin; pos < sampled_end; ++pos) {
      if (counts[static_cast<std::size_t>(pos)] >= n_needed_ && is_alive(call, heads.kv_head, pos))
        list.scored.push_back(static_cast<KeyPos>(pos));
    }
    dots.compute_listed(q, k, list.scored);
    const std::span<const double> products = dots.row(0);
    const double q_norm = norm_of(std::span<const double>(q));
    const double on_mean = head.tables.on_mean(q);
    for (std::size_t i = 0; i < list.scored.size(); ++i) {
      const double p = head.tables.bit_probability(q_norm, products[i] - on_mean, list.scored[i]);
      const double u = lsh_sampling_probability(p, n_bits_, n_tables_, n_needed_);
      list.log_weight.push_back(static_cast<float>(-std::log(u)));
    }
    return list;
  }
};

}  // namespace

void register_magicpig(SelectorRegistry& registry) {
  SelectorEntry& entry = registry.add<MagicPig>(
      "magicpig", "MagicPIG: sampling by hashes", "arXiv 2410.16179",
      "samples the keys that collide with the query in random hash tables, weighed by their "
      "probability");
  entry.family = MethodFamily::sampling;
  entry.settings = {
      {.option = "tables", .low = 2.0, .high = 512.0, .is_whole = true, .is_log = true}};
  entry.presets["magicpig-paper"] = {{"bits", "10"}, {"tables", "150"}, {"needed", "2"}};
  entry.presets["magicpig-hub"] = {
      {"bits", "8"}, {"tables", "75"}, {"needed", "1"}, {"dense-every", "0"}};
}

}  // namespace kvscope
