#include "analysis/sweep/sweep_journal.hpp"

#include <bit>

#include "analysis/base/base64.hpp"
#include "analysis/base/kit.hpp"

namespace kvscope {

namespace {

/// The little-endian bytes of f32.
std::string text_from_floats(const std::vector<float>& values) {
  std::vector<std::byte> bytes;
  bytes.reserve(values.size() * 4);
  for (float value : values) {
    const auto bits = std::bit_cast<std::uint32_t>(value);
    for (int shift = 0; shift < 32; shift += 8)
      bytes.push_back(static_cast<std::byte>(bits >> shift));
  }
  return text_from_bytes(bytes);
}

std::optional<std::vector<float>> floats_from_text(std::string_view text, std::size_t n) {
  const auto bytes = bytes_from_text(text, n * 4);
  if (!bytes) return std::nullopt;
  std::vector<float> values(n);
  for (std::size_t i = 0; i < n; ++i) {
    std::uint32_t bits = 0;
    for (std::size_t b = 0; b < 4; ++b)
      bits |= std::to_integer<std::uint32_t>((*bytes)[4 * i + b]) << (8 * b);
    values[i] = std::bit_cast<float>(bits);
  }
  return values;
}

constexpr const char* kMark = "kvscope_sweep";

JournalHeader header_from_json(const Json& json) {
  JournalHeader header;
  header.config_hash = json.at("config_hash").get<std::string>();
  header.config = json.at("config");
  header.shard = json.at("shard").get<Index>();
  header.n_shards = json.at("n_shards").get<Index>();
  header.n_units = json.at("n_units").get<std::size_t>();
  header.pairs = json.at("pairs").get<std::vector<std::string>>();
  header.skipped = json.at("skipped").get<std::vector<std::string>>();
  for (const Json& one : json.at("traces")) {
    SweepTraceInfo trace{.name = one.at("name").get<std::string>(),
                         .uuid = one.at("uuid").get<std::string>(),
                         .hash = one.at("hash").get<std::string>(),
                         .layers = one.at("layers").get<std::vector<Index>>(),
                         .q_heads = one.at("q_heads").get<std::vector<Index>>()};
    for (const Json& call : one.at("calls"))
      trace.calls.push_back({call.at(0).get<Index>(), call.at(1).get<Index>()});
    header.traces.push_back(std::move(trace));
  }
  std::size_t most_units = 0;  // per trace: one for each layer, one for methods that link layers
  // There one for each pair.
  const std::size_t n_pairs = header.config.contains("match") ? header.pairs.size() : 0;
  for (const SweepTraceInfo& trace : header.traces)
    most_units += std::max(trace.layers.size() + 1, n_pairs);
  if (header.n_shards < 1 || header.shard < 1 || header.shard > header.n_shards ||
      header.n_units > most_units) {
    throw ConfigError("shards or units that cannot be");
  }
  return header;
}

Json block_to_json(const SweepBlock& block) {
  Json rows = Json::array();
  for (const SweepRow& row : block.rows) {
    Json numbers = Json::array();
    for (double x : row.numbers) numbers.push_back(json_number(x));
    rows.push_back({row.texts, std::move(numbers)});
  }
  return {{"trace", block.trace},
          {"pair", block.pair},
          {"layer_slot", block.layer_slot},
          {"rows", std::move(rows)},
          {"grid", text_from_floats(block.grid)},
          {"ages", block.ages}};
}

SweepBlock block_from_json(const Json& json, const JournalHeader& header) {
  SweepBlock block{.trace = json.at("trace").get<std::size_t>(),
                   .pair = json.at("pair").get<std::size_t>(),
                   .layer_slot = json.at("layer_slot").get<std::size_t>()};
  if (block.trace >= header.traces.size() || block.pair >= header.pairs.size() ||
      block.layer_slot >= header.traces[block.trace].layers.size()) {
    throw ConfigError("a block outside the sweep");
  }
  for (const Json& one : json.at("rows")) {
    SweepRow row;
    row.texts = one.at(0).get<decltype(row.texts)>();
    const Json& numbers = one.at(1);
    if (numbers.size() != row.numbers.size()) throw ConfigError("a row of another length");
    for (std::size_t c = 0; c < row.numbers.size(); ++c) {
      row.numbers[c] = numbers[c].is_null() ? std::numeric_limits<double>::quiet_NaN()
                                            : numbers[c].get<double>();
    }
    block.rows.push_back(std::move(row));
  }
  const SweepTraceInfo& trace = header.traces[block.trace];
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
  auto grid = floats_from_text(json.at("grid").get_ref<const std::string&>(),
                               kReplayMetrics * trace.q_heads.size() * trace.calls.size());
  if (!grid) throw ConfigError("an array of another size");
  block.grid = std::move(*grid);
  block.ages = json.at("ages").get<std::vector<std::int64_t>>();
  if (block.ages.size() != kAgeBins) throw ConfigError("a histogram of another size");
  return block;
}

}  // namespace

Json header_line(const JournalHeader& header) {
  Json traces = Json::array();
  for (const SweepTraceInfo& trace : header.traces) {
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
          {"config_hash", header.config_hash},
          {"shard", header.shard},
          {"n_shards", header.n_shards},
          {"n_units", header.n_units},
          {"traces", traces},
          {"pairs", header.pairs},
          {"skipped", header.skipped},
          {"config", header.config}};
}

Json unit_line(std::size_t unit, const std::vector<SweepBlock>& blocks) {
  Json json = {{"unit", unit}, {"blocks", Json::array()}};
  for (const SweepBlock& block : blocks) json["blocks"].push_back(block_to_json(block));
  return json;
}

void SweepJournal::add(std::size_t unit, const Json& line) {
  if (unit >= header.n_units) throw ConfigError("a unit outside the sweep");
  std::vector<SweepBlock> blocks;
  for (const Json& block : line.at("blocks")) blocks.push_back(block_from_json(block, header));
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
