#include "core/sim/replay.hpp"

#include <algorithm>

#include "core/base/error.hpp"
#include "core/sim/draft_rows.hpp"
#include "core/sim/replay_heads.hpp"
#include "core/sim/replay_measure.hpp"
#include "core/sim/replay_run.hpp"
#include "core/trace/part.hpp"

namespace kvscope {

namespace {

void check_trace(const TraceSource& trace, const ReplayOptions& options,
                 const std::vector<Index>& layers) {
  require_full_qkv(trace, "replay");
  const TraceInfo& info = trace.info();
  if (static_cast<Index>(info.q_heads.size()) != info.n_q ||
      static_cast<Index>(info.kv_heads.size()) != info.n_kv) {
    throw ConfigError(
        "replay: {} holds {} of {} query heads and {} of {} KV heads, expected all: record "
        "without a head filter",
        trace.where(), info.q_heads.size(), info.n_q, info.kv_heads.size(), info.n_kv);
  }
  for (Index layer : layers) info.layer_slot(layer);
  for (Index head : options.q_heads) info.q_slot(head);
  if (options.rows_per_chunk && *options.rows_per_chunk < 1) {
    throw ConfigError("replay: expected at least one row per chunk, found {}",
                      *options.rows_per_chunk);
  }
}

std::vector<KeyTable> key_tables(const ReplayLayer& layer) {
  std::vector<KeyTable> tables;
  for (Index head = 0; !layer.window && head < layer.k.dim(0); ++head)
    tables.emplace_back(layer.k.sub(head));
  return tables;
}

/// One measured layer: its result, its key tables, and what the last call kept.
struct Measured {
  LayerReplay result;
  std::vector<KeyTable> tables;
  std::vector<std::vector<KeyPos>> previous;
};

/// The draft's rows for the first of `calls`, as many as 256 MiB hold, at least one: of the queries
/// that proposed a call's tokens, of which none covers its last one. [calls][n_layers]
std::vector<std::vector<Tensor<float>>> rows_of_calls(const TraceSource& draft,
                                                      std::span<const TokenRange> calls,
                                                      ThreadPool& pool) {
  constexpr Index kMostElements = Index{64} << 20;
  std::vector<TokenRange> proposed;
  Index n_elements = 0;
  for (const TokenRange& call : calls) {
    n_elements += std::ssize(draft.info().layers) * call.size() * call.end;
    if (!proposed.empty() && n_elements > kMostElements) break;
    proposed.push_back({call.begin - 1, call.end - 1});
  }
  return draft_attention_rows(draft, proposed, pool);
}

/// The draft's rows of one call after the other.
class DraftRows {
 public:
  /// draft null: every call has none.
  DraftRows(const TraceSource* draft, std::span<const TokenRange> calls)
      : draft_(draft), calls_(calls) {}
  std::vector<Tensor<float>> next(ThreadPool& pool) {
    if (draft_ == nullptr) return {};
    if (at_ == drafted_.size()) {
      calls_ = calls_.subspan(at_);
      drafted_ = rows_of_calls(*draft_, calls_, pool);
      at_ = 0;
    }
    return std::move(drafted_[at_++]);
  }

