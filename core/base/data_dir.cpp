#include "core/base/data_dir.hpp"

#include <cstdlib>
#include <string>
#include <vector>

#include "core/base/error.hpp"

namespace kvscope {

namespace fs = std::filesystem;

namespace {

bool has_samples(const fs::path& dir) {
  std::error_code ignored;
  return fs::exists(dir / "verifier" / "config.json", ignored);
}

std::vector<fs::path> places_to_try() {
  std::vector<fs::path> places;
  std::error_code error;
  const fs::path program = fs::read_symlink("/proc/self/exe", error);
  if (!error) {
    places.push_back(
        (program.parent_path() / ".." / "share" / "kvscope" / "samples").lexically_normal());
  }
  places.emplace_back(KVSCOPE_SOURCE_SAMPLES);
  return places;
}

/// The folder that holds verifier/, draft/ and texts/. Tried in this order: the environment
/// variable KVSCOPE_DATA (if set, it decides alone), share/kvscope/samples beside the folder of the
/// running program, and the source tree that the library was built from. Throws IoError with the
/// places tried if none has them.
fs::path samples_dir() {
  if (const char* chosen = std::getenv("KVSCOPE_DATA"); chosen != nullptr && *chosen != '\0') {
    if (has_samples(chosen)) return chosen;
    throw IoError("KVSCOPE_DATA names {}, which has no verifier/config.json", chosen);
  }
  const std::vector<fs::path> places = places_to_try();
  for (const fs::path& place : places) {
    if (has_samples(place)) return place;
  }
  std::string tried;
  for (const fs::path& place : places) tried += (tried.empty() ? "" : ", ") + place.string();
  throw IoError(
      "the embedded models were not found; tried {}. Set KVSCOPE_DATA to the folder "
      "traces/samples of the sources",
      tried);
}

}  // namespace

fs::path embedded_verifier() {
  return samples_dir() / "verifier";
}
fs::path embedded_draft() {
  return samples_dir() / "draft";
}
fs::path embedded_text() {
  return samples_dir() / "texts" / "kidnapped.txt";
}

}  // namespace kvscope
