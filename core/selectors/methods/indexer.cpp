// indexer: a small index beside the cache chooses. Presets dsa (DeepSeek-V3.2, arXiv 2512.02556;
// GLM-5, arXiv 2602.15763), qsa (Qwen's QSA, transformers' qwen4_exp), msa (MiniMax-M3, arXiv
// 2606.13392) and seer (SeerAttention-R, arXiv 2506.08889).
//
// Idea: queries and keys have short index vectors, whose products stand for the scores of
// attention. They are the model's own, recorded as side tensors (from=side, the presets), or made
// by maps that kvscope fit learns from a recording of any model (from=fit, or index=FILE). Every
// query ranks all keys, or blocks of keys, by
//   score=dot      the sum over the index heads h of w_h qI_h.kI
//   score=relu     the sum of w_h max(0, qI_h.kI): DeepSeek's lightning indexer
//   score=softmax  the sum of w_h softmax(qI_h.kI) over all that compete
// and attends to the best exactly. Lists are the query's own: one per row, of a query head, a KV
// head or one for all heads (owner). With block > 1 whole blocks are kept; their score is that of
// the block's index key (pool=key: the mean of its tokens' index keys) or of the best of its tokens
// (pool=max).
//
// What is learned, per layer: linear maps of queries and keys to d-index channels
// (core/selectors/learned_index.hpp has the formula): of all maps of that size those whose products
// leave the smallest squared error of the scores over the recording. per=kv_head: an index key per
// KV head; per=layer: one index key per token, which all KV heads share. The channels come by
// falling importance: a run may use fewer than were fitted. At full size (d_head, or n_kv d_head
// with per=layer) the products are the scores of attention: the oracle.
//
// Cost per call with N index keys (of all index key heads) and r channels: 2 r d FLOPs for the
// index vector of each query and key of the call, 2 r for each product, and one read of N r 2 bytes
// (fp8: r + 4). Stores the index vectors of every key. With pool=key the index keys are those of
// blocks. The cut among them (a top-k of N numbers for every row) comes on top.
//
// Presets, from the published programs (budgets are the caller's; the published ones in brackets):
//   dsa   a list for all heads, gated sums of relu, single tokens [2048 tokens], vectors in fp8
//   qsa   a list for all heads, sums of relu without gates, blocks of 4 by the index key that the
//         model makes of the block [2048 tokens]; the last block, while it is not whole, on top
//   msa   a list per KV head by its index head, blocks of 128 by the best of their tokens [16
//         blocks, the query's own among them]; the program's dense layers have no indexer
//   seer  a list per KV head by softmax, blocks of 64 by their index key, the query's own always
//         kept [4096 tokens]
//
// What the fit is: a factorisation of all scores of a text, in closed form. What it is not: an
// indexer trained to rank, nor one with a rotation of its own. It sees keys and queries after their
// rotation, so it is good at the positions of its recording and nowhere else: learned on 3072
// tokens, 8 channels keep .25 of the attention at position 4100, learned on 4608 tokens of the same
// text .69 (analysis/simulate/README.md). Learn on a recording at least as long as what will be
// run; nothing warns of a shorter one. Means of keys take no channel: keys count from their mean.
//
// Fails, too, where the text's queries look for other directions than those of the recording, and
// where a single score matters more than the mean square over all: the maps are the best for all
// pairs, not for the largest weights. A trained indexer is made for those.
//
// Blocks with from=fit and pool=key stand for their tokens by a mean of index keys, which dilutes
// one that stands alone: of three planted needles, each one key of a block of 4, one is lost
// (tests/core/selectors/planted_needle_test.cpp has block=2, which finds all); pool=max finds them
// with blocks of 4.
//
// Side tensors: core/trace/side.hpp. Layers without an indexer stay dense, as in the model (GLM-5's
// layers that reuse another one's choice are therefore dense here). Products are scaled by 1 /
// sqrt(d_index). A trace without them, and a live run (no native model has an indexer), is refused.
// With from=side and pool=key the index key of a block is that of its last token, where recorders
// put what the model made of the whole block.
//
// Decided where the sources are silent: learned maps have no gates, w = 1. Products of learned
// index vectors are scaled as scores are, and score=softmax knows attention sinks where single keys
// compete, so that at full size ranks are those of the summed weights (oracle-topk-group). A
// query's own block, while it is not whole, is always kept: its index key is not made yet; n-local
// keeps more of the latest blocks. inside=true counts what is always kept inside the budget. With
// fp8 one power of two scales a vector (DeepSeek's kernel: an f32 factor per vector, which is what
// is counted); nothing is rotated before it (DeepSeek: a Hadamard matrix). Blocks with dead keys
// keep their index key; blocks without a living key do not compete.

