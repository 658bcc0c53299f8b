// xattention: antidiagonal sums of score tiles say which blocks a prefill needs (Xu et al., arXiv
// 2503.16428, ICML 2025; official code).
//
// Idea: in prefill, per query head, cut the score matrix into tiles of S x S and add up each tile's
// antidiagonal, which every column and every diagonal of the tile crosses once: the product of S
// keys side by side with S queries side by side in reverse. A softmax over the tiles of a row of
// tiles, scaled by 1 / (sqrt(d) S), summed over blocks of 128, estimates how much a block of
// queries attends to each block of keys; it keeps the smallest set of blocks that holds a share tau
// of its sum, block 0 and the diagonal among them. Decode stays dense.
//
// Cost per call: 2 n_q C T d / S FLOPs. Every key takes part in some antidiagonal, so all keys are
// read once, n_kv T d elements: the saving of 1 / S is in products, not in bytes (tables that print
// T d / S for both count products). Stores nothing. In chunks of 128 the choice is 1 / (2 S) of
// dense attention's products.
//
// Fails where a tile's antidiagonal misses the one strong pair of query and key: it sees 1 / S of
// all pairs; and the S - 1 others in the sum are noise beside it. Of three equal needles with S = 4
// the estimate may hold one for nine tenths.
//
// Switches: xattention-16 takes tiles of 16 (the paper's other stride); xattention-function has tau
// = 0.8, the default of the code's prefill function (its models run 0.9).
//
// The public program chooses the same blocks, but for the first chunk of a prompt (up to 16384
// tokens): there its assignment of the diagonal takes back that block 0 is forced, while its
// running sum goes on as if two blocks were: a row keeps one block more than tau asks for, and
// block 0 only because what is left out is written to index 0. Not repeated here.
//
// Decided where the sources are silent: tiles and blocks of keys are aligned to position 0, those
// of queries to the call's first query; a tile of keys counts if its first key is not after the
// last query of its row of tiles, as the diagonal tile does in the code. Missing queries and keys
// of a last tile count as zeros, as padding does; so do dead keys, and tiles without any alive key
// leave the softmax. Where a block of queries crosses blocks of keys, all of these are its
// diagonal. block must be a multiple of the stride (of block itself where that is smaller). Sizes
// from the budget: p is tau.
#include <algorithm>
#include <limits>

#include "core/attention/row_kernels.hpp"
#include "core/selectors/block_outcomes.hpp"
#include "core/selectors/cost_units.hpp"
#include "core/selectors/list_builders.hpp"
#include "core/selectors/owners.hpp"
#include "core/selectors/registry.hpp"
#include "core/tensor/soft_cap_kernel.hpp"

namespace kvscope {

namespace {

constexpr Index kTileRowsAtOnce = 256;  // of a group, whose scores are held

class XAttention final : public Selector {
 public:
  Index block_ =
      option(block_, "block", 128, "tokens per block of queries and of keys", in(1, 1 << 20));
  Index stride_ =
      option(stride_, "stride", 8, "S: queries and keys of a tile whose antidiagonal is summed",
             in(1, 1 << 10));
  double tau_ =
      option(tau_, "tau", 0.9, "share of the estimated attention that a block of queries keeps",
             in(0.0, 1.0));
  PatternSize sizes_ =
      option(sizes_, "sizes", PatternSize::options, "tau from the options, or the budget p");

  void configure() override {
    step_ = std::min(stride_, block_);
    if (block_ % step_ != 0) {
      throw ConfigError("xattention: block: expected a multiple of stride = {}, found {}", step_,
                        block_);
    }
  }
  SelectorCaps caps() const override { return block_share_caps(sizes_, block_); }

  Selection do_select(const SelectCall& call) override {
    const double tau = block_share(sizes_, tau_, call.budget);
    const auto add_lists = [&](const ListHeads& group, ScoreWorker& worker, Selection& selection) {
      const Tiles keys(call, group.kv_head, step_);
      std::vector<std::vector<BlockOutcomes>> kept(static_cast<std::size_t>(group.q_heads.size()));
      const Index tile_rows_of_block = group.q_heads.size() * (block_ / step_);
      const Index rows_at_once = block_ * std::max<Index>(1, kTileRowsAtOnce / tile_rows_of_block);
      for (Index first = 0; first < call.n_tok; first += rows_at_once) {
        const TokenRange rows{first, std::min(first + rows_at_once, call.n_tok)};
        keep_blocks(call, group, rows, keys, tau, worker.dots, kept);
      }
      for (const std::vector<BlockOutcomes>& of_head : kept) {
        for (const BlockOutcomes& one : of_head) selection.add(one.list(call, group.kv_head));
      }
    };
    return select_by_kv_head(call, std::min(block_, call.n_tok), add_lists);
  }

  SelectCost cost(const SelectCall& call, const Selection&) const override {
    const auto d = static_cast<double>(call.k.dim(2));
    return {.score_flops = 2.0 * block_pairs(call, step_, step_) * static_cast<double>(step_) * d,
            .score_bytes = alive_keys(call, {0, call.k.dim(1)}) * d * kBytesPerElement};
  }

