// Runs a fuzz target over files without libFuzzer: as they are, and as many random changes of each.
//
//   corpus_FORMAT FOLDER CHANGES
//
// The changes are drawn from a fixed seed: bytes set, cut out, repeated, and the end cut off. What
// a target must not do ends this program: a crash, an assertion, an exception that is not ours.
#include <algorithm>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <random>
#include <vector>

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size);

namespace {

namespace fs = std::filesystem;
using Bytes = std::vector<std::uint8_t>;

std::size_t draw(std::mt19937_64& random, std::size_t n) {
  return n == 0 ? 0 : random() % n;
}

Bytes changed(Bytes bytes, std::mt19937_64& random) {
  const std::size_t n_changes = 1 + draw(random, 4);
  for (std::size_t i = 0; i < n_changes && !bytes.empty(); ++i) {
    const auto at = static_cast<std::ptrdiff_t>(draw(random, bytes.size()));
    const auto left = static_cast<std::size_t>(bytes.end() - (bytes.begin() + at));
    const auto end =
        at + static_cast<std::ptrdiff_t>(1 + draw(random, std::min<std::size_t>(left, 64)));
    switch (draw(random, 5)) {
      case 0:
        bytes[static_cast<std::size_t>(at)] = static_cast<std::uint8_t>(random());
        break;
      case 1:
        bytes[static_cast<std::size_t>(at)] ^= static_cast<std::uint8_t>(1U << draw(random, 8));
        break;
      case 2:
        bytes.erase(bytes.begin() + at, bytes.begin() + std::min(end, std::ssize(bytes)));
        break;
      case 3: {
        const Bytes piece(bytes.begin() + at, bytes.begin() + std::min(end, std::ssize(bytes)));
        bytes.insert(bytes.begin() + at, piece.begin(), piece.end());
        break;
      }
      default:
        bytes.resize(static_cast<std::size_t>(at));
    }
  }
  return bytes;
}

}  // namespace

int main(int argc, char** argv) {
  if (argc != 3) {
    std::fprintf(stderr, "usage: %s FOLDER CHANGES\n", argv[0]);
    return 2;
  }
  std::vector<fs::path> files;
  for (const auto& entry : fs::directory_iterator(argv[1])) files.push_back(entry.path());
  std::sort(files.begin(), files.end());
  std::mt19937_64 random(20);
  std::size_t n_runs = 0;
  for (const fs::path& file : files) {
    std::ifstream in(file, std::ios::binary);
    const Bytes bytes{std::istreambuf_iterator<char>(in), {}};
    LLVMFuzzerTestOneInput(bytes.data(), bytes.size());
    for (int i = std::atoi(argv[2]); i > 0; --i) {
      const Bytes other = changed(bytes, random);
      LLVMFuzzerTestOneInput(other.data(), other.size());
      ++n_runs;
    }
  }
  std::printf("%zu files, %zu changes of them\n", files.size(), n_runs);
  return files.empty() ? 1 : 0;
}
