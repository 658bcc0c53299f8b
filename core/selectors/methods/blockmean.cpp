// blockmean: every query chooses blocks of keys by the means of their keys; presets moba (Mixture
// of Block Attention, arXiv 2502.13189), nsa (Native Sparse Attention, arXiv 2502.11089) and
// infllm2 (InfLLM-V2, arXiv 2509.24663; MiniCPM 4).
//
// Idea: windows of `kernel` keys every `stride` keys have a mean, the compressed key. A query's
// score of a block is made of its products with the compressed keys of the block:
//   score=product, pool=mean: the mean product, weighted by the keys that window and block share
//     (MoBA: one window a block)
//   score=softmax: the products' softmax over all whole windows before the query, summed over the
//     heads of a list; pool=sum adds the windows of a block, each times the strides that they
//     share (NSA's equation 9), pool=max takes the largest (InfLLM-V2)
// The best blocks stay, with the first ones and the query's own and latest ones. Lists are the
// query's own: one per row.
//
// Cost per call: 2 n_q C d FLOPs for each of the W ~ T / stride compressed keys of a KV head, one
// read of these; they are also what it stores. The compressed branch takes as many again for the
// windows left out, reads their mean values and stores those of all. A decode step reads 1 /
// stride of the keys (with that branch at most twice as much). In chunks the lists are the larger
// part: each row of each KV head (moba: query head) has its own, of up to top-blocks * block
// keys. At 32k keys choosing takes a sixth of dense attention's time. Where top-blocks covers all
// blocks that the call's rows see, and these see the same ones (moba at 32k: 8 blocks of its 12),
// there is nothing to choose: one list serves all rows of a head, with the same keys and flags as
// one for each.
//
// Fails on models that were not trained so: moba's README says that it is no drop-in. What these
// rows show is what training buys. A wanted key that its block's mean does not show is lost.
//
// Switches, from the published programs:
//   moba: blocks of 4096 by their mean, per query head, top 12 with the own block (tests of the
//     code: 2048; 3)
//   nsa: windows of 32 every 16, blocks of 64, one list per KV head: top 16 with 1 first and 2
//     latest blocks; the sliding window of 512 joins the list. NSA's compressed branch is left out,
//     and so are the three gates by which its branches are added up: these are trained
//   nsa-compressed: the same with the compressed branch (compressed=true) in decode and
//     verification: windows of which a key is left out of the lists (of all rows) are attended to
//     through their mean key and mean value, each as stride / kernel keys per key left out, in one
//     softmax with the lists. That is what gates would be that follow the branches' softmax sums;
//     the published compressed branch also covers what the list holds. Chunks of a prefill, where
//     each row has its own list, go without
//   infllm2: the same windows, the largest, top 64 beside the first block and the last 2048
//     tokens; dense below 8192
// Sizes are blocks, absolute as published. With sizes=budget (the method's default) the budget buys
// blocks: inside=true counts the forced ones.
//
// Decided where the sources are silent: windows that reach past a query are not whole for it and
// have no score; a block without any ranks below all others but may fill a budget. The query's own
// block is always kept (n-local >= 1). Dead keys leave the means; a window without alive keys has
// no score. A layer's own window counts no compressed key that it cuts. `dense-below` looks at the
// keys that the call's last query sees.
#include <algorithm>
#include <cmath>
#include <limits>

#include "core/attention/row_kernels.hpp"
#include "core/selectors/block_outcomes.hpp"
#include "core/selectors/cost_units.hpp"
#include "core/selectors/key_pools.hpp"
#include "core/selectors/list_builders.hpp"
#include "core/selectors/owners.hpp"
#include "core/selectors/registry.hpp"
#include "core/selectors/shared_scores.hpp"
#include "core/tensor/soft_cap_kernel.hpp"

