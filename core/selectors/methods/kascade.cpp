// kascade: a few anchor layers choose keys, the layers after them reuse the choice head by head
// (arXiv 2512.16391; official code). Presets omnikv (ICLR 2025) and tidaldecode (arXiv 2410.05076).
//
// Idea: the keys with the largest weights change slowly from layer to layer. Anchor layers compute
// exact softmax rows, sum them over the group (in a prefill over a tile of 32 queries, too) and
// keep the best k keys per KV head; every other layer uses its anchor's lists, KV head h that of
// head map(layer, h). Layer 0 attends to everything, its lists are used all the same. Anchors and
// head map are learned once per model: `kvscope fit kascade`.
//
// Cost: at an anchor 2 n_q n_tok T d FLOPs and one read of all keys; nothing elsewhere. Stores the
// lists of one layer. The dense layers and dense anchors of the presets are a floor under the
// traffic that no budget lowers.
//
// Time of a choice over dense attention at an anchor, 32k keys (8 query and 2 KV heads of 64
// channels, one thread): 0.6 for a chunk of 128, 0.7 for a step. Exact scores of every row
// and their softmax are what dense attention makes before it reads values; reuse layers take
// none of it.
//
// Fails where a layer looks elsewhere than its anchor; the head map is as good as the calibration
// text.
//
// The fit: sim(a, b, h, h') = mass that head h of layer b gives to the keys of head h' of layer a,
// relative to the mass of its own k keys, the least over fit-rows queries of the text's later half;
// map(b, h) = the best h'; anchors by dynamic programming over the mean of the best
// (core/attention/anchor_layers.hpp). k = max(min-keys, fit-ratio of the context), at most half of
// it. Decided where the sources differ or are silent: the code weighs a layer by 1 - cos(hidden
// state before, after attention), which recordings do not hold: all layers weigh the same here. Own
// position (prefill: the own tile) is forced inside the budget; the code forces the tile, and in
// decode lets the own key compete. A layer whose anchor was not asked in the same call (it has a
// sliding window, or --dense-layers leaves it out) chooses for itself. min-keys is a floor under
// budgets given as a ratio (the code's k = max(128, 10 %)), not under those in tokens. Keys that
// only some KV heads still hold stay with those. omnikv: as Kascade's authors run it: decode; one
// list for all heads by the largest weight of any; layers 0, 1, the anchors and the layer after
// each anchor dense. Anchors 2, 8, 18 are its program's for Llama-3-8B (configs/example.json).
// tidaldecode: decode; a list per query head by its weights; layers 0 and 1 and the anchors dense;
// anchors 2 and 9 are the program's defaults (13 for Llama-3.1-8B in the paper). Anchors that a
// model does not have fall away.
#include <fmt/format.h>

#include <algorithm>
#include <limits>
#include <nlohmann/json.hpp>

#include "core/attention/anchor_layers.hpp"
#include "core/attention/topk.hpp"
#include "core/base/error.hpp"
#include "core/base/evenly_spaced.hpp"
#include "core/base/lists.hpp"
#include "core/base/number_text.hpp"
#include "core/selectors/calibration_rows.hpp"
#include "core/selectors/candidates.hpp"
#include "core/selectors/cost_units.hpp"
#include "core/selectors/eviction.hpp"
#include "core/selectors/learned_heads.hpp"
#include "core/selectors/list_builders.hpp"
#include "core/selectors/list_owner.hpp"
#include "core/selectors/owners.hpp"
#include "core/selectors/registry.hpp"
#include "core/selectors/softmax_votes.hpp"

