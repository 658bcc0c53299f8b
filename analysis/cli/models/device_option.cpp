#include "analysis/cli/models/device_option.hpp"

#ifdef KVSCOPE_HAS_CUDA
#include "analysis/cli/frame/output.hpp"
#include "analysis/options/exit_code.hpp"
#include "core/base/error.hpp"
#include "core/base/number_text.hpp"
#include "core/cuda/backend.hpp"
#include "core/cuda/device.hpp"
#endif

namespace kvscope::cli {

DeviceWord parse_device(const std::string& text) {
  constexpr std::string_view kCuda = "cuda";
  if (text == "cpu") return {};
  if (text == kCuda) return {0};
  if (text.starts_with("cuda:")) {
    const auto index = number_from<int>(std::string_view(text).substr(kCuda.size() + 1));
    if (index && *index >= 0) return {*index};
  }
  throw UsageError("--device: expected cpu, cuda or cuda:N with N from 0 on, found \"{}\"", text);
}

#ifdef KVSCOPE_HAS_CUDA
void require_gpu(int gpu) {
  const std::string why_not = gpu::why_no_device(gpu);
  if (!why_not.empty())
    throw IoError("--device cuda:{}: {}; --device cpu works everywhere", gpu, why_not);
}

BackendFactory gpu_backend(int gpu, bool has_bf16_products, DType kv_dtype) {
  require_gpu(gpu);
  return gpu::cuda_backend({gpu, has_bf16_products, kv_dtype});
}
#else
void require_gpu(int gpu) {
  throw IoError(
      "--device cuda:{}: this kvscope was built without CUDA (CMake says why; "
      "KVSCOPE_CUDA=ON with nvcc builds it); --device cpu works everywhere",
      gpu);
}

BackendFactory gpu_backend(int gpu, bool, DType) {
  require_gpu(gpu);
  return {};
}
#endif

void note_host_choice([[maybe_unused]] const MethodSpec& method,
                      [[maybe_unused]] const std::optional<Budget>& budget) {
#ifdef KVSCOPE_HAS_CUDA
  const std::unique_ptr<Selector> selector = method.make();
  if (method.caps().is_static) return;
  // of steps or of chunks: a method has plans of both, or of none
  const auto plan = selector->plan(budget.value_or(Budget{}), Phase::decode);
  if (plan && gpu::takes_plan(*plan)) return;
  note("kvscope: {} chooses its keys on the host{}: times here are not a GPU's", method.text(),
       selector->host_rows() == HostRows::all
           ? ", which gets copies of queries and keys in every call"
           : ", which asks the device for scores");
#endif
}

}  // namespace kvscope::cli
