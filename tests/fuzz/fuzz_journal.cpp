// Fuzzes the journal of a sweep: each line of the input becomes a line with a right checksum, so
// that what is behind the checksum is reached; the table is then made from it. Errors of ours are
// fine, crashes are not.
#include <unistd.h>

#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <fstream>
#include <sstream>

#include <fmt/format.h>

#include "analysis/sweep/sweep.hpp"
#include "analysis/sweep/sweep_journal.hpp"
#include "core/base/error.hpp"

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  using namespace kvscope;
  static const std::filesystem::path file =
      std::filesystem::temp_directory_path() / fmt::format("fuzz-journal-{}", ::getpid());
  {
    std::istringstream lines(std::string(reinterpret_cast<const char*>(data), size));
    std::ofstream out(file, std::ios::trunc | std::ios::binary);
    for (std::string line; std::getline(lines, line);) {
      out << fmt::format("{{\"sum\":\"{}\",\"data\":{}}}\n", text_checksum(line), line);
    }
  }
  try {
    const SweepResult result = merge_sweep({file});
    (void)sweep_csv(result);
    (void)sweep_json(result);
  } catch (const Error&) {
  }
  return 0;
}