namespace kvscope {

namespace {

enum class AnchorPool { sum, max };
enum class AnchorAttention { sparse, dense };
enum class AnchorPhases { all, decode };

class Kascade final : public Selector {
 public:
  std::string map_ = option(
      map_, "map", "",
      "a file of kvscope fit kascade: anchors and head map; without it or anchors, a calibration "
      "text is needed");
  std::string anchors_ =
      option(anchors_, "anchors", "",
             "anchor layers as 0/2/8, every head with its own list, instead of a map");
  Index n_anchors_ =
      option(n_anchors_, "n-anchors", 5, "fitting: how many anchors", in(1, 1 << 20));
  ListOwner list_ = option(list_, "list", ListOwner::kv_head, "who gets its own list");
  AnchorPool pool_ =
      option(pool_, "pool", AnchorPool::sum,
             "how the weights of heads that share a list are combined; a tile's rows are summed");
  AnchorAttention attend_ = option(attend_, "attend", AnchorAttention::sparse,
                                   "what anchors attend to: their own list, or everything");
  bool dense_after_ =
      option(dense_after_, "dense-after", false, "the layer after an anchor stays dense, too");
  AnchorPhases phases_ = option(phases_, "phases", AnchorPhases::all,
                                "where it answers; prefill and verification are dense with decode");
  Index tile_ = option(tile_, "tile", 32, "queries of a prefill or verification that share a list",
                       in(1, 1 << 20));
  Index min_keys_ =
      option(min_keys_, "min-keys", 128, "least keys of a budget given as a ratio", at_least(0));
  Index dense_layers_ =
      option(dense_layers_, "dense-layers", 1,
             "leading layers that attend to everything; anchors among them choose all the same",
             at_least(0));
  double fit_ratio_ = option(fit_ratio_, "fit-ratio", 0.1,
                             "fitting: share of the context that is compared", in(0.0, 1.0));
  Index fit_rows_ =
      option(fit_rows_, "fit-rows", 64, "fitting: queries that are compared", in(1, 1 << 20));

  void configure() override {
    if (anchors_.empty()) return;
    if (file_.is_named())
      throw ConfigError(
          "kascade: map and anchors contradict each other: a map has anchors of its own");
    for (const std::string& word : split_words(anchors_, '/')) {
      const auto layer = number_from<Index>(word);
      if (!layer || *layer < 0 || (!anchor_layers_.empty() && *layer <= anchor_layers_.back())) {
        throw ConfigError("kascade: anchors: expected ascending layers as 0/2/8, found \"{}\"",
                          anchors_);
      }
      anchor_layers_.push_back(*layer);
    }
  }
  SelectorCaps caps() const override {
    return {.prefill = phases_ == AnchorPhases::all,
            .decode = true,
            .verify = phases_ == AnchorPhases::all,
            .owner = list_,
            .needs_calibration = !file_.is_named() && anchors_.empty(),
            .cross_layer = true,
            .uses_pool = true,
            .budgets = kTokenBudgets,
            .forced_inside_budget = true,
            .artifact_option = "map"};
  }

  void calibrate(const TraceSource& text, std::span<const Index>, ThreadPool& pool) override {
    const TraceInfo& info = text.info();
    const std::vector<Index> layers = full_attention_layers(text, name());
    const auto n = static_cast<Index>(layers.size());
    const std::vector<Index> rows = evenly_spaced(info.n_tokens / 2, info.n_tokens, fit_rows_);
    const Tensor<double> sim = similarities(text, layers, rows, pool);  // [n, n, n_kv, n_kv]
    Tensor<double> of_layers(Shape{n, n});
    for (Index a = 0; a < n; ++a) {
      for (Index b = a; b < n; ++b) {
        for (Index h = 0; h < info.n_kv; ++h)
          of_layers(a, b) += sim(a, b, h, best_head(sim, a, b, h)) / static_cast<double>(info.n_kv);
      }
    }
    const AnchorLayers best = best_anchor_layers(of_layers.view(), n_anchors_);
    anchor_layers_.clear();
    for (const Index a : best.anchors)
      anchor_layers_.push_back(layers[static_cast<std::size_t>(a)]);
    head_map_.clear();
    for (Index b = 0, anchor = 0; b < n; ++b) {
      if (std::find(best.anchors.begin(), best.anchors.end(), b) != best.anchors.end()) anchor = b;
      for (Index h = 0; h < info.n_kv; ++h)
        head_map_.put(layers[static_cast<std::size_t>(b)], h, {best_head(sim, anchor, b, h)});
    }
    mean_similarity_ = best.score / static_cast<double>(n);
  }

  Learned learned() const override {
    Learned out = head_map_.learned("map", "");
    out.values["anchors"] = anchor_layers_;
    out.values["similarity"] = mean_similarity_;
    out.options = {{"n_anchors", n_anchors_},
                   {"min_keys", min_keys_},
                   {"fit_ratio", fit_ratio_},
                   {"fit_rows", fit_rows_}};
    out.summary = fmt::format("anchors {}; mean similarity of a layer to its anchor {:.3f}",
                              fmt::join(anchor_layers_, ", "), mean_similarity_);
    return out;
  }
  std::vector<ArtifactOrigin> artifacts() const override { return file_.origins(); }