namespace kvscope {

namespace {

/// Which positions are alive and in no list of the KV head. [n_ctx]
std::vector<std::uint8_t> left_out(const SelectCall& call, const Selection& selection,
                                   Index kv_head) {
  std::vector<std::uint8_t> is_out(static_cast<std::size_t>(call.k.dim(1)), 0);
  for (std::size_t pos = 0; pos < is_out.size(); ++pos)
    is_out[pos] = is_alive(call, kv_head, static_cast<Index>(pos)) ? 1 : 0;
  for (Index block = 0; block < selection.n_row_blocks(); ++block) {
    for (const KeyPos pos : selection.at(kv_head * selection.n_row_blocks() + block).keys)
      is_out[static_cast<std::size_t>(pos)] = 0;
  }
  return is_out;
}

/// One summary for each window that all queries of the call see whole and of which some alive key
/// is in no list of its KV head: the mean of the window's alive keys and values, which counts as
/// stride / length of the keys that are left out (windows overlap: each key lies in length / stride
/// of them). `selection` has lists per KV head; keys, values: windows of call.k and call.v, [n_kv].
Summaries summaries_of_left_out(const SelectCall& call, const Selection& selection,
                                std::span<const KeyPools* const> keys,
                                std::span<const KeyPools* const> values) {
  struct Window {
    Index index;
    Index n_out;
  };
  const Index n_kv = call.k.dim(0);
  const Index d = call.k.dim(2);
  std::vector<std::vector<Window>> windows(static_cast<std::size_t>(n_kv));
  Index n_all = 0;
  for (Index kv_head = 0; kv_head < n_kv; ++kv_head) {
    const KeyPools& pools = *keys[static_cast<std::size_t>(kv_head)];
    const std::vector<std::uint8_t> is_out = left_out(call, selection, kv_head);
    const Index begin = row_range(call, call.n_tok - 1).begin;
    for (Index i = (begin + pools.stride() - 1) / pools.stride();
         i < pools.count_whole(row_range(call, 0).end); ++i) {
      const TokenRange range = pools.keys_of(i);
      const auto n_out = static_cast<Index>(
          std::count(is_out.begin() + range.begin, is_out.begin() + range.end, std::uint8_t{1}));
      if (n_out > 0) windows[static_cast<std::size_t>(kv_head)].push_back({i, n_out});
    }
    n_all += static_cast<Index>(windows[static_cast<std::size_t>(kv_head)].size());
  }
  Summaries out;
  if (n_all == 0) return out;
  out.begin = {0};
  out.k = Tensor<float>({n_all, d});
  out.v = Tensor<float>({n_all, d});
  for (Index kv_head = 0; kv_head < n_kv; ++kv_head) {
    const auto at = static_cast<std::size_t>(kv_head);
    const PoolMeans k = keys[at]->means_in(call, kv_head, call.k);
    const PoolMeans v = values[at]->means_in(call, kv_head, call.v);
    for (const Window& window : windows[at]) {
      const auto row = static_cast<Index>(out.log_count.size());
      std::copy_n(k.means.row(window.index).data(), d, out.k.view().row(row).data());
      std::copy_n(v.means.row(window.index).data(), d, out.v.view().row(row).data());
      const double share = static_cast<double>(keys[at]->stride()) /
                           static_cast<double>(keys[at]->keys_of(0).size());
      out.log_count.push_back(
          static_cast<float>(std::log(static_cast<double>(window.n_out) * share)));
    }
    out.begin.push_back(static_cast<Index>(out.log_count.size()));
  }
  return out;
}

enum class BlockScore { product, softmax };
enum class BlockPool { mean, sum, max };
enum class BlockOwner { q_head, kv_head };

constexpr double kNoWindow = std::numeric_limits<double>::lowest();  // last, but a candidate
constexpr Index kRowsAtOnce = 128;  // whose scores of compressed keys are held

class BlockMean final : public Selector {
 public:
  Index block_ =
      option(block_, "block", 64, "tokens per block that is kept or not", in(1, 1 << 20));
  Index kernel_ = option(kernel_, "kernel", 32, "keys per compressed key", in(1, 1 << 20));
  Index stride_ =
      option(stride_, "stride", 16, "keys from one compressed key to the next, at most kernel",
             in(1, 1 << 20));
  BlockScore score_ = option(score_, "score", BlockScore::softmax,
                             "products with compressed keys, or their softmax over all of them");
  BlockPool pool_ =
      option(pool_, "pool", BlockPool::sum, "how the compressed keys of a block become its score");
  BlockOwner owner_ = option(owner_, "owner", BlockOwner::kv_head,
                             "a list per query head, or per KV head by the sum over its group");
  Index top_blocks_ = option(top_blocks_, "top-blocks", 16,
                             "blocks that are kept, with sizes=options", in(1, 1 << 30));
  bool inside_ = option(inside_, "inside", false,
                        "first and latest blocks count inside top-blocks or the budget");
  Index n_first_ =
      option(n_first_, "n-first", 1, "first blocks that are always kept", in(0, 1 << 30));
  Index n_local_ =
      option(n_local_, "n-local", 2, "latest blocks that are always kept, a query's own included",
             in(1, 1 << 30));
  Index local_tokens_ =
      option(local_tokens_, "local-tokens", 0,
             "last tokens that are always kept, by whole blocks, on top", in(0, 1 << 30));
  Index dense_below_ = option(dense_below_, "dense-below", 0,
                              "calls whose last query sees fewer keys stay dense", in(0, 1 << 30));
  bool compressed_ =
      option(compressed_, "compressed", false,
             "decode: windows that the lists leave out join them as a mean key and value each");
  PatternSize sizes_ = option(sizes_, "sizes", PatternSize::budget,
                              "top-blocks from the options, or the budget divided by block");

