// Speculative decoding: dense verification is plain greedy decoding, token for token.
#include "core/sim/speculative.hpp"

#include <nlohmann/json.hpp>

#include "core/base/data_dir.hpp"
#include "tests/support/test.hpp"

namespace kvscope::test::speculative_test {

struct Pair {
  Transformer verifier = Transformer::load(embedded_verifier());
  Transformer draft = Transformer::load(embedded_draft());
  std::vector<TokenId> text = [] {
    auto ids = Tokenizer::load(embedded_verifier())
                   .encode(testing::read_file(embedded_text()).substr(0, 3000));
    ids.resize(400);
    return ids;
  }();
};

SpeculativeResult speculate(const Pair& pair, const Transformer& draft_model,
                            const LiveOptions& options, Index n_prompt, Index n_new, Index gamma,
                            int threads = 2, LiveStats* stats = nullptr) {
  ThreadPool pool(threads);
  const Index capacity = n_prompt + n_new + gamma + 1;
  LiveSequence verifier(pair.verifier, options, capacity, pool);
  DraftRunner draft(draft_model, capacity, pool);
  const auto prompt = std::span(pair.text).first(static_cast<std::size_t>(n_prompt - 1));
  verifier.prefill(prompt, 64, PrefillMode::dense);
  draft.prefill(prompt, 64);
  auto result = decode_speculatively(verifier, draft, pair.text[prompt.size()], n_new, gamma);
  if (stats != nullptr) *stats = verifier.stats();
  return result;
}

std::vector<TokenId> greedy(const Pair& pair, Index n_prompt, Index n_new) {
  ThreadPool pool(2);
  KvCache cache(pair.verifier.config(), n_prompt + n_new);
  const auto prompt = std::span(pair.text).first(static_cast<std::size_t>(n_prompt));
  std::vector<TokenId> tokens;
  Tensor<float> logits = pair.verifier.forward(prompt, cache, pool, {Logits::last});
  while (static_cast<Index>(tokens.size()) < n_new) {
    tokens.push_back(argmax(logits.flat()));
    logits = pair.verifier.forward({&tokens.back(), 1}, cache, pool, {Logits::last});
  }
  return tokens;
}

TEST_CASE("dense speculation equals plain greedy decoding token for token") {
  const Pair pair;
  const auto expected = greedy(pair, 200, 40);
  for (const Index gamma : {1, 3, 4, 8}) {
    INFO("gamma " << gamma);
    const auto result = speculate(pair, pair.draft, {}, 200, 40, gamma);
    CHECK(result.tokens == expected);
    CHECK(std::ranges::max(result.accepted) <= gamma);
  }
}

TEST_CASE("a draft that is the verifier is always right") {
  const Pair pair;
  const auto result = speculate(pair, pair.verifier, {}, 100, 30, 4);
  CHECK(result.tokens == greedy(pair, 100, 30));
  CHECK(result.accepted == std::vector<Index>(6, 4));
}

TEST_CASE("verification on the draft's whole attention is dense; on part of it, keys are saved") {
  const Pair pair;
  const std::string spec = "specattn:layer-map=proportional";
  const auto expected = greedy(pair, 300, 24);
  LiveStats all, some;
  CHECK(
      speculate(pair, pair.draft, {spec, Budget{Budget::Kind::mass, 1.0}, {}}, 300, 24, 4, 2, &all)
          .tokens == expected);
  CHECK(all.of(Phase::verify).density() > 1.0 - 1e-3);
  const LiveOptions half{spec, Budget{Budget::Kind::mass, 0.5}, {}};
  const auto one = speculate(pair, pair.draft, half, 300, 24, 4, 1, &some);
  const auto three = speculate(pair, pair.draft, half, 300, 24, 4, 3);
  CHECK(some.of(Phase::verify).density() < 0.8);
  CHECK(one.tokens == three.tokens);
  CHECK(one.accepted == three.accepted);
}

TEST_CASE("different tokenizers are refused") {
  const Tokenizer own = Tokenizer::load(embedded_verifier());
  CHECK_NOTHROW(require_same_tokenizer(own, Tokenizer::load(embedded_draft())));
  const std::string small =
      R"({"model":{"type":"BPE","vocab":{"a":0,"b":1},"merges":[]},"decoder":{"type":"ByteLevel"},)"
      R"("pre_tokenizer":{"type":"ByteLevel","add_prefix_space":false,"use_regex":true}})";
  CHECK_THROWS_AS(require_same_tokenizer(own, Tokenizer::parse(small, "small")), ConfigError);
}

}  // namespace kvscope::test::speculative_test
