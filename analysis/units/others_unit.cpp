#include "analysis/units/others_unit.hpp"

#include <chrono>
#include <system_error>
#include <utility>

namespace kvscope {

OthersUnit::OthersUnit(std::filesystem::path file, const std::stop_token& caller)
    : caller_stops_(caller, StopAsked{stop_}),
      watch_([this, file = std::move(file)](const std::stop_token& end) { watch(file, end); }) {}

void OthersUnit::watch(const std::filesystem::path& file, const std::stop_token& end) {
  constexpr std::chrono::milliseconds kPause(250);
  std::unique_lock lock(mutex_);
  while (!wake_.wait_for(lock, end, kPause, [&] { return end.stop_requested(); }) &&
         !end.stop_requested()) {
    std::error_code error;
    if (!std::filesystem::exists(file, error)) continue;
    stop_.request_stop();
    return;
  }
}

}  // namespace kvscope