  void configure() override {
    if (stride_ > kernel_) {
      throw ConfigError(
          "blockmean: stride: expected at most kernel = {} (windows must cover all keys), found {}",
          kernel_, stride_);
    }
    if ((score_ == BlockScore::softmax) == (pool_ == BlockPool::mean)) {
      throw ConfigError("blockmean: pool: expected {} with score={}, found {}",
                        score_ == BlockScore::softmax ? "sum or max" : "mean", enum_name(score_),
                        enum_name(pool_));
    }
    if (compressed_ && owner_ == BlockOwner::q_head) {
      throw ConfigError(
          "blockmean: compressed: the heads of a KV head share what the lists leave out: expected "
          "owner=kv_head, found q_head");
    }
  }
  SelectorCaps caps() const override {
    SelectorCaps caps;
    caps.owner = list_owner();
    if (sizes_ == PatternSize::budget)
      caps.budgets = {Budget::Kind::tokens, Budget::Kind::pages, Budget::Kind::ratio};
    caps.forced_inside_budget = inside_ && local_tokens_ == 0;
    caps.page_size = block_;
    caps.needs_values = compressed_;
    return caps;
  }

  std::vector<Selection> do_select_budgets(SelectCall call,
                                           std::span<const Budget> budgets) override {
    if (call_range(call).end - row_range(call, call.n_tok - 1).begin < dense_below_)
      return dense_selections(call, list_owner(), budgets.size());
    const bool is_whole = keeps_all_blocks(call);
    std::vector<Selection> all = select_by_owner(
        call, list_owner(), is_whole ? call.n_tok : 1, budgets.size(),
        [&](const ListHeads& heads, ScoreWorker& worker, std::span<Selection> selections) {
          const KeyPools& pools = pools_of(call, call.k, heads.kv_head, Pooled::keys);
          if (is_whole) {
            add_whole_lists(call, heads, selections);
            return;
          }
          const PoolMeans keys = pools.means_in(call, heads.kv_head, call.k);
          if (owner_ == BlockOwner::kv_head) {
            add_lists(call, heads.q_heads, heads.kv_head, keys, budgets, worker, selections);
            return;
          }
          for (Index q_head = heads.q_heads.begin; q_head < heads.q_heads.end; ++q_head)
            add_lists(call, {q_head, q_head + 1}, heads.kv_head, keys, budgets, worker, selections);
        },
        ListOwner::kv_head);
    if (compressed_ && call.phase != Phase::prefill) add_compressed(call, all);
    return all;
  }

