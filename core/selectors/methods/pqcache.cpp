// pqcache: scores from product-quantised keys (PQCache, SIGMOD 2025, arXiv 2407.12820;
// HugoZHL/PQCache).
//
// Idea: cut the channels of a key in m parts, replace each part by the nearest of 2^b centroids,
// which k-means finds once after prefill. A query's product with all centroids is a small table; a
// key's score is the sum of m entries that its codes name. A softmax over the keys between the
// first and the latest ones, which are always kept, makes the scores of a group's heads comparable;
// the keys with the largest sum over the group are attended to exactly.
//
// Cost per call and layer with T keys before it: 2 n_q n_tok 2^b d FLOPs for the tables, n_q n_tok
// T m for the sums (group=scores: n_q n_tok d for the sum of a group's queries, 2 n_kv 2^b d and
// n_kv T m); reads n_kv T m b / 8 bytes of codes and 2^b d elements of centroids per KV head, which
// is also what it stores. k-means on T keys is 2 T 2^b d FLOPs a step and KV head, once when
// decode begins.
//
// Fails where the best keys share a code with the crowd: 2^(m b) cells are few, and m = 2 ignores
// what parts say together.
//
// What a group's heads sum is what the program sums: with metric=euclidean, its default, softmax
// weights, with metric=inner the scores themselves (group=softmax and group=scores take one of them
// in any case). A table is linear in the query, so that one table of the summed query serves a sum
// of scores. Decided where the sources are silent: in verification rows count as heads do, and the
// drafts' own keys are kept. Ties: the lowest position. k-means (core/selectors/k_means.hpp) is
// seeded, in the order of the keys, on keys without the first ones; it is run when the method is
// first asked and again when the keys have doubled; keys that come in between get the nearest code.
// metric=inner gives keys the channel sqrt(phi - |k|^2) for k-means, phi the largest |k|^2 of the
// part, so that near means a large product. m beyond d_head means d_head parts. Windows of 32
// tokens as in the program (n-sink and n-recent of 128: sparse-attention-hub, preset pqcache-hub).
// The budget buys the keys between them. Decode and verification; prefill stays dense.
#include <algorithm>
#include <cmath>

#include "core/attention/score_rows.hpp"
#include "core/selectors/cost_units.hpp"
#include "core/selectors/fit_history.hpp"
#include "core/selectors/k_means.hpp"
#include "core/selectors/list_builders.hpp"
#include "core/selectors/registry.hpp"
#include "core/selectors/shared_options.hpp"
#include "core/selectors/shared_scores.hpp"
#include "core/tensor/soft_cap_kernel.hpp"

namespace kvscope {

namespace {

enum class PqMetric { euclidean, inner };
enum class PqGroup { automatic, softmax, scores };

class PqCache final : public SharedScoreSelector {
 public:
  Index parts_ = option(parts_, "parts", 2, "parts of a key that are coded apart (m)", in(1, 256));
  Index bits_ = option(bits_, "bits", 6, "bits of a part's code (b): 2^b centroids", in(1, 8));
  Index iterations_ = option(iterations_, "iterations", 25, "steps of k-means", in(0, 1000));
  PqMetric metric_ =
      option(metric_, "metric", PqMetric::euclidean,
             "what k-means calls near: euclidean distance, or a large inner product");
  PqGroup group_ = option(
      group_, "group", PqGroup::automatic,
      "what a group's heads sum: softmax weights, scores, or what the program sums with this "
      "metric (automatic)");
  Index n_sink_ = n_sink_option(n_sink_, 32);
  Index n_recent_ = n_recent_option(n_recent_, 32);
  Index seed_ = k_means_seed_option(seed_);
  Index dense_layers_ = dense_layers_option(dense_layers_);

  SelectorCaps caps() const override {
    return {.prefill = false,
            .needs_all_heads = true,
            .budgets = kTokenBudgets,
            .dense_layers = dense_layers_};
  }

  SelectCost cost(const SelectCall& call, const Selection& selection) const override {
    if (selection.is_dense) return {};
    const auto n_kv = static_cast<double>(call.k.dim(0));
    const auto d = static_cast<double>(call.k.dim(2));
    const auto n_parts = static_cast<double>(parts_of(call.k.dim(2)));
    const double n_in_books = n_kv * std::exp2(static_cast<double>(bits_)) * d;
    const double n_sums = alive_keys(call, past_range(call)) * n_parts;
    const double n_queries = static_cast<double>(call.q.dim(0) * call.n_tok);
    const double flops = sums_weights() ? n_queries / n_kv * (2.0 * n_in_books + n_sums)
                                        : n_queries * d + 2.0 * n_in_books + n_sums;
    return codes_cost(call, n_parts * static_cast<double>(bits_) / 8.0) + flops_cost(flops) +
           read_cost(n_in_books) + held_cost(n_in_books);
  }

