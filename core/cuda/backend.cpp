#include "core/cuda/backend.hpp"

#include <fmt/format.h>

#include <bit>

#include "core/base/error.hpp"
#include "core/cuda/backend_call.hpp"
#include "core/model/rope.hpp"

namespace kvscope::gpu {

namespace {

constexpr Index kMostHead = 256;
constexpr Index kMostTokens = 65535;  // rows of a grid
constexpr Index kMostQueries = 16;    // of QuoKA's kernels
constexpr Index kMostPage = 4096;     // keys, of Quest's
constexpr Index kMostBudget = Index{1} << 20;

void check_model(const ModelConfig& config) {
  if (!config.layer_shapes.empty())
    throw ConfigError(fmt::format(
        "the CUDA backend computes models whose layers have equal heads, and those of {} differ; "
        "--device cpu takes them",
        enum_name(config.family)));
  if (config.d_head > kMostHead)
    throw ConfigError(fmt::format(
        "the CUDA backend computes heads of at most {} channels, found {}; --device cpu takes them",
        kMostHead, config.d_head));
}

class CudaBackend final : public Backend {
 public:
  CudaBackend(const ModelConfig& config, const ModelWeights& weights, const BackendOptions& options)
      : options_(options),
        workspaces_(options.device, options.has_bf16_products),
        model_{config, DeviceWeights(weights, options.has_bf16_products)} {
    const auto uploaded = [&](DeviceBuffer& to, const RopeConfig& rope) -> const float* {
      const std::vector<float>& values = rope.frequencies;
      to = DeviceBuffer(values.size() * sizeof(float), "RoPE's frequencies");
      to.upload(values.data(), values.size() * sizeof(float));
      return reinterpret_cast<const float*>(to.data());
    };
    model_.frequencies = uploaded(frequencies_, config.rope);
    if (config.local_rope)
      model_.local_frequencies = uploaded(local_frequencies_, *config.local_rope);
  }

  std::string_view name() const override { return "cuda"; }
  bool follows_plans() const override { return true; }

  std::unique_ptr<KvStore> make_store(Index capacity) const override {
    return std::make_unique<KvRows>(model_.config, capacity, options_.kv_dtype, options_.device,
                                    this);
  }

  std::unique_ptr<BackendCall> begin(Index n_tok, KvStore& store, ThreadPool&) const override {
    auto* rows = dynamic_cast<KvRows*>(&store);
    if (rows == nullptr || rows->backend() != this) {
      throw ConfigError(
          "the CUDA backend fills its own stores, and found the store of another backend");
    }
    if (n_tok > kMostTokens) {
      throw ConfigError(fmt::format(
          "a call of {} tokens: the CUDA backend takes at most {} at a time (see --chunk)", n_tok,
          kMostTokens));
    }
    return std::make_unique<CudaCall>(model_, n_tok, *rows, workspaces_.take());
  }

  std::optional<SequenceMemory> memory_of(Index capacity, Index n_tok) const override {
    use_device(options_.device);
    const std::size_t store = KvRows::device_bytes(model_.config, capacity, options_.kv_dtype);
    const std::size_t noted = store / 4;  // boxes of pages, norms of keys: by methods
    return SequenceMemory{
        store + noted + call_bytes(model_.config, n_tok, capacity, options_.has_bf16_products),
        device_info().free_bytes};
  }

 private:
  BackendOptions options_;
  mutable Workspaces workspaces_;
  CudaModel model_;
  DeviceBuffer frequencies_, local_frequencies_;
};

}  // namespace

bool takes_plan(const ListPlan& plan) {
  if (plan.by == ListPlan::By::nothing || !plan.has_budget()) return true;
  if (plan.budget < 1 || plan.budget > kMostBudget) return false;
  if (plan.by == ListPlan::By::attention) return true;
  if (plan.by == ListPlan::By::far_cosines) return plan.n_queries <= kMostQueries;
  return plan.page_size <= kMostPage &&
         std::has_single_bit(static_cast<std::uint64_t>(plan.page_size));
}

BackendFactory cuda_backend(const BackendOptions& options) {
  if (options.kv_dtype != DType::f32 && options.kv_dtype != DType::bf16) {
    throw ConfigError(
        fmt::format("keys on the GPU are f32 or bf16, found {}", enum_name(options.kv_dtype)));
  }
  return [options](const ModelConfig& config, const ModelWeights& weights) {
    check_model(config);
    return std::make_unique<CudaBackend>(config, weights, options);
  };
}

}  // namespace kvscope::gpu
