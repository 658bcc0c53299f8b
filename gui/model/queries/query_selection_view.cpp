#include "gui/model/queries/query_selection_view.hpp"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <nlohmann/json.hpp>

#include "analysis/base/statistics.hpp"
#include "core/base/error.hpp"
#include "core/base/fields_json.hpp"

namespace kvscope::gui {

namespace {

std::string options_key(const QuerySelectionOptions& options) {
  return fields_to_json(options).dump();
}

/// The row of a head in an array [layer, q_head, ...] of one layer.
template <class T>
std::span<const T> row_of(const QuerySelectionView& view, std::string_view name, std::size_t head) {
  const std::span<const T> all = view.result.values<T>(name);
  const std::size_t n = all.size() / view.q_heads.size();
  return all.subspan(head * n, n);
}

QueryCorrelation correlation_of(const QuerySelectionView& view, QuerySpan span, std::size_t head) {
  QueryCorrelation correlation;
  for (std::size_t i = 0; i < correlation.value.size(); ++i) {
    const auto name =
        fmt::format("correlation/{}/{}", enum_name(span), QueryCorrelation::kNames[i]);
    correlation.value[i] = view.result.values<double>(name)[head];
  }
  return correlation;
}

}  // namespace

std::string QuerySelectionRequest::key() const {
  return fmt::format("query-selection/{}/{}/{}", layer, fmt::join(q_heads, ","),
                     options_key(options));
}

bool QuerySelectionView::has_head(Index q_head) const {
  return std::ranges::find(q_heads, q_head) != q_heads.end();
}

QuerySelectionView query_selection_view(const TraceSource& trace,
                                        const QuerySelectionRequest& request, JobContext& job) {
  QuerySelectionView view{.layer = request.layer, .q_heads = request.q_heads};
  QuerySelectionOptions options = request.options;
  options.selection = {{request.layer}, request.q_heads};
  analyze_query_selection(trace, options, {view.result, job.pool, job.progress, job.stop});
  return view;
}

std::shared_ptr<const QuerySelectionView> known_query_selection(Cache& cache,
                                                                const std::string& document_key,
                                                                const TraceInfo& info,
                                                                QuerySelectionRequest request) {
  if (auto own = cache.find<QuerySelectionView>(document_key + request.key())) return own;
  request.q_heads = info.q_heads;
  return cache.find<QuerySelectionView>(document_key + request.key());
}

std::optional<std::size_t> QuerySelectionHead::find(Index position) const {
  const auto at = std::ranges::lower_bound(pos, position);
  if (at == pos.end() || *at != position) return std::nullopt;
  return static_cast<std::size_t>(at - pos.begin());
}

QuerySelectionHead head_of(const QuerySelectionView& view, Index q_head) {
  const auto found = std::ranges::find(view.q_heads, q_head);
  if (found == view.q_heads.end()) {
    throw ConfigError("query head {} is not part of this analysis of layer {}", q_head, view.layer);
  }
  const auto h = static_cast<std::size_t>(found - view.q_heads.begin());
  return {.pos = view.result.values<std::int64_t>("pos"),
          .prompt_s_q = row_of<float>(view, "prompt/s_q", h),
          .chunk_s_q = row_of<float>(view, "chunk/s_q", h),
          .log_max_weight = row_of<float>(view, "log_max_weight", h),
          .lse = row_of<float>(view, "lse", h),
          .breadth = row_of<float>(view, "breadth", h),
          .max_key = row_of<std::int32_t>(view, "max_key", h),
          .prompt = correlation_of(view, QuerySpan::prompt, h),
          .chunk = correlation_of(view, QuerySpan::chunk, h),
          .within_chunk = mean(row_of<double>(view, "correlation/within_chunk", h)),
          .position_weight = view.result.values<double>("correlation/position/log_weight")[h]};
}

std::vector<double> correlations_of(const QuerySelectionView& view, QuerySpan span) {
  const auto values =
      view.result.values<double>(fmt::format("correlation/{}/pearson_log", enum_name(span)));
  return {values.begin(), values.end()};
}

std::size_t MeasuredQueries::bytes() const {
  return sizeof *this + pos.size() * (2 * sizeof(Index) + 3 * sizeof(double));
}

std::optional<std::size_t> MeasuredQueries::find(Index position) const {
  const auto found = std::ranges::find(pos, position);
  if (found == pos.end()) return std::nullopt;
  return static_cast<std::size_t>(found - pos.begin());
}

std::string MeasureRequest::key() const {
  return fmt::format("measured-queries/{}/{}/{}/{}", layer, q_head, fmt::join(positions, ","),
                     options_key(options));
}

MeasuredQueries measure_queries(const TraceSource& trace, const MeasureRequest& request,
                                JobContext& job) {
  const TraceInfo& info = trace.info();
  require_full_qkv(trace, "query-selection");
  MeasuredQueries out;
  out.pos = request.positions;
  Index last = -1;
  for (const Index pos : out.pos) {
    if (pos < 0 || pos >= info.n_tokens) {
      throw ConfigError("{}: position {} is not in the trace, expected 0 to {}", trace.where(), pos,
                        info.n_tokens - 1);
    }
    last = std::max(last, pos);
  }
  const Index kv_head = request.q_head / info.group();
  const Tensor<float> q = trace.read_q(request.layer, request.q_head, {0, info.n_tokens});
  const Tensor<float> k = trace.read_k(request.layer, kv_head, {0, last + 1});
  ScoreRowLoop loop(job.pool, job.stop, "query-selection");
  for (const QueryRow& query :
       measure_query_rows(info, request.layer, request.q_head, q.view(), KeyTable(k.view()),
                          out.pos, request.options, loop)) {
    out.prompt_s_q.push_back(query.s_q[0]);
    out.chunk_s_q.push_back(query.s_q[1]);
    out.log_max_weight.push_back(query.log_max);
    out.max_key.push_back(query.max_key);
  }
  return out;
}

std::string ChunkPicksRequest::key() const {
  return fmt::format("chunk-picks/{}/{}/{}-{}/{}/{}", layer, q_head, chunk.begin, chunk.end,
                     n_queries, options_key(options));
}

ChunkPicks chunk_picks(const TraceSource& trace, const ChunkPicksRequest& request,
                       JobContext& job) {
  require_full_qkv(trace, "query-selection");
  const Tensor<float> rows = trace.read_q(request.layer, request.q_head, request.chunk);
  const auto mean = quoka_mean_query(rows.view(), request.options.mean, request.options.eps);
  const auto cosines = quoka_cosines(rows.view(), mean, request.options.eps);
  MeasureRequest measure{request.layer, request.q_head, {}, request.options};
  for (const Index in_chunk : quoka_pick(cosines, request.n_queries)) {
    measure.positions.push_back(request.chunk.begin + in_chunk);
  }
  return {measure_queries(trace, measure, job), request.chunk};
}

double query_selection_cost(const TraceInfo& info, const QuerySelectionOptions& options) {
  const auto queries = static_cast<double>(std::min(options.queries, info.n_tokens));
  return queries * 0.5 * static_cast<double>(info.n_tokens) *
         static_cast<double>(info.q_heads.size()) * static_cast<double>(info.d_head);
}

}  // namespace kvscope::gui
