// minference-vertical-slash: columns and diagonals that the last queries attend to (Jiang et al.,
// arXiv 2407.02490).
//
// Idea: in prefill, per query head, take the softmax rows of the last 64 queries. Their column
// sums name "vertical" keys, the sums along diagonals name "slash" offsets o = i - j. Query i of
// the call sees key j if j is one of the n-vertical best columns or i - j one of the n-slash
// best offsets. Decode stays dense. Cost: 2 n_q 64 T d FLOPs per call and one read of the keys.
// Stores nothing. Beside dense attention of a chunk of 128 the votes are a quarter, before
// anything is chosen, and the lists cost as much again: every query of every head has its own,
// of n-vertical + n-slash keys. Fails when earlier queries of the chunk attend elsewhere than
// the last 64: they have no vote. Decided here: in chunked prefill the last 64 queries of the
// running chunk vote; columns and offsets are absolute. The first 30 columns and the 100
// smallest offsets come first (so a row always sees itself); they count inside n-vertical and
// n-slash, which are at least 30 and 50 and at most the context. Far offsets are summed over
// fewer rows, as in the original. rounding=kernel gives what the published kernel computes: for
// a block of 64 queries each offset covers up to two aligned blocks of 64 keys. Sizes from the
// budget: half of k for each, without the minima.
#include <algorithm>

#include "core/attention/row_kernels.hpp"
#include "core/attention/topk.hpp"
#include "core/selectors/candidates.hpp"
#include "core/selectors/cost_units.hpp"
#include "core/selectors/list_builders.hpp"
#include "core/selectors/owners.hpp"
#include "core/selectors/registry.hpp"
#include "core/selectors/slash_votes.hpp"

namespace kvscope {

namespace {

enum class Rounding { none, kernel };

constexpr Index kKernelBlock = 64;
constexpr Index kMinVertical = 30;
constexpr Index kMinSlash = 50;

/// What one query head keeps; both ascending.
struct Pattern {
  std::vector<Index> columns;
  std::vector<Index> offsets;
};

class VerticalSlash final : public Selector {
 public:
  Index n_vertical_ = option(n_vertical_, "n-vertical", 1000, "columns kept", at_least(1));
  Index n_slash_ = option(n_slash_, "n-slash", 6096, "offsets kept", at_least(1));
  Index n_voters_ =
      option(n_voters_, "n-voters", 64, "last queries of the call that vote", at_least(1));
  Index forced_vertical_ = option(forced_vertical_, "forced-vertical", 30,
                                  "first columns that come before all others", at_least(0));
  Index forced_slash_ = option(forced_slash_, "forced-slash", 100,
                               "smallest offsets that come before all others", at_least(1));
  Rounding rounding_ = option(rounding_, "rounding", Rounding::none,
                              "lists as chosen, or as the published kernel rounds them to blocks");
  PatternSize sizes_ =
      option(sizes_, "sizes", PatternSize::options,
             "n-vertical and n-slash from the options, or half of the budget each");

  SelectorCaps caps() const override {
    SelectorCaps caps;
    caps.decode = caps.verify = false;
    caps.owner = ListOwner::q_head;
    if (sizes_ == PatternSize::budget) caps.budgets = kTokenBudgets;
    caps.forced_inside_budget = rounding_ == Rounding::none;
    return caps;
  }

  Selection do_select(const SelectCall& call) override {
    const Index rows_per_list =
        rounding_ == Rounding::kernel ? std::min(kKernelBlock, call.n_tok) : 1;
    ScoreEngine& engine = engine_of(call);
    SlashVotes votes = slash_votes(call, n_voters_);
    const auto add_lists = [&](const ListHeads& heads, ScoreWorker&,
                               std::span<Selection> selections) {
      const auto head = static_cast<std::size_t>(heads.index);
      const Pattern pattern =
          pattern_of(call, std::move(votes.columns[head]), std::move(votes.offsets[head]));
      RowKeys row_keys;
      if (selections.front().n_lists() == 0) {  // of all heads where one thread makes them
        const std::size_t n_heads =
            engine.n_workers() == 1 ? static_cast<std::size_t>(call.q.dim(0)) : 1;
        selections.front().reserve(n_heads *
                                   static_cast<std::size_t>(call.n_tok / rows_per_list + 1) *
                                   (pattern.columns.size() + pattern.offsets.size()));
      }
      for (Index row = 0; row < call.n_tok; row += rows_per_list) {
        const Index first = call.pos_begin + row;
        const Index last = call.pos_begin + std::min(row + rows_per_list, call.n_tok) - 1;
        if (rounding_ == Rounding::kernel) {
          KeyList list = keys_of_rows(pattern, first, last);
          remove_dead(call, heads.kv_head, list);
          selections.front().add(list);
        } else {
          selections.front().add(keys_of_row(call, heads.kv_head, pattern, last, row_keys));
        }
      }
    };
    return std::move(select_by_owner(call, ListOwner::q_head, rows_per_list, 1, add_lists).front());
  }

  HostRows host_rows() const override { return HostRows::none; }
  SelectCost cost(const SelectCall& call, const Selection&) const override {
    return exact_scoring_cost(call, {0, call.k.dim(1)}, std::min(n_voters_, call.n_tok));
  }

