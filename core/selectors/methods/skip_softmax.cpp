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
// query sees. scale = 1000 is the documentation's example for prefill. Attention sinks (logits
// without a key) do not join the maximum. It takes no budget: `scale`, `lambda` or `target` is its
// setting. Dead keys have no score.
//
// The fit (by=target; `kvscope fit skip-softmax`): scale = a exp(b target), the least squares over
// the program's 20 thresholds and 24 contexts (six lengths in each of (T / 2, T], (T / 4, T / 2],
// ... of the recording) of those measurements that skip between a tenth and nine tenths of the
// tiles, per phase, all layers and heads together. Model-Optimizer fits so on RULER prompts. A
// prefill sample is the last block-q queries of a context, as a call judges them; there, whole
// prompts. A phase in which no threshold skips a tenth keeps all tiles.
#include <algorithm>
#include <cmath>
#include <limits>
#include <nlohmann/json.hpp>
#include <optional>
#include <span>
#include <vector>

#include "core/attention/row_kernels.hpp"
#include "core/base/parallel.hpp"
#include "core/selectors/artifact.hpp"
#include "core/selectors/block_outcomes.hpp"
#include "core/selectors/calibration_rows.hpp"
#include "core/selectors/cost_units.hpp"
#include "core/selectors/learned.hpp"
#include "core/selectors/owners.hpp"
#include "core/selectors/registry.hpp"
#include "core/selectors/shared_scores.hpp"
#include "core/tensor/soft_cap_kernel.hpp"

