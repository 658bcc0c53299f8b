#include "core/cuda/transfer.hpp"

#include "core/cuda/launch.cuh"

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

namespace {

void copy_pieces(void* to, const void* from, const Pieces& pieces, cudaMemcpyKind kind,
                 StreamHandle stream) {
  if (pieces.width == 0 || pieces.n_rows == 0) return;
  check(cudaMemcpy2DAsync(to, pieces.to_pitch, from, pieces.from_pitch, pieces.width, pieces.n_rows,
                          kind, stream),
        "copy rows");
}

}  // namespace

void copy_pieces_to_host(void* to, const void* from, const Pieces& pieces, StreamHandle stream) {
  copy_pieces(to, from, pieces, cudaMemcpyDeviceToHost, stream);
}
void copy_pieces_to_device(void* to, const void* from, const Pieces& pieces, StreamHandle stream) {
  copy_pieces(to, from, pieces, cudaMemcpyHostToDevice, stream);
}
void copy_pieces_on_device(void* to, const void* from, const Pieces& pieces, StreamHandle stream) {
  copy_pieces(to, from, pieces, cudaMemcpyDeviceToDevice, stream);
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
