// What a call of a CUDA backend uses beside the model's weights: memory, the stream, the products.
#pragma once

#include <condition_variable>
#include <memory>
#include <mutex>
#include <optional>
#include <vector>

#include "core/cuda/blas_lt.hpp"
#include "core/cuda/growing_buffer.hpp"
#include "core/cuda/host_ring.hpp"
#include "core/cuda/key_questions.hpp"
#include "core/cuda/layer_kernels.hpp"
#include "core/cuda/row_votes.hpp"
#include "core/cuda/transfer.hpp"

namespace kvscope::gpu {

/// Device memory of one call: taken piece by piece, given back all at once.
class Arena {
 public:
  /// Forgets all pieces and has room for `bytes`. Work of the stream that used it may still run:
  /// the next call's work comes behind it.
  void reset(std::size_t bytes);
  std::byte* take(std::size_t bytes);
  template <class T>
  T* take_many(std::int64_t n) {
    return reinterpret_cast<T*>(take(static_cast<std::size_t>(n) * sizeof(T)));
  }

 private:
  std::vector<DeviceBuffer> parts_;  // the last one has room
  std::size_t used_ = 0;             // of it
};

/// Rows on their way to the host, copied beside the model's work.
struct Outbox {
  static constexpr std::size_t kMostBytes = std::size_t{384} << 20;

  Stream stream;
  Event computed;  // the rows of the last layer
  Event copied;    // the last rows, out of the memory that the next layer overwrites
  bool is_copying = false;
  GrowingBuffer converted;
  std::shared_ptr<HostRing> ring = HostRing::make(kMostBytes);
};

/// Of one call at a time, and one thread.
struct Workspace {
  /// is_half: products in bf16. Throws DeviceError without the device or cuBLASLt.
  Workspace(int device_index, bool is_half);

  /// y[t] = matrix x[t], in bf16 where is_half. x [n_tok, x_stride] f32, y [n_tok, y_stride].
  void multiply(const DeviceMatrix& matrix, const float* x, std::int64_t x_stride, float* y,
                std::int64_t y_stride, int n_tok);
  /// The same of rows in input_dtype().
  void multiply_rows(const DeviceMatrix& matrix, const void* x, float* y, std::int64_t y_stride,
                     int n_tok);
  bool has_bf16_products() const { return blas.has_value(); }
  DType input_dtype() const { return has_bf16_products() ? DType::bf16 : DType::f32; }
  /// Until all work is done; throws the FormatError of a value that was not finite.
  void wait_and_check();
  /// n values of the device on the host, there until `to` is asked for room again. Waits as well.
  template <class T>
  T* fetch(PinnedBuffer& to, const T* from, std::size_t n) {
    auto* const copied = reinterpret_cast<T*>(to.room(n * sizeof(T)));
    copy_to_host(copied, from, n * sizeof(T), stream);
    wait_and_check();
    return copied;
  }

  int device;
  Stream stream;
  std::optional<BlasLt> blas;
  Arena arena;
  DeviceBuffer bad;  // BadPlace
  PinnedBuffer host_bad, host_q, host_lse, host_lists;
  SpanClock clock;
  Outbox outbox;
  GrowingBuffer half_rows, gate_up, hidden, logits;  // of one operation
  GrowingBuffer tokens, list_keys, list_begin, list_weights;
  GrowingBuffer summary_begin, summary_k, summary_v, summary_count, list_share;
  GrowingBuffer past_items, past_counts;
  GrowingBuffer counts;  // of the lists of a call's layers, as count_chosen() fills it
  PinnedBuffer host_votes;
  RowVotes votes;
  KeyQuestions keys;
};

/// The workspaces of a backend: each running call has one for itself. Those that no call has are
/// kept for later calls, until somebody needs their memory.
class Workspaces {
 public:
  /// Makes one, whose errors are Workspace's.
  Workspaces(int device, bool is_half);
  Workspaces(const Workspaces&) = delete;
  Workspaces& operator=(const Workspaces&) = delete;

  struct GiveBack {
    Workspaces* owner = nullptr;
    void operator()(Workspace* work) const { owner->give_back(work); }
  };
  using Lease = std::unique_ptr<Workspace, GiveBack>;
  /// From any thread; the owner outlives the lease. Where there is no memory for another one, waits
  /// for one to come back; DeviceMemoryError if none is out.
  Lease take();

 private:
  void give_back(Workspace* work);
  void let_go();

  int device_;
  bool is_half_;
  std::mutex mutex_;  // never held while memory is taken or given back
  std::condition_variable came_back_;
  std::vector<std::unique_ptr<Workspace>> idle_;
  std::size_t n_out_ = 0;
  SpareMemory spare_;  // the last member: it is used by others from its construction on
};

}  // namespace kvscope::gpu