  SelectCost cost(const SelectCall& call, const Selection& selection) const override {
    if (selection.is_dense) return {};
    const auto d = static_cast<double>(call.k.dim(2));
    const KeyPools pools(call.k.dim(2), kernel_, stride_);
    const TokenRange seen = call_range(call);
    double n_windows = 0.0;  // of all KV heads
    for (Index kv_head = 0; kv_head < call.k.dim(0); ++kv_head) {
      for (Index i = 0; i < pools.count_whole(seen.end); ++i)
        n_windows += count_candidates(call, kv_head, pools.keys_of(i)) > 0 ? 1.0 : 0.0;
    }
    const double n_joined =
        selection.summaries.empty() ? 0.0 : static_cast<double>(selection.summaries.begin.back());
    return products_cost(queries_per_kv_head(call), n_windows + n_joined, d) +
           held_cost((compressed_ ? 2.0 : 1.0) * n_windows * d);
  }

 private:
  ListOwner list_owner() const {
    return owner_ == BlockOwner::q_head ? ListOwner::q_head : ListOwner::kv_head;
  }

  enum class Pooled { keys, values };

  /// The windows of one KV head's rows in x, up to the call's end.
  const KeyPools& pools_of(const SelectCall& call, TensorView<const float> x, Index kv_head,
                           Pooled what) const {
    auto& pools = engine_of(call).kept<KeyPools>(
        this, call.layer, kv_head, [&] { return KeyPools(x.dim(2), kernel_, stride_); },
        static_cast<double>(what));
    pools.append_up_to(x.sub(kv_head));
    return pools;
  }

  /// What the lists leave out joins each selection.
  void add_compressed(const SelectCall& call, std::span<Selection> selections) const {
    std::vector<const KeyPools*> keys;
    std::vector<const KeyPools*> values;
    for (Index kv_head = 0; kv_head < call.k.dim(0); ++kv_head) {
      keys.push_back(&pools_of(call, call.k, kv_head, Pooled::keys));
      values.push_back(&pools_of(call, call.v, kv_head, Pooled::values));
    }
    for (Selection& selection : selections)
      selection.summaries = summaries_of_left_out(call, selection, keys, values);
  }

  /// The lists of all rows, for each budget.
  void add_lists(const SelectCall& call, TokenRange q_heads, Index kv_head, const PoolMeans& keys,
                 std::span<const Budget> budgets, ScoreWorker& worker,
                 std::span<Selection> selections) const {
    const Index rows_at_once = std::max<Index>(1, kRowsAtOnce / q_heads.size());
    for (Index first = 0; first < call.n_tok; first += rows_at_once) {
      const Index n_rows = std::min(rows_at_once, call.n_tok - first);
      std::vector<double> q;
      for (Index row = first; row < first + n_rows; ++row) {
        for (Index q_head = q_heads.begin; q_head < q_heads.end; ++q_head) {
          for (const float x : call.q.sub(q_head).row(row))
            q.push_back(static_cast<double>(call.score_scale) * static_cast<double>(x));
        }
      }
      worker.dots.compute(q, n_rows * q_heads.size(), keys.means, {0, keys.means.dim(0)});
      for (Index row = first; row < first + n_rows; ++row) {
        std::vector<std::span<double>> products;
        for (Index i = 0; i < q_heads.size(); ++i)
          products.push_back(worker.dots.row((row - first) * q_heads.size() + i));
        const BlockOutcomes outcomes = rule_of(call, row);
        const std::vector<double> scores = block_scores(call, row, keys, products, outcomes);
        for (std::size_t b = 0; b < budgets.size(); ++b) {
          BlockOutcomes kept = outcomes;
          kept.keep_best(scores, n_kept(call, kv_head, budgets[b], outcomes));
          selections[b].add(kept.list(call, kv_head));
          if (selections[b].n_lists() == 1) reserve_like_first(call, selections[b]);
        }
      }
    }
  }

