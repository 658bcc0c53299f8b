#include "analysis/cli/models/model_source.hpp"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <cctype>
#include <set>

#include "analysis/cli/frame/output.hpp"
#include "analysis/cli/models/model_advice.hpp"
#include "core/base/data_dir.hpp"
#include "core/base/error.hpp"
#include "core/base/number_text.hpp"
#include "core/model/gguf/gguf_checkpoint.hpp"
#include "core/model/kv_cache.hpp"
#include "core/model/model_hash.hpp"
#include "core/model/model_stores.hpp"

#ifdef KVSCOPE_HAS_CUDA
#include "core/cuda/backend.hpp"
#include "core/cuda/device.hpp"
#endif

namespace kvscope::cli {

namespace fs = std::filesystem;

namespace {

template <class Load>
auto as_input(Load&& load) {
  try {
    return load();
  } catch (const ConfigError& error) {
    throw FormatError(error.what());
  }
}

/// "cpu", "cuda" (its first GPU) or "cuda:N"; nothing is the CPU. Throws UsageError for another
/// word.
std::optional<int> gpu_of(const std::string& device) {
  constexpr std::string_view kCuda = "cuda";
  if (device == "cpu") return std::nullopt;
  if (device == kCuda) return 0;
  if (device.starts_with("cuda:")) {
    const auto index = number_from<int>(std::string_view(device).substr(kCuda.size() + 1));
    if (index && *index >= 0) return *index;
  }
  throw UsageError("--device: expected cpu, cuda or cuda:N with N from 0 on, found \"{}\"", device);
}

/// Throws IoError in one sentence where no model runs on that GPU: kvscope was built without CUDA,
/// there is no driver or it is too old, no such device, another architecture. gpu_backend: models
/// on that GPU.
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

}  // namespace

bool names_model(const std::string& word) {
  return word == "verifier" || word == "draft" || is_ollama_name(word) || is_in_hub_cache(word);
}

fs::path model_dir(const std::string& word) {
  if (word == "verifier") return embedded_verifier();
  if (word == "draft") return embedded_draft();
  std::error_code error;
  if (!is_ollama_name(word) && !is_hub_name(word) && !fs::exists(word, error)) {
    throw IoError(
        "there is no model {}: expected a folder, a .gguf file, ORG/NAME of the hub's cache, "
        "ollama:NAME, or verifier or draft, which are embedded; kvscope models lists those found "
        "here",
        word);
  }
  return find_model(word);
}

std::string model_name(const fs::path& dir) {
  const fs::path full = fs::absolute(dir).lexically_normal();
  const fs::path own = full.has_filename() ? full : full.parent_path();
  const std::string name = own.filename().string();
  if (own.parent_path().filename() == "snapshots") {  // models--ORG--NAME/snapshots/COMMIT
    const std::string model = own.parent_path().parent_path().filename().string();
    if (const std::size_t at = model.rfind("--"); at != std::string::npos)
      return model.substr(at + 2);
  }
  if (name.starts_with("sha256-")) {  // a file of Ollama's store
    const GgufCheckpoint checkpoint(dir, GgufTables::skipped);
    return checkpoint.metadata().string_if("general.name").value_or(name);
  }
  return own.extension() == ".gguf" ? own.stem().string() : name;
}

std::string hash_of_model(const fs::path& dir, const Transformer& model) {
  return model_hash(dir, model.weights());
}

std::string config_json_of(const fs::path& dir) {
  return as_input([&] { return model_config_text(dir); });
}

void EngineOptions::declare(OptionSet& options) {
  declare_matmul(options);
  options.add("kv-dtype", "WORD",
              "how keys and values are stored, and multiplied in attention: f32 or bf16", kv_dtype);
  declare_device(options);
}

void EngineOptions::declare_for_recording(OptionSet& options) {
  is_for_recording_ = true;
  declare_matmul(options);
  options.add("kv-dtype", "WORD",
              "how keys and values are stored: f32, or on a GPU bf16, which then rounds q, k and v "
              "before they meet and are recorded",
              kv_dtype);
  declare_device(options);
}

void EngineOptions::declare_for_reports(OptionSet& options) {
  declare_matmul(options);
  declare_device(options);
}

void EngineOptions::declare_matmul(OptionSet& options) {
  options.add("matmul", "WORD",
              "products of linear layers: f32; bf16 (rounded inputs, f32 sums, the machine's best "
              "kernel); or one of bf16-amx, bf16-avx512, bf16-portable",
              matmul);
}

void EngineOptions::declare_device(OptionSet& options) {
  options.add("device", "WORD",
              "where the model is computed: cpu, or cuda or cuda:N, an NVIDIA GPU (H100, H200)",
              device);
}

LaneOptions EngineOptions::lane_options() const {
  return as_usage([&] {
    return LaneOptions{.matmul = matmul_from_name(matmul),
                       .kv_dtype = kv_dtype_from_name(kv_dtype)};
  });
}

bool EngineOptions::has_bf16_products() const {
  if (matmul == "f32" || matmul == "bf16") return matmul == "bf16";
  throw UsageError("--matmul {}: expected f32 or bf16 with --device {}", matmul, device);
}

BackendFactory EngineOptions::backend() const {
  const DType keys = as_usage([&] { return kv_dtype_from_name(kv_dtype); });
  if (const std::optional<int> gpu = gpu_of(device))
    return gpu_backend(*gpu, has_bf16_products(), keys);
  if (keys != DType::f32 && is_for_recording_)
    throw UsageError(
        "--kv-dtype bf16: on the CPU a recording keeps keys in f32, so that its log-sum-exp is "
        "that of the recorded q and k; --device cuda rounds both");
  return lane_backend(lane_options());
}

std::string EngineOptions::matmul_name() const {
  if (!gpu_of(device)) return std::string(enum_name(lane_options().matmul));
  return has_bf16_products() ? "cuda-bf16" : "cuda-f32";
}

Kept EngineOptions::copies() const {
  const bool has_halves =
      gpu_of(device) ? has_bf16_products() : lane_options().matmul != Matmul::f32;
  return has_halves ? Kept::as_bf16 : Kept::as_f32;
}

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

namespace {

// Buffers that old tools stored beside the weights, which follow from the configuration; and what
// sees pictures and hears sounds, of which a text has none.
bool has_no_meaning(std::string_view tensor) {
  for (const std::string_view tower : {"visual.", "vision_tower.", "multi_modal_projector.",
                                       "audio_tower.", "embed_vision.", "embed_audio."}) {
    if (tensor.starts_with(tower) || tensor.starts_with("model." + std::string(tower))) return true;
  }
  return tensor.ends_with(".rotary_emb.inv_freq") || tensor.ends_with(".attention.bias") ||
         tensor.ends_with(".masked_bias");
}

}  // namespace

std::string unread_words(const ModelConfig& config, const WeightFiles& files) {
  std::set<std::string> tensors;
  for (const std::string& name : files.unread()) {
    const std::string& own = files.find(name)->name;
    if (has_no_meaning(own)) continue;
    std::string folded;
    for (std::size_t i = 0; i < own.size(); ++i) {
      const bool is_number = std::isdigit(static_cast<unsigned char>(own[i])) != 0 &&
                             (folded.ends_with('.') || folded.ends_with('*'));
      if (!is_number) folded += own[i];
      if (is_number && !folded.ends_with('*')) folded += '*';
    }
    tensors.insert(folded);
  }
  std::vector<std::string> names = config.unread;
  std::ranges::sort(names);
  names.insert(names.end(), tensors.begin(), tensors.end());
  constexpr std::size_t kMostNamed = 24;
  if (names.size() <= kMostNamed) return fmt::format("{}", fmt::join(names, ", "));
  const auto last = names.begin() + kMostNamed;
  return fmt::format("{}, ... ({} in all)", fmt::join(names.begin(), last, ", "), names.size());
}

Transformer load_transformer(const fs::path& dir, const EngineOptions& engine, bool is_strict) {
  const BackendFactory backend = engine.backend();
  load_config(dir);  // what a folder is comes before what it lacks
  Transformer model = as_input([&] { return Transformer::load(dir, backend, engine.copies()); });
  const std::string unread = unread_words(model.config(), model.weights());
  if (unread.empty()) return model;
  const std::string remark = fmt::format(
      "{}: settings or tensors that a {} model does not read here, so that its numbers "
      "may be others elsewhere: {}",
      model_name(dir), enum_name(model.config().family), unread);
  if (is_strict) throw FormatError("{}; without --strict this is a remark", remark);
  note("{}", remark);
  return model;
}

ModelConfig load_config(const fs::path& dir) {
  check_has_weights(dir);
  try {
    return load_model_config(dir);
  } catch (const ConfigError& error) {
    const std::string message = error.what();
    const bool is_family = message.starts_with("model_type ");
    throw FormatError(message + (is_family ? config_advice(dir) : std::string()));
  }
}

Tokenizer load_tokenizer(const fs::path& dir) {
  check_has_tokenizer(dir);
  Tokenizer tokenizer = as_input([&] { return Tokenizer::load(dir); });
  for (const std::string& key : tokenizer.not_followed())
    note("kvscope: {}: {} is not followed: a special token in a text is one id", model_name(dir),
         key);
  return tokenizer;
}

}  // namespace kvscope::cli
