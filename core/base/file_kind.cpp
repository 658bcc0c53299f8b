#include "core/base/file_kind.hpp"

#include <fcntl.h>
#include <fmt/format.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <cstring>

#include "core/base/descriptor.hpp"
#include "core/base/enum_names.hpp"
#include "core/base/error.hpp"
#include "core/base/shell_word.hpp"

namespace kvscope {

namespace fs = std::filesystem;

namespace {

// Attributes of the root lie there.
constexpr std::size_t kMostRootBytes = std::size_t{1} << 20;
constexpr std::size_t kMostStartBytes = 4096;

struct KindRow {
  std::string_view words;
  std::string_view ending = "-";  // of the names that a command writes it under; none ends so
};
constexpr std::array<KindRow, EnumNames<FileKind>::value.size()> kKinds = {
    {{"no file"},
     {"an empty file"},
     {"a trace of kvscope"},
     {"a result of kvscope in HDF5", ".h5"},
     {"a journal of kvscope"},
     {"a JSON file of kvscope", ".json"},
     {"a session of kvscope-explorer"},
     {"the manifest of a figure"},
     {"a JSON file of another program"},
     {"a notebook", ".ipynb"},
     {"a CSV table", ".csv"},
     {"a table in Markdown", ".md"},
     {"a TeX file", ".tex"},
     {"an SVG picture", ".svg"},
     {"an HTML page", ".html"},
     {"a PDF file", ".pdf"},
     {"a PNG picture", ".png"},
     {"an HDF5 file of another program"},
     {"a GGUF model"},
     {"a file of safetensors", ".safetensors"},
     {"a text"},
     {"a file of another kind"}}};

/// The first bytes of a regular file.
std::string start_of(const fs::path& file, std::size_t most) {
  const Descriptor opened(::open(file.c_str(), O_RDONLY | O_NONBLOCK | O_CLOEXEC));
  std::string head(most, '\0');
  std::size_t n_read = 0;
  ssize_t n = opened.get() < 0 ? -1 : 1;
  while (n > 0 && n_read < most) {
    do {
      n = ::read(opened.get(), head.data() + n_read, most - n_read);
    } while (n < 0 && errno == EINTR);
    n_read += static_cast<std::size_t>(std::max<ssize_t>(n, 0));
  }
  if (n < 0) {
    throw IoError("{}: what kind of file lies there cannot be read: {}", file.string(),
                  std::strerror(errno));
  }
  head.resize(n_read);
  return head;
}

FileKind kind_of_hdf5(const fs::path& file) {
  const std::string head = start_of(file, kMostRootBytes);
  const std::size_t trace = head.find("kvscope-trace"), result = head.find("kvscope-result");
  if (trace == result) return FileKind::hdf5;  // neither
  return trace < result ? FileKind::trace : FileKind::result;
}

bool has_any(std::string_view text, std::initializer_list<std::string_view> parts) {
  return std::ranges::any_of(parts, [&](auto part) { return text.find(part) != text.npos; });
}

/// Names of columns, not words of a sentence: a comma, and no blank behind one.
bool is_header_of_csv(std::string_view line) {
  return line.find(',') != line.npos && line.find(", ") == line.npos && line.back() != '.';
}

FileKind kind_of_text(std::string_view head) {
  std::string_view text = head.substr(std::min(head.find_first_not_of(" \t\r\n"), head.size()));
  if (text.starts_with("{\"sum\":\"")) return FileKind::journal;
  if (text.starts_with('{') || text.starts_with('[')) {
    const bool is_own = has_any(text, {"kvscope"});
    if (has_any(text, {"\"nbformat\"", "\"cell_type\""}))
      return is_own ? FileKind::notebook : FileKind::json;
    if (has_any(text, {"\"kvscope-figure\"", "\"kvscope-view\""})) return FileKind::manifest;
    if (has_any(text, {"\"kvscope-session\""})) return FileKind::session;
    return is_own || has_any(text, {"\"config_hash\":", "\"cost-shape\""}) ? FileKind::own_json
                                                                           : FileKind::json;
  }
  for (const char* start : {"<!DOCTYPE html", "<!doctype html", "<html"}) {
    if (text.starts_with(start)) return FileKind::html;
  }
  if (text.starts_with('<') && has_any(text, {"<svg"})) return FileKind::svg;
  // Tables and figures are parts of documents, and no document but a report is of this program.
  if (has_any(text, {"\\documentclass"}) && !has_any(text, {"kvscope"})) return FileKind::text;
  if (text.starts_with('%') || text.starts_with('\\')) return FileKind::tex;
  if (has_any(text, {"\n|", "\n<table"}) || text.starts_with('|')) return FileKind::markdown;
  return is_header_of_csv(text.substr(0, text.find('\n'))) ? FileKind::csv : FileKind::text;
}

bool is_text(FileKind kind) {
  return kind == FileKind::text || kind == FileKind::csv || kind == FileKind::markdown ||
         kind == FileKind::tex || kind == FileKind::json || kind == FileKind::own_json;
}

bool may_replace(FileKind there, std::optional<FileKind> written, const fs::path& out) {
  if (there == FileKind::none || there == FileKind::empty) return true;
  const bool is_json = written == FileKind::session || written == FileKind::manifest;
  if (is_json && there == FileKind::json) return true;
  if (written) return there == *written || (written == FileKind::text && is_text(there));
  const FileKind named = kind_of_name(out);
  if (named == FileKind::own_json) return there == named || there == FileKind::json;
  if (named != FileKind::text) return there == named;
  return is_text(there) || there == FileKind::journal;
}

/// "; --model FILE reads it as the model", for what a user may have meant who named an input as the
/// output; empty for other kinds.
std::string meant_by(const fs::path& file) {
  const std::string name = shell_word(file.string());
  switch (kind_of_file(file)) {
    case FileKind::gguf:
      return fmt::format("; --model {} reads it as the model", name);
    case FileKind::text:
    case FileKind::markdown:
      return fmt::format("; --text {} reads it as the text", name);
    default:
      return {};
  }
}

}  // namespace

FileKind kind_of_file(const fs::path& file) {
  struct stat status {};
  if (::stat(file.c_str(), &status) != 0 || !S_ISREG(status.st_mode)) return FileKind::none;
  if (status.st_size == 0) return FileKind::empty;
  const std::string read = start_of(file, kMostStartBytes);
  const std::string_view head = read;
  if (head.starts_with("\x89HDF\r\n\x1a\n")) return kind_of_hdf5(file);
  if (head.starts_with("GGUF")) return FileKind::gguf;
  if (head.starts_with("%PDF-")) return FileKind::pdf;
  if (head.starts_with("\x89PNG")) return FileKind::png;
  if (head.size() > 9 && head[8] == '{' && head.substr(2, 6).find('\0') != head.npos)
    return FileKind::safetensors;  // its header's length in 8 bytes
  return head.find('\0') == head.npos ? kind_of_text(head) : FileKind::other;
}

std::string_view words_of(FileKind kind) {
  return kKinds[static_cast<std::size_t>(kind)].words;
}

FileKind kind_of_name(const fs::path& name) {
  const auto row = std::ranges::find(kKinds, name.extension().string(), &KindRow::ending);
  return row == kKinds.end() ? FileKind::text : static_cast<FileKind>(row - kKinds.begin());
}

void refuse_other_kind(const fs::path& out, std::optional<FileKind> written) {
  const FileKind there = kind_of_file(out);
  if (may_replace(there, written, out)) return;
  throw IoError("cannot write {}: it is {}, expected {} or a new name; it is not replaced{}",
                out.string(), words_of(there), words_of(written.value_or(kind_of_name(out))),
                written == FileKind::trace ? meant_by(out) : "");
}

}  // namespace kvscope