#include <algorithm>
#include <limits>
#include <nlohmann/json.hpp>

#include "core/attention/head_share.hpp"
#include "core/attention/score_rows.hpp"
#include "core/base/error.hpp"
#include "core/base/parallel.hpp"
#include "core/selectors/artifact.hpp"
#include "core/selectors/block_outcomes.hpp"
#include "core/selectors/calibration_rows.hpp"
#include "core/selectors/cost_units.hpp"
#include "core/selectors/index_vectors.hpp"
#include "core/selectors/learned.hpp"
#include "core/selectors/learned_index.hpp"
#include "core/selectors/list_owner.hpp"
#include "core/selectors/owners.hpp"
#include "core/selectors/registry.hpp"
#include "core/selectors/shared_options.hpp"

namespace kvscope {

namespace {

enum class IndexScore { dot, relu, softmax };
enum class IndexPool { key, max };
enum class IndexPer { kv_head, layer };
enum class IndexFrom { fit, side };

constexpr double kIndexNone = -std::numeric_limits<double>::infinity();
constexpr Index kIndexRows = 64;  // rows times index heads whose products are held

class Indexer final : public Selector {
 public:
  IndexFrom from_ =
      option(from_, "from", IndexFrom::fit,
             "index vectors by learned maps, or the model's own, which a recording has");
  std::string index_ = option(
      index_, "index", "",
      "a file of kvscope fit indexer; overrides from; without one, from=fit needs a calibration "
      "text");
  IndexScore score_ = option(score_, "score", IndexScore::softmax,
                             "how the products of a list's index heads become a score");
  ListOwner owner_ = option(owner_, "owner", ListOwner::kv_head,
                            "who gets its own list; layer: one list for all heads");
  Index block_ = option(block_, "block", 1, "tokens that are kept or not together", in(1, 1 << 20));
  IndexPool pool_ = option(pool_, "pool", IndexPool::key,
                           "a block's score: of its own index key, or the best of its tokens");
  Index n_local_ =
      option(n_local_, "n-local", 0, "latest blocks that are always kept, a query's own included",
             in(0, 1 << 30));
  bool inside_ =
      option(inside_, "inside", false, "blocks that are always kept count inside the budget");
  IndexType type_ = option(type_, "type", IndexType::exact, "how index vectors are held");
  Index d_index_ =
      option(d_index_, "d-index", 0,
             "channels of an index vector; 0: index-share, or all that a file has", at_least(0));
  double index_share_ =
      option(index_share_, "index-share", 0.25,
             "fitting: channels as a share of the head's, at least one", in(0.0, 1.0));
  IndexPer per_ =
      option(per_, "per", IndexPer::kv_head,
             "fitting: an index key of its own for each KV head, or one that all share");
  Index dense_layers_ = dense_layers_option(dense_layers_);

  void configure() override {
    vectors_ = IndexVectors(pool_ == IndexPool::key ? block_ : 1, type_);
  }
  SelectorCaps caps() const override {
    SelectorCaps caps;
    caps.owner = owner_;
    caps.needs_calibration = !file_.is_named() && from_ == IndexFrom::fit;
    caps.needs_side = is_recorded();
    caps.artifact_option = "index";
    caps.budgets = kTokenBudgets;
    if (block_ > 1) caps.budgets.push_back(Budget::Kind::pages);
    caps.forced_inside_budget = inside_;
    caps.page_size = block_;
    caps.dense_layers = dense_layers_;
    return caps;
  }
  std::string why_no_scores() const override {
    return ranks_keys() ? "" : "ranks blocks, or for all heads at once";
  }

