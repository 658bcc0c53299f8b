#include "analysis/kinds/pruning.hpp"

#include "analysis/base/kit.hpp"
#include "core/attention/head_share.hpp"
#include "core/attention/quoka_scores.hpp"
#include "core/attention/sparq_queries.hpp"
#include "core/attention/topk.hpp"
#include "core/base/lists.hpp"

namespace kvscope {

namespace {

constexpr double kSmallestNorm = 1e-12;
constexpr std::array<std::string_view, 3> kPrunedScores = {"quoka", "oracle", "sparq"};

/// The largest product of a key with one of the vectors is its score.
struct PruningQuestion {
  Tensor<double> vectors;  // [n, d_head]
  bool unit = false;       // of keys divided by their norms
};

struct PageShares {
  double read = kNan;
  double hold = kNan;
};

/// Of the keys [n, d_head] of one head that compete.
class Pruning {
 public:
  Pruning(TensorView<const float> keys, bool unit) : n_(keys.dim(0)), rows_({n_, keys.dim(1)}) {
    for (Index i = 0; i < n_; ++i) {
      const auto key = keys.row(i);
      const double factor = unit ? 1.0 / std::max(norm_of(key), kSmallestNorm) : 1.0;
      for (std::size_t c = 0; c < key.size(); ++c)
        rows_.view().row(i)[c] = factor * static_cast<double>(key[c]);
    }
  }

  /// By page size; nothing where the budget takes every key.
  std::vector<PageShares> shares(const Tensor<double>& vectors, Index budget,
                                 std::span<const Index> page_sizes) const {
    std::vector<PageShares> out(page_sizes.size());
    if (budget >= n_) return out;
    std::vector<double> scores;
    for (Index i = 0; i < n_; ++i)
      scores.push_back(largest_product(vectors, rows_.view().row(i), rows_.view().row(i)));
    const std::vector<Index> kept = top_k_sorted_by_index(scores, budget);
    double worst = std::numeric_limits<double>::infinity();
    for (const Index i : kept) worst = std::min(worst, scores[static_cast<std::size_t>(i)]);
    for (std::size_t s = 0; s < page_sizes.size(); ++s)
      out[s] = shares_of(vectors, kept, worst, page_sizes[s]);
    return out;
  }

 private:
  PageShares shares_of(const Tensor<double>& vectors, std::span<const Index> kept, double worst,
                       Index page_size) const {
    Index n_pages = 0;
    Index n_read = 0;
    Index n_hold = 0;
    auto next = kept.begin();
    for (Index begin = 0; begin < n_; begin += page_size, ++n_pages) {
      const Index end = std::min(n_, begin + page_size);
      const auto first = rows_.view().row(begin);
      std::vector<double> low(first.begin(), first.end());
      std::vector<double> high = low;
      for (Index i = begin + 1; i < end; ++i) {
        const auto row = rows_.view().row(i);
        for (std::size_t c = 0; c < low.size(); ++c) {
          low[c] = std::min(low[c], row[c]);
          high[c] = std::max(high[c], row[c]);
        }
      }
      n_read += largest_product(vectors, low, high) >= worst ? 1 : 0;
      n_hold += next != kept.end() && *next < end ? 1 : 0;
      while (next != kept.end() && *next < end) ++next;
    }
    const auto all = static_cast<double>(n_pages);
    return {static_cast<double>(n_read) / all, static_cast<double>(n_hold) / all};
  }

  /// Of any key in the box. For a key itself, products in the order of the bound's, so that no
  /// rounding puts a bound below the score of its own key.
  static double largest_product(const Tensor<double>& vectors, std::span<const double> low,
                                std::span<const double> high) {
    double largest = -std::numeric_limits<double>::infinity();
    for (Index v = 0; v < vectors.dim(0); ++v) {
      const auto vector = vectors.view().row(v);
      double sum = 0.0;
      for (std::size_t c = 0; c < low.size(); ++c)
        sum += vector[c] * (vector[c] >= 0.0 ? high[c] : low[c]);
      largest = std::max(largest, sum);
    }
    return largest;
  }

