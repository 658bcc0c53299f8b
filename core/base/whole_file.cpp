#include "core/base/whole_file.hpp"

#include <fmt/format.h>

#include <cerrno>
#include <cstdio>
#include <cstring>
#include <memory>

#include "core/base/error.hpp"
#include "core/base/number_text.hpp"

namespace kvscope {

std::string read_whole_file(const std::filesystem::path& file, std::size_t max_bytes) {
  const bool is_stdin = file == "-";
  const std::string name = is_stdin ? "standard input" : file.string();
  if (std::error_code error; !is_stdin && std::filesystem::is_directory(file, error)) {
    throw IoError(fmt::format("{} is a folder, expected a file", name));
  }
  const auto close = [](std::FILE* f) { return f == stdin ? 0 : std::fclose(f); };
  const std::unique_ptr<std::FILE, decltype(close)> in(
      is_stdin ? stdin : std::fopen(file.c_str(), "rb"), close);
  if (!in) throw IoError(fmt::format("cannot read {}: {}", name, std::strerror(errno)));
  std::string text;
  char buffer[1 << 16];
  while (const std::size_t n = std::fread(buffer, 1, sizeof buffer, in.get())) {
    if (text.size() + n > max_bytes) {
      throw IoError(
          fmt::format("{} is longer than {}", name, bytes_text(static_cast<double>(max_bytes))));
    }
    text.append(buffer, n);
  }
  if (std::ferror(in.get()) != 0)
    throw IoError(fmt::format("cannot read {}: {}", name, std::strerror(errno)));
  return text;
}

}  // namespace kvscope