  void calibrate(const TraceSource& text, std::span<const Index> layers,
                 ThreadPool& pool) override {
    full_attention_layers(text, name());
    const TraceInfo& info = text.info();
    const bool is_shared = per_ == IndexPer::layer;
    const Index most = is_shared ? info.n_kv * info.d_head : info.d_head;
    const Index rank =
        d_index_ > 0 ? std::min(d_index_, most) : channels_of(0, index_share_, info.d_head);
    learned_ = fit_index(text, layers, rank, is_shared, pool);
  }
  Learned learned() const override { return learned_.to_file(); }
  std::vector<ArtifactOrigin> artifacts() const override { return file_.origins(); }

  void reset(const AttentionShape& shape) override {
    if (!file_.is_named()) return;
    learned_ = load_index(file_, shape);
    if (d_index_ > learned_.rank) {
      throw ConfigError("indexer: d-index: expected at most the {} channels of {}, found {}",
                        learned_.rank, index_, d_index_);
    }
  }

  std::vector<Selection> do_select_budgets(SelectCall call,
                                           std::span<const Budget> budgets) override {
    if (is_recorded() && has_no_indexer(call))
      return dense_selections(call, owner_, budgets.size());
    const IndexCall index =
        is_recorded() ? vectors_.recorded(call) : vectors_.learned(call, learned_, width());
    const Index n_owners = owners_of(call);
    if (index.n_heads() % n_owners != 0) {
      throw ConfigError(
          "indexer: {} index heads do not serve {} lists: expected a multiple; take another owner",
          index.n_heads(), n_owners);
    }
    const Index n_heads = index.n_heads() / n_owners;
    const Index rows = std::max<Index>(1, kIndexRows / n_heads);
    const Index n_batches = (call.n_tok + rows - 1) / rows;
    if (call.trace != nullptr && ranks_keys() && call.n_tok == 1)
      call.trace->scores.resize(static_cast<std::size_t>(n_owners));
    std::vector<std::vector<Selection>> parts(static_cast<std::size_t>(n_owners * n_batches));
    engine_of(call).run(n_owners * n_batches, [&](Index task, ScoreWorker& worker) {
      const Index first = task % n_batches * rows;
      std::vector<Selection>& part = parts[static_cast<std::size_t>(task)];
      for (std::size_t b = 0; b < budgets.size(); ++b)
        part.emplace_back(owner_, call.n_tok, /*list_rows=*/1);
      add_lists(call, index, task / n_batches, {first, std::min(first + rows, call.n_tok)}, budgets,
                worker, part);
    });
    std::vector<Selection> selections(budgets.size());
    for (std::size_t b = 0; b < budgets.size(); ++b) {
      Selection all(owner_, call.n_tok, /*list_rows=*/1);
      std::size_t n_keys = 0;
      for (const auto& part : parts) n_keys += part[b].keys().size();
      all.reserve(n_keys);
      for (const auto& part : parts) all.append(part[b]);
      selections[b] = without_dead_keys(std::move(all), call);
    }
    return selections;
  }

  SelectCost cost(const SelectCall& call, const Selection& selection) const override {
    if (selection.is_dense) return {};
    if (is_recorded()) {
      if (call.side == nullptr || call.side->index_q.empty()) return {};
      return cost_of_products(call, call.side->index_q.dim(0), call.side->index_k.dim(0),
                              call.side->index_q.dim(2));
    }
    if (learned_.keys.find(call.layer, 0).empty()) return {};
    return cost_of_products(call, call.q.dim(0), learned_.is_shared ? 1 : call.k.dim(0), width()) +
           own_products_cost(call, static_cast<double>(width()));
  }

 private:
  bool is_recorded() const { return from_ == IndexFrom::side && !file_.is_named(); }

