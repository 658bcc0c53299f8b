#include "tests/gui_model/trace_files.hpp"

#include <array>
#include <catch2/catch_test_macros.hpp>
#include <cstring>

#include "core/base/error.hpp"
#include "traces/writer.hpp"

namespace kvscope::gui::test {

namespace {
constexpr double kSeconds = 30.0;
}

std::filesystem::path write_trace(const std::filesystem::path& path, const SyntheticTrace& trace) {
  kvscope::test::write_all(trace, *create_trace(path, {.overwrite = true, .gzip_level = {}}));
  return path;
}

void overwrite_number(const std::filesystem::path& path, float was, float next, float now) {
  std::string bytes = slurp(path);
  std::array<char, 2 * sizeof(float)> wanted;
  std::memcpy(wanted.data(), &was, sizeof was);
  std::memcpy(wanted.data() + sizeof was, &next, sizeof next);
  const std::size_t at = bytes.find(wanted.data(), 0, wanted.size());
  REQUIRE(at != std::string::npos);
  REQUIRE(bytes.find(wanted.data(), at + 1, wanted.size()) == std::string::npos);
  std::memcpy(bytes.data() + at, &now, sizeof now);
  spill(path, bytes);
}

Bench::Bench(std::size_t cache_bytes) : cache(cache_bytes), jobs({}, 2) {
  const auto no_result = [](const std::filesystem::path& file) -> std::unique_ptr<ResultView> {
    throw FormatError(file.string() + ": not a result");
  };
  session_ = std::make_unique<Session>(Workbench{jobs, cache}, no_result);
}

void Bench::open(const std::filesystem::path& path) {
  session().open(path);
  drain();
}

void Bench::drain() {
  REQUIRE(jobs.drain(kSeconds));
  REQUIRE_FALSE(session().is_opening());
}

std::shared_ptr<const Document> Bench::document() {
  auto open = session().document();
  REQUIRE(open);
  return open;
}

std::shared_ptr<const Document> open_document(const std::filesystem::path& path, Cache& cache) {
  auto open = Document::open(path, cache);
  REQUIRE(open);
  return open;
}

}  // namespace kvscope::gui::test