  Index n_ = 0;
  Tensor<double> rows_;
};

/// The queries of a KV head's group in one chunk, [group, chunk, d_head], as questions: QuoKA's,
/// one of the last query per head, SparQ's.
struct PruningQuestions {
  PruningQuestion quoka, sparq;
  std::vector<PruningQuestion> oracle;
};

PruningQuestions questions_of(TensorView<const float> q, Index n_queries) {
  const Index group = q.dim(0);
  const Index d = q.dim(2);
  PruningQuestions out;
  std::vector<TensorView<const float>> heads;
  for (Index head = 0; head < group; ++head) heads.push_back(q.sub(head));
  const QuokaCosines cosines = quoka_group_cosines(heads, QuokaMean::raw, kSmallestNorm);
  out.quoka = {
      quoka_slot_means(heads, quoka_pick_slots(cosines.heads, n_queries, QuokaPairing::rank),
                       /*unit=*/true, kSmallestNorm),
      /*unit=*/true};
  const TensorView<const float> last = q.range(1, q.dim(1) - 1, q.dim(1));
  for (Index head = 0; head < group; ++head) {
    Tensor<double> one({1, d});
    const auto row = last.sub(head).row(0);
    std::copy(row.begin(), row.end(), one.data());
    out.oracle.push_back({std::move(one), /*unit=*/false});
  }
  const SparqQueries sparq = sparq_queries(last, {0, group}, channels_of(0, 0.5, d));
  out.sparq.vectors = Tensor<double>({1, d});
  for (std::size_t i = 0; i < sparq.q.size(); ++i)
    out.sparq.vectors.data()[sparq.channels[i % sparq.channels.size()]] += sparq.q[i];
  return out;
}

struct PruningArrays {
  PruningArrays(ResultWriter& output, const TraceInfo& info, Index n_steps, Index n_sizes)
      : layer(output, n_of(info.layers)) {
    for (std::size_t s = 0; s < kPrunedScores.size(); ++s) {
      const bool per_query = kPrunedScores[s] == "oracle";
      const Shape shape{n_of(per_query ? info.q_heads : info.kv_heads), n_steps, n_sizes};
      const auto add = [&](std::string_view what, const char* text) {
        return &layer.add<float>(fmt::format("{}/{}", kPrunedScores[s], what), shape,
                                 {per_query ? "q_head" : "kv_head", "step", "page_size"}, "1", text,
                                 kNanF);
      };
      read[s] = add("read", "share of the pages that must be read");
      hold[s] = add("hold", "share of the pages that hold a chosen key");
    }
  }
  void put(std::size_t score, Index head, Index step, std::span<const PageShares> shares) const {
    for (std::size_t i = 0; i < shares.size(); ++i) {
      (*read[score])(head, step, static_cast<Index>(i)) = static_cast<float>(shares[i].read);
      (*hold[score])(head, step, static_cast<Index>(i)) = static_cast<float>(shares[i].hold);
    }
  }

  LayerArrays layer;
  std::array<Tensor<float>*, kPrunedScores.size()> read{}, hold{};
};

/// Means over heads, by score, step and page size.
struct PageTally {
  PageTally(std::size_t n_steps, std::size_t n_sizes)
      : read(kPrunedScores.size(),
             std::vector<std::vector<Mean>>(n_steps, std::vector<Mean>(n_sizes))),
        hold(read) {}
  std::vector<std::vector<std::vector<Mean>>> read, hold;

  void add(const PruningArrays& arrays) {
    for (std::size_t s = 0; s < kPrunedScores.size(); ++s) {
      const Shape shape = arrays.read[s]->shape();
      for (Index head = 0; head < shape[0]; ++head) {
        for (Index step = 0; step < shape[1]; ++step) {
          for (Index size = 0; size < shape[2]; ++size) {
            const auto at = static_cast<std::size_t>(step);
            const auto by = static_cast<std::size_t>(size);
            read[s][at][by].add((*arrays.read[s])(head, step, size));
            hold[s][at][by].add((*arrays.hold[s])(head, step, size));
          }
        }
      }
    }
  }

