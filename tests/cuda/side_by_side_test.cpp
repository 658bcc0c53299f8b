// Sequences that run at once in several threads over one model on the GPU: the weights are shared,
// everything else is each one's own, and no bit depends on who runs beside.
#include <algorithm>
#include <catch2/generators/catch_generators.hpp>
#include <optional>
#include <string>
#include <thread>
#include <tuple>
#include <vector>

#include "core/base/data_dir.hpp"
#include "core/base/device_memory.hpp"
#include "core/cuda/backend.hpp"
#include "core/sim/live.hpp"
#include "tests/cuda/device_batch.hpp"

namespace kvscope::test::side_by_side_test {

/// Of all kinds: dense, choosing on the device, evicting by sums from there, choosing on the host.
constexpr const char* kMethods[] = {
    "snapkv",       "quoka", "oracle-topk",       "tova",    "quest",  "full",
    "streamingllm", "sparq", "oracle-topk-chunk", "keydiff", "recent", "lessismore"};

struct Played {
  std::vector<float> logits;  // of every call
  double n_attended = 0.0;
  double n_loaded = 0.0;
  bool operator==(const Played&) const = default;
};

/// A prompt in chunks, decode steps, a rollback and further steps.
Played play(const Transformer& model, const std::string& method) {
  constexpr std::size_t kPrompt = 500;
  std::vector<TokenId> tokens;
  for (Index t = 0; t < 540; ++t)
    tokens.push_back(static_cast<TokenId>((t * t / 3 + t * 7) % 4096));
  const MethodSpec spec(method);
  std::optional<Budget> budget;
  if (!spec.caps().budgets.empty()) budget = Budget{Budget::Kind::tokens, 64};
  ThreadPool pool(1);
  LiveSequence live(model, {spec, budget, std::nullopt}, 560, pool);
  Played played;
  const auto add = [&](const Tensor<float>& logits) {
    played.logits.insert(played.logits.end(), logits.flat().begin(), logits.flat().end());
  };
  const bool is_sparse = spec.caps().prefill;
  add(live.prefill({tokens.data(), kPrompt}, 128,
                   is_sparse ? PrefillMode::sparse : PrefillMode::dense, Logits::last));
  for (std::size_t t = kPrompt; t < kPrompt + 20; ++t)
    add(live.run(Phase::decode, {tokens.data() + t, 1}, Logits::last));
  live.rollback(505);
  for (std::size_t t = 505; t < 520; ++t)
    add(live.run(Phase::decode, {tokens.data() + t, 1}, Logits::last));
  played.n_attended = live.stats().all().attended;
  played.n_loaded = live.stats().all().loaded;
  return played;
}

/// play() of all methods, each in a thread of its own; errors become an empty answer with a text.
std::vector<Played> play_at_once(const Transformer& model, const std::vector<std::string>& methods,
                                 std::vector<std::string>& errors) {
  std::vector<Played> played(methods.size());
  errors.assign(methods.size(), "");
  std::vector<std::thread> threads;
  for (std::size_t i = 0; i < methods.size(); ++i) {
    threads.emplace_back([&, i] {
      try {
        played[i] = play(model, methods[i]);
      } catch (const std::exception& error) {
        errors[i] = error.what();
      }
    });
  }
  for (std::thread& thread : threads) thread.join();
  return played;
}

TEST_CASE("gpu: methods at once over one model have the bits of one after another",
          "[gpu][backend][side]") {
  KVSCOPE_NEEDS_DEVICE();
  const auto [is_half, dtype] = GENERATE(
      std::pair(false, DType::f32), std::pair(false, DType::bf16), std::pair(true, DType::bf16));
  INFO("products in bf16: " << is_half << ", keys in " << enum_name(dtype));
  const Transformer model =
      Transformer::load(embedded_verifier(), gpu::cuda_backend({0, is_half, dtype}));
  std::vector<Played> expected;
  for (const char* method : kMethods) expected.push_back(play(model, method));
  for (const std::size_t n_at_once : {2, 3, 12}) {
    for (std::size_t first = 0; first < std::size(kMethods); first += n_at_once) {
      const std::vector<std::string> methods(kMethods + first, kMethods + first + n_at_once);
      std::vector<std::string> errors;
      const std::vector<Played> found = play_at_once(model, methods, errors);
      for (std::size_t i = 0; i < n_at_once; ++i) {
        INFO(methods[i] << ", " << n_at_once << " at once");
        CHECK(errors[i] == "");
        CHECK((found[i] == expected[first + i]));
      }
    }
  }
}

TEST_CASE("gpu: one store is read by several while none fills it", "[gpu][backend][side]") {
  KVSCOPE_NEEDS_DEVICE();
  const Transformer model =
      Transformer::load(embedded_verifier(), gpu::cuda_backend({0, false, DType::f32}));
  ThreadPool pool(1);
  std::vector<TokenId> tokens;
  for (Index t = 0; t < 300; ++t) tokens.push_back(static_cast<TokenId>((t * 131) % 4096));
  LiveSequence dense(model, {}, 300, pool);
  dense.prefill(tokens, 128, PrefillMode::dense);
  std::vector<std::vector<float>> logits(8);
  std::vector<std::thread> threads;
  for (auto& own : logits) {
    threads.emplace_back([&] {
      ThreadPool alone(1);
      LiveSequence live(model, {"quest", Budget{Budget::Kind::tokens, 64}, std::nullopt}, 400,
                        alone);
      live.adopt(dense.cache());
      for (std::size_t t = 0; t < 20; ++t) {
        const Tensor<float> row = live.run(Phase::decode, {tokens.data() + t, 1}, Logits::last);
        own.insert(own.end(), row.flat().begin(), row.flat().end());
      }
    });
  }
  for (std::thread& thread : threads) thread.join();
  CHECK(!logits.front().empty());
  for (const auto& own : logits) CHECK(own == logits.front());
}

TEST_CASE("gpu: memory that nobody needs now is let go for those who do", "[gpu][backend][side]") {
  KVSCOPE_NEEDS_DEVICE();
  SECTION("of any owner") {
    gpu::DeviceBuffer kept(gpu::device_info().free_bytes / 2, "a test");
    const gpu::SpareMemory spare([&] { kept = {}; });
    const gpu::DeviceBuffer large(gpu::device_info().free_bytes / 2 * 3, "a test");
    CHECK(kept.size() == 0);
    CHECK(large.size() > 0);
  }
  SECTION("of a model whose calls have ended") {
    const Transformer model =
        Transformer::load(embedded_verifier(), gpu::cuda_backend({0, false, DType::f32}));
    const Played expected = play(model, "quoka");
    const std::size_t before = gpu::device_info().free_bytes;
    std::vector<std::string> errors;
    play_at_once(model, std::vector<std::string>(8, "quoka"), errors);
    const std::size_t after = gpu::device_info().free_bytes;
    REQUIRE(after < before);  // eight workspaces
    const gpu::DeviceBuffer large(after + (before - after) / 2, "a test");
    CHECK((play(model, "quoka") == expected));
  }
  SECTION("too much is too much all the same") {
    CHECK_THROWS_AS(gpu::DeviceBuffer(std::size_t{1} << 50, "a test"), DeviceMemoryError);
  }
}

TEST_CASE("gpu: a model says what a sequence takes, about", "[gpu][backend][side]") {
  KVSCOPE_NEEDS_DEVICE();
  const Transformer model =
      Transformer::load(embedded_verifier(), gpu::cuda_backend({0, false, DType::f32}));
  for (const char* method : {"full", "quoka", "quest", "oracle-topk", "snapkv"}) {
    const auto memory = model.backend().memory_of(/*capacity=*/4096, /*n_tok=*/128);
    REQUIRE(memory);
    const std::size_t before = gpu::device_info().free_bytes;
    CHECK(before == memory->free);
    ThreadPool pool(1);
    const MethodSpec spec(method);
    std::optional<Budget> budget;
    if (!spec.caps().budgets.empty()) budget = Budget{Budget::Kind::tokens, 64};
    LiveSequence live(model, {spec, budget, std::nullopt}, 4096, pool);
    std::vector<TokenId> tokens(4000, 17);
    live.prefill(tokens, 128, spec.caps().prefill ? PrefillMode::sparse : PrefillMode::dense,
                 Logits::last);
    live.run(Phase::decode, {tokens.data(), 1}, Logits::last);
    const std::size_t taken = before - gpu::device_info().free_bytes;
    INFO(method);
    CHECK(taken < memory->needed + (std::size_t{64} << 20));
  }
}

}  // namespace kvscope::test::side_by_side_test
