// Everything that a sweep measured, and its forms: CSV, JSON, a result file.
#pragma once

#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "analysis/sweep/sweep_table.hpp"
#include "core/trace/result_writer.hpp"

namespace kvscope {

struct SweepResult {
  nlohmann::ordered_json config;
  std::string config_hash;
  std::vector<SweepTraceInfo> traces;
  std::vector<std::string> pairs;  // "quest tokens=512"
  std::vector<std::string> skipped;
  std::vector<SweepBlock> blocks;  // by trace, pair, layer: all of them
};

/// Header and one line per row; NaN is empty, text is quoted where it must be.
std::string sweep_csv(const SweepResult& result);

/// {"kind": "sweep", "config_hash", "config", "skipped", "rows": [{...}]}, NaN is null.
nlohmann::ordered_json sweep_json(const SweepResult& result);

/// rows/COLUMN [row] (text columns as numbers of summary.categories.COLUMN); per trace t and pair p
/// (see the summary) tT/layer, tT/q_head, tT/call_begin, tT/call_end, tT/pP/METRIC [layer, q_head,
/// call], tT/pP/ages [layer, age].
void write_sweep(const SweepResult& result, ResultWriter& output, const std::string& writer);

}  // namespace kvscope
