// A stop for a worker whose unit another worker has finished (unit_leases.hpp).
#pragma once

#include <condition_variable>
#include <filesystem>
#include <mutex>
#include <stop_token>
#include <thread>

namespace kvscope {

class OthersUnit {
 public:
  /// Looks for `file`, the finished unit, four times a second until it is destroyed.
  OthersUnit(std::filesystem::path file, const std::stop_token& caller);
  /// Stops once the file is there, or when the caller does.
  std::stop_token stop() const { return stop_.get_token(); }

 private:
  struct StopAsked {
    std::stop_source source;
    void operator()() { source.request_stop(); }
  };
  void watch(const std::filesystem::path& file, const std::stop_token& end);

  std::stop_source stop_;
  std::mutex mutex_;
  std::condition_variable_any wake_;
  std::stop_callback<StopAsked> caller_stops_;
  std::jthread watch_;
};

}  // namespace kvscope