  void reset(const AttentionShape& shape) override {
    if (!file_.is_named()) return;
    head_map_.load(file_, "map", shape, /*n=*/1, /*high=*/shape.n_kv - 1);
    const auto& anchors = file_.list(
        "anchors", file_.get().values.value("anchors", nlohmann::ordered_json::array()).size());
    anchor_layers_ = file_.indices(anchors, anchors.size(), 0, shape.n_layers - 1, "anchors");
    std::sort(anchor_layers_.begin(), anchor_layers_.end());
  }

  Selection do_select(const SelectCall& call) override {
    if (anchor_layers_.empty()) {
      throw ConfigError(
          "kascade: has no anchors: calibrate it on a text, or name a file with map=FILE (kvscope "
          "fit kascade TRACE --out FILE), or the layers with anchors=0/2/8");
    }
    CrossLayerContext& context = context_of(call, name());
    const bool is_dense = call.layer < dense_layers_ || is_after_anchor(call.layer);
    const auto known = context.selections.find(key_of(call.budget));
    const bool is_anchor =
        std::find(anchor_layers_.begin(), anchor_layers_.end(), call.layer) != anchor_layers_.end();
    // Without a list to reuse the layer chooses for itself, unless it is dense anyway and before
    // the first anchor.
    const bool must_choose =
        known == context.selections.end() && !is_dense && !is_before_anchors(call.layer);
    if (is_anchor || must_choose) {
      Selection lists = make_lists(call);
      Selection selection;
      const bool attends_to_all = is_dense || (is_anchor && attend_ == AnchorAttention::dense);
      if (!attends_to_all) selection = lists.clone();
      context.selections.insert_or_assign(key_of(call.budget), std::move(lists));
      return attends_to_all ? alive_selection(call) : std::move(selection);
    }
    if (is_dense || known == context.selections.end()) return alive_selection(call);
    return reused(call, known->second);
  }

  HostRows host_rows() const override { return by_q_head() ? HostRows::all : HostRows::none; }
  SelectCost cost(const SelectCall& call, const Selection&) const override {
    if (chose_last_ != call.layer) return {};
    return exact_scoring_cost(call, call_range(call), call.n_tok);
  }

 private:
  /// Sums of heads need no rows of single heads.
  bool by_q_head() const { return list_ == ListOwner::q_head || pool_ == AnchorPool::max; }
  static std::string key_of(const Budget& budget) { return "kascade " + budget.to_string(); }
  bool is_before_anchors(Index layer) const { return layer < anchor_layers_.front(); }
  bool is_after_anchor(Index layer) const {
    return dense_after_ && std::find(anchor_layers_.begin(), anchor_layers_.end(), layer - 1) !=
                               anchor_layers_.end();
  }

  Index rows_per_list(const SelectCall& call) const { return std::min(tile_, call.n_tok); }

  /// Keys of a list at the end of a context of n_keys.
  Index keys_of_budget(const Budget& budget, Index n_keys) const {
    const Index k = budget.tokens(n_keys, /*page_size=*/1);
    return budget.kind == Budget::Kind::ratio ? std::max(k, min_keys_) : k;
  }

  /// The lists of a layer that chooses: exact weights of each tile's rows, pooled over the heads
  /// that share the list.
  Selection make_lists(const SelectCall& call) {
    chose_last_ = call.layer;
    const TokenRange seen = call_range(call);
    const Index rows = rows_per_list(call);
    const Index n_tiles = (call.n_tok + rows - 1) / rows;
    const Index n_lists = n_owners(list_, call.q.dim(0), call.k.dim(0));
    // [n_lists][n_tiles].
    std::vector<std::vector<KeyList>> lists(static_cast<std::size_t>(n_lists));
    for (std::vector<KeyList>& one : lists) one.resize(static_cast<std::size_t>(n_tiles));
    // votes are those of the keys before a tile
    for (Index tile = 0; tile < n_tiles; ++tile) {
      const std::vector<Index> tile_rows =
          all_in(tile * rows, std::min(call.n_tok, (tile + 1) * rows));
      const Index past_end = std::max(seen.begin, call.pos_begin + tile * rows);
      std::vector<std::vector<double>> votes =
          softmax_votes(call, {.owner = by_q_head() ? ListOwner::q_head : ListOwner::kv_head,
                               .rows = tile_rows,
                               .keys = {seen.begin, past_end}});
      const auto per_list = static_cast<Index>(votes.size()) / n_lists;
      engine_of(call).run(n_lists, [&](Index list, ScoreWorker&) {
        const auto heads = std::span(votes).subspan(static_cast<std::size_t>(list * per_list),
                                                    static_cast<std::size_t>(per_list));
        pool_heads(heads);
        lists[static_cast<std::size_t>(list)][static_cast<std::size_t>(tile)] =
            best_of_tile(call, list, heads.front(), tile * rows);
      });
    }
    Selection out(list_, call.n_tok, rows);
    for (const std::vector<KeyList>& tiles : lists) {
      for (const KeyList& list : tiles) out.add(list);
    }
    return without_dead_keys(std::move(out), call);
  }

