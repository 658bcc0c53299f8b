#include "core/cuda/host_ring.hpp"

#include <utility>

namespace kvscope::gpu {

namespace {

constexpr std::size_t kFewestSlots = 2;

}  // namespace

void HostRing::give_back(std::unique_ptr<Slot> slot) {
  {
    const std::lock_guard lock(mutex_);
    idle_.push_back(std::move(slot));
  }
  came_back_.notify_one();
}

HostSlot HostRing::take_locked(std::size_t bytes) {
  std::unique_ptr<Slot> slot;
  while (!idle_.empty() && !slot) {
    slot = std::move(idle_.back());
    idle_.pop_back();
    if (slot->size >= bytes) break;
    bytes_ -= slot->size;  // of shorter calls
    --n_slots_;
    slot.reset();
  }
  if (!slot) {
    if (n_slots_ >= kFewestSlots && bytes_ + bytes > most_bytes_) return nullptr;
    slot = std::make_unique<Slot>();
    slot->memory.room(bytes);
    slot->size = bytes;
    ++n_slots_;
    bytes_ += bytes;
  }
  std::byte* const data = slot->memory.data();
  return {data, [ring = shared_from_this(), owner = slot.release()](std::byte*) {
            ring->give_back(std::unique_ptr<Slot>(owner));
          }};
}

HostSlot HostRing::try_take(std::size_t bytes) {
  const std::lock_guard lock(mutex_);
  return take_locked(bytes);
}

HostSlot HostRing::take(std::size_t bytes) {
  std::unique_lock lock(mutex_);
  for (;;) {
    if (HostSlot slot = take_locked(bytes)) return slot;
    came_back_.wait(lock, [&] { return !idle_.empty(); });
  }
}

}  // namespace kvscope::gpu
