// Weights that overflow are reported by the GPU with the CPU's sentence: what, layer and position.
#include <array>
#include <catch2/generators/catch_generators.hpp>
#include <catch2/matchers/catch_matchers_string.hpp>
#include <cstdint>
#include <cstring>
#include <fstream>
#include <nlohmann/json.hpp>
#include <span>

#include "core/base/data_dir.hpp"
#include "core/base/error.hpp"
#include "core/base/whole_file.hpp"
#include "core/cuda/backend.hpp"
#include "core/sim/live.hpp"
#include "tests/cuda/device_batch.hpp"
#include "tests/support/temp_dir.hpp"

namespace kvscope::test::not_finite_test {

namespace fs = std::filesystem;

// A copy of the checkpoint in which every element of a tensor of 16 bits is the largest bf16.
void copy_with_huge(const fs::path& from, const fs::path& to, const std::string& tensor) {
  fs::copy(from, to);
  const fs::path file = to / "model.safetensors";
  std::string bytes = read_whole_file(file, std::size_t{1} << 30);
  std::uint64_t header = 0;
  std::memcpy(&header, bytes.data(), sizeof(header));
  const auto entry = nlohmann::json::parse(bytes.substr(8, header)).at(tensor);
  REQUIRE(entry.at("dtype") == "BF16");
  constexpr std::uint16_t kLargest = 0x7f7f;
  for (auto at = entry.at("data_offsets").at(0).get<std::size_t>();
       at < entry.at("data_offsets").at(1).get<std::size_t>(); at += sizeof(kLargest))
    std::memcpy(bytes.data() + 8 + header + at, &kLargest, sizeof(kLargest));
  fs::permissions(file, fs::perms::owner_write, fs::perm_options::add);
  std::ofstream(file, std::ios::binary) << bytes;
}

std::string error_of(const Transformer& model, const MethodSpec& method) {
  std::vector<TokenId> tokens;
  for (int t = 0; t < 200; ++t) tokens.push_back(t * 37 % 250);
  std::optional<Budget> budget;
  if (!method.caps().budgets.empty()) budget = Budget{Budget::Kind::tokens, 64};
  ThreadPool pool(2);
  LiveSequence live(model, {method, budget, std::nullopt}, 256, pool);
  try {
    live.prefill(tokens, 50, PrefillMode::sparse, Logits::last);
  } catch (const FormatError& error) {
    return error.what();
  }
  return "nothing was reported";
}

struct Overflow {
  const char* tensor;
  const char* found;  // in the message
};
constexpr Overflow kOverflows[] = {
    {"input_layernorm.weight", "layer 1: NaN or infinity in the keys at position 0:"},
    {"self_attn.k_proj.weight", "layer 1: NaN or infinity in the keys at position 0:"},
    {"self_attn.v_proj.weight", "layer 1: NaN or infinity in the values at position 0:"},
    {"self_attn.q_proj.weight", "layer 1: NaN or infinity in the attention scores at position "},
    {"mlp.down_proj.weight", "layer 2: NaN or infinity in the keys at position 0:"}};

void check_overflows(const BackendFactory& backend, std::span<const char* const> methods) {
  for (const Overflow& overflow : kOverflows) {
    const testing::TempDir dir;
    copy_with_huge(embedded_verifier(), dir.path() / "model",
                   std::string("model.layers.1.") + overflow.tensor);
    const Transformer model = Transformer::load(dir.path() / "model", backend);
    for (const char* method : methods) {
      INFO(overflow.tensor << ", " << method);
      CHECK_THAT(error_of(model, MethodSpec(method)), Catch::Matchers::StartsWith(overflow.found));
    }
  }
}

TEST_CASE("weights that overflow are reported with layer and position") {
  check_overflows(make_lane_backend, std::array{"full", "quoka"});
}

TEST_CASE("gpu: weights that overflow are reported as on the CPU", "[gpu][backend]") {
  KVSCOPE_NEEDS_DEVICE();
  const DType dtype = GENERATE(DType::f32, DType::bf16);
  INFO("keys in " << (dtype == DType::f32 ? "f32" : "bf16"));
  check_overflows(gpu::cuda_backend({0, false, dtype}), std::array{"full", "quoka", "snapkv"});
}

}  // namespace kvscope::test::not_finite_test