  /// Combines the heads that share a list, into the first.
  void pool_heads(std::span<std::vector<double>> heads) const {
    for (const std::vector<double>& head : heads.subspan(1)) {
      for (std::size_t i = 0; i < head.size(); ++i) {
        double& all = heads.front()[i];
        all = pool_ == AnchorPool::max ? std::max(all, head[i]) : all + head[i];
      }
    }
  }

  /// The best keys before a tile and the tile itself.
  KeyList best_of_tile(const SelectCall& call, Index owner_index, std::span<double> weights,
                       Index first_row) const {
    const TokenRange seen = call_range(call);
    const Index begin = call.pos_begin + first_row;
    const Index end = std::min(begin + rows_per_list(call), seen.end);
    const TokenRange past{seen.begin, std::max(seen.begin, begin)};
    const Index k = std::max<Index>(0, keys_of_budget(call.budget, end) - (end - begin));
    const auto scores = weights.first(static_cast<std::size_t>(past.size()));
    KeyList list;
    append_range(list.forced, begin, end);
    if (list_ == ListOwner::layer) {
      for (Index pos = past.begin; pos < past.end; ++pos) {
        if (!is_held(call, pos))
          scores[static_cast<std::size_t>(pos - past.begin)] =
              -std::numeric_limits<double>::infinity();
      }
      list.scored = top_k_list(scores, past, k).scored;
      return list;
    }
    const Index kv_head =
        list_ == ListOwner::kv_head ? owner_index : owner_index / (call.q.dim(0) / call.k.dim(0));
    mask_dead(call, kv_head, past, scores);
    list.scored = top_k_list(scores, past, k).scored;
    remove_dead(call, kv_head, list);
    return list;
  }

  /// The anchor's lists, KV head h with that of its head in the map.
  Selection reused(const SelectCall& call, const Selection& lists) const {
    if (list_ == ListOwner::layer && lists.owner == ListOwner::layer) {
      return without_dead_keys(lists.clone(), call);
    }
    Selection selection(lists.owner, call.n_tok, lists.rows_per_list);
    const Index n_owners = lists.owner == ListOwner::q_head ? call.q.dim(0) : call.k.dim(0);
    const Index per_kv_head = n_owners / call.k.dim(0);
    for (Index owner_index = 0; owner_index < n_owners; ++owner_index) {
      const Index kv_head = owner_index / per_kv_head;
      Index source = owner_index;
      const std::span<const Index> head = head_map_.find(call.layer, kv_head);
      if (!head.empty() && list_ == ListOwner::kv_head) source = head.front();
      for (Index row = 0; row < call.n_tok; row += lists.rows_per_list) {
        selection.add(lists.list(source, row).where([&](KeyPos key) {
          return is_alive(call, kv_head, key);
        }));
      }
    }
    return selection;
  }

  static Index best_head(const Tensor<double>& sim, Index a, Index b, Index h) {
    Index best = 0;
    for (Index other = 1; other < sim.dim(3); ++other) {
      if (sim(a, b, h, other) > sim(a, b, h, best)) best = other;
    }
    return best;
  }

