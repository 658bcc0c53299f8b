#include "analysis/study/study_store.hpp"

#include <fcntl.h>
#include <fmt/format.h>
#include <unistd.h>

#include <algorithm>
#include <nlohmann/json.hpp>
#include <optional>
#include <utility>

#include "analysis/base/checked_lines.hpp"
#include "analysis/study/study_items.hpp"
#include "core/base/error.hpp"
#include "core/base/new_file.hpp"
#include "core/base/read_files.hpp"

namespace kvscope {

namespace {

namespace fs = std::filesystem;
using Json = nlohmann::ordered_json;

constexpr const char* kStoreMark = "kvscope_study_store";

/// Until the bytes of a file that grows are on the device.
void sync_file(const fs::path& file) {
  const int fd = ::open(file.c_str(), O_RDONLY | O_CLOEXEC);
  const bool is_synced = fd >= 0 && ::fdatasync(fd) == 0;
  if (fd >= 0) ::close(fd);
  if (!is_synced) throw IoError(fmt::format("{} cannot be put on its device", file.string()));
}

}  // namespace

std::uintmax_t read_study_store(const fs::path& file,
                                const std::function<void(const Json&)>& visit) {
  const OwnFiles own;
  if (!has_checked_lines(file)) return 0;
  try {
    return read_checked_lines(file, "study store", [&](const Json& line, bool is_first) {
      if (!is_first) return visit(line);
      if (!line.contains(kStoreMark)) throw ConfigError("not the results of studies");
      if (line.at(kStoreMark) != 1) throw ConfigError("a store of a newer kvscope");
    });
  } catch (const FormatError& error) {
    throw FormatError(fmt::format(
        "{} (a line is an item: without a damaged one the others stay, and it is computed again)",
        error.what()));
  }
}

StudyStore::StudyStore(fs::path folder) : folder_(std::move(folder)) {
  n_bytes_ = read_study_store(file(), [&](const Json& line) { note(line); });
}

void StudyStore::note(const Json& line) {
  const auto key = line.at("key").get<std::string>();
  StoredItem& item = items_[key];
  item.failure = line.value("failure", std::string());
  item.kind = line.value("kind", std::string());
  item.method = line.value("method", std::string());
  item.seconds = line.value("seconds", 0.0);
  item.memory = line.value("memory", 0.0);
  item.bytes = line.value("bytes", 0.0);
  if (item.failure.empty()) questions_.emplace(question_of(key));
}

const StoredItem* StudyStore::find(const std::string& key) const {
  const auto found = items_.find(key);
  return found == items_.end() ? nullptr : &found->second;
}

bool StudyStore::knows(const std::string& key) const {
  const StoredItem* const item = find(key);
  return item != nullptr && item->failure.empty();
}

std::size_t StudyStore::n_known() const {
  return static_cast<std::size_t>(
      std::ranges::count_if(items_, [](const auto& item) { return item.second.failure.empty(); }));
}

bool StudyStore::knew(const std::string& key) const {
  return !knows(key) && questions_.contains(question_of(key));
}

void StudyStore::add(std::span<const Json> lines) {
  if (lines.empty()) return;
  std::optional<CheckedLineWriter> writer;
  if (n_bytes_ == 0) {
    writer.emplace(file());
    const Json first = {{kStoreMark, 1}};
    writer->write(first);
    n_bytes_ += checked_line(first).size();
  } else {
    writer.emplace(file(), n_bytes_);
  }
  for (const Json& line : lines) {
    writer->write(line);
    n_bytes_ += checked_line(line).size();
    note(line);
  }
  sync_file(file());
}

FileLock StudyStore::lock() const {
  std::error_code error;
  for (const fs::path& folder : {folder_, folder_ / "recordings", work(), scratch()}) {
    fs::create_directory(folder, error);
    if (!fs::is_directory(folder))
      throw IoError(fmt::format("cannot make the folder {}: {}", folder.string(), error.message()));
  }
  std::optional<FileLock> lock = FileLock::take(folder_ / "lock");
  if (!lock)
    throw IoError(
        fmt::format("{} is in use by {}: wait until it ends, or name another store in the study",
                    folder_.string(), writer()));
  return std::move(*lock);
}

std::string StudyStore::writer() const {
  return FileLock::holder(folder_ / "lock");
}

}  // namespace kvscope
