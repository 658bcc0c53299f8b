// skip-softmax: tiles of scores that cannot matter beside what was seen before are skipped (BLASST,
// arXiv 2512.12087, MLSys 2026; in TensorRT-LLM, FlashInfer, Model-Optimizer; from their
// documentation).
//
// Idea: attention streams tiles of 128 keys and keeps each row's running maximum. A tile whose
// largest score lies so far below that exp(tile maximum - running maximum) < lambda for every row
// of the tile of queries is skipped: its exponentials are not made and its values not read. lambda
// = scale / T falls with the context, so that what is dropped in all stays alike.
//
// Cost: nothing is saved in scoring. All keys are read and all products made, as dense attention
// does; a skipped tile saves exponentials, the product with values, and the values: AT MOST HALF of
// the bytes and of the FLOPs, however many tiles are skipped. As a list's keys are counted where
// they are attended to, the formula counts the rest: 2 n_q d FLOPs for each pair of a query and a
// skipped key, and d elements for each key that no head of a KV head kept. With attention's own 2 d
// elements per kept key that is T d for the keys and d for each kept value. The time of choosing
// here is that of exact scores, some 0.6 (decode) to 0.8 (chunks) of dense attention's and so above
// the half that other methods keep to; a kernel does both at once. Stores nothing.
//
// Fails to save where scores are flat, or rise along the context: a tile is judged by what came
// before it alone. Sinks come first and help.
//
// Decided where the sources are silent: tiles of keys are aligned to position 0 and taken in
// ascending order, tiles of queries to the call's first query; the running maximum has seen the
// tile itself, and every tile before it, skipped or not (a skipped one never moves it). lambda is
// at most 1, so a row's largest score is always kept; T is the number of keys that the call's last
// query sees. scale = 1000 is the documentation's example for prefill; a calibrated a exp(b target)
// gives it per model. Attention sinks (logits without a key) do not join the maximum. It takes no
// budget: `scale` or `lambda` is its knob. Dead keys have no score.
#include <algorithm>
#include <cmath>
#include <limits>

#include "core/attention/row_kernels.hpp"
#include "core/selectors/block_fates.hpp"
#include "core/selectors/cost_units.hpp"
#include "core/selectors/owners.hpp"
#include "core/selectors/registry.hpp"
#include "core/selectors/shared_scores.hpp"

namespace kvscope {

namespace {

constexpr Index kKeysAtOnce = 512;  // whose scores are held, for all queries of a group

struct SkipSoftmaxOptions {
  Index block_q = 128;
  Index block_k = 128;
  double scale = 1000.0;
  double lambda = 0.0;

  template <class Self, class Visit>
  static void visit_fields(Self& self, Visit&& visit) {
    visit(Field{"block-q", "queries per tile"}.in(1, 1 << 10), self.block_q);
    visit(Field{"block-k", "keys per tile"}.in(1, 1 << 10), self.block_k);
    visit(Field{"scale", "lambda times the number of visible keys"}.in(0.0, 1e9), self.scale);
    visit(Field{"lambda", "the threshold itself, for any context; 0: scale / T"}.in(0.0, 1.0),
          self.lambda);
  }
};

class SkipSoftmax final : public Selector {
 public:
  explicit SkipSoftmax(const SkipSoftmaxOptions& options) : options_(options) {}
  std::string_view name() const override { return "skip-softmax"; }
  SelectorCaps caps() const override {
    SelectorCaps caps;
    caps.prefill = caps.decode = caps.verify = true;
    caps.owner = ListOwner::q_head;
    caps.page_size = options_.block_k;
    return caps;
  }
  void reset(const AttentionShape&) override {}

  Selection select(const SelectCall& call) override {
    const double log_lambda = std::log(lambda_of(call));
    const auto add_lists = [&](const ListHeads& group, ScoreWorker& worker, Selection& answer) {
      std::vector<std::vector<BlockFates>> kept;  // [tiles of queries][heads of the group]
      for (Index first = 0; first < call.n_tok; first += options_.block_q)
        kept.push_back(kept_tiles(call, group,
                                  {first, std::min(first + options_.block_q, call.n_tok)},
                                  log_lambda, worker.dots));
      for (std::size_t head = 0; head < static_cast<std::size_t>(group.q_heads.size()); ++head) {
        for (const std::vector<BlockFates>& tile : kept)
          answer.add(tile[head].list(call, group.kv_head));
      }
    };
    return select_by_kv_head(call, std::min(options_.block_q, call.n_tok), add_lists);
  }

