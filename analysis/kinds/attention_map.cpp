#include "analysis/kinds/attention_map.hpp"

#include <fmt/format.h>

#include <algorithm>

#include "analysis/base/statistics.hpp"
#include "core/base/error.hpp"
#include "core/base/evenly_spaced.hpp"
#include "core/base/fields_json.hpp"
#include "core/base/json.hpp"

namespace kvscope {

namespace {

constexpr const char* kName = "attention-map";

}  // namespace

Json analyze_attention_map(const TraceSource& trace, const AttentionMapOptions& options,
                           const AnalysisRun& run) {
  check_fields(options);
  require_full_qkv(trace, kName);
  const TraceInfo& info = trace.info();
  const auto require_recorded = [&](const std::vector<Index>& recorded, Index wanted,
                                    std::string_view what) {
    if (std::ranges::find(recorded, wanted) != recorded.end()) return;
    throw ConfigError("{}: {} {} was not recorded; {} holds {}", kName, what, wanted, trace.where(),
                      fmt::join(recorded, ", "));
  };
  require_recorded(info.layers, options.layer, "layer");
  require_recorded(info.q_heads, options.head, "query head");

  const Index n_tokens = info.n_tokens;
  const Index block = (n_tokens + options.max_cells - 1) / options.max_cells;
  const Index n_blocks = (n_tokens + block - 1) / block;
  const TokenRange all{0, n_tokens};
  const Tensor<float> k =
      trace.read_k(options.layer, options.head / info.group(options.layer), all);
  const KeyTable keys(k.view());
  ScoreRowLoop loop(run.pool, run.stop, kName);

  std::vector<Index> begins;
  for (Index b = 0; b < n_blocks; ++b) begins.push_back(b * block);
  run.begin(kName, trace, fields_to_json(options));
  write_axis(run.output, "query_block", begins, "token", "first query of a block");
  write_axis(run.output, "key_block", begins, "token", "first key of a block");
  run.output.declare(
      {"map",
       ResultType::f32,
       {n_blocks, n_blocks},
       {"query_block", "key_block"},
       "1",
       fmt::format("{} softmax weight", options.pooling == MapPooling::mean ? "mean" : "largest")});

  PooledRows pooled(block, n_blocks, block, options.pooling);
  std::vector<float> row_out(static_cast<std::size_t>(n_blocks));
  for (Index b = 0; b < n_blocks; ++b) {
    check_stop(run.stop, kName);
    const std::vector<Index> positions = all_in(b * block, std::min((b + 1) * block, n_tokens));
    pooled.clear();
    loop.run(trace, options.layer, options.head, positions, keys,
             [&](Index i, std::span<double> scores, TokenRange visible) {
               softmax_in_place(scores, info.sink_logit(options.layer, options.head));
               pooled.put(i, scores, visible);
             });
    pooled.join(0, static_cast<Index>(positions.size()), row_out);
    run.output.write<float>("map", b, row_out);
    if (run.progress && b % 16 == 0) run.progress({kName, b, n_blocks, "blocks"});
  }
  run.output.add_plot({"plot_map", "map", {"query_block", "key_block"}, "Attention map"});
  return run.finish({{"layer", options.layer},
                     {"head", options.head},
                     {"tokens", n_tokens},
                     {"block", block},
                     {"cells", n_blocks},
                     {"pooling", std::string(enum_name(options.pooling))}});
}

}  // namespace kvscope
