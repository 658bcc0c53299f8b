#include "analysis/study/study_store.hpp"

#include <fcntl.h>
#include <unistd.h>

#include <algorithm>
#include <optional>
#include <utility>

#include "analysis/base/checked_lines.hpp"
#include "analysis/study/study_items.hpp"
#include "core/base/error.hpp"
#include "core/base/json.hpp"
#include "core/base/json_members.hpp"
#include "core/base/json_reader.hpp"
#include "core/base/new_file.hpp"
#include "core/base/read_files.hpp"

namespace kvscope {

namespace {

namespace fs = std::filesystem;

constexpr const char* kStoreMark = "kvscope_study_store";

/// Until the bytes of a file that grows are on the device.
void sync_file(const fs::path& file) {
  const int fd = ::open(file.c_str(), O_RDONLY | O_CLOEXEC);
  const bool is_synced = fd >= 0 && ::fdatasync(fd) == 0;
  if (fd >= 0) ::close(fd);
  if (!is_synced) throw IoError("{} cannot be put on its device", file.string());
}

}  // namespace

StudyStore::StudyStore(fs::path folder) : folder_(std::move(folder)) {
  const OwnFiles own;
  if (!has_checked_lines(file())) return;
  try {
    n_bytes_ = read_checked_texts(file(), "study store", [&](const CheckedText& line) {
      if (!line.is_first) {
        keep(line);
        return;
      }
      const Json first = parse_ordered_json(line.data, file().string());
      if (!first.contains(kStoreMark)) throw ConfigError("not the results of studies");
      if (first.at(kStoreMark) != 1) throw ConfigError("a store of a newer kvscope");
    });
  } catch (const FormatError& error) {
    throw FormatError(
        "{} (a line is an item: without a damaged one the others stay, and it is computed again)",
        error.what());
  }
}

StoredItem& StudyStore::keep(const CheckedText& line) {
  StoredItem item;
  item.begin = line.begin;
  item.n_bytes = line.n_bytes;
  std::string key;
  const std::string where = file().string();
  for_each_json_member(line.data, where, [&](std::string_view name, std::string_view text) {
    const auto read = [&](auto& value) { parse_ordered_json(text, where).get_to(value); };
    if (name == "key") return read(key);
    if (name == "failure") return read(item.failure);
    if (name == "kind") return read(item.kind);
    if (name == "method") return read(item.method);
    if (name == "seconds") return read(item.seconds);
    if (name == "memory") return read(item.memory);
    if (name == "bytes") return read(item.bytes);
  });
  if (key.empty()) throw ConfigError("a line without a key");
  if (item.failure.empty()) questions_.emplace(question_of(key));
  return items_[key] = std::move(item);
}

void StudyStore::note(const Json& line) {
  std::string text = line.dump();
  keep({text}).text = std::move(text);
}

std::string StudyLines::data(const std::string& key) const {
  const StoredItem* const item = store_.find(key);
  if (item == nullptr || item->n_bytes == 0) return item == nullptr ? "" : item->text;
  if (!file_) {
    const OwnFiles own;
    file_.emplace(store_.file());
  }
  return file_->data(item->begin, item->n_bytes);
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
    const std::size_t n_bytes = checked_line(line).size();
    keep({line.dump(), n_bytes_, n_bytes - 1});  // without its line break
    n_bytes_ += n_bytes;
  }
  sync_file(file());
}

FileLock StudyStore::lock() const {
  std::error_code error;
  for (const fs::path& folder : {folder_, folder_ / "recordings", work(), scratch()}) {
    fs::create_directory(folder, error);
    if (!fs::is_directory(folder))
      throw IoError("cannot make the folder {}: {}", folder.string(), error.message());
  }
  std::optional<FileLock> lock = FileLock::take(folder_ / "lock");
  if (!lock)
    throw IoError("{} is in use by {}: wait until it ends, or name another store in the study",
                  folder_.string(), writer());
  return std::move(*lock);
}

std::string StudyStore::writer() const {
  return FileLock::holder(folder_ / "lock");
}

}  // namespace kvscope