 private:
  /// The keys of one KV head, S of them a row. Rows lie in the cache as they are, unless keys are
  /// missing.
  struct Tiles {
    Tiles(const SelectCall& call, Index kv_head, Index stride) {
      const TensorView<const float> k = call.k.sub(kv_head);
      const Index d = k.dim(1);
      const Index n_tiles = (k.dim(0) + stride - 1) / stride;
      const bool is_whole = all_alive(call, kv_head);
      if (is_whole && k.dim(0) % stride == 0 && k.is_contiguous()) {
        view = TensorView<const float>(k.data(), {n_tiles, stride * d});
        return;
      }
      copy = Tensor<float>(Shape{n_tiles, stride * d});
      if (!is_whole) has_keys.assign(static_cast<std::size_t>(n_tiles), 0);
      for (Index pos = 0; pos < k.dim(0); ++pos) {
        if (!is_whole && !is_alive(call, kv_head, pos)) continue;
        const auto key = k.row(pos);
        std::copy(key.begin(), key.end(), copy.data() + pos * d);
        if (!is_whole) has_keys[static_cast<std::size_t>(pos / stride)] = 1;
      }
      view = copy.view();
    }
    Tensor<float> copy;
    TensorView<const float> view;        // [n_tiles, stride * d_head]
    std::vector<std::uint8_t> has_keys;  // [n_tiles], or empty: all have
  };

  /// Appends what the blocks of the queries `rows`, which begin at a block, keep to `kept` [heads].
  void keep_blocks(const SelectCall& call, const ListHeads& group, TokenRange rows,
                   const Tiles& keys, double tau, KeyDots& dots,
                   std::vector<std::vector<BlockOutcomes>>& kept) const {
    const Index n_tile_rows = (rows.size() + step_ - 1) / step_;
    dots.compute(reversed_queries(call, group.q_heads, rows), group.q_heads.size() * n_tile_rows,
                 keys.view, {0, (call.pos_begin + rows.end - 1) / step_ + 1});
    for (Index head = 0; head < group.q_heads.size(); ++head) {
      for (Index first = rows.begin; first < rows.end; first += block_) {
        const Index end = std::min(first + block_, rows.end);
        BlockOutcomes& outcomes = kept[static_cast<std::size_t>(head)].emplace_back(
            block_, TokenRange{0, call.pos_begin + end});
        outcomes.force({0, 1});
        outcomes.force({(call.pos_begin + first) / block_, outcomes.blocks.end});
        std::vector<double> weights(outcomes.of_block.size(), 0.0);
        for (Index row = first; row < end; row += step_) {
          const Index last_row = std::min(row + step_, call.n_tok) - 1;
          const std::span<double> scores =
              dots.row(head * n_tile_rows + (row - rows.begin) / step_);
          soft_cap(scores, call.score_rule().cap);
          add_tile_row(scores, keys, (call.pos_begin + last_row) / step_ + 1, weights);
        }
        outcomes.keep_share(weights, tau);
      }
    }
  }

  /// Scaled queries of each head, S of them a row in reverse. [heads * n_tile_rows, stride *
  /// d_head]
  std::vector<double> reversed_queries(const SelectCall& call, TokenRange q_heads,
                                       TokenRange rows) const {
    const Index d = call.q.dim(2);
    const Index n_tile_rows = (rows.size() + step_ - 1) / step_;
    const double scale = static_cast<double>(call.score_scale) / static_cast<double>(step_);
    std::vector<double> out(static_cast<std::size_t>(q_heads.size() * n_tile_rows * step_ * d),
                            0.0);
    for (Index head = 0; head < q_heads.size(); ++head) {
      for (Index i = 0; i < rows.size(); ++i) {
        const Index place = (head * n_tile_rows + i / step_) * step_ + step_ - 1 - i % step_;
        const auto q = call.q.sub(q_heads.begin + head).row(rows.begin + i);
        for (Index c = 0; c < d; ++c)
          out[static_cast<std::size_t>(place * d + c)] =
              scale * static_cast<double>(q[static_cast<std::size_t>(c)]);
      }
    }
    return out;
  }

  /// Adds the softmax over the first n_tiles of one row of tiles to the weights of their blocks.
  /// Overwrites the scores.
  void add_tile_row(std::span<double> scores, const Tiles& keys, Index n_tiles,
                    std::span<double> weights) const {
    const std::span<double> row =
        scores.first(static_cast<std::size_t>(std::min(n_tiles, keys.view.dim(0))));
    for (std::size_t tile = 0; tile < keys.has_keys.size() && tile < row.size(); ++tile) {
      if (keys.has_keys[tile] == 0) row[tile] = -std::numeric_limits<double>::infinity();
    }
    const double largest = max_of(row);
    if (!(largest > -std::numeric_limits<double>::infinity())) return;
    const double sum = exp_row(row, largest, row).sum;
    const Index tiles_per_block = block_ / step_;
    for (std::size_t first = 0; first < row.size();
         first += static_cast<std::size_t>(tiles_per_block)) {
      const auto part = row.subspan(
          first, std::min(static_cast<std::size_t>(tiles_per_block), row.size() - first));
      weights[first / static_cast<std::size_t>(tiles_per_block)] += sum_of(part) / sum;
    }
  }

  Index step_;
};

}  // namespace

void register_xattention(SelectorRegistry& registry) {
  SelectorEntry& entry = registry.add<XAttention>(
      "xattention", "XAttention: antidiagonals of score tiles", "arXiv 2503.16428",
      "in prefill, keeps the blocks of keys that hold a share of the attention that sums over "
      "antidiagonals estimate");
  entry.settings = {{.option = "tau"}};
  entry.presets["xattention-16"] = {{"stride", "16"}};
  entry.presets["xattention-function"] = {{"tau", "0.8"}};
}

}  // namespace kvscope
