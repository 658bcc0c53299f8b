// specattn: the draft model's attention chooses the verifier's keys (arXiv 2510.27641, NeurIPS 2025
// workshop). No code.
//
// Idea: in speculative decoding the draft model has just attended to the same tokens. Map every
// verifier layer to a draft layer; take the nucleus (smallest set of mass p) of the draft's rows
// of the queries that proposed the tokens (for tokens t to t + gamma - 1 the rows t - 1 to t +
// gamma - 2, algorithm 1, lines 12 to 15: no row covers the last token); their union, closed over
// blocks of 16, is the verifier layer's list for all heads and all queries of the verification.
//
// Cost per call and layer: I gamma T compares and adds, I the iterations of the threshold search;
// reads I gamma T probabilities. Stores the draft's rows, gamma T probabilities per draft layer
// (counted once per verifier layer here).
//
// Fails when draft and verifier look at different tokens; closure over blocks raises what is kept
// far above 1 - p.
//
// Decided where the paper is silent: rows are means over the draft's heads; keys in flight (this
// call's tokens) and the last token before them are forced; the nucleus is of the whole row, then
// cut to the past; sparse output renormalised; the exact nucleus by default (the printed search
// returns its last midpoint and misses p in half of the rows). The map is given as a list
// (layer-map=0/0/1/2, draft layer of verifier layer 0, 1, ...), as "identity", or "proportional"
// (layer j of n to floor(j n_draft / n), the default, since it needs no calibration); the monotone
// map of least KL divergence, which is the paper's, comes from the layer map analysis. Decode with
// one draft row works the same. block_mass takes the nucleus of sums over blocks instead.

#include <algorithm>
#include <numeric>

#include "core/attention/monotone_map.hpp"
#include "core/attention/nucleus.hpp"
#include "core/base/error.hpp"
#include "core/selectors/candidates.hpp"
#include "core/selectors/cost_units.hpp"
#include "core/selectors/list_builders.hpp"
#include "core/selectors/owners.hpp"
#include "core/selectors/registry.hpp"
#include "core/selectors/shared_options.hpp"

namespace kvscope {

namespace {

enum class BlockRule { closure, block_mass, none };

class SpecAttn final : public Selector {
 public:
  NucleusMode nucleus_ =
      option(nucleus_, "nucleus", NucleusMode::exact, "how the threshold of a row is found");
  BlockRule blocks_ =
      option(blocks_, "blocks", BlockRule::closure,
             "closure: blocks that hold a chosen key; block_mass: nucleus of block sums");
  Index block_size_ = option(block_size_, "block-size", 16, "tokens per block", in(1, 1 << 20));
  std::string layer_map_ =
      option(layer_map_, "layer-map", "proportional",
             "proportional, identity, or the draft layer of each verifier layer as 0/0/1/2");
  Index dense_layers_ = dense_layers_option(dense_layers_, 2);

  void configure() override { map_ = DraftMap(layer_map_); }
  SelectorCaps caps() const override {
    return {.prefill = false,
            .owner = ListOwner::layer,
            .needs_draft = true,
            .budgets = {Budget::Kind::mass},
            .page_size = blocks_ == BlockRule::none ? 1 : block_size_,
            .dense_layers = dense_layers_};
  }
  void reset(const AttentionShape& shape) override {
    Selector::reset(shape);
    marked_ = {};
  }
  HostRows host_rows() const override { return HostRows::none; }  // the draft's rows are enough

  Selection do_select(const SelectCall& call) override {
    const TokenRange visible = call_range(call);
    const std::vector<std::uint8_t>& is_kept = marked_keys(call);

    KeyList list;
    for (Index pos = visible.begin; pos < call.pos_begin; ++pos) {
      if (is_kept[static_cast<std::size_t>(pos)] != 0)
        list.scored.push_back(static_cast<KeyPos>(pos));
    }
    std::vector<KeyPos> forced;
    append_range(forced, std::max(visible.begin, call.pos_begin - 1), visible.end);
    force_keys(list, forced);
    Selection selection(ListOwner::layer, call.n_tok, call.n_tok);
    selection.add(list);
    return without_dead_keys(std::move(selection), call);
  }

  SelectCost cost(const SelectCall& call, const Selection& selection) const override {
    if (selection.is_dense || call.draft_rows.empty()) return {};
    const auto n_rows = static_cast<double>(call.draft_rows[0].dim(0));
    const auto n_keys = static_cast<double>(call_range(call).end);
    // passes over a row: as printed at most 20 halvings reach 1e-6; the exact search needs at most
    // 31
    const double passes = nucleus_ == NucleusMode::exact       ? 31.0
                          : nucleus_ == NucleusMode::paper_eps ? 20.0
                                                               : 10.0;
    return {.score_flops = 2.0 * passes * n_rows * n_keys,
            .score_bytes = passes * n_rows * n_keys * kBytesPerProb,
            .metadata_bytes = n_rows * n_keys * kBytesPerProb};
  }

