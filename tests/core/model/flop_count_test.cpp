#include "core/model/flop_count.hpp"

#include "tests/support/test.hpp"

namespace kvscope::flop_count_test {

ModelConfig small_config() {
  return ModelConfig{.n_layers = 2,
                     .n_q = 4,
                     .n_kv = 2,
                     .d_head = 8,
                     .d_model = 24,
                     .d_ff = 40,
                     .n_vocab = 100,
                     .window = {std::nullopt, 5}};
}

// The same by counting every multiplication that a naive implementation does.
double naive_attention(const ModelConfig& config, Index begin, Index n) {
  double multiplications = 0;
  for (const auto& window : config.window) {
    for (Index q_head = 0; q_head < config.n_q; ++q_head) {
      for (Index pos = begin; pos < begin + n; ++pos) {
        for (Index key = 0; key <= pos; ++key) {
          if (window && pos - key >= *window) continue;
          multiplications += static_cast<double>(2 * config.d_head);
        }
      }
    }
  }
  return 2 * multiplications;
}

TEST_CASE("attention FLOPs count exactly the visible pairs, windows included") {
  const ModelConfig config = small_config();
  for (Index begin : {0, 2, 4, 5, 17}) {
    for (Index n : {0, 1, 3, 9}) {
      INFO(begin << " + " << n);
      CHECK(count_forward_flops(config, begin, n, 0).attention ==
            naive_attention(config, begin, n));
    }
  }
}

TEST_CASE("linear and logits FLOPs are twice the weights touched") {
  const FlopCount flops = count_forward_flops(small_config(), 0, 7, 1);
  const double per_layer = 24 * 32 + 24 * 16 * 2 + 32 * 24 + 3 * 24 * 40;
  CHECK(flops.linear == 2 * per_layer * 2 * 7);
  CHECK(flops.logits == 2 * 24 * 100);
  CHECK(flops.total() == flops.linear + flops.attention + flops.logits);
}

TEST_CASE("chunks add up to the whole") {
  const ModelConfig config = small_config();
  const double whole = count_forward_flops(config, 0, 20, 0).total();
  double sum = 0;
  for (Index begin = 0; begin < 20; begin += 6)
    sum += count_forward_flops(config, begin, std::min<Index>(6, 20 - begin), 0).total();
  CHECK(sum == whole);
}

}  // namespace kvscope::flop_count_test