  /// Memory for the lists of all rows and of all heads that this thread makes into the selection.
  void reserve_like_first(const SelectCall& call, Selection& selection) const {
    const Index n_heads = owner_ == BlockOwner::q_head ? call.q.dim(0) : call.k.dim(0);
    const Index n_makers = engine_of(call).n_workers() == 1 ? 1 : call.k.dim(0);
    selection.reserve(selection.keys().size() *
                      static_cast<std::size_t>(n_heads / n_makers * call.n_tok));
  }

  /// True if every row keeps all blocks that it sees, and all rows see the same ones.
  bool keeps_all_blocks(const SelectCall& call) const {
    if (sizes_ != PatternSize::options || call.window) return false;
    const BlockOutcomes first = rule_of(call, 0);
    const BlockOutcomes last = rule_of(call, call.n_tok - 1);
    return last.blocks.size() <= top_blocks_ && first.blocks == last.blocks &&
           first.of_block == last.of_block;
  }

  /// One list of all blocks for all rows, of each list's owner among the heads of a KV head.
  void add_whole_lists(const SelectCall& call, const ListHeads& heads,
                       std::span<Selection> selections) const {
    BlockOutcomes outcomes = rule_of(call, call.n_tok - 1);
    outcomes.keep_best(std::vector<double>(outcomes.of_block.size(), 0.0), outcomes.blocks.size());
    const KeyList list = outcomes.list(call, heads.kv_head);
    const Index n_lists = owner_ == BlockOwner::q_head ? heads.q_heads.size() : 1;
    for (Selection& selection : selections) {
      for (Index i = 0; i < n_lists; ++i) selection.add(list);
    }
  }

  /// What is kept whatever its score.
  BlockOutcomes rule_of(const SelectCall& call, Index row) const {
    BlockOutcomes outcomes(block_, row_range(call, row));
    outcomes.force({0, n_first_});
    outcomes.force({outcomes.blocks.end - n_local_, outcomes.blocks.end});
    outcomes.force({(outcomes.keys.end - local_tokens_) / block_,
                    local_tokens_ > 0 ? outcomes.blocks.end : 0});
    return outcomes;
  }

  /// How many more blocks stay.
  Index n_kept(const SelectCall& call, Index kv_head, const Budget& budget,
               const BlockOutcomes& outcomes) const {
    Index n_inside = 0;  // forced blocks that count
    if (inside_) {
      for (Index block = outcomes.blocks.begin; block < outcomes.blocks.end; ++block)
        n_inside += block < n_first_ || block >= outcomes.blocks.end - n_local_ ? 1 : 0;
    }
    if (sizes_ == PatternSize::options) return top_blocks_ - n_inside;
    Index n_keys = 0;
    for (Index block = outcomes.blocks.begin; block < outcomes.blocks.end; ++block) {
      if (inside_ || outcomes.of(block) == BlockOutcome::out)
        n_keys += count_candidates(call, kv_head, outcomes.keys_of(block));
    }
    if (n_keys == 0) return 0;
    return blocks_bought(budget.tokens(n_keys, block_), block_, n_keys, outcomes.blocks.size()) -
           n_inside;
  }