 private:
  /// What the rows of a draft layer keep, for the verifier's layers that follow it.
  struct Marked {
    Index step = -1;
    Index pos_begin = -1;
    const Tensor<float>* rows = nullptr;
    double p = 0.0;
    std::vector<std::uint8_t> is_kept;  // [keys of the context]
  };

  const std::vector<std::uint8_t>& marked_keys(const SelectCall& call) {
    const Tensor<float>& rows = draft_rows_of(call);
    if (marked_.step == call.step && marked_.pos_begin == call.pos_begin && marked_.rows == &rows &&
        marked_.p == call.budget.value)
      return marked_.is_kept;
    const auto n_keys = static_cast<std::size_t>(call_range(call).end);
    std::vector<std::vector<std::uint8_t>> of_rows(static_cast<std::size_t>(rows.dim(0)));
    engine_of(call).run(rows.dim(0), [&](Index row, ScoreWorker&) {
      std::vector<std::uint8_t>& own = of_rows[static_cast<std::size_t>(row)];
      own.assign(n_keys, 0);
      mark_row(rows.view().row(row), call.budget.value, own);
    });
    marked_ = {call.step, call.pos_begin, &rows, call.budget.value, std::move(of_rows.front())};
    for (std::size_t row = 1; row < of_rows.size(); ++row)
      std::ranges::transform(marked_.is_kept, of_rows[row], marked_.is_kept.begin(),
                             std::bit_or<>());
    if (blocks_ == BlockRule::closure) close_blocks(marked_.is_kept);
    return marked_.is_kept;
  }

  const Tensor<float>& draft_rows_of(const SelectCall& call) const {
    if (call.draft_rows.empty()) {
      throw ConfigError(
          "specattn: needs the attention rows of a draft model, which this trace or run does not "
          "have");
    }
    const Index draft_layer =
        map_.draft_of(call.layer, shape_.n_layers, static_cast<Index>(call.draft_rows.size()));
    const Tensor<float>& rows = call.draft_rows[static_cast<std::size_t>(draft_layer)];
    if (rows.shape().rank != 2 || rows.dim(0) < 1 || rows.dim(1) > call_range(call).end) {
      throw ShapeError("specattn: draft rows {}, expected [n >= 1, at most {} positions]",
                       to_string(rows.shape()), call_range(call).end);
    }
    return rows;
  }

  /// Marks the nucleus of one draft row [n_positions].
  void mark_row(std::span<const float> row, double p, std::span<std::uint8_t> is_kept) const {
    if (blocks_ != BlockRule::block_mass) {
      for (const Index pos : nucleus(row, p, nucleus_)) is_kept[static_cast<std::size_t>(pos)] = 1;
      return;
    }
    const auto size = static_cast<std::size_t>(block_size_);
    std::vector<float> sums;
    for (std::size_t begin = 0; begin < row.size(); begin += size) {
      const auto block = row.subspan(begin, std::min(size, row.size() - begin));
      sums.push_back(static_cast<float>(std::accumulate(block.begin(), block.end(), 0.0)));
    }
    for (const Index block : nucleus(sums, p, nucleus_))
      fill_block(static_cast<std::size_t>(block), is_kept);
  }

  void close_blocks(std::span<std::uint8_t> is_kept) const {
    const auto size = static_cast<std::size_t>(block_size_);
    for (std::size_t begin = 0; begin < is_kept.size(); begin += size) {
      const auto first = is_kept.begin() + static_cast<std::ptrdiff_t>(begin);
      const auto last =
          is_kept.begin() + static_cast<std::ptrdiff_t>(std::min(begin + size, is_kept.size()));
      if (std::find(first, last, 1) != last) std::fill(first, last, std::uint8_t{1});
    }
  }

  void fill_block(std::size_t block, std::span<std::uint8_t> is_kept) const {
    const auto size = static_cast<std::size_t>(block_size_);
    const std::size_t end = std::min((block + 1) * size, is_kept.size());
    for (std::size_t pos = block * size; pos < end; ++pos) is_kept[pos] = 1;
  }

  DraftMap map_{layer_map_};
  Marked marked_;
};

}  // namespace

void register_specattn(SelectorRegistry& registry) {
  registry.add<SpecAttn>("specattn", "SpecAttn: the draft's attention chooses", "arXiv 2510.27641",
                         "verifies drafted tokens on the keys that the draft model attended to");
}

}  // namespace kvscope
