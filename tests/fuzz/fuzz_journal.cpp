// Fuzzes a store: each line of the input becomes a line of one segment with a right checksum, so
// that what is behind the checksum is reached; then the answers are read as a sweep's. Errors of
// ours are fine, crashes are not.
#include <fmt/format.h>
#include <unistd.h>

#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <fstream>
#include <nlohmann/json.hpp>
#include <sstream>

#include "analysis/base/checked_lines.hpp"
#include "analysis/sweep/sweep_work.hpp"
#include "core/base/error.hpp"

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  using namespace kvscope;
  static const std::filesystem::path folder =
      std::filesystem::temp_directory_path() / fmt::format("fuzz-store-{}", ::getpid());
  std::filesystem::create_directories(folder / "answers");
  {
    std::istringstream lines(std::string(reinterpret_cast<const char*>(data), size));
    std::ofstream out(folder / "answers" / "a.journal", std::ios::trunc | std::ios::binary);
    for (std::string line; std::getline(lines, line);) {
      out << fmt::format("{{\"sum\":\"{}\",\"data\":{}}}\n", text_checksum(line), line);
    }
  }
  try {
    const Store store(folder);
    SweepPlan plan;
    plan.infos = {{.name = "a", .layers = {0, 1}, .q_heads = {0}, .calls = {{0, 4}}}};
    for (const auto& [key, answer] : store.answers()) {
      try {
        std::vector<SweepBlock> blocks = places_of(plan, {{{0}, 0, 0}, 0});
        read_sweep_blocks(plan, answer_in(store, key), blocks);
      } catch (const nlohmann::json::exception&) {
      }
    }
  } catch (const Error&) {
  }
  return 0;
}