 private:
  const TraceSource* draft_;
  std::span<const TokenRange> calls_;                // those of drafted_ and behind
  std::vector<std::vector<Tensor<float>>> drafted_;  // of some calls at a time
  std::size_t at_ = 0;
};

/// The layers that are measured, and those before them that methods go through. Throws ConfigError
/// if the calibration is the recording itself.
std::vector<ReplayLayer> read_layers(const TraceSource& trace, const std::vector<Index>& layers,
                                     bool cross_layer, Index n_keys,
                                     const TraceSource* calibration) {
  const TraceInfo& info = trace.info();
  std::vector<ReplayLayer> data;
  for (const Index layer : info.layers) {
    const bool is_asked = std::ranges::find(layers, layer) != layers.end();
    if (is_asked || (cross_layer && layer < layers.back()))
      data.push_back(read_layer(trace, layer, n_keys));
  }
  if (calibration != nullptr && !info.uuid.empty() && calibration->info().uuid == info.uuid) {
    throw ConfigError(
        "calibration: {} is the recording that is replayed, expected one of another text",
        calibration->where());
  }
  return data;
}

/// Asks all methods about one layer of a call.
void ask_all(std::vector<ReplayRun>& runs, const ReplayLayer& layer, const Tensor<float>& q,
             TokenRange call, ThreadPool& pool, const std::stop_token& stop) {
  pool.parallel_for(static_cast<Index>(runs.size()), [&](Index r, int) {
    if (stop.stop_requested()) throw Interrupted("replay: stopped on request");
    ReplayRun& run = runs[static_cast<std::size_t>(r)];
    if (!run.caps().uses_pool) run.ask(layer, q.view(), call);
  });
  for (ReplayRun& run : runs) {
    if (run.caps().uses_pool) run.ask(layer, q.view(), call, &pool);
  }
}

/// The layers of one shape after those of another, each as a trace of their own.
std::vector<LayerReplay> replay_by_shape(const TraceSource& trace, const TraceSource* draft,
                                         const std::vector<Index>& layers,
                                         const std::vector<ReplayPair>& pairs,
                                         const ReplayOptions& options, ThreadPool& pool,
                                         const ProgressFn& progress, const std::stop_token& stop) {
  const auto groups = layers_by_shape(with_layers(trace.info(), layers));
  for (const ReplayPair& pair : pairs) require_like_layers(trace, layers, pair.selector);
  std::vector<LayerReplay> results;
  for (std::size_t g = 0; g < groups.size(); ++g) {
    const TracePart part = layers_like(trace, groups[g].front());
    ReplayOptions of_part = options;
    std::optional<TracePart> text;
    if (options.calibration != nullptr) {
      options.calibration->info().layer_slot(groups[g].front());
      of_part.calibration = &text.emplace(layers_like(*options.calibration, groups[g].front()));
    }
    ProgressFn of_all;
    if (progress) {
      const auto at = static_cast<Index>(g), n = std::ssize(groups);
      of_all = [&progress, at, n](const Progress& now) {
        progress({now.stage, at * now.total + now.done, n * now.total, now.unit});
      };
    }
    // Where all have a window nobody asks a method, which may have learned for another shape.
    const bool is_asked =
        std::ranges::any_of(groups[g], [&](Index layer) { return !part.info().window_of(layer); });
    const std::vector<ReplayPair> nobody(pairs.size(), {MethodSpec("full"), std::nullopt});
    for (LayerReplay& layer : replay_layers(part, draft, groups[g], is_asked ? pairs : nobody,
                                            of_part, pool, of_all, stop))
      results.push_back(std::move(layer));
  }
  std::ranges::sort(results, {}, &LayerReplay::layer);
  return results;
}

}  // namespace

std::vector<LayerReplay> replay_layers(const TraceSource& trace, const TraceSource* draft,
                                       const std::vector<Index>& layers,
                                       const std::vector<ReplayPair>& pairs,
                                       const ReplayOptions& options, ThreadPool& pool,
                                       const ProgressFn& progress, std::stop_token stop) {
  check_trace(trace, options, layers);
  if (layers.empty() || pairs.empty()) return {};
  if (!trace.info().layer_shapes.empty())
    return replay_by_shape(trace, draft, layers, pairs, options, pool, progress, stop);
  if (goes_by_head(trace.info(), pairs, options))
    return replay_by_head(trace, layers, pairs, options, pool, progress, stop);
  const TraceInfo& info = trace.info();
  const std::vector<TokenRange> calls = plan_calls(info, options.calls, trace.where());
  std::vector<ReplayRun> runs = make_runs(pairs, shape_of(info), options.dense_layers);
  const bool cross_layer =
      std::any_of(runs.begin(), runs.end(), [](const auto& run) { return run.caps().cross_layer; });
  const bool wants_draft =
      std::any_of(runs.begin(), runs.end(), [](const auto& run) { return run.caps().needs_draft; });
  if (wants_draft && draft != nullptr) require_same_tokens(trace, *draft);

  const std::vector<ReplayLayer> data =
      read_layers(trace, layers, cross_layer, calls.back().end, options.calibration);
  for (ReplayRun& run : runs) run.calibrate(options.calibration, data, pool);
  const Index n_prompt = prompt_end(info, options.calls);

  ReplayMeasure measure(info, options, pool);
  std::vector<std::optional<Measured>> measured(data.size());
  for (std::size_t i = 0; i < data.size(); ++i) {
    if (std::find(layers.begin(), layers.end(), data[i].layer) == layers.end()) continue;
    measured[i].emplace();
    measured[i]->result =
        measure.make_layer(data[i].layer, data[i].window.has_value(), calls, pairs.size());
    if (!options.only_costs) measured[i]->tables = key_tables(data[i]);
    measured[i]->previous.resize(pairs.size() * measured[i]->result.q_heads.size());
  }

  std::vector<PairSelection> selections(pairs.size());
  const bool has_rows = wants_draft && options.calls.phase != Phase::prefill;
  DraftRows drafted(has_rows ? draft : nullptr, calls);
  for (std::size_t c = 0; c < calls.size(); ++c) {
    if (stop.stop_requested()) throw Interrupted("replay: stopped on request");
    if (progress)
      progress({"replay", static_cast<Index>(c), static_cast<Index>(calls.size()), "calls"});
    const TokenRange call = calls[c];
    const std::vector<Tensor<float>> draft_rows = drafted.next(pool);
    const auto n_runs = static_cast<Index>(runs.size());
    pool.parallel_for(n_runs, [&](Index r, int) {
      ReplayRun& run = runs[static_cast<std::size_t>(r)];
      run.advance(trace, data, call.begin, options.calls, n_prompt);
      run.begin_call(options.calls.phase, call, draft_rows);
    });
    for (std::size_t i = 0; i < data.size(); ++i) {
      if (data[i].window) {
        if (measured[i]) measure.file_windowed(measured[i]->result, c, *data[i].window);
        continue;
      }
      const Tensor<float> q = read_queries(trace, data[i].layer, call);
      ask_all(runs, data[i], q, call, pool, stop);
      if (!measured[i]) continue;
      for (const ReplayRun& run : runs) {
        for (std::size_t m = 0; m < run.members().size(); ++m) {
          const std::size_t pair = run.members()[m];
          selections[pair] = {&run.selections()[m], run.costs()[m], pairs[pair].budget,
                              run.caps().page_size};
          if (options.on_selection)
            options.on_selection({data[i].layer, c, call, pair, run.selections()[m], run.costs()[m],
                                  run.caps().page_size});
        }
      }
      measure.measure(measured[i]->result, c, selections, q.view(), data[i], measured[i]->tables,
                      measured[i]->previous);
    }
  }
  if (progress)
    progress(
        {"replay", static_cast<Index>(calls.size()), static_cast<Index>(calls.size()), "calls"});
  std::vector<LayerReplay> results;
  for (auto& one : measured) {
    if (one) results.push_back(std::move(one->result));
  }
  return results;
}

}  // namespace kvscope
