// The running model against Hugging Face transformers in float64 (tests/golden),
// and against itself.
#include <nlohmann/json.hpp>

#include "core/base/data_dir.hpp"
#include "core/model/transformer.hpp"
#include "support/golden.hpp"
#include "tests/support/model_capture.hpp"
#include "tests/support/sanitizers.hpp"
#include "tests/support/test.hpp"

namespace kvscope::test::parity_test {

using test::Capture;
using test::check_same_bits;
using test::run;
using test::same_bits;

struct NamedBackend {
  const char* name;
  BackendFactory make;
};

// The lane backend with every kernel for bf16 that this machine has, and keys and values stored so:
// deterministic, not near to transformers' f32.
const std::vector<NamedBackend>& bf16_backends() {
  static const std::vector<NamedBackend> all = [] {
    std::vector<NamedBackend> found;
    for (const Matmul matmul :
         {Matmul::f32, Matmul::bf16_portable, Matmul::bf16_avx512, Matmul::bf16_amx}) {
      if (!is_available(matmul)) continue;
      found.push_back({enum_name(matmul).data(), lane_backend({matmul, DType::bf16})});
    }
    return found;
  }();
  return all;
}

TEST_CASE("q, k, v, attention and logits equal Hugging Face transformers") {
  const std::string name =
      GENERATE("llama2_mha", "llama3_gqa", "llama3_bf16_sharded", "mistral_window", "qwen2",
               "qwen3", "qwen3_moe", "smollm3", "gpt_oss", "gpt_oss_mxfp4", "gemma2", "gemma3",
               "gemma4", "gemma4_keys_as_values", "phi3", "olmo2", "gpt_neox", "gpt_neox_serial");
  INFO(name);
  const auto dir = test::golden_dir() / name;
  const Transformer model = Transformer::load(dir);
  const auto tokens = test::read_golden_tokens(dir / "golden.h5");
  const Capture capture = run(model, tokens, /*chunk=*/0, /*n_threads=*/2);
  for (Index layer = 0; layer < model.config().n_layers; ++layer) {
    INFO("layer " << layer);
    const std::string path = "/layers/" + std::to_string(layer) + "/";
    const auto at = static_cast<std::size_t>(layer);
    const auto file = dir / "golden.h5";
    CHECK(test::max_abs_difference(capture.q[at].view(),
                                   test::read_golden(file, path + "q").view()) < 2e-4);
    CHECK(test::max_abs_difference(capture.k[at].view(),
                                   test::read_golden(file, path + "k").view()) < 2e-4);
    CHECK(test::max_abs_difference(capture.v[at].view(),
                                   test::read_golden(file, path + "v").view()) < 2e-4);
    CHECK(test::max_abs_difference(attention_maps(model.config(), capture, layer).view(),
                                   test::read_golden(file, path + "attn").view()) < 2e-4);
  }
  CHECK(test::max_abs_difference(capture.logits.view(),
                                 test::read_golden(dir / "golden.h5", "/logits").view()) < 4e-4);
}

TEST_CASE("chunked prefill, decode and any thread count give the same bits as one call") {
  const std::string name =
      GENERATE("llama2_mha", "llama3_gqa", "llama3_bf16_sharded", "mistral_window", "qwen3",
               "qwen3_moe", "smollm3", "gpt_oss", "gpt_oss_mxfp4", "gemma2", "gemma3", "gemma4",
               "gemma4_keys_as_values", "phi3", "olmo2", "gpt_neox", "gpt_neox_serial");
  INFO(name);
  const auto dir = test::golden_dir() / name;
  const Transformer model = Transformer::load(dir);
  const auto tokens = test::read_golden_tokens(dir / "golden.h5");
  const Capture whole = run(model, tokens, /*chunk=*/0, /*n_threads=*/1);
  check_same_bits(whole, run(model, tokens, /*chunk=*/0, /*n_threads=*/3));
  check_same_bits(whole, run(model, tokens, /*chunk=*/1, /*n_threads=*/2));
  check_same_bits(whole, run(model, tokens, /*chunk=*/7, /*n_threads=*/2));
  check_same_bits(whole, run(model, tokens, /*chunk=*/33, /*n_threads=*/2));
}

TEST_CASE("keys in bf16: the same bits for any chunks and threads, near to f32, less memory") {
  const auto i = GENERATE(0u, 1u, 2u, 3u);
  if (i >= bf16_backends().size()) return;
  const NamedBackend& backend = bf16_backends()[i];
  // Heads of 64 channels, which the bf16 instructions take; of 16, with sinks, windows and experts,
  // which are widened.
  const std::string name = GENERATE("embedded draft", "gpt_oss", "mistral_window");
  INFO(name << " with " << backend.name);
  const auto dir = name == "embedded draft" ? embedded_draft() : test::golden_dir() / name;
  const Transformer model = Transformer::load(dir, backend.make);
  std::vector<TokenId> tokens;
  // Several spans of keys in the one that is quick; a sanitizer takes minutes for as many.
  const Index n_long = test::kSanitizer ? 300 : 1200;
  for (Index t = 0; t < (name == "embedded draft" ? n_long : 200); ++t)
    tokens.push_back(static_cast<TokenId>((t * 37 + 11 + t * t / 7) % model.config().n_vocab));
  CHECK(model.make_store(64)->dtype() == DType::bf16);
  const Capture whole = run(model, tokens, /*chunk=*/0, /*n_threads=*/1);
  check_same_bits(whole, run(model, tokens, /*chunk=*/128, /*n_threads=*/3));
  check_same_bits(whole, run(model, tokens, /*chunk=*/47, /*n_threads=*/2));
  if (name != "embedded draft")
    check_same_bits(whole, run(model, tokens, /*chunk=*/1, /*n_threads=*/2));
  const Transformer exact = Transformer::load(dir, make_lane_backend);
  const Capture f32 = run(exact, tokens, /*chunk=*/0, /*n_threads=*/2);
  double worst = 0.0, sum = 0.0, squares = 0.0;
  for (std::size_t at = 0; at < f32.logits.flat().size(); ++at) {
    const auto logit = static_cast<double>(f32.logits.flat()[at]);
    const double difference = std::abs(logit - static_cast<double>(whole.logits.flat()[at]));
    worst = std::max(worst, difference);
    sum += difference;
    squares += logit * logit;
  }
  const auto n = static_cast<double>(f32.logits.flat().size());
  INFO("largest difference of a logit " << worst << ", mean " << sum / n
                                        << ", logits' root mean square " << std::sqrt(squares / n));
  // Random weights in gpt_oss: experts that nearly tie change places, which is why its largest
  // difference says nothing.
  CHECK(sum / n < 0.05 * std::sqrt(squares / n));
}

TEST_CASE("the same bits over many key blocks and past the sliding window") {
  const std::string name = GENERATE("llama3_gqa", "mistral_window", "qwen3_moe", "gpt_oss_mxfp4",
                                    "gemma2", "gemma3", "gemma4");
  INFO(name);
  const Transformer model = Transformer::load(test::golden_dir() / name);
  std::vector<TokenId> tokens;
  for (int i = 0; i < 400; ++i) tokens.push_back((i * 7919 + 13) % 250);
  const Capture whole = run(model, tokens, /*chunk=*/0, /*n_threads=*/2);
  check_same_bits(whole, run(model, tokens, /*chunk=*/100, /*n_threads=*/2));
  check_same_bits(whole, run(model, tokens, /*chunk=*/1, /*n_threads=*/1));
}

TEST_CASE("a policy that chooses every key changes no bit") {
  class Every final : public AttentionPolicy {
   public:
    Every(const ModelConfig& config, bool by_lists) : config_(config), by_lists_(by_lists) {}
    // Lists are not cut by a window, so layers that have one are answered densely.
    bool takes(Index layer) const override { return layer % 2 == 1; }
    const Selection& choose(const AttentionQuestion& question) override {
      ++n_calls;
      CHECK(question.q.dim(1) == question.n_tok);
      CHECK(question.k.dim(1) == question.pos_begin + question.n_tok);
      CHECK(question.window == config_.window[question.layer]);
      selection_ = {};
      selection_.is_dense = !by_lists_ || question.window;
      if (selection_.is_dense) return selection_;
      selection_ = Selection(ListOwner::kv_head, question.n_tok, question.n_tok);
      KeyList list;
      for (Index pos = 0; pos < question.k.dim(1); ++pos)
        list.scored.push_back(static_cast<KeyPos>(pos));
      for (Index kv_head = 0; kv_head < config_.n_kv; ++kv_head) selection_.add(list);
      return selection_;
    }
    void on_attended(const AttentionQuestion&, const Selection& selection) override {
      CHECK(&selection == &selection_);
      ++n_attended;
    }
    int n_calls = 0;
    int n_attended = 0;

   private:
    const ModelConfig& config_;
    bool by_lists_;
    Selection selection_;
  };
  const std::string name = GENERATE("mistral_window", "llama3_gqa", "gpt_oss");
  const Transformer model = Transformer::load(test::golden_dir() / name);
  const auto tokens = test::read_golden_tokens(test::golden_dir() / name / "golden.h5");
  Every policy(model.config(), GENERATE(false, true));
  check_same_bits(run(model, tokens, /*chunk=*/20, /*n_threads=*/2),
                  run(model, tokens, /*chunk=*/20, /*n_threads=*/2, &policy));
  CHECK(policy.n_calls > 0);
  CHECK(policy.n_attended == policy.n_calls);
}

TEST_CASE("a failing call leaves the cache as it was") {
  class Failing final : public Observer {
   public:
    bool wants(Index) const override { return true; }
    void on_attention(const AttentionEvent& e) override {
      if (e.layer == 2) throw IoError("disk full");
    }
  };
  const Transformer model = Transformer::load(test::golden_dir() / "qwen2");
  const auto tokens = test::read_golden_tokens(test::golden_dir() / "qwen2" / "golden.h5");
  ThreadPool pool(2);
  KvCache cache(model.config(), 48);
  model.forward({tokens.data(), 10}, cache, pool);
  Failing failing;
  CHECK_THROWS_AS(model.forward({tokens.data() + 10, 5}, cache, pool, {Logits::none, &failing}),
                  IoError);
  CHECK(cache.n_tokens() == 10);
  const Tensor<float> resumed =
      model.forward({tokens.data() + 10, 38}, cache, pool, {Logits::last});
  KvCache fresh(model.config(), 48);
  const Tensor<float> direct = model.forward(tokens, fresh, pool, {Logits::last});
  CHECK(same_bits(resumed, direct));
}

TEST_CASE("tokens outside the vocabulary and full contexts are refused") {
  const Transformer model = Transformer::load(test::golden_dir() / "qwen2");
  ThreadPool pool(1);
  KvCache cache(model.config(), 4);
  const std::vector<TokenId> outside = {1, 320};
  const std::vector<TokenId> negative = {-1};
  const std::vector<TokenId> many = {1, 2, 3, 4, 5};
  CHECK_THROWS_AS(model.forward(outside, cache, pool), ConfigError);
  CHECK_THROWS_AS(model.forward(negative, cache, pool), ConfigError);
  CHECK_THROWS_AS(model.forward(many, cache, pool), ConfigError);
  CHECK_THROWS_AS(model.forward({}, cache, pool), ConfigError);
  CHECK_THROWS_AS(KvCache(model.config(), 513), ConfigError);
}

}  // namespace kvscope::test::parity_test