 protected:
  void prepare(const SelectCall& call) override {
    ScoreEngine& engine = engine_of(call);
    std::vector<Head*> heads;
    for (Index kv_head = 0; kv_head < call.k.dim(0); ++kv_head)
      heads.push_back(&engine.kept<Head>(this, call.layer, kv_head));
    const Index n_parts = parts_of(call.k.dim(2));
    // a fit is worked out part by part and stored when all parts are there
    std::vector<std::vector<KeyPos>> learners(heads.size());
    std::vector<Book> books(heads.size());
    for (std::size_t i = 0; i < heads.size(); ++i) {
      if (!heads[i]->books.is_due(call.pos_begin)) continue;
      learners[i] = candidates(call, static_cast<Index>(i),
                               TokenRange{std::min(n_sink_, call.pos_begin), call.pos_begin});
      books[i].resize(static_cast<std::size_t>(n_parts));
    }
    engine.run(call.k.dim(0) * n_parts, [&](Index task, ScoreWorker&) {
      const Index kv_head = task / n_parts;
      const std::vector<KeyPos>& keys = learners[static_cast<std::size_t>(kv_head)];
      if (keys.empty()) return;
      books[static_cast<std::size_t>(kv_head)][static_cast<std::size_t>(task % n_parts)] =
          learn(call, kv_head, task % n_parts, keys);
    });
    for (std::size_t i = 0; i < heads.size(); ++i) {
      if (learners[i].empty()) continue;
      heads[i]->books.add(call.pos_begin, call.pos_begin + call.n_tok, std::move(books[i]));
      heads[i]->n_coded = 0;
    }
    for (Head* head : heads) {
      if (!head->books.empty()) head->codes.resize(static_cast<std::size_t>(n_parts));
      for (auto& codes : head->codes) codes.resize(static_cast<std::size_t>(call.pos_begin));
    }
    engine.run(call.k.dim(0) * n_parts, [&](Index task, ScoreWorker&) {
      Head& head = *heads[static_cast<std::size_t>(task / n_parts)];
      if (!head.books.empty()) code_new_keys(call, task / n_parts, task % n_parts, head);
    });
    for (Head* head : heads) {
      if (!head->books.empty()) head->n_coded = call.pos_begin;
    }
  }

  std::vector<double> score_keys(const SelectCall& call, const Owner& owner, TokenRange keys,
                                 ScoreWorker&) override {
    std::vector<double> scores(static_cast<std::size_t>(std::max<Index>(keys.size(), 0)), 0.0);
    const Head& head = *engine_of(call).known<Head>(this, call.layer, owner.kv_head);
    if (head.books.empty()) return scores;
    if (!sums_weights()) {
      add_scores(call, head, mean_query(call, owner.q_heads), keys, scores);
      return scores;
    }
    std::vector<double> of_query(scores.size());
    for (Index q_head = owner.q_heads.begin; q_head < owner.q_heads.end; ++q_head) {
      for (Index row = 0; row < call.n_tok; ++row) {
        std::fill(of_query.begin(), of_query.end(), 0.0);
        add_scores(call, head,
                   widened(call.q.sub(q_head).row(row), static_cast<double>(call.score_scale)),
                   keys, of_query);
        soft_cap(of_query, call.score_rule().cap);
        mask_dead(call, owner.kv_head, keys, of_query);
        add_weights(of_query, between_ends(call, keys, n_sink_, n_recent_), keys.begin, scores);
      }
    }
    return scores;
  }
  bool scores_keys_apart() const override { return !sums_weights(); }

  KeyList make_list(const SelectCall& call, const Owner& owner, std::span<const double> scores,
                    TokenRange keys, ScoreWorker&, Summaries&) override {
    return best_between_ends(call, owner.kv_head, scores, keys, n_sink_, n_recent_);
  }

 private:
  /// What codes one part of a key.
  struct PartBook {
    // [2^b or fewer, channels of the part, and the lengthening one if metric=inner].
    Tensor<float> centroids;
    double phi = 0.0;  // largest |k|^2 of the part that was learned from
  };
  using Book = std::vector<PartBook>;  // [n_parts]
  struct Head {
    FitHistory<Book> books;
    std::vector<std::vector<std::uint8_t>> codes;  // [n_parts][n_keys]
    Index n_coded = 0;                             // keys with codes of the current book
    void truncate(Index n_keys) {
      n_coded = books.truncate(n_keys) ? 0 : std::min(n_coded, n_keys);
    }
  };

  bool sums_weights() const {
    return group_ == PqGroup::softmax ||
           (group_ == PqGroup::automatic && metric_ == PqMetric::euclidean);
  }

  /// Adds the products of q with the centroids that stand for the keys.
  void add_scores(const SelectCall& call, const Head& head, std::span<const double> q,
                  TokenRange keys, std::span<double> scores) const {
    const Index n_parts = parts_of(call.k.dim(2));
    for (Index part = 0; part < n_parts; ++part) {
      const TokenRange channels = channels_of(part, call.k.dim(2));
      const Tensor<float>& centroids =
          head.books.current()[static_cast<std::size_t>(part)].centroids;
      std::vector<double> table(static_cast<std::size_t>(centroids.dim(0)), 0.0);
      for (std::size_t i = 0; i < table.size(); ++i) {
        const auto centroid = centroids.view().row(static_cast<Index>(i));
        for (Index c = channels.begin; c < channels.end; ++c)
          table[i] += q[static_cast<std::size_t>(c)] *
                      static_cast<double>(centroid[static_cast<std::size_t>(c - channels.begin)]);
      }
      const std::uint8_t* codes = head.codes[static_cast<std::size_t>(part)].data() + keys.begin;
      for (std::size_t t = 0; t < scores.size(); ++t) scores[t] += table[codes[t]];
    }
  }

