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

void note_host_choice(const MethodSpec& method, const std::optional<Budget>& budget) {
  const std::unique_ptr<Selector> selector = method.make();
#ifdef KVSCOPE_HAS_CUDA
  if (selector->host_rows() != HostRows::all) return;
#endif
  const SelectorCaps caps = selector->caps();
  const auto rests = [&](Phase phase) {
    return !caps.is_defined(phase) && !caps.permanent && !caps.needs_probs;
  };
  const auto is_followed = [&](Phase phase) {
    const auto plan = selector->plan(budget.value_or(Budget{}), phase);
#ifdef KVSCOPE_HAS_CUDA
    return plan && gpu::takes_plan(*plan);
#else
    return plan.has_value();
#endif
  };
  const bool in_prefill = is_followed(Phase::prefill);
  const bool in_decode = is_followed(Phase::decode);
  if ((in_prefill || rests(Phase::prefill)) && (in_decode || rests(Phase::decode))) return;
  constexpr std::string_view kCopies = "gets copies of queries and keys";
  if (!in_prefill && !in_decode)
    return note("kvscope: {} chooses its keys on the host, which {} in every call", method.text(),
                kCopies);
  note("kvscope: {} chooses on the GPU in {}; in {} the host chooses, and {}", method.text(),
       in_decode ? "decode steps" : "calls of several tokens",
       in_decode ? "calls of several tokens" : "decode steps", kCopies);
}

}  // namespace kvscope::cli