namespace kvscope {

namespace {

/// scale = a exp(b sparsity).
struct SkipScale {
  double a = 0.0;
  double b = 0.0;
  double scale(double sparsity) const;
};

/// One measurement: with lambda = scale / T a share `sparsity` of the tiles was skipped.
struct SkipPoint {
  double scale = 0.0;
  double sparsity = 0.0;
};

constexpr Index kTileKeysAtOnce = 512;  // whose scores are held, for all queries of a group
constexpr double kUnseenTile = -std::numeric_limits<double>::infinity();

/// For one b: the best a and what remains of the squares.
struct Remainder {
  double a;
  double squares;
};

Remainder remainder_of(std::span<const SkipPoint> points, double b) {
  double product = 0.0;
  double square = 0.0;
  for (const SkipPoint& point : points) {
    const double e = std::exp(b * point.sparsity);
    product += e * point.scale;
    square += e * e;
  }
  Remainder out{product / square, 0.0};
  for (const SkipPoint& point : points) {
    const double missing = point.scale - out.a * std::exp(b * point.sparsity);
    out.squares += missing * missing;
  }
  return out;
}

/// How far each tile of block_k keys (aligned to position 0, from the first that a row sees) lies
/// below the running maximum: the largest over the rows of (the tile's largest score - the largest
/// so far, the tile's own included), for each head of a group. A tile is skipped if that is below
/// log(lambda); -infinity: no row sees an alive key of it. rows: of the call. [heads][n_tiles]
std::vector<std::vector<double>> tile_margins(const SelectCall& call, const ListHeads& group,
                                              TokenRange rows, Index block_k, KeyDots& dots) {
  const TokenRange seen{row_range(call, rows.begin).begin, row_range(call, rows.end - 1).end};
  const BlockOutcomes tiles(block_k, seen);
  std::vector<std::vector<double>> margins(
      static_cast<std::size_t>(group.q_heads.size()),
      std::vector<double>(static_cast<std::size_t>(tiles.blocks.size()), kUnseenTile));
  std::vector<Index> row_numbers;
  for (Index row = rows.begin; row < rows.end; ++row) row_numbers.push_back(row);
  std::vector<double> q;  // head by head
  for (Index q_head = group.q_heads.begin; q_head < group.q_heads.end; ++q_head) {
    const std::vector<double> part =
        query_rows(call, q_head, row_numbers, static_cast<double>(call.score_scale));
    q.insert(q.end(), part.begin(), part.end());
  }
  const std::size_t n_queries = margins.size() * row_numbers.size();
  std::vector<double> running(n_queries, kUnseenTile);
  const Index tiles_at_once = std::max<Index>(1, kTileKeysAtOnce / block_k);
  for (Index first = tiles.blocks.begin; first < tiles.blocks.end; first += tiles_at_once) {
    const Index last = std::min(first + tiles_at_once, tiles.blocks.end);
    const TokenRange part{tiles.keys_of(first).begin, tiles.keys_of(last - 1).end};
    dots.compute(q, static_cast<Index>(n_queries), call.k.sub(group.kv_head), part);
    for (std::size_t i = 0; i < n_queries; ++i) {
      const std::span<double> scores = dots.row(static_cast<Index>(i));
      soft_cap(scores, call.score_rule().cap);
      mask_dead(call, group.kv_head, part, scores);
      const TokenRange visible = row_range(call, row_numbers[i % row_numbers.size()]);
      for (Index tile = first; tile < last; ++tile) {
        const TokenRange keys = tiles.keys_of(tile);
        const Index begin = std::max(keys.begin, visible.begin);
        const Index end = std::min(keys.end, visible.end);
        if (begin >= end) continue;
        const double largest = max_of(scores.subspan(static_cast<std::size_t>(begin - part.begin),
                                                     static_cast<std::size_t>(end - begin)));
        running[i] = std::max(running[i], largest);
        if (largest == kUnseenTile) continue;
        double& margin =
            margins[i / row_numbers.size()][static_cast<std::size_t>(tile - tiles.blocks.begin)];
        margin = std::max(margin, largest - running[i]);
      }
    }
  }
  return margins;
}

double SkipScale::scale(double sparsity) const {
  return a * std::exp(b * sparsity);
}

/// The least squares of the scale, a >= 0 and 0 <= b <= 20, over the points with a sparsity from .1
/// to .9 (Model-Optimizer's DynamicThresholdCalibrator); empty with fewer than three of these.
std::optional<SkipScale> fit_skip_scale(std::span<const SkipPoint> points) {
  constexpr double kLargestB = 20.0;
  constexpr int kSteps = 2000;
  std::vector<SkipPoint> used;
  for (const SkipPoint& point : points) {
    if (point.sparsity >= 0.1 && point.sparsity <= 0.9) used.push_back(point);
  }
  if (used.size() < 3) return std::nullopt;
  int best = 0;
  for (int i = 1; i <= kSteps; ++i) {
    if (remainder_of(used, kLargestB * i / kSteps).squares <
        remainder_of(used, kLargestB * best / kSteps).squares)
      best = i;
  }
  double low = kLargestB * std::max(best - 1, 0) / kSteps;
  double high = kLargestB * std::min(best + 1, kSteps) / kSteps;
  for (int i = 0; i < 100; ++i) {  // thirds: the remainder falls, then rises
    const double left = low + (high - low) / 3.0;
    const double right = high - (high - low) / 3.0;
    if (remainder_of(used, left).squares <= remainder_of(used, right).squares) {
      high = right;
    } else {
      low = left;
    }
  }
  const double b = 0.5 * (low + high);
  return SkipScale{remainder_of(used, b).a, b};
}

/// Thresholds that a fit tries, and how many contexts it looks at: those of Model-Optimizer.
constexpr std::array<double, 20> kTrials = {1e-6, 5e-6, 1e-5, 5e-5, 1e-4, 5e-4, 1e-3,
                                            5e-3, 1e-2, 2e-2, 5e-2, 0.1,  0.2,  0.3,
                                            0.5,  0.7,  0.8,  0.9,  0.95, 0.99};
constexpr Index kBins = 4;
constexpr Index kEndsPerBin = 6;

enum class SkipRule { scale, target };

class SkipSoftmax final : public Selector {
 public:
  Index block_q_ = option(block_q_, "block-q", 128, "queries per tile", in(1, 1 << 10));
  Index block_k_ = option(block_k_, "block-k", 128, "keys per tile", in(1, 1 << 10));
  double scale_ =
      option(scale_, "scale", 1000.0, "lambda times the number of visible keys", in(0.0, 1e9));
  double lambda_ = option(lambda_, "lambda", 0.0,
                          "the threshold itself, for any context; 0: scale / T", in(0.0, 1.0));
  SkipRule by_ =
      option(by_, "by", SkipRule::scale,
             "scale: the option; target: the scale that was fitted for a share of tiles");
  double target_ =
      option(target_, "target", 0.5, "share of the tiles that is skipped, by=target", in(0.0, 1.0));
  std::string fit_ =
      option(fit_, "fit", "", "a file of kvscope fit skip-softmax, which means by=target");

