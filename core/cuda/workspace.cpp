#include "core/cuda/workspace.hpp"

#include <algorithm>
#include <cstring>

#include "core/model/backend.hpp"

namespace kvscope::gpu {

namespace {

constexpr std::size_t kAligned = 256;
constexpr const char* kUse = "the activations of a call";

int used_device(int device) {
  check_device(device);
  use_device(device);
  return device;
}

}  // namespace

void Arena::reset(std::size_t bytes) {
  std::size_t total = 0;
  for (const DeviceBuffer& part : parts_) total += part.size();
  used_ = 0;
  if (parts_.size() == 1 && total >= bytes) return;
  parts_.clear();
  parts_.emplace_back(std::max(bytes, total), kUse);
}

std::byte* Arena::take(std::size_t bytes) {
  bytes = (bytes + kAligned - 1) / kAligned * kAligned;
  if (parts_.empty() || used_ + bytes > parts_.back().size()) {
    parts_.emplace_back(bytes, kUse);
    used_ = 0;
  }
  std::byte* const at = parts_.back().data() + used_;
  used_ += bytes;
  return at;
}

Workspace::Workspace(int device_index, bool is_half)
    : device(used_device(device_index)), bad(sizeof(BadPlace), "a backend's notes") {
  if (is_half) blas.emplace();
  bad.upload(&kNowhere, sizeof(kNowhere));
}

Workspaces::Workspaces(int device, bool is_half)
    : device_(device), is_half_(is_half), spare_([this] { let_go(); }) {
  idle_.push_back(std::make_unique<Workspace>(device, is_half));
}

Workspaces::Lease Workspaces::take() {
  std::unique_lock lock(mutex_);
  for (;;) {
    ++n_out_;
    if (!idle_.empty()) {
      Lease lease(idle_.back().release(), {this});
      idle_.pop_back();
      return lease;
    }
    lock.unlock();
    try {
      return {std::make_unique<Workspace>(device_, is_half_).release(), {this}};
    } catch (const DeviceMemoryError&) {
      lock.lock();
      if (--n_out_ == 0) {
        came_back_.notify_all();
        throw;
      }
      came_back_.wait(lock, [&] { return !idle_.empty() || n_out_ == 0; });
    } catch (...) {
      lock.lock();
      --n_out_;
      came_back_.notify_all();
      throw;
    }
  }
}

void Workspaces::give_back(Workspace* work) {
  {
    const std::lock_guard lock(mutex_);
    idle_.emplace_back(work);
    --n_out_;
  }
  came_back_.notify_all();
}

void Workspaces::let_go() {
  std::vector<std::unique_ptr<Workspace>> idle;
  {
    const std::lock_guard lock(mutex_);
    idle.swap(idle_);
  }
}

void Workspace::multiply(const DeviceMatrix& matrix, const float* x, std::int64_t x_stride,
                         float* y, std::int64_t y_stride, int n_tok) {
  if (!has_bf16_products()) {
    multiply_f32(matrix, x, x_stride, y, y_stride, n_tok, stream);
    return;
  }
  auto* const halves = half_rows.room<std::uint16_t>(n_tok * matrix.n_cols, kUse);
  round_rows(x, x_stride, static_cast<int>(matrix.n_cols), n_tok, halves, stream);
  blas->multiply(matrix, halves, matrix.n_cols, y, y_stride, n_tok, stream);
}

void Workspace::multiply_rows(const DeviceMatrix& matrix, const void* x, float* y,
                              std::int64_t y_stride, int n_tok) {
  if (has_bf16_products()) {
    blas->multiply(matrix, x, matrix.n_cols, y, y_stride, n_tok, stream);
  } else {
    multiply_f32(matrix, static_cast<const float*>(x), matrix.n_cols, y, y_stride, n_tok, stream);
  }
}

void Workspace::wait_and_check() {
  std::byte* const found = host_bad.room(sizeof(BadPlace));
  copy_to_host(found, bad.data(), sizeof(BadPlace), stream);
  stream.wait();
  BadPlace place = kNowhere;
  std::memcpy(&place, found, sizeof(place));
  if (place == kNowhere) return;
  bad.upload(&kNowhere, sizeof(kNowhere));
  const auto what = static_cast<BadValue>(place >> 40 & 0xf);
  throw_not_finite(what == BadValue::key     ? "the keys"
                   : what == BadValue::value ? "the values"
                                             : "the attention scores",
                   static_cast<Index>(place >> 44),
                   static_cast<Index>(place & ((BadPlace{1} << 40) - 1)));
}

}  // namespace kvscope::gpu
