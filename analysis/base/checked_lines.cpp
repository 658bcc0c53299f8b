#include "analysis/base/checked_lines.hpp"

#include <fcntl.h>
#include <fmt/format.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>

#include "core/base/descriptor.hpp"
#include "core/base/error.hpp"
#include "core/base/json.hpp"
#include "core/base/new_file.hpp"
#include "core/base/read_files.hpp"
#include "core/base/whole_file.hpp"

namespace kvscope {

namespace {

constexpr std::string_view kSumKey = "{\"sum\":\"";
constexpr std::string_view kDataKey = "\",\"data\":";
constexpr std::size_t kSumDigits = 16;

std::string text_of(const Json& json) {
  return json.dump(-1, ' ', /*ensure_ascii=*/true, Json::error_handler_t::replace);
}

/// The data of a line, or nothing if it is cut off or damaged.
std::optional<std::string_view> checked_data(std::string_view line) {
  const std::size_t prefix = kSumKey.size() + kSumDigits + kDataKey.size();
  if (line.size() <= prefix || !line.starts_with(kSumKey) || line.back() != '}' ||
      line.substr(kSumKey.size() + kSumDigits, kDataKey.size()) != kDataKey) {
    return std::nullopt;
  }
  const std::string_view data = line.substr(prefix, line.size() - prefix - 1);
  if (line.substr(kSumKey.size(), kSumDigits) != text_checksum(data)) return std::nullopt;
  return data;
}

/// Lines of a file. What the system does not let it read is an error, never the file's end: a
/// journal would be cut there.
class LineReader {
 public:
  LineReader(const std::filesystem::path& file, std::uintmax_t begin) : name_(file.string()) {
    check_regular_file(file);
    opened_ = Descriptor(::open(file.c_str(), O_RDONLY | O_CLOEXEC | O_NONBLOCK));
    if (opened_.get() < 0) fail();
    note_read_file(opened_.get(), file);
    if (begin > 0 && ::lseek(opened_.get(), static_cast<off_t>(begin), SEEK_SET) < 0) fail();
  }

  /// False at the end.
  bool next(std::string& line) {
    line.clear();
    for (;;) {
      if (at_ == n_ && !fill()) return !line.empty();
      const char* const begin = buffer_.data() + at_;
      const auto* const end = static_cast<const char*>(std::memchr(begin, '\n', n_ - at_));
      has_break_ = end != nullptr;
      const std::size_t n = has_break_ ? static_cast<std::size_t>(end - begin) : n_ - at_;
      line.append(begin, n);
      at_ += n + (has_break_ ? 1 : 0);
      if (has_break_) return true;
    }
  }
  bool had_line_break() const { return has_break_; }

 private:
  bool fill() {
    ssize_t n = 0;
    do {
      n = ::read(opened_.get(), buffer_.data(), buffer_.size());
    } while (n < 0 && errno == EINTR);
    if (n < 0) fail();
    at_ = 0;
    n_ = static_cast<std::size_t>(n);
    return n > 0;
  }
  [[noreturn]] void fail() const {
    throw IoError("cannot read {}: {}", name_, std::strerror(errno));
  }

  std::string name_;
  Descriptor opened_;
  std::vector<char> buffer_ = std::vector<char>(1 << 16);
  std::size_t at_ = 0;
  std::size_t n_ = 0;
  bool has_break_ = false;
};

}  // namespace

std::string text_checksum(std::string_view text) {
  std::uint64_t hash = 0xcbf29ce484222325ULL;
  for (char c : text) hash = (hash ^ static_cast<std::uint8_t>(c)) * 0x100000001b3ULL;
  return fmt::format("{:016x}", hash);
}

std::string checked_line(const Json& data) {
  const std::string text = text_of(data);
  return fmt::format("{}{}{}{}}}\n", kSumKey, text_checksum(text), kDataKey, text);
}

std::string config_checksum(const Json& config) {
  return text_checksum(text_of(config));
}

CheckedEnd read_checked_texts(const std::filesystem::path& file, std::string_view what,
                              const std::function<void(const CheckedText&)>& visit,
                              CheckedEnd from) {
  LineReader in(file, from.bytes);
  CheckedEnd end = from;
  std::string line;
  while (in.next(line)) {
    const std::size_t number = end.lines + 1;
    constexpr std::string_view kBegin = "{\"sum\":\"";
    const bool is_own = line.starts_with(kBegin) || kBegin.starts_with(line);
    if (!in.had_line_break() && (number > 1 || is_own)) return end;  // a torn one
    const auto data = in.had_line_break() ? checked_data(line) : std::nullopt;
    if (!data) {
      throw FormatError("{}, line {}: expected a line of a {}'s journal with its checksum{}",
                        file.string(), number, what, number == 1 ? "" : "; the journal is damaged");
    }
    try {
      visit({*data, end.bytes, line.size(), number == 1});
    } catch (const nlohmann::json::exception& error) {
      throw FormatError("{}, line {}: not what a {} writes: {}", file.string(), number, what,
                        error.what());
    } catch (const ConfigError& error) {
      throw FormatError("{}, line {}: found {}", file.string(), number, error.what());
    } catch (const FormatError& error) {
      throw FormatError("{}, line {}: {}", file.string(), number, error.what());
    }
    end = {end.bytes + line.size() + 1, number};
  }
  if (end.bytes == 0) throw FormatError("{}: empty, expected a {}'s journal", file.string(), what);
  return end;
}

CheckedLinesAt::CheckedLinesAt(const std::filesystem::path& file)
    : file_(file), opened_(::open(file.c_str(), O_RDONLY | O_CLOEXEC)) {
  if (opened_.get() < 0) throw IoError("cannot read {}: {}", file.string(), std::strerror(errno));
  note_read_file(opened_.get(), file);
}

std::string CheckedLinesAt::data(std::uintmax_t begin, std::size_t n_bytes) const {
  std::string line(n_bytes, '\0');
  std::size_t n_read = 0;
  while (n_read < n_bytes) {
    const ssize_t n = ::pread(opened_.get(), line.data() + n_read, n_bytes - n_read,
                              static_cast<off_t>(begin + n_read));
    if (n < 0 && errno == EINTR) continue;
    if (n < 0) throw IoError("cannot read {}: {}", file_.string(), std::strerror(errno));
    if (n == 0) break;
    n_read += static_cast<std::size_t>(n);
  }
  const auto data = checked_data(line);
  if (n_read != n_bytes || !data)
    throw FormatError("{}: changed while it was read: expected the line at byte {} as before",
                      file_.string(), begin);
  return std::string(*data);
}

CheckedLineWriter::CheckedLineWriter(const std::filesystem::path& file) : file_(file) {
  check_output(file, /*overwrite=*/true, FileKind::journal);
}

void CheckedLineWriter::write(const Json& data) {
  const std::string line = checked_line(data);
  if (opened_.get() < 0) {
    NewFile file(file_, /*overwrite=*/true, FileKind::journal);
    file.write(line);
    file.publish();
    opened_ = Descriptor(file.release());
    return;
  }
  const off_t end = ::lseek(opened_.get(), 0, SEEK_END);
  try {
    write_all(opened_.get(), line, file_.string());
  } catch (...) {
    // Half a line would damage the journal if another one followed.
    [[maybe_unused]] const int ignored = end >= 0 ? ::ftruncate(opened_.get(), end) : -1;
    throw;
  }
}

void CheckedLineWriter::sync() {
  if (opened_.get() >= 0 && ::fdatasync(opened_.get()) != 0)
    throw IoError("{} cannot be put on its device: {}", file_.string(), std::strerror(errno));
}

}  // namespace kvscope
