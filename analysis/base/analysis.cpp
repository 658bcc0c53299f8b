#include "analysis/base/analysis.hpp"

#include <algorithm>
#include <nlohmann/json.hpp>

#include "analysis/base/calibration_notes.hpp"
#include "analysis/base/number_formats.hpp"
#include "analysis/base/statistics.hpp"
#include "core/attention/exact_rows.hpp"
#include "core/base/error.hpp"
#include "core/selectors/spec_lists.hpp"
#include "core/trace/result.hpp"

namespace kvscope {

namespace {

constexpr std::size_t kMostRowsPerBlock = 16;
constexpr Index kFarApart = 16;  // positions: queries between these are not read

void add_formats_of(std::span<const TraceSource* const> traces, nlohmann::ordered_json& config) {
  nlohmann::ordered_json all;
  for (const TraceSource* trace : traces) {
    nlohmann::ordered_json one = nlohmann::ordered_json::object();
    NumberFormats::of(trace->info()).add_to(one);
    all["traces"].push_back(one);
  }
  NumberFormats::of(all).add_to(config);
}

}  // namespace

void AnalysisRun::begin(std::string_view kind, std::span<const TraceSource* const> traces,
                        nlohmann::ordered_json config) const {
  ResultInfo info;
  info.kind = kind;
  for (const TraceSource* trace : traces) {
    info.trace_uuids.push_back(trace->info().uuid);
    info.trace_hashes.push_back(trace->info().content_hash);
    info.trace_files.push_back(trace->where());
  }
  info.config = std::move(config);
  add_formats_of(traces, info.config);
  info.command_line = provenance.command_line;
  info.writer = provenance.writer;
  info.created = provenance.created;
  if (provenance.made != nullptr) *provenance.made = info;
  output.begin(info);
}

void AnalysisRun::begin(std::string_view kind, const TraceSource& trace,
                        nlohmann::ordered_json config) const {
  const TraceSource* const traces[] = {&trace};
  begin(kind, traces, std::move(config));
}

nlohmann::ordered_json AnalysisRun::finish(nlohmann::ordered_json summary) const {
  output.finish(summary);
  return summary;
}

nlohmann::ordered_json with_part(nlohmann::ordered_json options, const TraceInfo& part) {
  options["layers"] = part.layers;
  options["heads"] = part.q_heads;
  if (const std::string methods = options.value("selector", ""); !methods.empty())
    add_artifacts(parse_methods({methods}, "selector"), options);
  return options;
}

void check_stop(const std::stop_token& stop, std::string_view analysis) {
  if (stop.stop_requested()) throw Interrupted("{}: stopped on request", analysis);
}

void require_whole_groups(const TraceInfo& info, std::string_view analysis) {
  if (info.n_kv < 1 || info.n_q % info.n_kv != 0) {
    throw ConfigError("{}: {} query heads do not divide among {} KV heads", analysis, info.n_q,
                      info.n_kv);
  }
  std::vector<Index> expected;
  for (Index kv_head : info.kv_heads) {
    for (Index r = 0; r < info.group(); ++r) expected.push_back(kv_head * info.group() + r);
  }
  if (expected != info.q_heads) {
    throw ConfigError(
        "{}: needs all {} query heads of each KV head, but the trace holds {} query "
        "heads for {} KV heads; record without a head filter, or with whole groups",
        analysis, info.group(), info.q_heads.size(), info.kv_heads.size());
  }
}

void require_one_shape(const TraceInfo& info, std::string_view analysis) {
  const std::vector<std::vector<Index>> alike = layers_by_heads(info);
  if (alike.size() < 2) return;
  std::vector<std::string> shapes;
  for (const std::vector<Index>& layers : alike) {
    const LayerShape shape = info.shape(layers.front());
    shapes.push_back(fmt::format("{} KV heads of {} channels in {} ({})", shape.n_kv, shape.d_head,
                                 layers.size() == 1 ? "layer" : "layers", fmt::join(layers, ", ")));
  }
  throw ConfigError(
      "{}: its arrays hold layers of one shape, found {}: choose layers of one (--layers)",
      analysis, fmt::join(shapes, "; "));
}

void write_axis(ResultWriter& output, std::string_view name, std::span<const Index> values,
                std::string_view units, std::string_view long_name) {
  const std::string text(name);
  output.put<Index>(text, {std::ssize(values)}, {text}, units, long_name, values);
}

void write_head_axes(ResultWriter& output, const TraceInfo& info) {
  write_axis(output, "layer", info.layers, "1", "layer");
  write_axis(output, "q_head", info.q_heads, "1", "query head");
  write_axis(output, "kv_head", info.kv_heads, "1", "KV head");
}

nlohmann::ordered_json mean_of_layers(const nlohmann::ordered_json& layers) {
  std::vector<std::pair<std::string, Mean>> means;  // keys in order of appearance
  for (const auto& entry : layers) {
    for (const auto& [key, value] : entry.items()) {
      if (!value.is_number_float() && !value.is_null()) continue;
      auto found = std::ranges::find_if(
          means, [&name = key](const auto& known) { return known.first == name; });
      if (found == means.end()) found = means.insert(means.end(), {key, Mean{}});
      if (value.is_number()) found->second.add(value.get<double>());
    }
  }
  nlohmann::ordered_json json = nlohmann::ordered_json::object();
  for (const auto& [key, value] : means) json[key] = json_number(value.value());
  return json;
}

nlohmann::ordered_json max_of_layers(const nlohmann::ordered_json& layers, const char* key) {
  nlohmann::ordered_json largest;
  for (const auto& entry : layers) {
    const auto& value = entry.at(key);
    if (value.is_number() && (largest.is_null() || value > largest)) largest = value;
  }
  return largest;
}

ScoreRowLoop::ScoreRowLoop(ThreadPool& pool, std::stop_token stop, std::string_view analysis)
    : pool_(pool),
      stop_(std::move(stop)),
      analysis_(analysis),
      scratch_(static_cast<std::size_t>(pool.n_threads())) {}

void ScoreRowLoop::for_blocks(std::span<const Index> positions, const Visit& visit) {
  // A few rows are divided too: the last ones see most keys.
  const std::size_t rows = std::clamp(positions.size() / 8, std::size_t{4}, kMostRowsPerBlock);
  const std::size_t n_blocks = (positions.size() + rows - 1) / rows;
  pool_.parallel_for(static_cast<Index>(n_blocks), [&](Index block, int worker) {
    check_stop(stop_, analysis_);
    const std::size_t first = static_cast<std::size_t>(block) * rows;
    visit(static_cast<Index>(first),
          positions.subspan(first, std::min(rows, positions.size() - first)),
          scratch_[static_cast<std::size_t>(worker)]);
  });
}

void ScoreRowLoop::run(const TraceSource& trace, Index layer, Index q_head,
                       std::span<const Index> positions, const KeyTable& keys, const Body& body) {
  if (positions.empty()) return;
  const ScoreRule score = trace.info().shape(layer).score_rule();
  const std::optional<Index> window = trace.info().window_of(layer);
  const auto [least, most] = std::minmax_element(positions.begin(), positions.end());
  const TokenRange span{*least, *most + 1};
  const auto n = static_cast<Index>(positions.size());
  if (n * kFarApart > span.size()) {
    const Tensor<float> q = trace.read_q(layer, q_head, span);
    run(q.view(), span.begin, positions, keys, score, window, body);
    return;
  }
  for_blocks(positions, [&](Index first, std::span<const Index> some, ScoreRows& scratch) {
    Tensor<float> q(Shape{static_cast<Index>(some.size()), keys.d_head()});
    for (std::size_t i = 0; i < some.size(); ++i) {
      const Tensor<float> row = trace.read_q(layer, q_head, {some[i], some[i] + 1});
      std::copy_n(row.data(), row.count(), q.view().row(static_cast<Index>(i)).data());
    }
    visit_score_rows(
        {.q = q.view(), .keys = keys, .score = score, .window = window, .is_picked = true}, some,
        scratch, [&](Index i, std::span<double> scores, TokenRange visible) {
          body(first + i, scores, visible);
        });
  });
}

void ScoreRowLoop::run(TensorView<const float> q, Index q_begin, std::span<const Index> positions,
                       const KeyTable& keys, const ScoreRule& score, std::optional<Index> window,
                       const Body& body) {
  for_blocks(positions, [&](Index first, std::span<const Index> some, ScoreRows& scratch) {
    visit_score_rows({q, q_begin, keys, score, window}, some, scratch,
                     [&](Index i, std::span<double> scores, TokenRange visible) {
                       body(first + i, scores, visible);
                     });
  });
}

}  // namespace kvscope
