#include "analysis/sweep_table.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>

#include "analysis/analysis.hpp"
#include "analysis/statistics.hpp"

namespace kvscope {

namespace {

using Json = nlohmann::ordered_json;

std::string csv_text(const std::string& text) {
  if (text.find_first_of(",\"\r\n") == std::string::npos) return text;
  std::string quoted;
  for (char c : text) quoted.append(c == '"' ? 2 : 1, c);
  return fmt::format("\"{}\"", quoted);
}

std::string csv_number(double x) {
  return std::isfinite(x) ? fmt::format("{}", x) : std::string();
}

/// Whole numbers as such: layer 3 is not 3.0.
Json json_cell(double x) {
  if (std::isfinite(x) && x == std::floor(x) && std::abs(x) < 9e15)
    return static_cast<std::int64_t>(x);
  return json_number(x);
}

template <class Visit>
void each_row(const SweepResult& result, Visit&& visit) {
  for (const SweepBlock& block : result.blocks) {
    for (const SweepRow& row : block.rows) visit(row);
  }
}

void write_rows(const SweepResult& result, ResultSink& sink, Json& categories) {
  Index n_rows = 0;
  each_row(result, [&](const SweepRow&) { ++n_rows; });
  for (std::size_t c = 0; c < kSweepTexts.size(); ++c) {
    std::vector<std::string> names;
    std::vector<std::int32_t> codes;
    each_row(result, [&](const SweepRow& row) {
      auto it = std::find(names.begin(), names.end(), row.texts[c]);
      if (it == names.end()) it = names.insert(names.end(), row.texts[c]);
      codes.push_back(static_cast<std::int32_t>(it - names.begin()));
    });
    const std::string name = fmt::format("rows/{}", kSweepTexts[c]);
    sink.declare({name,
                  ResultType::i32,
                  {n_rows},
                  {"row"},
                  "1",
                  fmt::format("{}, numbered as in the summary", kSweepTexts[c])});
    sink.write<std::int32_t>(name, 0, codes);
    categories[std::string(kSweepTexts[c])] = names;
  }
  for (std::size_t c = 0; c < kSweepNumbers.size(); ++c) {
    std::vector<double> values;
    each_row(result, [&](const SweepRow& row) { values.push_back(row.numbers[c]); });
    const std::string name = fmt::format("rows/{}", kSweepNumbers[c]);
    sink.declare({name, ResultType::f64, {n_rows}, {"row"}, "1", std::string(kSweepNumbers[c])});
    sink.write<double>(name, 0, values);
  }
}

void write_grids(const SweepResult& result, ResultSink& sink, std::size_t t) {
  const SweepTraceInfo& trace = result.traces[t];
  const auto n_layers = static_cast<Index>(trace.layers.size());
  const auto n_heads = static_cast<Index>(trace.q_heads.size());
  const auto n_calls = static_cast<Index>(trace.calls.size());
  const std::string top = fmt::format("t{}", t);
  std::vector<Index> begins;
  std::vector<Index> ends;
  for (const TokenRange& call : trace.calls) {
    begins.push_back(call.begin);
    ends.push_back(call.end);
  }
  write_axis(sink, top + "/layer", trace.layers, "1", "layer");
  write_axis(sink, top + "/q_head", trace.q_heads, "1", "query head");
  write_axis(sink, top + "/call_begin", begins, "token", "first position of the call");
  write_axis(sink, top + "/call_end", ends, "token", "one past the last position of the call");
  for (std::size_t p = 0; p < result.pairs.size(); ++p) {
    const std::string folder = fmt::format("{}/p{}", top, p);
    std::vector<const SweepBlock*> blocks;
    for (const SweepBlock& block : result.blocks) {
      if (block.trace == t && block.pair == p) blocks.push_back(&block);
    }
    for (std::size_t m = 0; m < kReplayMetrics; ++m) {
      const std::string name = fmt::format("{}/{}", folder, kReplayMetricNames[m]);
      sink.declare({name,
                    ResultType::f32,
                    {n_layers, n_heads, n_calls},
                    {"layer", "q_head", "call"},
                    "1",
                    fmt::format("{} of {}", kReplayMetricNames[m], result.pairs[p])});
      const auto n = static_cast<std::size_t>(n_heads * n_calls);
      for (const SweepBlock* block : blocks) {
        sink.write<float>(name, static_cast<Index>(block->layer_slot),
                          std::span(block->grid).subspan(m * n, n));
      }
    }
    sink.declare({folder + "/ages",
                  ResultType::i64,
                  {n_layers, static_cast<Index>(kAgeBins)},
                  {"layer", "age"},
                  "token",
                  "kept keys by age: 0, then [2^(i-1), 2^i)"});
    for (const SweepBlock* block : blocks) {
      sink.write<std::int64_t>(folder + "/ages", static_cast<Index>(block->layer_slot),
                               block->ages);
    }
    sink.add_plot({fmt::format("t{}_p{}_mass", t, p),
                   folder + "/mass",
                   {top + "/layer", top + "/q_head", top + "/call_begin"},
                   fmt::format("attention kept: {}, {}", trace.name, result.pairs[p])});
  }
}

}  // namespace

std::string sweep_csv(const SweepResult& result) {
  std::string csv = fmt::format("{},{},config_hash\n", fmt::join(kSweepTexts, ","),
                                fmt::join(kSweepNumbers, ","));
  each_row(result, [&](const SweepRow& row) {
    for (const std::string& text : row.texts) csv += csv_text(text) + ",";
    for (double number : row.numbers) csv += csv_number(number) + ",";
    csv += result.config_hash + "\n";
  });
  return csv;
}

Json sweep_json(const SweepResult& result) {
  Json json = {{"kind", "sweep"},
               {"config_hash", result.config_hash},
               {"config", result.config},
               {"skipped", result.skipped},
               {"rows", Json::array()}};
  each_row(result, [&](const SweepRow& row) {
    Json line;
    for (std::size_t c = 0; c < kSweepTexts.size(); ++c)
      line[std::string(kSweepTexts[c])] = row.texts[c];
    for (std::size_t c = 0; c < kSweepNumbers.size(); ++c) {
      line[std::string(kSweepNumbers[c])] = json_cell(row.numbers[c]);
    }
    line["config_hash"] = result.config_hash;
    json["rows"].push_back(std::move(line));
  });
  return json;
}

void write_sweep(const SweepResult& result, ResultSink& sink, const std::string& writer) {
  ResultInfo info;
  info.kind = "sweep";
  for (const SweepTraceInfo& trace : result.traces) {
    info.trace_uuids.push_back(trace.uuid);
    info.trace_hashes.push_back(trace.hash);
    info.trace_files.push_back(trace.name);
  }
  info.config = result.config;
  info.command_line =
      "kvscope sweep";  // the configuration says the rest; threads and shards must not show
  info.writer = writer;
  sink.begin(info);
  Json categories;
  write_rows(result, sink, categories);
  Json traces = Json::array();
  for (std::size_t t = 0; t < result.traces.size(); ++t) {
    write_grids(result, sink, t);
    traces.push_back(result.traces[t].name);
  }
  sink.finish({{"sweep_hash", result.config_hash},
               {"traces", traces},
               {"pairs", result.pairs},
               {"skipped", result.skipped},
               {"categories", categories}});
}

}  // namespace kvscope
