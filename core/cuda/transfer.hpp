// Copies between host and device that run in a stream, and times of what runs in one.
#pragma once

#include <cstddef>
#include <cstdint>
#include <utility>
#include <vector>

#include "core/cuda/device.hpp"
#include "core/tensor/dtype.hpp"

struct CUevent_st;  // cudaEvent_t points to it

namespace kvscope::gpu {

/// Throws DeviceError with why_no_device's sentence, if it has one.
void check_device(int device);
/// Makes `device` the one of this thread's calls.
void use_device(int device);

/// Host memory that the device copies to and from without a detour, with an owner. Grows when asked
/// for more; what it held is then lost.
class PinnedBuffer {
 public:
  PinnedBuffer() = default;
  ~PinnedBuffer();
  PinnedBuffer(const PinnedBuffer&) = delete;
  PinnedBuffer& operator=(const PinnedBuffer&) = delete;
  std::byte* room(std::size_t bytes);
  std::byte* data() const { return data_; }

 private:
  std::byte* data_ = nullptr;
  std::size_t size_ = 0;
};

/// Put into the stream; `from` may be changed when the call returns.
void copy_to_device(void* to, const void* from, std::size_t bytes, StreamHandle stream);
/// Put into the stream; `to` is filled when the stream has come so far.
void copy_to_host(void* to, const void* from, std::size_t bytes, StreamHandle stream);

/// n_rows pieces of `width` bytes, each `pitch` bytes behind the one before.
struct Pieces {
  std::size_t width = 0;
  std::size_t n_rows = 0;
  std::size_t to_pitch = 0;
  std::size_t from_pitch = 0;
};
/// From the device to it, or to pinned memory of the host.
void copy_pieces(void* to, const void* from, const Pieces& pieces, StreamHandle stream);

/// out = n_heads times n values, each `pitch` values behind the one before, rounded to nearest even
/// where `to` is narrower. out [n_heads, n]
struct RowsToConvert {
  const void* from = nullptr;
  DType from_dtype = DType::f32;  // f32 or bf16
  std::int64_t from_pitch = 0;
  void* to = nullptr;
  DType to_dtype = DType::f32;
  std::int64_t n = 0;
  int n_heads = 0;
};
void convert_rows(const RowsToConvert& call, StreamHandle stream);

/// A place in a stream, at which others wait.
class Event {
 public:
  Event();
  ~Event();
  Event(Event&& other) noexcept : event_(std::exchange(other.event_, nullptr)) {}
  Event(const Event&) = delete;
  Event& operator=(const Event&) = delete;
  /// The place is behind all that the stream has so far.
  void record(StreamHandle stream);
  /// What the stream gets from now on begins once the place is passed.
  void hold_back(StreamHandle stream) const;
  bool is_passed() const;
  void wait() const;

 private:
  CUevent_st* event_ = nullptr;
};

/// Spans of work in one stream; their seconds are known once the stream has been waited for.
class SpanClock {
 public:
  SpanClock() = default;
  ~SpanClock();
  SpanClock(const SpanClock&) = delete;
  SpanClock& operator=(const SpanClock&) = delete;
  void start(StreamHandle stream);
  /// Ends the span; its seconds go to `seconds` in collect().
  void stop(double& seconds, StreamHandle stream);
  /// After the stream was waited for: adds all spans, and forgets them.
  void collect();
  void forget() { n_used_ = 0; }

 private:
  struct Span {
    CUevent_st* begin = nullptr;
    CUevent_st* end = nullptr;
    double* seconds = nullptr;
  };
  std::vector<Span> spans_;  // events are made once and used again
  std::size_t n_used_ = 0;
};

}  // namespace kvscope::gpu