  /// "quoka_read" and so on at the longest context and the page size that reads least of the keys
  /// and their boxes, and every mean under "contexts".
  Json to_json(std::span<const Index> contexts, std::span<const Index> page_sizes) const {
    Json out;
    for (std::size_t s = 0; s < kPrunedScores.size(); ++s) {
      const auto traffic = [&](std::size_t size) {
        return read[s].back()[size].value() + 2.0 / static_cast<double>(page_sizes[size]);
      };
      std::size_t best = 0;
      for (std::size_t size = 1; size < page_sizes.size(); ++size) {
        if (traffic(size) < traffic(best)) best = size;
      }
      const std::string name(kPrunedScores[s]);
      out[name + "_read"] = json_number(read[s].back()[best].value());
      out[name + "_hold"] = json_number(hold[s].back()[best].value());
      out[name + "_page_size"] = page_sizes[best];
      out[name + "_traffic"] = json_number(traffic(best));
    }
    auto rows = Json::array();
    for (std::size_t step = 0; step < contexts.size(); ++step) {
      for (std::size_t size = 0; size < page_sizes.size(); ++size) {
        Json row{{"context", contexts[step]}, {"page_size", page_sizes[size]}};
        for (std::size_t s = 0; s < kPrunedScores.size(); ++s) {
          row[std::string(kPrunedScores[s]) + "_read"] = json_number(read[s][step][size].value());
          row[std::string(kPrunedScores[s]) + "_hold"] = json_number(hold[s][step][size].value());
        }
        rows.push_back(row);
      }
    }
    out["contexts"] = rows;
    return out;
  }
};

/// Ends of the chunks looked at: evenly spaced, the last one that of the text.
std::vector<Index> chunk_ends(Index n_tokens, const PruningOptions& options) {
  std::vector<Index> ends;
  for (Index step = 1; step <= options.steps; ++step) {
    const Index end = n_tokens * step / options.steps;
    if (end > options.chunk && (ends.empty() || end > ends.back())) ends.push_back(end);
  }
  return ends;
}

}  // namespace

Json analyze_pruning(const TraceSource& trace, const PruningOptions& options,
                     const AnalysisRun& run) {
  check_fields(options);
  require_full_qkv(trace, "pruning");
  const TraceInfo& info = trace.info();
  require_whole_groups(info, "pruning");
  const std::vector<Index> page_sizes = parse_index_list(options.page_sizes, "page-sizes");
  if (page_sizes.empty() || page_sizes.front() < 1)
    throw ConfigError("pruning: page-sizes: expected whole numbers from 1 on, as 8,16,32");
  const std::vector<Index> ends = chunk_ends(info.n_tokens, options);
  if (ends.empty() || ends.back() - options.chunk <= options.budget) {
    throw ConfigError(
        "pruning: expected more keys before the last chunk than the budget of {} takes, found a "
        "recording of {} tokens; take a longer one, or a smaller --budget or --chunk",
        options.budget, info.n_tokens);
  }
  const auto contexts = mapped<Index>(ends, [&](const Index end) { return end - options.chunk; });

  run.begin("pruning", trace, fields_to_json(options));
  write_head_axes(run.output, info);
  write_axis(run.output, "context", contexts, "token", "keys before the chunk");
  write_axis(run.output, "page_size", page_sizes, "token", "keys of a page");
  PruningArrays arrays(run.output, info, n_of(ends), n_of(page_sizes));
  PageTally total(ends.size(), page_sizes.size());
  const auto measure = [&](Index, Index layer) {
    // A layer with a window has its choice made already.
    if (window_of(info, layer)) return;
    const Index n_tasks = n_of(info.kv_heads) * n_of(ends);
    run.pool.parallel_for(n_tasks, [&](Index task, int) {
      check_stop(run.stop, "pruning");
      const Index at = task / n_of(ends);
      const Index step = task % n_of(ends);
      const Index end = ends[static_cast<std::size_t>(step)];
      const Index kv_head = info.kv_heads[static_cast<std::size_t>(at)];
      const Tensor<float> k = trace.read_k(layer, kv_head, {0, end - options.chunk});
      Tensor<float> q({info.group(), options.chunk, info.d_head});
      for (Index h = 0; h < info.group(); ++h) {
        const Tensor<float> head =
            trace.read_q(layer, kv_head * info.group() + h, {end - options.chunk, end});
        std::copy_n(head.data(), head.count(), q.view().sub(h).data());
      }
      const PruningQuestions ask = questions_of(q.view(), options.n_queries);
      const Pruning unit(k.view(), /*unit=*/true);
      arrays.put(0, at, step, unit.shares(ask.quoka.vectors, options.budget, page_sizes));
      const Pruning raw(k.view(), /*unit=*/false);
      for (Index h = 0; h < info.group(); ++h) {
        arrays.put(1, at * info.group() + h, step,
                   raw.shares(ask.oracle[static_cast<std::size_t>(h)].vectors, options.budget,
                              page_sizes));
      }
      arrays.put(2, at, step, raw.shares(ask.sparq.vectors, options.budget, page_sizes));
    });
  };
  const auto summarize = [&](Index, Index, Json& entry) {
    PageTally tally(ends.size(), page_sizes.size());
    tally.add(arrays);
    total.add(arrays);
    entry.update(tally.to_json(contexts, page_sizes));
  };
  Json summary;
  summary["layers"] =
      measure_layers("pruning", info.layers, arrays.layer, run.progress, measure, summarize);
  summary["totals"] = total.to_json(contexts, page_sizes);
  return run.finish(std::move(summary));
}

}  // namespace kvscope