  /// Adds to `sums` the softmax weights over the keys that compete. Those that are always kept get
  /// theirs on the same scale, for whoever looks at the scores. `first`: the position of scores[0].
  static void add_weights(std::span<double> scores, TokenRange middle, Index first,
                          std::span<double> sums) {
    const auto competing = scores.subspan(static_cast<std::size_t>(middle.begin - first),
                                          static_cast<std::size_t>(middle.size()));
    const double norm = log_sum_exp(competing);
    if (!std::isfinite(norm)) return;  // nothing competes
    constexpr double kLargest = 600.0;
    for (std::size_t i = 0; i < scores.size(); ++i)
      sums[i] += std::exp(std::min(scores[i] - norm, kLargest));
  }

  Index parts_of(Index d_head) const { return std::min(parts_, d_head); }
  TokenRange channels_of(Index part, Index d_head) const {
    const Index n_parts = parts_of(d_head);
    return {part * d_head / n_parts, (part + 1) * d_head / n_parts};
  }

  /// One part of the keys at `keys`, side by side, with room for the lengthening channel if there
  /// is one.
  Tensor<float> part_rows(const SelectCall& call, Index kv_head, std::span<const KeyPos> keys,
                          TokenRange channels) const {
    const Index extra = metric_ == PqMetric::inner ? 1 : 0;
    Tensor<float> rows({static_cast<Index>(keys.size()), channels.size() + extra});
    const auto k = call.k.sub(kv_head);
    for (std::size_t i = 0; i < keys.size(); ++i)
      std::copy_n(k.row(keys[i]).data() + channels.begin, channels.size(),
                  rows.view().row(static_cast<Index>(i)).data());
    return rows;
  }

  /// |k|^2 of each row, whose last channel is still zero if it is the lengthening one.
  static std::vector<double> squares_of(const Tensor<float>& rows) {
    std::vector<double> squares(static_cast<std::size_t>(rows.dim(0)), 0.0);
    for (std::size_t i = 0; i < squares.size(); ++i) {
      for (const float x : rows.view().row(static_cast<Index>(i)))
        squares[i] += static_cast<double>(x) * static_cast<double>(x);
    }
    return squares;
  }

  /// metric=inner: the last channel becomes sqrt(phi - |k|^2).
  void lengthen(Tensor<float>& rows, std::span<const double> squares, double phi) const {
    if (metric_ != PqMetric::inner) return;
    for (std::size_t i = 0; i < squares.size(); ++i)
      rows(static_cast<Index>(i), rows.dim(1) - 1) =
          static_cast<float>(std::sqrt(std::max(0.0, phi - squares[i])));
  }

  PartBook learn(const SelectCall& call, Index kv_head, Index part,
                 std::span<const KeyPos> keys) const {
    Tensor<float> rows = part_rows(call, kv_head, keys, channels_of(part, call.k.dim(2)));
    const std::vector<double> squares = squares_of(rows);
    PartBook book;
    book.phi = *std::max_element(squares.begin(), squares.end());
    lengthen(rows, squares, book.phi);
    const CounterRng rng(seed_, call.layer, kv_head, part);
    const KMeansOptions steps{.n_clusters = Index{1} << bits_, .n_iterations = iterations_};
    book.centroids = k_means(rows.view(), steps, rng).centroids;
    return book;
  }

  void code_new_keys(const SelectCall& call, Index kv_head, Index part, Head& head) const {
    std::vector<KeyPos> keys;
    append_range(keys, head.n_coded, call.pos_begin);
    if (keys.empty()) return;
    const PartBook& book = head.books.current()[static_cast<std::size_t>(part)];
    Tensor<float> rows = part_rows(call, kv_head, keys, channels_of(part, call.k.dim(2)));
    lengthen(rows, squares_of(rows), book.phi);
    std::vector<std::int32_t> labels(keys.size());
    nearest_centroids(rows.view(), book.centroids.view(), KMeansSpace::euclidean, labels);
    std::copy(labels.begin(), labels.end(),
              head.codes[static_cast<std::size_t>(part)].begin() + head.n_coded);
  }
};

}  // namespace

void register_pqcache(SelectorRegistry& registry) {
  SelectorEntry& entry =
      registry.add<PqCache>("pqcache", "PQCache: product-quantised keys", "arXiv 2407.12820",
                            "scores keys by the few centroids that stand for their parts");
  entry.presets["pqcache-hub"] = {{"n-sink", "128"}, {"n-recent", "128"}};
}

}  // namespace kvscope
