#include "analysis/sweep/sweep_journal.hpp"

#include <algorithm>
#include <cmath>

#include "analysis/base/base64.hpp"
#include "analysis/base/measure_layers.hpp"
#include "analysis/base/statistics.hpp"
#include "core/base/error.hpp"
#include "core/base/json.hpp"

namespace kvscope {

namespace {

constexpr const char* kMark = "kvscope_sweep";

JournalHeader header_from_json(const Json& json) {
  JournalHeader header;
  SweepResult& sweep = header.sweep;
  json.at("config_hash").get_to(sweep.config_hash);
  sweep.config = json.at("config");
  json.at("shard").get_to(header.shard.index);
  json.at("n_shards").get_to(header.shard.count);
  json.at("n_units").get_to(header.n_units);
  json.at("pairs").get_to(sweep.pairs);
  json.at("skipped").get_to(sweep.skipped);
  for (const Json& one : json.at("traces")) {
    SweepTraceInfo trace{.name = one.at("name"),
                         .uuid = one.at("uuid"),
                         .hash = one.at("hash"),
                         .layers = one.at("layers"),
                         .q_heads = one.at("q_heads")};
    for (const Json& call : one.at("calls"))
      trace.calls.push_back({call.at(0).get<Index>(), call.at(1).get<Index>()});
    sweep.traces.push_back(std::move(trace));
  }
  std::size_t most_units = 0;  // per trace: one for each layer, one for methods that link layers
  // There one for each pair.
  const std::size_t n_pairs = sweep.config.contains("match") ? sweep.pairs.size() : 0;
  for (const SweepTraceInfo& trace : sweep.traces)
    most_units += std::max(trace.layers.size() + 1, n_pairs);
  const Shard& shard = header.shard;
  if (shard.index < 1 || shard.index > shard.count || header.n_units > most_units)
    throw ConfigError("shards or units that cannot be");
  return header;
}

Json block_to_json(const SweepBlock& block) {
  Json rows = Json::array();
  for (const SweepRow& row : block.rows) {
    rows.push_back({row.texts, json_numbers(row.numbers)});
  }
  return {{"trace", block.trace},
          {"pair", block.pair},
          {"layer_slot", block.layer_slot},
          {"rows", std::move(rows)},
          {"grid", text_from_bytes(std::as_bytes(std::span(block.grid)))},
          {"ages", block.ages}};
}

SweepBlock block_from_json(const Json& json, const SweepResult& sweep) {
  SweepBlock block{.trace = json.at("trace").get<std::size_t>(),
                   .pair = json.at("pair").get<std::size_t>(),
                   .layer_slot = json.at("layer_slot").get<std::size_t>()};
  if (block.trace >= sweep.traces.size() || block.pair >= sweep.pairs.size() ||
      block.layer_slot >= sweep.traces[block.trace].layers.size()) {
    throw ConfigError("a block outside the sweep");
  }
  for (const Json& one : json.at("rows")) {
    SweepRow row;
    row.texts = one.at(0).get<decltype(row.texts)>();
    std::ranges::copy(numbers_from_json(one.at(1), row.numbers.size()), row.numbers.begin());
    block.rows.push_back(std::move(row));
  }
  const SweepTraceInfo& trace = sweep.traces[block.trace];
  // The layer's own row, then one for each query head (make_sweep_block).
  if (block.rows.size() != trace.q_heads.size() + 1) throw ConfigError("a block that lacks rows");
  for (std::size_t r = 0; r < block.rows.size(); ++r) {
    const double layer = block.rows[r].number(SweepNumber::layer);
    const double q_head = block.rows[r].number(SweepNumber::q_head);
    const bool is_in_place =
        layer == static_cast<double>(trace.layers[block.layer_slot]) &&
        (r == 0 ? std::isnan(q_head) : q_head == static_cast<double>(trace.q_heads[r - 1]));
    if (!is_in_place) throw ConfigError("a row of another layer or head");
  }
  const std::size_t n_cells = kReplayMetrics * trace.q_heads.size() * trace.calls.size();
  const auto bytes =
      bytes_from_text(json.at("grid").get_ref<const std::string&>(), n_cells * sizeof(float));
  if (!bytes) throw ConfigError("an array of another size");
  block.grid.resize(n_cells);
  std::ranges::copy(*bytes, std::as_writable_bytes(std::span(block.grid)).begin());
  block.ages = json.at("ages").get<std::vector<std::int64_t>>();
  if (block.ages.size() != kAgeBins) throw ConfigError("a histogram of another size");
  return block;
}

}  // namespace

Json header_line(const JournalHeader& header) {
  Json traces = Json::array();
  for (const SweepTraceInfo& trace : header.sweep.traces) {
    Json calls = Json::array();
    for (const TokenRange& call : trace.calls) calls.push_back({call.begin, call.end});
    traces.push_back({{"name", trace.name},
                      {"uuid", trace.uuid},
                      {"hash", trace.hash},
                      {"layers", trace.layers},
                      {"q_heads", trace.q_heads},
                      {"calls", calls}});
  }
  return {{kMark, 1},
          {"config_hash", header.sweep.config_hash},
          {"shard", header.shard.index},
          {"n_shards", header.shard.count},
          {"n_units", header.n_units},
          {"traces", traces},
          {"pairs", header.sweep.pairs},
          {"skipped", header.sweep.skipped},
          {"config", header.sweep.config}};
}

Json unit_line(std::size_t unit, const std::vector<SweepBlock>& blocks) {
  Json json = {{"unit", unit}, {"blocks", Json::array()}};
  for (const SweepBlock& block : blocks) json["blocks"].push_back(block_to_json(block));
  return json;
}

void SweepJournal::add(std::size_t unit, const Json& line) {
  if (unit >= header.n_units) throw ConfigError("a unit outside the sweep");
  std::vector<SweepBlock> blocks;
  for (const Json& block : line.at("blocks"))
    blocks.push_back(block_from_json(block, header.sweep));
  units[unit] = std::move(blocks);
}

SweepJournal read_sweep_journal(const std::filesystem::path& file) {
  SweepJournal journal{.where = file.string()};
  read_journal(
      file, "sweep", kMark, [&](const Json& line) { journal.header = header_from_json(line); },
      [&](std::size_t unit, const Json& line) { journal.add(unit, line); });
  return journal;
}

SweepJournal read_sweep_journal(const UnitFolder& units) {
  SweepJournal journal{.where = units.folder.string()};
  try {
    journal.header = header_from_json(units.header);
  } catch (const nlohmann::json::exception& error) {
    throw FormatError("{}: not what a sweep writes: {}", journal.where, error.what());
  }
  journal.lacking = lacking_sentences(units);
  read_units(units, [&](std::size_t unit, const Json& line) { journal.add(unit, line); });
  return journal;
}

}  // namespace kvscope
