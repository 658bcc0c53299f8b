// Host memory for rows on their way from the device to whoever reads them, in slots that come back.
#pragma once

#include <condition_variable>
#include <cstddef>
#include <memory>
#include <mutex>
#include <vector>

#include "core/cuda/transfer.hpp"

namespace kvscope::gpu {

/// A slot with an owner: it goes back to its ring when the last copy of the pointer goes.
using HostSlot = std::shared_ptr<std::byte>;

/// Page-locked slots, of which as many are out as `most_bytes` holds, and at least two. Slots may
/// come back from any thread, also after the ring's owner has let it go.
class HostRing : public std::enable_shared_from_this<HostRing> {
 public:
  static std::shared_ptr<HostRing> make(std::size_t most_bytes) {
    return std::shared_ptr<HostRing>(new HostRing(most_bytes));
  }
  /// Room for `bytes`; null if all slots are out. Throws DeviceError if the host has no memory.
  HostSlot try_take(std::size_t bytes);
  /// The same; waits until one comes back.
  HostSlot take(std::size_t bytes);

 private:
  struct Slot {
    PinnedBuffer memory;
    std::size_t size = 0;
  };
  explicit HostRing(std::size_t most_bytes) : most_bytes_(most_bytes) {}
  HostSlot take_locked(std::size_t bytes);
  void give_back(std::unique_ptr<Slot> slot);

  std::size_t most_bytes_;
  std::mutex mutex_;
  std::condition_variable came_back_;
  std::vector<std::unique_ptr<Slot>> idle_;
  std::size_t n_slots_ = 0;  // idle and out
  std::size_t bytes_ = 0;    // of them
};

}  // namespace kvscope::gpu