  void configure() override {
    if (goes_by_target() && lambda_ > 0.0) {
      throw ConfigError(
          "skip-softmax: lambda: expected 0 with by=target or fit=FILE, which say the "
          "threshold, found {}",
          lambda_);
    }
  }
  SelectorCaps caps() const override {
    SelectorCaps caps;
    caps.owner = ListOwner::q_head;
    caps.page_size = block_k_;
    caps.needs_calibration = goes_by_target() && !file_.is_named();
    caps.cross_layer = caps.needs_calibration;  // one fit serves all layers
    caps.artifact_option = "fit";
    return caps;
  }

  void calibrate(const TraceSource& text, std::span<const Index>, ThreadPool& pool) override {
    const TraceInfo& info = text.info();
    if (info.n_tokens < Index{1} << (kBins + 1)) {
      throw ConfigError("skip-softmax: {} has {} tokens, expected at least {}", text.where(),
                        info.n_tokens, Index{1} << (kBins + 1));
    }
    const std::vector<Index> layers = full_attention_layers(text, name());
    const std::vector<Index> ends = context_ends(info.n_tokens);
    // [layers x n_kv][prefill, decode][ends][trials and all]
    std::vector<std::array<std::vector<std::vector<Index>>, 2>> counts(
        layers.size() * static_cast<std::size_t>(info.n_kv));
    pool.parallel_for(static_cast<Index>(counts.size()), [&](Index task, int) {
      const Index layer = layers[static_cast<std::size_t>(task / info.n_kv)];
      const Index kv_head = task % info.n_kv;
      Tensor<float> q({info.group(), info.n_tokens, info.d_head});
      for (Index h = 0; h < info.group(); ++h) {
        const Tensor<float> of_head =
            text.read_q(layer, kv_head * info.group() + h, {0, info.n_tokens});
        std::copy(of_head.flat().begin(), of_head.flat().end(), q.view().sub(h).data());
      }
      const Tensor<float> k = text.read_k(layer, kv_head, {0, info.n_tokens});
      KeyDots dots;
      for (const Index end : ends) {
        const std::array<Index, 2> n_rows = {std::min(block_q_, end), 1};
        for (std::size_t phase = 0; phase < n_rows.size(); ++phase)
          counts[static_cast<std::size_t>(task)][phase].push_back(
              count_skipped(info, q.view(), k.view(), end, n_rows[phase], dots));
      }
    });
    const auto fitted = [&](std::size_t phase) {
      std::vector<SkipPoint> points;
      for (std::size_t e = 0; e < ends.size(); ++e) {
        std::vector<double> sums(kTrials.size() + 1, 0.0);
        for (const auto& of_head : counts) {
          for (std::size_t i = 0; i < sums.size(); ++i)
            sums[i] += static_cast<double>(of_head[phase][e][i]);
        }
        for (std::size_t i = 0; i < kTrials.size(); ++i)
          points.push_back({kTrials[i] * static_cast<double>(ends[e]), sums[i] / sums.back()});
      }
      return fit_skip_scale(points);
    };
    of_prefill_ = fitted(0);
    of_decode_ = fitted(1);
    is_fitted_ = true;
    if (of_prefill_ || of_decode_) return;
    throw ConfigError(
        "skip-softmax: on {} no threshold skips between a tenth and nine tenths of the "
        "tiles: expected a longer text, or smaller tiles (block-q, block-k)",
        text.where());
  }
  Learned learned() const override {
    Learned out;
    const auto pair = [](const std::optional<SkipScale>& scale) {
      return scale ? std::array<double, 2>{scale->a, scale->b} : std::array<double, 2>{0.0, 0.0};
    };
    out.values = {{"prefill", pair(of_prefill_)}, {"decode", pair(of_decode_)}};
    out.options = {{"block_q", block_q_}, {"block_k", block_k_}};
    const auto words = [](const std::optional<SkipScale>& scale) {
      return scale ? fmt::format("{:.4g} exp({:.3f} target)", scale->a, scale->b)
                   : std::string("none (tiles are never skipped)");
    };
    out.summary =
        fmt::format("scale in prefill: {}; in decode: {}", words(of_prefill_), words(of_decode_));
    return out;
  }
  std::vector<ArtifactOrigin> artifacts() const override { return file_.origins(); }