  /// Scores of the blocks of `outcomes` for one row: products with all compressed keys,
  /// [heads][n_windows], in; overwritten.
  std::vector<double> block_scores(const SelectCall& call, Index row, const PoolMeans& keys,
                                   std::span<const std::span<double>> products,
                                   const BlockOutcomes& outcomes) const {
    const TokenRange seen = row_range(call, row);
    const Index stride = keys.pools.stride();
    const TokenRange windows{
        (seen.begin + stride - 1) / stride,
        std::max((seen.begin + stride - 1) / stride, keys.pools.count_whole(seen.end))};
    const auto n = static_cast<std::size_t>(windows.size());
    std::vector<double> weights(n, 0.0);  // of whole windows, over the heads of the list
    for (const std::span<double> all : products) {
      const std::span<double> part = all.subspan(static_cast<std::size_t>(windows.begin), n);
      if (score_ == BlockScore::softmax) {
        soft_cap(part, call.score_rule().cap);
        for (std::size_t i = 0; i < n; ++i) {
          if (!keys.has_keys(windows.begin + static_cast<Index>(i)))
            part[i] = -std::numeric_limits<double>::infinity();
        }
        const double largest = max_of(part);
        if (!(largest > -std::numeric_limits<double>::infinity())) continue;
        const double sum = exp_row(part, largest, part).sum;
        add_scaled(part, 1.0 / sum, weights);
      } else {
        add_scaled(part, 1.0, weights);
      }
    }
    std::vector<double> scores(outcomes.of_block.size(), kNoWindow);
    std::vector<double> shares(pool_ == BlockPool::mean ? scores.size() : 0, 0.0);
    for (std::size_t i = 0; i < n; ++i) {
      const Index window = windows.begin + static_cast<Index>(i);
      if (!keys.has_keys(window)) continue;
      const TokenRange range = keys.pools.keys_of(window);
      for (Index block = range.begin / block_; block <= (range.end - 1) / block_; ++block) {
        const Index n_shared =
            std::min(range.end, (block + 1) * block_) - std::max(range.begin, block * block_);
        const auto at = static_cast<std::size_t>(block - outcomes.blocks.begin);
        double& score = scores[at];
        const double before = score == kNoWindow ? 0.0 : score;
        switch (pool_) {
          case BlockPool::max:
            score = std::max(before, weights[i]);
            break;
          case BlockPool::sum:
            score =
                before + weights[i] * static_cast<double>(n_shared) / static_cast<double>(stride);
            break;
          case BlockPool::mean:
            score = before + weights[i] * static_cast<double>(n_shared);
            shares[at] += static_cast<double>(n_shared);
            break;
        }
      }
    }
    for (std::size_t i = 0; i < shares.size(); ++i) {
      if (shares[i] > 0.0) scores[i] /= shares[i];
    }
    return scores;
  }
};

}  // namespace

void register_blockmean(SelectorRegistry& registry) {
  SelectorEntry& entry = registry.add<BlockMean>(
      "blockmean", "Block means: MoBA, NSA, InfLLM-V2 without training",
      "arXiv 2502.13189, 2502.11089, 2509.24663",
      "every query keeps the blocks of keys whose mean keys it attends to most");
  entry.settings = {
      {.option = "top-blocks", .low = 1.0, .high = 1 << 20, .is_whole = true, .is_log = true}};
  entry.presets["moba"] = {{"block", "4096"},    {"kernel", "4096"},  {"stride", "4096"},
                           {"score", "product"}, {"pool", "mean"},    {"owner", "q_head"},
                           {"top-blocks", "12"}, {"inside", "true"},  {"n-first", "0"},
                           {"n-local", "1"},     {"sizes", "options"}};
  entry.presets["nsa"] = {{"top-blocks", "16"}, {"inside", "true"},      {"n-first", "1"},
                          {"n-local", "2"},     {"local-tokens", "512"}, {"sizes", "options"}};
  entry.presets["nsa-compressed"] = entry.presets["nsa"];
  entry.presets["nsa-compressed"]["compressed"] = "true";
  registry.say_lacking("moba", "training: its program says that it is no drop-in");
  registry.say_lacking("nsa",
                       "the compressed branch (nsa-compressed has it), trained gates, training");
  registry.say_lacking(
      "nsa-compressed",
      "trained gates (one softmax joins the branches), the compressed branch in prefill, training");
  registry.say_lacking("infllm2", "training");
  entry.presets["infllm2"] = {
      {"pool", "max"},          {"top-blocks", "64"},    {"n-first", "1"},    {"n-local", "1"},
      {"local-tokens", "2048"}, {"dense-below", "8192"}, {"sizes", "options"}};
}

}  // namespace kvscope
