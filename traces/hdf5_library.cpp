#include "traces/hdf5_library.hpp"

#include <fmt/format.h>
#include <hdf5.h>

#include <atomic>
#include <csignal>
#include <cstddef>
#include <utility>

#include "core/base/mapped_file.hpp"
#include "traces/h5_internal.hpp"

namespace kvscope {

namespace {

std::atomic<void (*)(const char*)> end_of_program{nullptr};
std::atomic<void (*)(const char*)> end_for_loss{nullptr};

extern "C" void on_fault(int signal, siginfo_t* info, void* /*context*/) {
  if (signal == SIGBUS) {
    const char* const mapped = mapped_file_at(info->si_addr);
    const auto lost = end_for_loss.load();
    if (mapped != nullptr && lost != nullptr) lost(mapped);
  }
  const char* file = h5::file_in_use();
  const auto end = end_of_program.load();
  if (file != nullptr && end != nullptr) end(file);
  std::signal(signal, SIG_DFL);  // not HDF5: die of it, as without a handler
  std::raise(signal);
}

}  // namespace

void on_crash_in_hdf5(void (*end)(const char* file), void (*lost)(const char* file)) {
  end_of_program.store(end);
  end_for_loss.store(lost);
  // HDF5 may have used up the stack, going in circles.
  static std::byte reserve[1 << 16];
  stack_t stack{};
  stack.ss_sp = reserve;
  stack.ss_size = sizeof reserve;
  ::sigaltstack(&stack, nullptr);
  struct sigaction action {};
  action.sa_sigaction = on_fault;
  action.sa_flags = SA_ONSTACK | SA_SIGINFO;
  for (const int signal : {SIGSEGV, SIGBUS, SIGFPE, SIGILL, SIGABRT})
    ::sigaction(signal, &action, nullptr);
}

std::string hdf5_version() {
  const h5::Lock lock;
  unsigned major = 0, minor = 0, release = 0;
  H5get_libversion(&major, &minor, &release);
  return fmt::format("{}.{}.{}", major, minor, release);
}

std::vector<std::string> hdf5_filters() {
  const h5::Lock lock;
  static constexpr std::pair<H5Z_filter_t, const char*> kKnown[] = {
      {H5Z_FILTER_DEFLATE, "gzip"},
      {H5Z_FILTER_SHUFFLE, "shuffle"},
      {H5Z_FILTER_FLETCHER32, "fletcher32"},
      {H5Z_FILTER_SZIP, "szip"},
      {32001, "blosc"},
      {32004, "lz4"},
      {32015, "zstd"}};
  std::vector<std::string> names;
  for (const auto& [id, name] : kKnown) {
    if (H5Zfilter_avail(id) > 0) names.emplace_back(name);
  }
  return names;
}

}  // namespace kvscope