 private:
  Pattern pattern_of(const SelectCall& call, std::vector<double> columns,
                     std::vector<double> offsets) const {
    const Index n_ctx = call.pos_begin + call.n_tok;
    put_first(columns, forced_vertical_);
    put_first(offsets, forced_slash_);
    Index n_vertical = std::max(n_vertical_, kMinVertical);
    Index n_slash = std::max(n_slash_, kMinSlash);
    if (sizes_ == PatternSize::budget) {
      const Index budget = call.budget.tokens(n_ctx, /*page_size=*/1);
      // A list that covers the context is the whole budget: k >= T must keep everything.
      n_vertical = budget >= n_ctx ? n_ctx : budget / 2;
      n_slash = budget >= n_ctx ? 0 : budget - n_vertical;
      n_slash = std::max<Index>(n_slash, 0);
    }
    return {top_k_sorted_by_index(columns, n_vertical), top_k_sorted_by_index(offsets, n_slash)};
  }

  static void put_first(std::vector<double>& sums, Index n) {
    const auto count = std::min(static_cast<std::size_t>(n), sums.size());
    // A number: scores are counted between the smallest and the largest.
    const double above_all = max_of(sums) + 1.0;
    std::fill_n(sums.begin(), count, above_all);
  }

  /// Memory for the keys of one row: one list after the other.
  struct RowKeys {
    std::vector<KeyPos> keys;
    std::vector<std::uint8_t> is_forced;
  };

  /// Keys of the query at `pos`: columns and offsets merged in one pass. Good until the next call.
  ListView keys_of_row(const SelectCall& call, Index kv_head, const Pattern& pattern, Index pos,
                       RowKeys& memory) const {
    const auto n_columns = static_cast<std::size_t>(
        std::upper_bound(pattern.columns.begin(), pattern.columns.end(), pos) -
        pattern.columns.begin());
    std::size_t n_offsets = static_cast<std::size_t>(
        std::upper_bound(pattern.offsets.begin(), pattern.offsets.end(), pos) -
        pattern.offsets.begin());
    memory.keys.resize(n_columns + n_offsets);
    KeyPos* out = memory.keys.data();
    std::size_t column = 0;
    while (column < n_columns && n_offsets > 0) {
      const Index from_column = pattern.columns[column];
      // Largest offset first: ascending keys.
      const Index from_offset = pos - pattern.offsets[n_offsets - 1];
      *out++ = static_cast<KeyPos>(std::min(from_column, from_offset));
      column += from_column <= from_offset ? 1 : 0;
      n_offsets -= from_offset <= from_column ? 1 : 0;
    }
    while (column < n_columns) *out++ = static_cast<KeyPos>(pattern.columns[column++]);
    while (n_offsets > 0) *out++ = static_cast<KeyPos>(pos - pattern.offsets[--n_offsets]);
    memory.keys.resize(static_cast<std::size_t>(out - memory.keys.data()));
    if (!all_alive(call, kv_head))
      std::erase_if(memory.keys, [&](KeyPos key) { return !is_alive(call, kv_head, key); });
    memory.is_forced.assign(memory.keys.size(), 0);
    const auto first_free =
        std::lower_bound(memory.keys.begin(), memory.keys.end(), forced_vertical_);
    std::fill_n(memory.is_forced.begin(), first_free - memory.keys.begin(), 1);
    const auto first_near =
        std::upper_bound(memory.keys.begin(), memory.keys.end(), pos - forced_slash_);
    std::fill(memory.is_forced.begin() + (first_near - memory.keys.begin()), memory.is_forced.end(),
              1);
    return {memory.keys, memory.is_forced, {}};
  }

  /// Keys of the queries at positions [first, last], up to the last one's own, by the kernel's
  /// rounding.
  KeyList keys_of_rows(const Pattern& pattern, Index first, Index last) const {
    std::vector<KeyPos> slashes;
    for (auto offset = pattern.offsets.rbegin(); offset != pattern.offsets.rend(); ++offset) {
      if (last - *offset < 0) continue;
      const Index begin = std::max<Index>(0, first - *offset);
      const Index end = last - *offset + 1;
      append_range(slashes, begin / kKernelBlock * kKernelBlock,
                   std::min((end + kKernelBlock - 1) / kKernelBlock * kKernelBlock, last + 1));
    }
    std::vector<KeyPos> all;
    std::vector<KeyPos> columns;
    for (const Index j : pattern.columns) {
      if (j <= last) columns.push_back(static_cast<KeyPos>(j));
    }
    std::set_union(slashes.begin(), slashes.end(), columns.begin(), columns.end(),
                   std::back_inserter(all));
    KeyList list;
    for (const KeyPos pos : all) {
      const bool is_forced = pos < forced_vertical_ || last - pos < forced_slash_;
      (is_forced ? list.forced : list.scored).push_back(pos);
    }
    return list;
  }
};

}  // namespace

void register_minference_vertical_slash(SelectorRegistry& registry) {
  SelectorEntry& entry = registry.add<VerticalSlash>(
      "minference-vertical-slash", "MInference: vertical-slash", "arXiv 2407.02490",
      "in prefill, the columns and diagonals that the last queries attend to");
  entry.settings = {{.sets = {{"sizes", "budget"}}}};
  entry.presets["minference-vertical-slash-kernel"] = {{"rounding", "kernel"}};
  entry.presets["minference-vertical-slash-uniform"] = {{"n-vertical", "512"}, {"n-slash", "2048"}};
}

}  // namespace kvscope
