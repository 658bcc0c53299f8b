// socket: keys by their soft collisions with the query in hash tables, times the length of their
// values (SOCKET, arXiv 2602.06283; from sparse-attention-hub's docs/baselines/Socket.md and its
// SocketMasker, the paper itself was not read).
//
// Idea: L tables of K random planes give every key one bucket a table, the signs of its products.
// A query falls into all buckets of a table at once, by softmax(sum over the planes of +-tanh(q.w)
// / tau), which is a product of one logistic function a plane. A key's score is the sum over the
// tables of the probability of its bucket, times |v|; the best keys between the first and the
// latest ones, which are always kept, are attended to. Nothing is sampled and nothing is weighed.
//
// Cost per call and layer with T keys before it: 2 (n_q + n_kv) n_tok K L d FLOPs for the products
// with the planes, n_q n_tok L 2^K for the buckets' probabilities, n_q n_tok T L additions; reads
// n_kv T (K L / 8 + 2) bytes of codes and lengths of values, which is what it stores, and K L d
// elements of planes. At K = 12 and L = 60 a key's codes are 90 bytes, three times what Quest
// reads.
//
// Fails where the wanted keys are not nearer in angle than the crowd, as all hashes do, and where a
// long value belongs to a key that nobody looks at: it enters the ranking as a factor.
//
// Decided where the sources differ or are silent: the program divides tanh by sqrt(d), its page
// does not: scaled=true is the program. Planes are the same for all layers and heads, as there, and
// named by the seed. A verification's rows share one list, by the sum of their scores. Windows of
// 128 at both ends as in the page's example; the budget buys the keys between them. Decode and
// verification; prefill stays dense.
#include <algorithm>
#include <cmath>

#include "core/attention/row_kernels.hpp"
#include "core/attention/score_rows.hpp"
#include "core/base/rng.hpp"
#include "core/selectors/cost_units.hpp"
#include "core/selectors/list_builders.hpp"
#include "core/selectors/registry.hpp"
#include "core/selectors/shared_options.hpp"
#include "core/selectors/shared_scores.hpp"

namespace kvscope {

namespace {

constexpr Index kKeysHashedAtOnce = 128;  // their products stay in the processor's cache

class Socket final : public SharedScoreSelector {
 public:
  Index n_bits_ = option(n_bits_, "bits", 12, "planes of a table (K): 2^K buckets", in(1, 14));
  Index n_tables_ = option(n_tables_, "tables", 60, "hash tables (L)", in(1, 512));
  double tau_ =
      option(tau_, "tau", 0.3, "temperature of the softmax over a table's buckets", in(1e-3, 1e3));
  bool scaled_ =
      option(scaled_, "scaled", true, "tanh is divided by sqrt(d_head), as in the program");
  Index n_sink_ = n_sink_option(n_sink_, 128);
  Index n_recent_ = n_recent_option(n_recent_, 128);
  Index seed_ = option(seed_, "seed", 1, "names the random planes", at_least(0));
  Index dense_layers_ = dense_layers_option(dense_layers_);

  SelectorCaps caps() const override {
    return {.prefill = false,
            .owner = ListOwner::q_head,
            .needs_values = true,
            .needs_all_heads = true,
            .budgets = kTokenBudgets,
            .dense_layers = dense_layers_};
  }
  void reset(const AttentionShape& shape) override {
    Selector::reset(shape);
    planes_.clear();
    const CounterRng rng(seed_);
    const Index n_numbers = n_planes() * shape.d_head;
    for (Index i = 0; i < n_numbers; ++i)  // as floats, so that products in f32 see the same planes
      planes_.push_back(
          static_cast<double>(static_cast<float>(rng.normal(static_cast<std::uint64_t>(i)))));
  }

  SelectCost cost(const SelectCall& call, const Selection& selection) const override {
    if (selection.is_dense) return {};
    const auto n_tables = static_cast<double>(n_tables_);
    const auto n_signs = static_cast<double>(n_planes());
    const double n_elements = n_signs * static_cast<double>(call.k.dim(2));  // of planes
    const double n_chances = static_cast<double>(call.q.dim(0) * call.n_tok) * n_tables *
                             std::exp2(static_cast<double>(n_bits_));
    const double n_sums = queries_per_kv_head(call) * alive_keys(call, past_range(call)) * n_tables;
    return codes_cost(call, n_signs / 8.0 + kBytesPerElement) + own_products_cost(call, n_signs) +
           flops_cost(n_chances + n_sums) + read_cost(n_elements) + held_cost(n_elements);
  }

 protected:
  ListOwner owner_of_call(const SelectCall&) const override { return ListOwner::q_head; }

  void prepare(const SelectCall& call) override {
    ScoreEngine& engine = engine_of(call);
    engine.run(call.k.dim(0), [&](Index kv_head, ScoreWorker& worker) {
      hash_up_to(call, kv_head, worker.dots, engine.kept<Head>(this, call.layer, kv_head));
    });
  }