  /// True for a layer whose model attends to everything there.
  static bool has_no_indexer(const SelectCall& call) {
    if (call.side == nullptr) {
      throw ConfigError(
          "indexer: from=side (so the presets dsa, qsa, msa and seer) chooses by index vectors of "
          "the model's own indexer, and there are none: record a model that has an indexer with "
          "kvscope_recorder (capture index), or learn an index of this one with kvscope fit "
          "indexer TRACE --out FILE and name it with index=FILE");
    }
    return call.side->index_q.empty();
  }

  SelectCost cost_of_products(const SelectCall& call, Index n_heads, Index n_key_heads,
                              Index width) const {
    const double n_keys = index_keys(call, n_key_heads);
    const double heads_per_key = static_cast<double>(n_heads) / static_cast<double>(n_key_heads);
    SelectCost cost = products_cost(heads_per_key * static_cast<double>(call.n_tok), n_keys,
                                    static_cast<double>(width));
    cost.score_bytes = cost.metadata_bytes = n_keys * index_vector_bytes(width, type_);
    return cost;
  }

  Index owners_of(const SelectCall& call) const {
    return n_owners(owner_, call.q.dim(0), call.k.dim(0));
  }
  bool ranks_keys() const { return block_ == 1 && owner_ != ListOwner::layer; }
  bool scores_blocks() const { return block_ > 1 && pool_ == IndexPool::key; }

  Index kv_head_of(const SelectCall& call, Index owner) const {
    return owner_ == ListOwner::q_head ? owner * call.k.dim(0) / call.q.dim(0) : owner;
  }

  /// Index keys that compete in a call, of all index key heads: of tokens or blocks that hold a
  /// key.
  double index_keys(const SelectCall& call, Index n_key_heads) const {
    const TokenRange seen = call_range(call);
    const Index size = scores_blocks() ? block_ : 1;
    double n = 0.0;
    for (Index head = 0; head < n_key_heads; ++head) {
      for (Index i = seen.begin / size; (i + 1) * size <= seen.end; ++i) {
        bool is_there = false;
        for (Index pos = i * size; pos < (i + 1) * size && !is_there; ++pos)
          is_there = n_key_heads == call.k.dim(0) ? is_alive(call, head, pos) : is_held(call, pos);
        n += is_there ? 1.0 : 0.0;
      }
    }
    return n;
  }

  /// Channels that score, of learned maps.
  Index width() const { return d_index_ > 0 ? std::min(d_index_, learned_.rank) : learned_.rank; }

  /// The lists of one owner's rows, for each budget.
  void add_lists(const SelectCall& call, const IndexCall& index, Index owner, TokenRange rows,
                 std::span<const Budget> budgets, ScoreWorker& worker,
                 std::span<Selection> selections) const {
    const Index n_heads = index.n_heads() / owners_of(call);
    const TokenRange heads{owner * n_heads, (owner + 1) * n_heads};
    std::vector<BlockOutcomes> outcomes;
    std::vector<std::vector<double>> scores;
    for (Index row = rows.begin; row < rows.end; ++row) {
      outcomes.push_back(rule_of(call, row));
      scores.emplace_back(outcomes.back().of_block.size(), 0.0);
    }
    const std::vector<std::uint8_t> held = held_keys(call, owner);
    for (Index first = heads.begin; first < heads.end;) {  // heads that share an index key
      Index last = first + 1;
      while (last < heads.end && index.key_head_of(last) == index.key_head_of(first)) ++last;
      add_scores(call, index, {first, last}, rows, held, outcomes, scores, worker.dots);
      first = last;
    }
    for (Index row = rows.begin; row < rows.end; ++row) {
      const auto at = static_cast<std::size_t>(row - rows.begin);
      add_row(call, owner, outcomes[at], scores[at], held, budgets, selections);
    }
  }

  /// Which positions the owner still holds; empty: all.
  std::vector<std::uint8_t> held_keys(const SelectCall& call, Index owner) const {
    std::vector<std::uint8_t> held;
    if (all_alive(call)) return held;
    for (Index pos = 0; pos < call.k.dim(1); ++pos) {
      const bool is_there = owner_ == ListOwner::layer
                                ? is_held(call, pos)
                                : is_alive(call, kv_head_of(call, owner), pos);
      held.push_back(is_there ? 1 : 0);
    }
    return held;
  }