  void reset(const AttentionShape& shape) override {
    if (file_.is_named()) load(shape);
  }

  Selection do_select(const SelectCall& call) override {
    const double log_lambda = std::log(lambda_of(call));
    const auto add_lists = [&](const ListHeads& group, ScoreWorker& worker, Selection& selection) {
      std::vector<std::vector<BlockOutcomes>> kept;  // [tiles of queries][heads of the group]
      for (Index first = 0; first < call.n_tok; first += block_q_)
        kept.push_back(kept_tiles(call, group, {first, std::min(first + block_q_, call.n_tok)},
                                  log_lambda, worker.dots));
      for (std::size_t head = 0; head < static_cast<std::size_t>(group.q_heads.size()); ++head) {
        for (const std::vector<BlockOutcomes>& tile : kept)
          selection.add(tile[head].list(call, group.kv_head));
      }
    };
    return select_by_kv_head(call, std::min(block_q_, call.n_tok), add_lists);
  }

  SelectCost cost(const SelectCall& call, const Selection& selection) const override {
    const Index group = call.q.dim(0) / call.k.dim(0);
    const auto d = static_cast<double>(call.k.dim(2));
    double n_pairs = 0.0;   // of a query and a key that it sees and that its tile skipped
    double n_unread = 0.0;  // keys that attention does not read
    for (Index kv_head = 0; kv_head < call.k.dim(0); ++kv_head) {
      std::vector<std::uint8_t> is_kept(static_cast<std::size_t>(call.k.dim(1)), 0);
      for (Index q_head = kv_head * group; q_head < (kv_head + 1) * group; ++q_head) {
        for (Index row = 0; row < call.n_tok; ++row) {
          const std::span<const KeyPos> keys = selection.list(q_head, row).keys;
          const TokenRange seen = row_range(call, row);
          const auto begin = std::lower_bound(keys.begin(), keys.end(), seen.begin);
          const auto end = std::lower_bound(begin, keys.end(), seen.end);
          n_pairs += static_cast<double>(count_candidates(call, kv_head, seen) - (end - begin));
          if (row % selection.rows_per_list == 0) {
            for (const KeyPos pos : keys) is_kept[static_cast<std::size_t>(pos)] = 1;
          }
        }
      }
      n_unread += static_cast<double>(count_candidates(call, kv_head, call_range(call)) -
                                      std::count(is_kept.begin(), is_kept.end(), 1));
    }
    return {.score_flops = 2.0 * n_pairs * d, .score_bytes = n_unread * d * kBytesPerElement};
  }

 private:
  double lambda_of(const SelectCall& call) const {
    if (lambda_ > 0.0) return lambda_;
    return std::min(1.0,
                    scale_of(call) / static_cast<double>(row_range(call, call.n_tok - 1).size()));
  }

  double scale_of(const SelectCall& call) const {
    if (!goes_by_target()) return scale_;
    if (!is_fitted_) {
      throw ConfigError(
          "skip-softmax: by=target has no fit: calibrate it on a text, or name a file with "
          "fit=FILE (kvscope fit skip-softmax TRACE --out FILE)");
    }
    const auto& fitted = call.phase == Phase::prefill ? of_prefill_ : of_decode_;
    return fitted ? fitted->scale(target_) : 0.0;
  }

