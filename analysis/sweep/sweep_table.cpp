#include "analysis/sweep/sweep_table.hpp"

#include <fmt/format.h>

#include "analysis/base/analysis.hpp"
#include "analysis/base/calibration_notes.hpp"
#include "analysis/base/mapped.hpp"
#include "analysis/base/measure_layers.hpp"
#include "analysis/sweep/sweep_result.hpp"
#include "core/base/json.hpp"
#include "core/base/shell_word.hpp"
#include "core/base/version.hpp"
#include "core/trace/result.hpp"

namespace kvscope {

namespace {

/// Of a trace, and of the drafts and the text that its numbers rest on.
NumberFormats formats_of(const SweepResult& result, std::size_t trace) {
  Json config = result.config;
  if (!config.is_object() || !config.contains("traces")) return NumberFormats::of(config);
  if (const Json traces = config["traces"]; traces.is_array() && trace < traces.size())
    config["traces"] = Json::array({traces[trace]});
  return NumberFormats::of(config);
}

Table rows_of(const SweepResult& result) {
  std::vector<const SweepRow*> rows;
  std::vector<NumberFormats> formats;  // [row]
  for (const SweepBlock& block : result.blocks) {
    for (const SweepRow& row : block.rows) rows.push_back(&row);
    formats.resize(rows.size(), formats_of(result, block.trace));
  }
  return table_of(rows, "sweep", formats);
}

/// The command that measures this again. From the configuration, not as it was typed: threads and
/// shards must not show. Drafts and calibration texts are known by their uuids only.
std::string command_of(const SweepResult& result) {
  const Json& config = result.config;
  std::string command = "kvscope sweep";
  for (const SweepTraceInfo& trace : result.traces) command += " " + shell_word(trace.name);
  const auto add = [&](const char* option, const Json& value) {
    std::vector<std::string> words;
    for (const Json& word : value.is_array() ? value : Json::array({value}))
      words.push_back(word.is_string() ? word.get<std::string>() : word.dump());
    if (!words.empty())
      command +=
          fmt::format(" --{} {}", option, shell_word(fmt::format("{}", fmt::join(words, ","))));
  };
  const auto find = [&](const char* key) { return config.contains(key) ? config[key] : Json(); };
  add("selector", find("selectors"));
  for (const Json& budget : find("budgets")) add("budget", budget);
  for (const Json& target : find("match")) add("match", target);
  for (const char* key : {"phase", "chunk", "steps", "drafts"}) add(key, find(key));
  add("rows-per-chunk", find("rows_per_chunk").is_null() ? Json("all") : find("rows_per_chunk"));
  if (!find("dense_layers").is_null()) add("dense-layers", find("dense_layers"));
  for (const char* key : {"layers", "heads", "resamples", "seed"}) add(key, find(key));
  for (const Json& draft : find("draft_traces"))
    command += " --draft " + shell_word("uuid:" + draft.value("uuid", ""));
  if (find("calibration_trace").is_object())
    command +=
        " --calibration " + shell_word("uuid:" + find("calibration_trace").value("uuid", ""));
  return command;
}

ResultInfo info_of(const SweepResult& result, const std::string& writer) {
  ResultInfo info;
  info.kind = "sweep";
  for (const SweepTraceInfo& trace : result.traces) {
    info.trace_uuids.push_back(trace.uuid);
    info.trace_hashes.push_back(trace.hash);
    info.trace_files.push_back(trace.name);
  }
  info.config = result.config;
  info.command_line = command_of(result);
  info.writer = writer;
  return info;
}

void write_grids(const SweepResult& result, ResultWriter& output, std::size_t t) {
  const SweepTraceInfo& trace = result.traces[t];
  const auto n_layers = static_cast<Index>(trace.layers.size());
  const auto n_heads = static_cast<Index>(trace.q_heads.size());
  const auto n_calls = static_cast<Index>(trace.calls.size());
  const std::string top = fmt::format("t{}", t);
  const auto begins = mapped<Index>(trace.calls, &TokenRange::begin);
  const auto ends = mapped<Index>(trace.calls, &TokenRange::end);
  write_axis(output, top + "/layer", trace.layers, "1", "layer");
  write_axis(output, top + "/q_head", trace.q_heads, "1", "query head");
  write_axis(output, top + "/call_begin", begins, "token", "first position of the call");
  write_axis(output, top + "/call_end", ends, "token", "one past the last position of the call");
  for (std::size_t p = 0; p < result.pairs.size(); ++p) {
    const std::string folder = fmt::format("{}/p{}", top, p);
    std::vector<const SweepBlock*> blocks;
    for (const SweepBlock& block : result.blocks) {
      if (block.trace == t && block.pair == p) blocks.push_back(&block);
    }
    for (std::size_t m = 0; m < kReplayMetrics; ++m) {
      const std::string name = fmt::format("{}/{}", folder, kReplayMetricNames[m]);
      output.declare({name,
                      ResultType::f32,
                      {n_layers, n_heads, n_calls},
                      {"layer", "q_head", "call"},
                      "1",
                      fmt::format("{} of {}", kReplayMetricNames[m], result.pairs[p])});
      const auto n = static_cast<std::size_t>(n_heads * n_calls);
      for (const SweepBlock* block : blocks) {
        output.write<float>(name, static_cast<Index>(block->layer_slot),
                            std::span(block->grid).subspan(m * n, n));
      }
    }
    output.declare({folder + "/ages",
                    ResultType::i64,
                    {n_layers, static_cast<Index>(kAgeBins)},
                    {"layer", "age"},
                    "token",
                    "kept keys by age: 0, then [2^(i-1), 2^i)"});
    for (const SweepBlock* block : blocks) {
      output.write<std::int64_t>(folder + "/ages", static_cast<Index>(block->layer_slot),
                                 block->ages);
    }
  }
  // A viewer opens the first plot: full attention, all ones, comes last.
  for (const bool of_full : {false, true}) {
    for (std::size_t p = 0; p < result.pairs.size(); ++p) {
      if ((result.pairs[p] == "full") != of_full) continue;
      output.add_plot({fmt::format("t{}_p{}_mass", t, p),
                       fmt::format("{}/p{}/mass", top, p),
                       {top + "/layer", top + "/q_head", top + "/call_begin"},
                       fmt::format("attention kept: {}, {}", trace.name, result.pairs[p])});
    }
  }
}

}  // namespace

Table table_of(std::span<const SweepRow* const> rows, std::string name,
               std::span<const NumberFormats> formats) {
  Table table(std::move(name));
  for (std::size_t c = 0; c < kSweepTexts.size(); ++c) {
    TextColumnBuilder words;
    for (const SweepRow* row : rows) words.add(row->texts[c]);
    table.add_text(std::string(kSweepTexts[c]), words.take());
  }
  add_formats(formats, table);
  for (std::size_t c = 0; c < kSweepNumbers.size(); ++c) {
    const auto number = [&](const SweepRow* row) { return row->numbers[c]; };
    table.add_numbers(std::string(kSweepNumbers[c]), mapped<double>(rows, number));
  }
  return table;
}

std::string sweep_csv(const SweepResult& result) {
  return table_csv(rows_of(result), result.config_hash);
}

Json sweep_json(const SweepResult& result) {
  return {{"kind", "sweep"},
          {"version", writer_name()},
          {"config_hash", result.config_hash},
          {"config", result.config},
          {"command_line", command_of(result)},
          {"inputs", inputs_of(info_of(result, ""))},
          {"skipped", result.skipped},
          {"warnings", calibration_warnings(result.config)},
          {"rows", table_json(rows_of(result), result.config_hash)}};
}

void write_sweep(const SweepResult& result, ResultWriter& output, const std::string& writer) {
  const ResultInfo info = info_of(result, writer);
  output.begin(info);
  const Json categories = write_table(rows_of(result), output);
  Json traces = Json::array();
  for (std::size_t t = 0; t < result.traces.size(); ++t) {
    write_grids(result, output, t);
    traces.push_back(result.traces[t].name);
  }
  output.finish({{"sweep_hash", result.config_hash},
                 {"traces", traces},
                 {"pairs", result.pairs},
                 {"skipped", result.skipped},
                 {"warnings", calibration_warnings(result.config)},
                 {"categories", categories}});
}

}  // namespace kvscope