  /// sim(a, b, h, h') of layers a <= b; see the file's head. Holds the lists of all layers and the
  /// rows of one.
  Tensor<double> similarities(const TraceSource& text, std::span<const Index> layers,
                              std::span<const Index> rows, ThreadPool& pool) const {
    const TraceInfo& info = text.info();
    const auto n = static_cast<Index>(layers.size());
    const auto n_rows = static_cast<Index>(rows.size());
    Tensor<double> sim(Shape{n, n, info.n_kv, info.n_kv});
    std::fill_n(sim.data(), sim.count(), 1.0);
    // [n_rows] ascending keys, the own one among them.
    using RowLists = std::vector<std::vector<Index>>;
    std::vector<RowLists> lists(static_cast<std::size_t>(n * info.n_kv));  // [n][n_kv]
    std::vector<std::vector<double>> weights(static_cast<std::size_t>(info.n_kv * n_rows));
    for (Index b = 0; b < n; ++b) {
      pool.parallel_for(info.n_kv, [&](Index h, int) {
        for (Index r = 0; r < n_rows; ++r)
          weights[static_cast<std::size_t>(h * n_rows + r)].assign(
              static_cast<std::size_t>(rows[static_cast<std::size_t>(r)] + 1), 0.0);
        visit_weight_rows(text, layers[static_cast<std::size_t>(b)], h, rows,
                          [&](Index, Index r, std::span<const double> row) {
                            std::vector<double>& sum =
                                weights[static_cast<std::size_t>(h * n_rows + r)];
                            for (std::size_t i = 0; i < row.size(); ++i) sum[i] += row[i];
                          });
        RowLists& own = lists[static_cast<std::size_t>(b * info.n_kv + h)];
        for (Index r = 0; r < n_rows; ++r)
          own.push_back(compared_keys(weights[static_cast<std::size_t>(h * n_rows + r)]));
      });
      pool.parallel_for((b + 1) * info.n_kv * info.n_kv, [&](Index i, int) {
        const Index a = i / (info.n_kv * info.n_kv);
        const Index h = i / info.n_kv % info.n_kv;
        const Index other = i % info.n_kv;
        const RowLists& own = lists[static_cast<std::size_t>(b * info.n_kv + h)];
        const RowLists& lent = lists[static_cast<std::size_t>(a * info.n_kv + other)];
        double least = std::numeric_limits<double>::infinity();
        for (Index r = 0; r < n_rows; ++r) {
          const std::vector<double>& row = weights[static_cast<std::size_t>(h * n_rows + r)];
          const double mass = mass_of(row, own[static_cast<std::size_t>(r)]);
          least = std::min(
              least, mass > 0.0 ? mass_of(row, lent[static_cast<std::size_t>(r)]) / mass : 1.0);
        }
        sim(a, b, h, other) = least;
      });
    }
    return sim;
  }

  /// The best keys of a calibration row before its own position, and that one.
  std::vector<Index> compared_keys(std::span<const double> weights) const {
    const auto n = static_cast<Index>(weights.size());
    const Index k = std::min(
        std::max(min_keys_, static_cast<Index>(fit_ratio_ * static_cast<double>(n))), n / 2);
    std::vector<Index> keys = top_k_sorted_by_index(weights.first(weights.size() - 1), k - 1);
    keys.push_back(n - 1);
    return keys;
  }

  static double mass_of(std::span<const double> weights, std::span<const Index> keys) {
    double mass = 0.0;
    for (const Index key : keys) mass += weights[static_cast<std::size_t>(key)];
    return mass;
  }

  ArtifactFile file_{"kascade", map_};
  std::vector<Index> anchor_layers_;  // ascending
  LearnedHeads<Index> head_map_;      // the head of its anchor; none: every head its own
  double mean_similarity_ = 1.0;      // of the fit
  Index chose_last_ = -1;             // the layer that made lists last
};

}  // namespace

void register_kascade(SelectorRegistry& registry) {
  SelectorEntry& entry =
      registry.add<Kascade>("kascade", "Kascade: anchor layers and head maps", "arXiv 2512.16391",
                            "a few layers choose keys for the layers after them, head by head");
  entry.presets["omnikv"] = {{"anchors", "2/8/18"}, {"list", "layer"},       {"pool", "max"},
                             {"attend", "dense"},   {"dense-after", "true"}, {"phases", "decode"},
                             {"dense-layers", "2"}};
  entry.presets["tidaldecode"] = {{"anchors", "2/9"},
                                  {"list", "q_head"},
                                  {"attend", "dense"},
                                  {"phases", "decode"},
                                  {"dense-layers", "2"}};
  registry.say_lacking(
      "kascade",
      "weights of layers by how much they change hidden states, which recordings do not hold");
}

}  // namespace kvscope