  bool goes_by_target() const { return by_ == SkipRule::target || file_.is_named(); }

  /// Lengths of the contexts that are measured: in (T / 2, T], (T / 4, T / 2], ...
  static std::vector<Index> context_ends(Index n_tokens) {
    std::vector<Index> ends;
    for (Index bin = 0; bin < kBins; ++bin) {
      const Index high = n_tokens >> bin;
      const Index low = n_tokens >> (bin + 1);
      for (Index i = 1; i <= kEndsPerBin; ++i) ends.push_back(low + (high - low) * i / kEndsPerBin);
    }
    return ends;
  }

  /// Tiles that each threshold skips where the last n_rows queries of a context ask one KV head,
  /// and behind them all tiles. [kTrials.size() + 1]
  std::vector<Index> count_skipped(const TraceInfo& info, TensorView<const float> q,
                                   TensorView<const float> k, Index end, Index n_rows,
                                   KeyDots& dots) const {
    SelectCall call;
    call.pos_begin = end - n_rows;
    call.n_tok = n_rows;
    call.score_scale = info.score_scale;
    call.score_cap = info.score_cap;
    call.q = q.range(1, end - n_rows, end);
    call.k = TensorView<const float>(k.data(), Shape{1, end, k.dim(1)});
    std::vector<Index> counts(kTrials.size() + 1, 0);
    for (const std::vector<double>& margins :
         tile_margins(call, {0, {0, q.dim(0)}, 0}, {0, n_rows}, block_k_, dots)) {
      for (const double margin : margins) {
        for (std::size_t i = 0; i < kTrials.size(); ++i)
          counts[i] += margin < std::log(kTrials[i]) ? 1 : 0;
      }
      counts.back() += static_cast<Index>(margins.size());
    }
    return counts;
  }

  void load(const AttentionShape& shape) {
    check_shape(file_.get(), shape);
    const auto read = [&](const char* phase) -> std::optional<SkipScale> {
      const std::vector<double> values = file_.numbers(file_.list(phase, 2), 2, phase);
      if (values[0] <= 0.0) return std::nullopt;
      return SkipScale{values[0], values[1]};
    };
    of_prefill_ = read("prefill");
    of_decode_ = read("decode");
    is_fitted_ = true;
  }

  /// The tiles that the queries `rows` do not skip, for each head of a group: they share the
  /// reading of the keys.
  std::vector<BlockOutcomes> kept_tiles(const SelectCall& call, const ListHeads& group,
                                        TokenRange rows, double log_lambda, KeyDots& dots) const {
    constexpr double kUnseen = -std::numeric_limits<double>::infinity();
    const BlockOutcomes all(block_k_,
                            {row_range(call, rows.begin).begin, row_range(call, rows.end - 1).end});
    std::vector<BlockOutcomes> kept;
    for (const std::vector<double>& margins : tile_margins(call, group, rows, block_k_, dots)) {
      BlockOutcomes& outcomes = kept.emplace_back(all);
      for (std::size_t i = 0; i < margins.size(); ++i) {
        if (margins[i] > kUnseen && margins[i] >= log_lambda)
          outcomes.of_block[i] = BlockOutcome::scored;
      }
    }
    return kept;
  }

  ArtifactFile file_{"skip-softmax", fit_};
  bool is_fitted_ = false;
  std::optional<SkipScale> of_prefill_;  // empty: no threshold skips a tenth of the tiles
  std::optional<SkipScale> of_decode_;
};

}  // namespace

void register_skip_softmax(SelectorRegistry& registry) {
  SelectorEntry& entry = registry.add<SkipSoftmax>(
      "skip-softmax", "Skip Softmax (BLASST): tiles below the running maximum", "arXiv 2512.12087",
      "reads all keys, and the values of tiles whose largest score is not far below what came "
      "before");
  entry.settings = {{.option = "scale", .low = 1e-9, .high = 1e9, .falls = true, .is_log = true}};
}

}  // namespace kvscope