  SelectCost cost(const SelectCall& call, const Selection& selection) const override {
    const Index group = call.q.dim(0) / call.k.dim(0);
    const auto d = static_cast<double>(call.k.dim(2));
    const auto n_ctx = static_cast<std::size_t>(call.k.dim(1));
    double n_pairs = 0.0;   // of a query and a key that it sees and that its tile skipped
    double n_unread = 0.0;  // keys that attention does not read
    for (Index kv_head = 0; kv_head < call.k.dim(0); ++kv_head) {
      const bool is_whole = all_alive(call, kv_head);
      std::vector<std::uint8_t> is_kept(n_ctx, 0);
      std::vector<Index> n_before(is_whole ? 0 : n_ctx + 1, 0);  // alive keys before each position
      for (std::size_t pos = 0; !is_whole && pos < n_ctx; ++pos)
        n_before[pos + 1] =
            n_before[pos] + (is_alive(call, kv_head, static_cast<Index>(pos)) ? 1 : 0);
      const auto count = [&](TokenRange range) {
        return is_whole ? range.size()
                        : n_before[static_cast<std::size_t>(range.end)] -
                              n_before[static_cast<std::size_t>(range.begin)];
      };
      for (Index q_head = kv_head * group; q_head < (kv_head + 1) * group; ++q_head) {
        for (Index row = 0; row < call.n_tok; ++row) {
          const std::span<const KeyPos> keys = selection.list(q_head, row).keys;
          const TokenRange seen = row_range(call, row);
          const auto begin = std::lower_bound(keys.begin(), keys.end(), seen.begin);
          const auto end = std::lower_bound(begin, keys.end(), seen.end);
          n_pairs += static_cast<double>(count(seen) - (end - begin));
          if (row % selection.rows_per_list == 0) {
            for (const KeyPos pos : keys) is_kept[static_cast<std::size_t>(pos)] = 1;
          }
        }
      }
      n_unread += static_cast<double>(count(call_range(call)) -
                                      std::count(is_kept.begin(), is_kept.end(), 1));
    }
    return {.score_flops = 2.0 * n_pairs * d, .score_bytes = n_unread * d * kBytesPerElement};
  }

 private:
  double lambda_of(const SelectCall& call) const {
    if (options_.lambda > 0.0) return options_.lambda;
    return std::min(1.0,
                    options_.scale / static_cast<double>(row_range(call, call.n_tok - 1).size()));
  }

  /// The tiles that the queries `rows` do not skip, for each head of a group: they share the
  /// reading of the keys.
  std::vector<BlockFates> kept_tiles(const SelectCall& call, const ListHeads& group,
                                     TokenRange rows, double log_lambda, KeyDots& dots) const {
    constexpr double kNone = -std::numeric_limits<double>::infinity();
    const TokenRange seen{row_range(call, rows.begin).begin, row_range(call, rows.end - 1).end};
    const BlockFates all(options_.block_k, seen);
    std::vector<BlockFates> fates(static_cast<std::size_t>(group.q_heads.size()), all);
    std::vector<Index> row_numbers;
    for (Index row = rows.begin; row < rows.end; ++row) row_numbers.push_back(row);
    std::vector<double> q;  // head by head
    for (Index q_head = group.q_heads.begin; q_head < group.q_heads.end; ++q_head) {
      const std::vector<double> part =
          query_rows(call, q_head, row_numbers, static_cast<double>(call.score_scale));
      q.insert(q.end(), part.begin(), part.end());
    }
    const std::size_t n_queries = fates.size() * row_numbers.size();
    std::vector<double> running(n_queries, kNone);
    const Index tiles_at_once = std::max<Index>(1, kKeysAtOnce / options_.block_k);
    for (Index first = all.blocks.begin; first < all.blocks.end; first += tiles_at_once) {
      const Index last = std::min(first + tiles_at_once, all.blocks.end);
      const TokenRange part{all.keys_of(first).begin, all.keys_of(last - 1).end};
      dots.compute(q, static_cast<Index>(n_queries), call.k.sub(group.kv_head), part);
      for (std::size_t i = 0; i < n_queries; ++i) {
        const std::span<double> scores = dots.row(static_cast<Index>(i));
        mask_dead(call, group.kv_head, part, scores);
        const TokenRange visible = row_range(call, row_numbers[i % row_numbers.size()]);
        for (Index tile = first; tile < last; ++tile) {
          const TokenRange keys = all.keys_of(tile);
          const Index begin = std::max(keys.begin, visible.begin);
          const Index end = std::min(keys.end, visible.end);
          if (begin >= end) continue;
          const double largest = max_of(scores.subspan(static_cast<std::size_t>(begin - part.begin),
                                                       static_cast<std::size_t>(end - begin)));
          running[i] = std::max(running[i], largest);
          if (largest > kNone && largest - running[i] >= log_lambda)
            fates[i / row_numbers.size()].of(tile) = BlockFate::scored;
        }
      }
    }
    return fates;
  }

  SkipSoftmaxOptions options_;
};

}  // namespace

void register_skip_softmax(SelectorRegistry& registry) {
  registry.add<SkipSoftmax, SkipSoftmaxOptions>(
      "skip-softmax", "Skip Softmax (BLASST): tiles below the running maximum", "arXiv 2512.12087",
      "reads all keys, and the values of tiles whose largest score is not far below what came "
      "before");
}

}  // namespace kvscope
