#include "analysis/units/journal.hpp"

#include <algorithm>
#include <set>

#include "analysis/base/same_weights.hpp"
#include "analysis/units/unit_file.hpp"
#include "core/base/error.hpp"
#include "core/base/json.hpp"

namespace kvscope {

namespace {

const std::string& mark_of(const Json& header) {
  return header.get_ref<const Json::object_t&>().front().first;
}

/// What must be the same for a run to go on, the configuration aside.
Json place_of(const Json& header) {
  Json place = Json::object();
  for (const char* key : {"shard", "n_shards"}) {
    if (header.contains(key)) place[key] = header.at(key);
  }
  return place;
}

}  // namespace

std::uintmax_t read_journal(const std::filesystem::path& file, std::string_view name,
                            std::string_view mark, const std::function<void(const Json&)>& begin,
                            const UnitVisit& visit) {
  std::set<std::size_t> known;
  return read_checked_lines(file, name, [&](const Json& line, bool is_first) {
    if (is_first) {
      if (line.at(std::string(mark)).get<int>() != 1) throw ConfigError("a newer version");
      begin(line);
      return;
    }
    const auto unit = line.at("unit").get<std::size_t>();
    if (!known.insert(unit).second) throw ConfigError("a unit that was there before");
    visit(unit, line);
  });
}

void read_units(const UnitFolder& units, const UnitVisit& visit) {
  require_all_units(units, units.command);
  for (const std::size_t unit : units.done) {
    read_checked_lines(unit_file(units.folder, unit_id(units.hash, unit)), units.command,
                       [&](const Json& line, bool is_first) {
                         if (!is_first) visit(line.at("unit").get<std::size_t>(), line);
                       });
  }
}

Journal::Journal(const std::optional<std::filesystem::path>& file, JournalMode mode,
                 std::string_view name, const Json& header, const UnitVisit& visit) {
  if (!file) return;
  if (mode == JournalMode::fresh && has_checked_lines(*file))
    throw IoError("{} exists: --resume continues it, --overwrite starts over", file->string());
  if (mode == JournalMode::overwrite || !has_checked_lines(*file)) {
    lines_.emplace(*file).write(header);
    return;
  }
  Json then;
  bool is_same = false;
  std::vector<std::size_t> others;
  const std::uintmax_t n_bytes = read_journal(
      *file, name, mark_of(header),
      [&](const Json& first) {
        then = first;
        is_same = then.at("config") == header.at("config") && place_of(then) == place_of(header);
      },
      [&](std::size_t unit, const Json& line) {
        is_same ? visit(unit, line) : others.push_back(unit);
      });
  if (!is_same) {
    std::ranges::sort(others);
    const Json& old = then.at("config");
    const Json& config = header.at("config");
    require_same_weights(config, old, file->string(), others,
                         "expected the old weights, or a start over with --overwrite");
    throw ConfigError("{} belongs to another {}: {}", file->string(), name,
                      config != old ? first_difference(config, old)
                                    : first_difference(place_of(header), place_of(then)));
  }
  lines_.emplace(*file, n_bytes);
}

void Journal::add(const Json& line) {
  if (lines_) lines_->write(line);
}

}  // namespace kvscope
