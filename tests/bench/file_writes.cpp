// How fast files of a folder take what a recording writes: pieces of 128 KiB by pwrite, by one or
// more threads, into one file or several.
//
//   bench_file_writes FOLDER GIGABYTES
#include <fcntl.h>
#include <fmt/format.h>
#include <unistd.h>

#include <atomic>
#include <chrono>
#include <string>
#include <thread>
#include <utility>
#include <vector>

namespace {

constexpr std::size_t kPiece = std::size_t{128} << 10;

double gigabytes_per_second(const std::string& folder, std::size_t n_pieces, int n_threads,
                            int n_files) {
  std::vector<int> files;
  for (int i = 0; i < n_files; ++i) {
    const std::string name = fmt::format("{}/bench_file_writes.{}", folder, i);
    files.push_back(::open(name.c_str(), O_RDWR | O_CREAT | O_EXCL | O_CLOEXEC, 0600));
    if (files.back() < 0) throw std::runtime_error("cannot make " + name);
    ::unlink(name.c_str());
  }
  std::vector<char> bytes(std::size_t{64} << 20);
  for (std::size_t i = 0; i < bytes.size(); ++i) bytes[i] = static_cast<char>(i * 31 + i / 977);
  std::atomic<std::size_t> next = 0;
  std::atomic<bool> failed = false;
  const auto start = std::chrono::steady_clock::now();
  std::vector<std::thread> threads;
  for (int t = 0; t < n_threads; ++t) {
    threads.emplace_back([&] {
      for (std::size_t i; (i = next++) < n_pieces;) {
        const char* const from = bytes.data() + i * kPiece % bytes.size();
        const auto at = static_cast<off_t>(i / files.size() * kPiece);
        if (::pwrite(files[i % files.size()], from, kPiece, at) != static_cast<ssize_t>(kPiece))
          failed = true;
      }
    });
  }
  for (std::thread& thread : threads) thread.join();
  const std::chrono::duration<double> seconds = std::chrono::steady_clock::now() - start;
  for (const int file : files) ::close(file);
  if (failed) throw std::runtime_error("cannot write to " + folder);
  return static_cast<double>(n_pieces * kPiece) / 1e9 / seconds.count();
}

}  // namespace

int main(int argc, char** argv) {
  if (argc != 3) {
    fmt::print(stderr, "see the head of tests/bench/file_writes.cpp\n");
    return 2;
  }
  try {
    const auto n_pieces = static_cast<std::size_t>(std::stod(argv[2]) * 1e9) / kPiece;
    gigabytes_per_second(argv[1], n_pieces, 1, 1);  // memory that the system hands out once
    for (const auto [n_threads, n_files] : {std::pair(1, 1), {4, 1}, {8, 2}, {8, 4}, {8, 8}}) {
      fmt::print("{} threads, {} files: {:.2f} GB/s\n", n_threads, n_files,
                 gigabytes_per_second(argv[1], n_pieces, n_threads, n_files));
    }
  } catch (const std::exception& error) {
    fmt::print(stderr, "bench_file_writes: {}\n", error.what());
    return 1;
  }
}
