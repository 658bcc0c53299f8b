#include "gui/model/traces/file_card.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <limits>

#include "analysis/base/base64.hpp"
#include "analysis/kinds/heads.hpp"
#include "core/base/error.hpp"
#include "core/base/evenly_spaced.hpp"
#include "core/base/json.hpp"
#include "core/base/json_reader.hpp"
#include "core/base/new_file.hpp"
#include "core/base/whole_file.hpp"
#include "core/trace/result.hpp"
#include "gui/model/session/session_file.hpp"
#include "gui/model/tokens/token_text.hpp"
#include "gui/model/traces/trace_facts.hpp"
#include "notebooks_export/open_result.hpp"
#include "traces/hash.hpp"

namespace kvscope::gui {

namespace fs = std::filesystem;

namespace {

constexpr Index kHeads = 4;        // of the middle layer
constexpr Index kCells = 24;       // a side of a head's map
constexpr Index kRowsPerCell = 4;  // measured queries
constexpr int kGap = 2;            // cells between maps
constexpr double kWeightDecades = 4.0;
constexpr Index kTextTokens = 48;
constexpr std::size_t kTextBytes = 160;
constexpr std::size_t kSlices = std::size_t{64} << 20;  // of the trace, while its card is made
constexpr std::uintmax_t kLargestResult = std::uintmax_t{64} << 20;  // that is read for its kind
constexpr std::size_t kLargestCard = std::size_t{64} << 10;
constexpr const char* kEnding = ".card.json";

std::uint8_t shade_of(double weight) {
  if (std::isnan(weight)) return 0;
  const double unit = 1.0 + std::log10(std::max(weight, 1e-30)) / kWeightDecades;
  return static_cast<std::uint8_t>(1.5 + 254.0 * std::clamp(unit, 0.0, 1.0));
}

void add_picture(FileCard& card, const TraceSource& trace, const JobContext& job) {
  const TraceInfo& info = trace.info();
  if (!info.capture.qkv || info.layers.empty() || info.q_heads.empty() || info.n_tokens == 0)
    return;
  HeadsOptions options;
  options.selector.clear();
  options.cells = kCells;
  options.rows = kCells * kRowsPerCell;
  options.selection.layers = {info.layers[info.layers.size() / 2]};
  for (const Index slot : evenly_spaced(0, static_cast<Index>(info.q_heads.size()), kHeads))
    options.selection.q_heads.push_back(info.q_heads[static_cast<std::size_t>(slot)]);
  MemoryResult result;
  analyze_heads(trace, options, {result, job.pool, {}, job.stop});
  const auto maps = result.values<float>("map");  // [1, heads, cells, cells]
  const auto n_heads = static_cast<int>(options.selection.q_heads.size());
  const auto cells = static_cast<int>(result.values<std::int64_t>("query_block").size());
  card.height = cells;
  card.width = n_heads * (cells + kGap) - kGap;
  card.shades.assign(static_cast<std::size_t>(card.width * card.height), 0);
  for (int head = 0; head < n_heads; ++head) {
    for (int q = 0; q < cells; ++q) {
      for (int k = 0; k < cells; ++k) {
        card.shades[static_cast<std::size_t>(q * card.width + head * (cells + kGap) + k)] =
            shade_of(maps[static_cast<std::size_t>((head * cells + q) * cells + k)]);
      }
    }
  }
}

FileCard card_of_trace(const fs::path& file, const JobContext& job) {
  FileCard card;
  Cache cache(kSlices);
  const auto document = Document::open(file, cache);
  card.words = trace_summary(*document);
  if (document->has_text()) {
    const Index n = std::min(kTextTokens, document->info().n_tokens);
    card.text = drawable(document->text_of({0, n}, kTextBytes));
  }
  try {
    add_picture(card, document->source(), job);
  } catch (const Interrupted&) {
    throw;
  } catch (const Error&) {  // a damaged layer: the words are true all the same
    card.width = card.height = 0;
    card.shades.clear();
  }
  return card;
}

fs::path place_of(const fs::path& folder, const fs::path& file) {
  return folder / (hash_text(file.string()) + kEnding);
}

Json to_json(const FileCard& card, const fs::path& file, const FileStamp& stamp) {
  return {
      {"file", file.string()}, {"written", stamp.written.time_since_epoch().count()},
      {"size", stamp.size},    {"words", card.words},
      {"text", card.text},     {"width", card.width},
      {"height", card.height}, {"shades", text_from_bytes(std::as_bytes(std::span(card.shades)))}};
}

/// Empty if there is none, of this state of the file, that can be read.
std::optional<FileCard> read_card(const fs::path& place, const fs::path& file,
                                  const FileStamp& stamp) {
  try {
    const std::string name = place.string();
    const nlohmann::json json = parse_json(read_regular_file(place, kLargestCard), name);
    const JsonObject object(json, name);
    constexpr auto kAll = std::numeric_limits<std::int64_t>::max();
    if (object.string("file") != file.string() ||
        object.integer("written", -kAll, kAll) != stamp.written.time_since_epoch().count() ||
        object.integer("size", 0, kAll) != static_cast<std::int64_t>(stamp.size))
      return std::nullopt;
    FileCard card{.words = object.string("words"),
                  .text = object.string("text"),
                  .width = static_cast<int>(object.integer("width", 0, 1024)),
                  .height = static_cast<int>(object.integer("height", 0, 1024))};
    const auto n = static_cast<std::size_t>(card.width * card.height);
    const auto bytes = bytes_from_text(object.string("shades"), n);
    if (!bytes) return std::nullopt;
    for (const std::byte byte : *bytes) card.shades.push_back(std::to_integer<std::uint8_t>(byte));
    return card;
  } catch (const Error&) {
    return std::nullopt;
  }
}

/// Removes the oldest cards beyond what is kept.
void shrink(const fs::path& folder) {
  std::vector<std::pair<fs::file_time_type, fs::path>> cards;
  std::error_code error;
  for (fs::directory_iterator entry(folder, error), end; !error && entry != end;
       entry.increment(error)) {
    std::error_code gone;
    const auto written = entry->last_write_time(gone);
    if (!gone && entry->path().filename().string().ends_with(kEnding))
      cards.emplace_back(written, entry->path());
  }
  if (cards.size() <= kMostKeptCards) return;
  std::ranges::sort(cards);
  for (std::size_t i = 0; i + kMostKeptCards < cards.size(); ++i) remove_quietly(cards[i].second);
}

}  // namespace

FileCard make_file_card(const fs::path& file, const JobContext& job) {
  FileCard card;
  std::error_code error;
  const std::string extension = file.extension().string();
  std::string why_no_trace;
  if (is_session_file(file)) {
    card.words = "session";
    return card;
  }
  if (extension != ".csv" && extension != ".json") {
    try {
      return card_of_trace(file, job);
    } catch (const Interrupted&) {
      throw;
    } catch (const Error& problem) {
      why_no_trace = problem.what();
    }
  }
  if (fs::file_size(file, error) > kLargestResult) {  // or it cannot be asked
    card.words = error ? error.message() : "a large result";
    return card;
  }
  try {
    card.words = "result: " + open_result(file)->info().kind;
  } catch (const Error& problem) {
    card.words = why_no_trace.empty() ? problem.what() : why_no_trace;
  }
  return card;
}

FileCard kept_file_card(const fs::path& file, const FileStamp& stamp, const fs::path& folder,
                        const JobContext& job) {
  const fs::path place = place_of(folder, file);
  if (!folder.empty()) {
    if (auto card = read_card(place, file, stamp)) return *std::move(card);
  }
  FileCard card = make_file_card(file, job);
  if (folder.empty() || file_stamp(file) != stamp) return card;
  std::error_code ignored;
  fs::create_directories(folder, ignored);
  try {
    write_new_file(place, to_json(card, file, stamp).dump() + "\n", /*overwrite=*/true, Sync::no);
    shrink(folder);
  } catch (const Error&) {  // a full disk: it is made again
  }
  return card;
}

}  // namespace kvscope::gui
