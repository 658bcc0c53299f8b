#include "core/cuda/transfer.hpp"

#include <algorithm>

#include "core/cuda/launch.cuh"
#include "core/cuda/ptx.cuh"

namespace kvscope::gpu {

void check_device(int device) {
  const std::string why_not = why_no_device(device);
  if (!why_not.empty()) throw DeviceError(why_not);
}

void use_device(int device) {
  check(cudaSetDevice(device), "be chosen");
}

PinnedBuffer::~PinnedBuffer() {
  cudaFreeHost(data_);
}

std::byte* PinnedBuffer::room(std::size_t bytes) {
  if (bytes <= size_) return data_;
  cudaFreeHost(data_);
  data_ = nullptr;
  size_ = 0;
  void* memory = nullptr;
  check(cudaMallocHost(&memory, bytes), "reserve host memory for copies");
  data_ = static_cast<std::byte*>(memory);
  size_ = bytes;
  return data_;
}

void copy_to_device(void* to, const void* from, std::size_t bytes, StreamHandle stream) {
  check(cudaMemcpyAsync(to, from, bytes, cudaMemcpyHostToDevice, stream), "take data");
}

void copy_to_host(void* to, const void* from, std::size_t bytes, StreamHandle stream) {
  check(cudaMemcpyAsync(to, from, bytes, cudaMemcpyDeviceToHost, stream), "hand data out");
}

void copy_pieces(void* to, const void* from, const Pieces& pieces, StreamHandle stream) {
  if (pieces.width == 0 || pieces.n_rows == 0) return;
  check(cudaMemcpy2DAsync(to, pieces.to_pitch, from, pieces.from_pitch, pieces.width, pieces.n_rows,
                          cudaMemcpyDefault, stream),
        "copy rows");
}

namespace {

template <class From, class To>
__global__ void convert_kernel(const From* from, std::int64_t pitch, To* to, std::int64_t n) {
  take_turn();
  const std::int64_t head = blockIdx.y;
  const std::int64_t step = static_cast<std::int64_t>(gridDim.x) * blockDim.x;
  for (std::int64_t i = blockIdx.x * static_cast<std::int64_t>(blockDim.x) + threadIdx.x; i < n;
       i += step) {
    store_element(to + head * n + i, to_float(from[head * pitch + i]));
  }
}

template <class From, class To>
void convert(const RowsToConvert& call, StreamHandle stream) {
  constexpr int kThreads = 256;
  constexpr std::int64_t kMostBlocks = 64;  // per head: the model computes beside this
  const Blocks grid(std::min((call.n + kThreads - 1) / kThreads, kMostBlocks), call.n_heads);
  launch(stream, {grid, kThreads}, "convert rows", convert_kernel<From, To>,
         static_cast<const From*>(call.from), call.from_pitch, static_cast<To*>(call.to), call.n);
}

template <class From>
void convert_from(const RowsToConvert& call, StreamHandle stream) {
  switch (call.to_dtype) {
    case DType::f32:
      return convert<From, float>(call, stream);
    case DType::bf16:
      return convert<From, Bf16>(call, stream);
    case DType::f16:
      return convert<From, __half>(call, stream);
  }
}

}  // namespace

void convert_rows(const RowsToConvert& call, StreamHandle stream) {
  if (call.n == 0 || call.n_heads == 0) return;
  if (call.from_dtype == DType::bf16) {
    convert_from<Bf16>(call, stream);
  } else {
    convert_from<float>(call, stream);
  }
}

Event::Event() {
  check(cudaEventCreateWithFlags(&event_, cudaEventDisableTiming), "make an event");
}

Event::~Event() {
  if (event_ != nullptr) cudaEventDestroy(event_);
}

void Event::record(StreamHandle stream) {
  check(cudaEventRecord(event_, stream), "note a place in its work");
}

void Event::hold_back(StreamHandle stream) const {
  check(cudaStreamWaitEvent(stream, event_, 0), "wait for another stream");
}

bool Event::is_passed() const {
  const cudaError_t code = cudaEventQuery(event_);
  if (code == cudaErrorNotReady) {
    cudaGetLastError();
    return false;
  }
  check(code, "hand data out");
  return true;
}

void Event::wait() const {
  check(cudaEventSynchronize(event_), "hand data out");
}

SpanClock::~SpanClock() {
  for (const Span& span : spans_) {
    cudaEventDestroy(span.begin);
    cudaEventDestroy(span.end);
  }
}

void SpanClock::start(StreamHandle stream) {
  if (n_used_ == spans_.size()) {
    Span span;
    check(cudaEventCreate(&span.begin), "make a clock");
    spans_.push_back(span);
    check(cudaEventCreate(&spans_.back().end), "make a clock");
  }
  check(cudaEventRecord(spans_[n_used_].begin, stream), "start a clock");
}

void SpanClock::stop(double& seconds, StreamHandle stream) {
  check(cudaEventRecord(spans_[n_used_].end, stream), "stop a clock");
  spans_[n_used_].seconds = &seconds;
  ++n_used_;
}

void SpanClock::collect() {
  for (std::size_t i = 0; i < n_used_; ++i) {
    float milliseconds = 0.0f;
    check(cudaEventElapsedTime(&milliseconds, spans_[i].begin, spans_[i].end), "read a clock");
    *spans_[i].seconds += static_cast<double>(milliseconds) * 1e-3;
  }
  n_used_ = 0;
}

}  // namespace kvscope::gpu
