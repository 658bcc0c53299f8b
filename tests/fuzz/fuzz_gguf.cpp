// Any bytes as a GGUF file: tensors whose bytes can all be read, a configuration, weights by the
// hub's names and a tokenizer, or an Error.
#include <algorithm>
#include <cstdint>
#include <cstdlib>
#include <span>
#include <string>
#include <vector>

#include "core/base/error.hpp"
#include "core/model/gguf/gguf_checkpoint.hpp"
#include "core/model/gguf/gguf_weights.hpp"
#include "core/model/tokenizer_json.hpp"

namespace {

// A step that may refuse what it is given, whatever the others do.
template <class Step>
void attempt(const Step& step) {
  try {
    step();
  } catch (const kvscope::Error&) {  // the expected outcome
  }
}

void widen_all(const kvscope::TensorInFile& tensor) {
  if (!tensor.type) return;
  const kvscope::Index block = kvscope::block_of(*tensor.type).n_values;
  const kvscope::Index n = std::min<kvscope::Index>(tensor.count, 16 * block);
  std::vector<float> values(static_cast<std::size_t>(n));
  kvscope::widen(*tensor.type, tensor.bytes.data(), values.data(), n);
  volatile std::byte last = tensor.bytes.back();
  (void)last;
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  const auto bytes = std::as_bytes(std::span(data, size));
  attempt([&] {
    const kvscope::GgufCheckpoint checkpoint(bytes, "fuzz.gguf");
    checkpoint.for_each_tensor([&](const kvscope::TensorInFile& tensor, const std::string&) {
      if (tensor.count < 1 || tensor.bytes.size() > size) std::abort();
      widen_all(tensor);
    });
    attempt([&] { kvscope::parse_model_config(kvscope::hub_config(checkpoint), "fuzz.gguf"); });
    attempt([&] { kvscope::hub_weights(checkpoint); });
    attempt([&] { kvscope::gguf_tokenizer(checkpoint.metadata()); });
  });
  return 0;
}