  std::vector<double> score_keys(const SelectCall& call, const Owner& owner, TokenRange keys,
                                 ScoreWorker&) override {
    std::vector<double> scores(static_cast<std::size_t>(std::max<Index>(keys.size(), 0)), 0.0);
    const Head& head = *engine_of(call).known<Head>(this, call.layer, owner.kv_head);
    const auto n_bits = static_cast<std::size_t>(n_bits_);
    std::vector<double> chances(std::size_t{1} << n_bits);
    for (Index row = 0; row < call.n_tok; ++row) {
      const std::vector<double> logits = half_logits(call.q.sub(owner.q_heads.begin).row(row));
      for (std::size_t table = 0; table < head.codes.size(); ++table) {
        bucket_chances(std::span(logits).subspan(table * n_bits, n_bits), chances);
        const std::uint16_t* codes = head.codes[table].data() + keys.begin;
        for (std::size_t t = 0; t < scores.size(); ++t) scores[t] += chances[codes[t]];
      }
    }
    for (std::size_t t = 0; t < scores.size(); ++t)
      scores[t] *= head.lengths[static_cast<std::size_t>(keys.begin) + t];
    return scores;
  }

  KeyList make_list(const SelectCall& call, const Owner& owner, std::span<const double> scores,
                    TokenRange keys, ScoreWorker&, Summaries&) override {
    return best_between_ends(call, owner.kv_head, scores, keys, n_sink_, n_recent_);
  }

 private:
  /// What is kept of a KV head's keys.
  struct Head {
    std::vector<std::vector<std::uint16_t>> codes;  // [n_tables][n_keys]
    std::vector<double> lengths;                    // [n_keys] of their values
    void truncate(Index n_keys) {
      const auto n = static_cast<std::size_t>(n_keys);
      if (lengths.size() <= n) return;
      lengths.resize(n);
      for (auto& of_table : codes) of_table.resize(n);
    }
  };

  Index n_planes() const { return n_bits_ * n_tables_; }

  /// Hashes the keys before the call that are new.
  void hash_up_to(const SelectCall& call, Index kv_head, KeyDots& dots, Head& head) const {
    head.codes.resize(static_cast<std::size_t>(n_tables_));
    const auto v = call.v.sub(kv_head);
    for (auto first = static_cast<Index>(head.lengths.size()); first < call.pos_begin;
         first += kKeysHashedAtOnce) {
      const TokenRange part{first, std::min(first + kKeysHashedAtOnce, call.pos_begin)};
      dots.compute(planes_, n_planes(), call.k.sub(kv_head), part);
      for (std::size_t table = 0; table < head.codes.size(); ++table) {
        std::vector<std::uint16_t>& codes = head.codes[table];
        codes.resize(static_cast<std::size_t>(part.end), 0);
        for (Index bit = 0; bit < n_bits_; ++bit) {
          const std::span<const double> products =
              dots.row(static_cast<Index>(table) * n_bits_ + bit);
          for (std::size_t t = 0; t < products.size(); ++t)
            codes[static_cast<std::size_t>(first) + t] |=
                static_cast<std::uint16_t>((products[t] >= 0.0 ? 1U : 0U) << bit);
        }
      }
      for (Index pos = part.begin; pos < part.end; ++pos)
        head.lengths.push_back(norm_of(v.row(pos)));
    }
  }

  /// tanh(q.w) / tau of all planes, over sqrt(d_head) if scaled; a bucket's logit adds or takes
  /// them.
  std::vector<double> half_logits(std::span<const float> q_row) const {
    const std::vector<double> q(q_row.begin(), q_row.end());
    const double divisor = tau_ * (scaled_ ? std::sqrt(static_cast<double>(q.size())) : 1.0);
    std::vector<double> out;
    for (Index plane = 0; plane < n_planes(); ++plane) {
      const auto at = static_cast<std::size_t>(plane) * q.size();
      out.push_back(std::tanh(dot_of(q, std::span(planes_).subspan(at, q.size()))) / divisor);
    }
    return out;
  }

  /// The softmax over a table's buckets, which is a product over its planes. chances [2^n_bits]
  static void bucket_chances(std::span<const double> half_logits, std::span<double> chances) {
    chances[0] = 1.0;
    for (std::size_t bit = 0; bit < half_logits.size(); ++bit) {
      const double one = 1.0 / (1.0 + std::exp(-2.0 * half_logits[bit]));
      const std::size_t n = std::size_t{1} << bit;
      for (std::size_t code = 0; code < n; ++code) {
        chances[n + code] = chances[code] * one;
        chances[code] *= 1.0 - one;
      }
    }
  }

  std::vector<double> planes_;  // [n_planes, d_head]
};

}  // namespace

void register_socket(SelectorRegistry& registry) {
  SelectorEntry& entry = registry.add<Socket>(
      "socket", "SOCKET: soft collisions in hash tables", "arXiv 2602.06283",
      "ranks keys by how likely the query falls into their buckets, times the length of their "
      "values");
  entry.presets["socket-page"] = {{"scaled", "false"}};
}

}  // namespace kvscope
