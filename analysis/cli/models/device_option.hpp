// --device: on which hardware a model is computed.
#pragma once

#include <optional>
#include <string>

#include "core/model/backend.hpp"
#include "core/selectors/method_spec.hpp"

namespace kvscope::cli {

/// "cpu", "cuda" (its first GPU) or "cuda:N".
struct DeviceWord {
  std::optional<int> gpu;  // empty: the CPU
  bool is_cpu() const { return !gpu; }
};

/// Throws UsageError for another word.
DeviceWord parse_device(const std::string& text);

/// Throws IoError in one sentence where no model runs on that GPU: kvscope was built without CUDA,
/// there is no driver or it is too old, no such device, another architecture.
void require_gpu(int gpu);

/// Models on that GPU. Throws as require_gpu does.
BackendFactory gpu_backend(int gpu, bool has_bf16_products, DType kv_dtype);

/// Says on standard error if the method chooses its keys on the host, which then gets copies of
/// queries and keys in every call.
void note_host_choice(const MethodSpec& method, const std::optional<Budget>& budget);

}  // namespace kvscope::cli
