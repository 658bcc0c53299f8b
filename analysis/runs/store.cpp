#include "analysis/runs/store.hpp"

#include <fmt/format.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cctype>
#include <chrono>
#include <random>
#include <system_error>
#include <utility>

#include "core/base/error.hpp"
#include "core/base/json.hpp"
#include "core/base/json_members.hpp"
#include "core/base/json_reader.hpp"
#include "core/base/new_file.hpp"
#include "core/base/read_files.hpp"
#include "core/base/version.hpp"
#include "core/base/whole_file.hpp"

namespace kvscope {

namespace {

namespace fs = std::filesystem;

constexpr const char* kStoreMark = "kvscope_store";
constexpr int kStoreVersion = 3;
constexpr std::string_view kSegmentEnding = ".journal";
constexpr double kSyncSeconds = 1.0;

/// HOST-PID-NUMBER: of nobody else, in letters that a file's name may have.
std::string name_of_worker() {
  std::array<char, 256> host{};
  if (::gethostname(host.data(), host.size() - 1) != 0) host[0] = '\0';
  std::string name = host.data();
  for (char& c : name) {
    if (std::isalnum(static_cast<unsigned char>(c)) == 0 && c != '.') c = '_';
  }
  // Numbers of processes mean something in one name space of them alone (a container's).
  std::error_code error;
  std::string space = std::filesystem::read_symlink("/proc/self/ns/pid", error).string();
  std::erase_if(space, [](unsigned char c) { return std::isdigit(c) == 0; });
  return fmt::format("{}.{}-{}-{:08x}", name, space, ::getpid(), std::random_device()());
}

double now_in_seconds() {
  return std::chrono::duration<double>(std::chrono::system_clock::now().time_since_epoch()).count();
}

void make_folder(const fs::path& folder) {
  std::error_code error;
  fs::create_directory(folder, error);
  if (!fs::is_directory(folder))
    throw IoError("cannot make the folder {}: {}", folder.string(), error.message());
}

bool is_journal(const fs::path& file) {
  return file.extension() == kSegmentEnding;
}

/// A journal, or one that has not got its name yet.
bool is_own(const fs::path& file) {
  return is_journal(file) || file.extension() == ".part";
}

/// True for a folder that is no store, nor one that is just being made: begin() makes answers/
/// first.
bool holds_other_files(const fs::path& folder) {
  if (is_store(folder)) return false;
  sorted_entries(folder / "answers");  // which may not be read: says so
  const std::vector<fs::path> files = sorted_entries(folder);
  return !files.empty() && !(files.size() == 1 && files[0].filename() == "leases");
}

}  // namespace

std::string item_key(const Json& question) {
  return fmt::format("{}-{}", config_checksum(question), code_version());
}

std::string_view question_of(std::string_view key) {
  return key.substr(0, key.find('-'));
}

Store::Store() : worker_(name_of_worker()) {}

Store::Store(fs::path folder) : folder_(std::move(folder)), worker_(name_of_worker()) {
  std::error_code error;
  if (fs::exists(folder_, error) && !fs::is_directory(folder_, error))
    throw IoError("{} is a file: expected the folder of a store", folder_.string());
  if (holds_other_files(folder_)) {
    throw ConfigError(
        "{} holds other files: expected a store of kvscope, an empty folder or one that is not "
        "there yet",
        folder_.string());
  }
  refresh();
}

Store::Store(Store&&) noexcept = default;

Store::~Store() {
  try {
    sync();
  } catch (const Error&) {
    // The lines are with the system; who needs them on the device calls sync().
  }
}

void Store::refresh() {
  if (folder_.empty()) return;
  const OwnFiles own;
  for (fs::path& file : sorted_entries(folder_ / "answers")) {
    if (!is_journal(file)) continue;
    const auto [place, is_new] = places_.emplace(file.filename().string(), segments_.size());
    if (is_new) segments_.push_back({std::move(file), {}, {}});
    if (own_ && place->second == own_place_) continue;
    read(place->second);
  }
}

void Store::read(std::size_t segment) {
  const fs::path file = segments_[segment].file;
  std::error_code error;
  const std::uintmax_t size = fs::file_size(file, error);
  if (!error && size <= segments_[segment].end.bytes) return;
  bool has_begun = segments_[segment].end.bytes > 0;
  try {
    segments_[segment].end = read_checked_texts(
        file, "store",
        [&](const CheckedText& line) {
          if (!line.is_first) {
            keep(line.data, segment, line.begin, line.n_bytes);
            return;
          }
          const Json first = parse_ordered_json(line.data, file.string());
          if (!first.contains(kStoreMark) || first.at(kStoreMark) != kStoreVersion)
            throw IoError(
                "{}: a store of another version of kvscope, which is not gone on with: name "
                "another folder (--store; of a study: store = ...), or use that version",
                folder_.string());
          has_begun = true;
        },
        segments_[segment].end);
  } catch (const FormatError& wrong) {
    throw FormatError(
        "{} ({})", wrong.what(),
        has_begun
            ? "a line is an item: without a damaged one the others stay, and it is computed again"
            : "the first line says what the file is: without the file its items are computed "
              "again, and those of the other files stay");
  }
}

void Store::keep(std::string_view data, std::size_t segment, std::uintmax_t begin,
                 std::size_t n_bytes) {
  StoredAnswer answer;
  std::string key;
  std::size_t forget = 0;
  bool is_plan = false;
  const std::string where = folder_.string();
  for_each_json_member(data, where, [&](std::string_view name, std::string_view text) {
    const auto read = [&](auto& value) { parse_ordered_json(text, where).get_to(value); };
    if (name == "key") return read(key);
    if (name == "plan") is_plan = true;
    if (name == "forget") return read(forget);
    if (name == "forgot") return read(answer.n_forgot);
    if (name == "failure") return read(answer.failure);
    if (name == "kind") return read(answer.kind);
    if (name == "method") return read(answer.method);
    if (name == "seconds") return read(answer.seconds);
    if (name == "memory") return read(answer.memory);
    if (name == "bytes") return read(answer.bytes);
    if (name == "at") return read(answer.at);
  });
  if (is_plan) {
    const Json json = parse_ordered_json(data, where);
    plans_[json.at("plan")] = {json.at("plan"), json.at("command"), json.at("items"),
                               json.at("questions")};
    return;
  }
  if (key.empty()) throw ConfigError("a line without a key");
  std::size_t& n_forgot = forgot_[key];
  if (forget > 0) {
    n_forgot = std::max(n_forgot, forget);
    if (const auto old = answers_.find(key);
        old != answers_.end() && old->second.n_forgot < n_forgot)
      answers_.erase(old);
    return;
  }
  n_forgot = std::max(n_forgot, answer.n_forgot);
  if (answer.n_forgot < n_forgot) return;
  if (answer.failure.empty()) questions_.emplace(question_of(key));
  if (n_bytes == 0) answer.text = std::string(data);
  answer.segment = segment;
  answer.begin = begin;
  answer.n_bytes = n_bytes;
  // What is known has not failed, whoever said so last.
  const auto old = answers_.find(key);
  const bool stays = old != answers_.end() && old->second.failure.empty() &&
                     !answer.failure.empty() && old->second.n_forgot == answer.n_forgot;
  if (!stays) answers_[key] = std::move(answer);
}

const StoredAnswer* Store::find(const std::string& key) const {
  const auto found = answers_.find(key);
  return found == answers_.end() ? nullptr : &found->second;
}

bool Store::knows(const std::string& key) const {
  const StoredAnswer* const answer = find(key);
  return answer != nullptr && answer->failure.empty();
}

std::size_t Store::n_known() const {
  return static_cast<std::size_t>(std::ranges::count_if(
      answers_, [](const auto& answer) { return answer.second.failure.empty(); }));
}

bool Store::knew(const std::string& key) const {
  return !knows(key) && questions_.contains(question_of(key));
}

bool Store::is_of_one_work() const {
  if (plans_.size() != 1 || fs::exists(recordings())) return false;
  const auto& questions = plans_.begin()->second.questions;
  return std::ranges::all_of(answers_, [&](const auto& answer) {
    return std::ranges::binary_search(questions, question_of(answer.first), std::less<>());
  });
}

std::string Store::line(const std::string& key) const {
  const StoredAnswer* const answer = find(key);
  if (answer == nullptr || answer->n_bytes == 0) return answer == nullptr ? "" : answer->text;
  Segment& segment = segments_[answer->segment];
  if (!segment.lines) {
    const OwnFiles own;
    segment.lines = std::make_unique<CheckedLinesAt>(segment.file);
  }
  return segment.lines->data(answer->begin, answer->n_bytes);
}

double Store::answers_per_hour() const {
  constexpr std::size_t kLast = 100;
  std::vector<double> times;
  for (const auto& [key, answer] : answers_) {
    if (answer.at > 0.0) times.push_back(answer.at);
  }
  std::ranges::sort(times, std::greater<>());
  if (times.size() > kLast) times.resize(kLast);
  const double span = times.size() < 2 ? 0.0 : times.front() - times.back();
  if (span <= 0.0) return 0.0;
  const double each = span / static_cast<double>(times.size() - 1);
  return now_in_seconds() - times.front() > 10.0 * each + 1.0 ? 0.0 : 3600.0 / each;
}

void Store::write(const Json& line) {
  if (folder_.empty()) {
    keep(json_text(line), 0, 0, 0);
    return;
  }
  const std::string name = worker_ + std::string(kSegmentEnding);
  if (!own_) {
    const OwnFiles own;
    begin();
    const fs::path file = folder_ / "answers" / name;
    const Json first = {
        {kStoreMark, kStoreVersion}, {"worker", worker_}, {"version", writer_name()}};
    CheckedLineWriter writer(file);
    writer.write(first);
    own_place_ = segments_.size();
    places_.emplace(name, own_place_);
    segments_.push_back({file, {checked_line(first).size(), 1}, {}});
    own_.emplace(std::move(writer));
  }
  own_->write(line);
  CheckedEnd& end = segments_[own_place_].end;
  const std::string text = checked_line(line);
  constexpr std::string_view kData = "\"data\":";
  const std::size_t data = text.find(kData) + kData.size();
  keep(std::string_view(text).substr(data, text.size() - data - 2), own_place_, end.bytes,
       text.size() - 1);  // without its line break
  end.bytes += text.size();
  ++end.lines;
  if (!unsynced_) unsynced_.emplace();
  if (unsynced_->seconds() > kSyncSeconds) sync();
}

void Store::add(std::span<const Json> lines) {
  for (Json line : lines) {
    const auto forgot = forgot_.find(line.at("key").get<std::string>());
    if (forgot != forgot_.end() && forgot->second > 0) line["forgot"] = forgot->second;
    if (!folder_.empty()) line["at"] = now_in_seconds();
    write(line);
  }
}

void Store::add_plan(const StoredPlan& plan) {
  if (folder_.empty() || plans_.contains(plan.hash)) return;
  write({{"plan", plan.hash},
         {"command", plan.command},
         {"items", plan.n_items},
         {"questions", plan.questions}});
}

void Store::forget(const std::string& key) {
  write({{"key", key}, {"forget", forgot_[key] + 1}});
}

void Store::begin() const {
  if (folder_.empty()) return;
  make_folder(folder_);
  make_folder(folder_ / "answers");
}

void Store::sync() {
  if (!unsynced_ || !own_) return;
  unsynced_.reset();
  own_->sync();
}

bool is_store(const fs::path& folder) {
  std::error_code error;
  bool is_empty = true;
  fs::directory_iterator entry(folder / "answers", error);
  if (error) return false;
  for (; !error && entry != fs::directory_iterator(); entry.increment(error)) {
    if (is_own(entry->path())) return true;
    is_empty = false;
  }
  return is_empty;
}

void remove_store(const fs::path& folder) {
  if (!is_store(folder)) return;
  for (const fs::path& file : sorted_entries(folder / "answers")) {
    if (is_own(file)) remove_quietly(file);
  }
  for (const fs::path& file : sorted_entries(folder / "leases")) remove_quietly(file);
  for (const char* own : {"answers", "leases"}) remove_quietly(folder / own);
  remove_quietly(folder);  // refused unless it is empty
}

}  // namespace kvscope