  /// What is kept whatever its score: the latest blocks, and the own one while it is not whole.
  BlockOutcomes rule_of(const SelectCall& call, Index row) const {
    BlockOutcomes outcomes(block_, row_range(call, row));
    const bool is_cut = outcomes.keys.end % block_ != 0;
    outcomes.force(
        {outcomes.blocks.end - std::max<Index>(n_local_, is_cut ? 1 : 0), outcomes.blocks.end});
    return outcomes;
  }

  /// Adds the index heads' part of the scores of every row's blocks; -infinity: not a candidate.
  void add_scores(const SelectCall& call, const IndexCall& index, TokenRange heads, TokenRange rows,
                  std::span<const std::uint8_t> held, std::span<const BlockOutcomes> outcomes,
                  std::span<std::vector<double>> scores, KeyDots& dots) const {
    const auto width = static_cast<std::size_t>(index.width());
    std::vector<double> q;
    for (Index head = heads.begin; head < heads.end; ++head) {
      const double* from = index.q.data() + (head * call.n_tok + rows.begin) * index.width();
      q.insert(q.end(), from, from + static_cast<std::size_t>(rows.size()) * width);
    }
    const TensorView<const float> keys =
        index.keys[static_cast<std::size_t>(index.key_head_of(heads.begin))];
    const TokenRange all{0, keys.dim(0)};
    dots.compute(q, heads.size() * rows.size(), keys, all);
    std::vector<double> part;
    for (Index head = heads.begin; head < heads.end; ++head) {
      for (std::size_t row = 0; row < outcomes.size(); ++row) {
        const auto products =
            dots.row((head - heads.begin) * rows.size() + static_cast<Index>(row));
        pool_products(index, products, held, outcomes[row], part);
        combine(call, index, head, rows.begin + static_cast<Index>(row), part, scores[row]);
      }
    }
  }

  /// Products with index keys to one per block of `outcomes`; -infinity: forced, or without a key.
  void pool_products(const IndexCall& index, std::span<const double> products,
                     std::span<const std::uint8_t> held, const BlockOutcomes& outcomes,
                     std::vector<double>& out) const {
    out.assign(outcomes.of_block.size(), kIndexNone);
    for (Index block = outcomes.blocks.begin; block < outcomes.blocks.end; ++block) {
      if (outcomes.of(block) != BlockOutcome::out) continue;
      const TokenRange range = outcomes.keys_of(block);
      double best = kIndexNone;
      for (Index pos = range.begin; pos < range.end; ++pos) {
        if (!held.empty() && held[static_cast<std::size_t>(pos)] == 0) continue;
        best =
            std::max(best, products[static_cast<std::size_t>(index.keys_are_blocks ? block : pos)]);
        if (index.keys_are_blocks) break;  // one living key is enough
      }
      out[static_cast<std::size_t>(block - outcomes.blocks.begin)] = best;
    }
  }

  void combine(const SelectCall& call, const IndexCall& index, Index head, Index row,
               std::span<double> part, std::span<double> scores) const {
    if (score_ == IndexScore::softmax &&
        std::any_of(part.begin(), part.end(), [](double x) { return x > kIndexNone; })) {
      // The query heads' own scores, as learned: capped as the model caps them.
      const ScoreRule capped{.cap = index.heads_are_query_heads ? call.score_rule().cap : 0.0};
      for (double& x : part) x = x > kIndexNone ? capped.of(x) : x;
      const bool has_sink = index.heads_are_query_heads && block_ == 1;
      const std::vector<double> products(part.begin(), part.end());
      softmax_in_place(part, has_sink ? sink_logit_of(call, head) : std::nullopt);
      for (std::size_t i = 0; i < part.size(); ++i) {
        if (products[i] == kIndexNone) part[i] = kIndexNone;
      }
    }
    const double gate = index.gates.empty() ? 1.0 : static_cast<double>(index.gates(head, row));
    for (std::size_t i = 0; i < part.size(); ++i) {
      if (part[i] == kIndexNone) {
        scores[i] = kIndexNone;
      } else {
        scores[i] += gate * (score_ == IndexScore::relu ? std::max(0.0, part[i]) : part[i]);
      }
    }
  }

