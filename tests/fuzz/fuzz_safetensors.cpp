// Any bytes as model.safetensors: either tensors whose bytes can all be read, or an Error.
#include <cstdint>
#include <cstdlib>
#include <span>

#include "core/base/error.hpp"
#include "core/model/safetensors.hpp"

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  try {
    const auto bytes = std::as_bytes(std::span(data, size));
    std::size_t n_bytes = 0;
    unsigned sum = 0;
    for (const kvscope::TensorInFile& entry : kvscope::parse_safetensors(bytes, "fuzz")) {
      for (std::byte b : entry.bytes) sum += std::to_integer<unsigned>(b);
      n_bytes += entry.bytes.size();
      if (entry.count < 0) std::abort();
    }
    volatile unsigned keep = sum;
    (void)keep;
    if (n_bytes > size) std::abort();
  } catch (const kvscope::Error&) {  // the expected outcome
  }
  return 0;
}
