#include "gui/model/methods/method_rows.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <filesystem>

#include "analysis/base/replay_pairs.hpp"
#include "analysis/sweep/sweep_rows.hpp"

namespace kvscope::gui {

namespace {
constexpr Index kUsualRowsPerChunk = 8;  // ReplayOptions', and the command line's
constexpr Index kUsualRowsUpTo = 8192;
constexpr Index kMostSweepSteps = 128;
}  // namespace

std::string MethodRowsRequest::key() const {
  std::string budget_names;
  for (const Budget& budget : budgets) budget_names += budget.to_string() + ";";
  return fmt::format("method-rows/{}/{}/{}/{}/{}/{}/{}", fmt::join(layers, ","), enum_name(phase),
                     chunk, spec, budget_names, dense_layers, rows_per_chunk ? *rows_per_chunk : 0);
}

std::size_t MethodRows::bytes() const {
  std::size_t bytes = sizeof *this + rows.size() * sizeof(SweepRow);
  for (const SweepRow& row : rows) {
    for (const std::string& text : row.texts) bytes += text.capacity();
  }
  return bytes;
}

CallPlan call_plan(const TraceInfo& info, Phase phase, Index chunk) {
  CallPlan plan{.phase = phase, .chunk = chunk};
  const Index n_decoded = info.n_tokens - info.n_prompt;
  if (n_decoded > 0) plan.steps = std::min(n_decoded, kMostSweepSteps);
  return plan;
}

Index display_rows_per_chunk(Index n_tokens) {
  if (n_tokens <= kUsualRowsUpTo) return kUsualRowsPerChunk;
  return std::max<Index>(1, kUsualRowsPerChunk * kUsualRowsUpTo / n_tokens);
}

std::string measured_sentence(Phase phase, Index chunk, Index n_tokens) {
  return phase == Phase::prefill
             ? fmt::format("Prefill in chunks of {}; {} rows of each are measured.", chunk,
                           std::min(chunk, display_rows_per_chunk(n_tokens)))
             : "At most 128 decode steps are measured, evenly spaced.";
}

MethodRows method_rows(const TraceSource& trace, const TraceSource* draft,
                       const MethodRowsRequest& request, JobContext& job) {
  std::vector<ReplayPair> pairs;
  for (const Budget& budget : request.budgets) pairs.push_back({request.spec, budget});
  if (pairs.empty()) pairs.push_back({request.spec, std::nullopt});
  ReplayOptions options{
      .calls = whole_periods(call_plan(trace.info(), request.phase, request.chunk), pairs),
      .rows_per_chunk = request.rows_per_chunk,
      .dense_layers = request.dense_layers};
  const std::vector<LayerReplay> layers =
      replay_layers(trace, draft, request.layers, pairs, options, job.pool, job.progress, job.stop);
  MethodRows out;
  for (std::size_t p = 0; p < pairs.size(); ++p) {
    for (std::size_t l = 0; l < layers.size(); ++l) {
      RowLabels labels{.trace = std::filesystem::path(trace.where()).filename().string(),
                       .phase = std::string(enum_name(request.phase)),
                       .pair = pairs[p],
                       .group = trace.info().group(layers[l].layer),
                       .pair_index = p};
      SweepBlock block = make_sweep_block(layers[l], p, l, labels);
      for (SweepRow& row : block.rows) out.rows.push_back(std::move(row));
    }
  }
  return out;
}

std::vector<MethodRowsRequest> split_by_layer(const MethodRowsRequest& request) {
  if (request.spec.caps().cross_layer) return {request};
  std::vector<MethodRowsRequest> parts;
  for (Index layer : request.layers) {
    parts.push_back(request);
    parts.back().layers = {layer};
  }
  return parts;
}

std::string layer_words(const std::vector<Index>& layers) {
  if (layers.empty()) return "no layer";
  if (layers.size() == 1) return fmt::format("layer {}", layers[0]);
  const bool is_run = layers.back() - layers.front() == static_cast<Index>(layers.size()) - 1;
  return is_run ? fmt::format("layers {} to {}", layers.front(), layers.back())
                : fmt::format("{} layers", layers.size());
}

}  // namespace kvscope::gui