  /// The list of one row for each budget.
  void add_row(const SelectCall& call, Index owner, const BlockOutcomes& outcomes,
               std::span<const double> scores, std::span<const std::uint8_t> held,
               std::span<const Budget> budgets, std::span<Selection> selections) const {
    Index n_forced = 0;
    Index n_competing = 0;
    std::vector<KeyPos> forced;
    for (Index pos = outcomes.keys.begin; pos < outcomes.keys.end; ++pos) {
      if (!held.empty() && held[static_cast<std::size_t>(pos)] == 0) continue;
      const bool is_forced = outcomes.of(pos / block_) == BlockOutcome::forced;
      (is_forced ? n_forced : n_competing) += 1;
      if (is_forced) forced.push_back(static_cast<KeyPos>(pos));
    }
    if (block_ == 1) {
      std::vector<Index> sizes;
      for (const Budget& budget : budgets)
        sizes.push_back(n_bought(budget, n_forced, n_competing, n_competing));
      if (call.trace != nullptr && ranks_keys() && call.n_tok == 1) {
        const Index n = outcomes.blocks.size() - outcomes.count(BlockOutcome::forced);
        call.trace->scored = {outcomes.keys.begin, outcomes.keys.begin + n};
        call.trace->scores[static_cast<std::size_t>(owner)].assign(scores.begin(),
                                                                   scores.begin() + n);
      }
      add_top_k_lists(scores, outcomes.keys, sizes, forced, selections);
      return;
    }
    SelectCall whole = call;  // of a layer's list each KV head drops what it has lost afterwards
    if (owner_ == ListOwner::layer) whole.alive = nullptr;
    for (std::size_t b = 0; b < budgets.size(); ++b) {
      BlockOutcomes kept = outcomes;
      const Index n_blocks = outcomes.blocks.size() - outcomes.count(BlockOutcome::forced);
      kept.keep_best(scores, n_bought(budgets[b], n_forced, n_competing, n_blocks));
      selections[b].add(kept.list(whole, owner_ == ListOwner::layer ? 0 : kv_head_of(call, owner)));
    }
  }

  /// How many of n_blocks blocks (of n_competing keys) a budget pays for.
  Index n_bought(const Budget& budget, Index n_forced, Index n_competing, Index n_blocks) const {
    const Index tokens =
        inside_ ? std::max<Index>(0, budget.tokens(n_forced + n_competing, block_) - n_forced)
                : budget.tokens(std::max<Index>(1, n_competing), block_);
    if (tokens >= n_competing) return n_blocks;
    if (inside_) return std::min(tokens / block_, n_blocks);
    return blocks_bought(tokens, block_, n_competing, n_blocks);
  }

  ArtifactFile file_{"indexer", index_};
  LearnedIndex learned_;
  IndexVectors vectors_{1, IndexType::exact};
};

}  // namespace

void register_indexer(SelectorRegistry& registry) {
  SelectorEntry& entry =
      registry.add<Indexer>("indexer", "Indexer: a learned index chooses",
                            "arXiv 2512.02556, 2602.15763, 2606.13392, 2506.08889",
                            "short index vectors of queries and keys, the model's "
                            "own or learned from a recording, rank the keys");
  entry.family = MethodFamily::guided;
  entry.presets["dsa"] = {{"from", "side"}, {"score", "relu"}, {"owner", "layer"}, {"type", "fp8"}};
  entry.presets["qsa"] = {{"from", "side"}, {"score", "relu"}, {"owner", "layer"}, {"block", "4"}};
  entry.presets["msa"] = {{"from", "side"}, {"score", "dot"}, {"block", "128"},
                          {"pool", "max"},  {"n-local", "1"}, {"inside", "true"}};
  entry.presets["seer"] = {{"from", "side"}, {"block", "64"}, {"n-local", "1"}, {"inside", "true"}};
}

}  // namespace kvscope
