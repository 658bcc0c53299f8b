#include "core/model/rope.hpp"

#include "tests/support/test.hpp"

namespace kvscope::test::rope_test {

TEST_CASE("plain RoPE frequencies fall from 1 to about 1 / theta") {
  const auto f = rope_frequencies({RopeConfig::Kind::plain, 10000.0}, 64);
  REQUIRE(f.size() == 32);
  CHECK(f[0] == 1.0f);
  CHECK(f[16] == Approx(0.01).epsilon(1e-6));
  CHECK(f[31] == Approx(std::pow(10000.0, -62.0 / 64.0)).epsilon(1e-6));
}

TEST_CASE("linear scaling divides every frequency") {
  const auto plain = rope_frequencies({RopeConfig::Kind::plain, 10000.0}, 32);
  const auto linear = rope_frequencies({RopeConfig::Kind::linear, 10000.0, 4.0}, 32);
  for (std::size_t i = 0; i < plain.size(); ++i)
    CHECK(linear[i] == Approx(plain[i] / 4.0).epsilon(1e-6));
}

TEST_CASE("llama3 scaling keeps short waves, divides long ones and blends between") {
  RopeConfig rope{RopeConfig::Kind::llama3, 500000.0, 8.0, 1.0, 4.0, 8192};
  const auto plain = rope_frequencies({RopeConfig::Kind::plain, 500000.0}, 128);
  const auto scaled = rope_frequencies(rope, 128);
  int n_kept = 0, n_divided = 0, n_blended = 0;
  for (std::size_t i = 0; i < plain.size(); ++i) {
    const double wavelength = 2.0 * M_PI / plain[i];
    if (wavelength < 8192.0 / 4.0) {
      CHECK(scaled[i] == plain[i]);
      ++n_kept;
    } else if (wavelength > 8192.0) {
      CHECK(scaled[i] == Approx(plain[i] / 8.0).epsilon(1e-6));
      ++n_divided;
    } else {
      CHECK(scaled[i] < plain[i]);
      CHECK(scaled[i] > plain[i] / 8.0f);
      ++n_blended;
    }
  }
  CHECK(n_kept > 0);
  CHECK(n_divided > 0);
  CHECK(n_blended > 0);
}

TEST_CASE("YaRN keeps fast pairs, stretches slow ones and blends between") {
  RopeConfig rope;  // gpt-oss
  rope.kind = RopeConfig::Kind::yarn;
  rope.theta = 150000.0;
  rope.factor = 32.0;
  rope.original_max_positions = 4096;
  for (const bool truncate : {false, true}) {
    rope.truncate = truncate;
    const auto plain = rope_frequencies({RopeConfig::Kind::plain, 150000.0}, 64);
    const auto scaled = rope_frequencies(rope, 64);
    const auto pair_that_turns = [&](double turns) {
      return 64.0 * std::log(4096.0 / (turns * 2.0 * M_PI)) / (2.0 * std::log(150000.0));
    };
    const double low = truncate ? std::floor(pair_that_turns(32.0)) : pair_that_turns(32.0);
    const double high = truncate ? std::ceil(pair_that_turns(1.0)) : pair_that_turns(1.0);
    CHECK(low > 1.0);
    CHECK(high < 31.0);
    for (std::size_t i = 0; i < plain.size(); ++i) {
      const double ramp = std::clamp((static_cast<double>(i) - low) / (high - low), 0.0, 1.0);
      const double expected = plain[i] * (1.0 - ramp) + plain[i] / 32.0 * ramp;
      CHECK(scaled[i] == Approx(expected).epsilon(1e-5));
    }
  }
}

TEST_CASE("an amplitude scales cosines and sines") {
  const auto f = rope_frequencies({RopeConfig::Kind::plain, 100.0}, 4);
  std::vector<float> cos(2 * 16), sin(2 * 16);
  rope_tables(f, /*amplitude=*/1.5f, /*pos_begin=*/3, /*n_tok=*/1, /*lanes=*/16, cos.data(),
              sin.data());
  CHECK(cos[0] == Approx(1.5 * std::cos(3.0)).margin(1e-6));
  CHECK(sin[0] == Approx(1.5 * std::sin(3.0)).margin(1e-6));
}

TEST_CASE("tables hold one position per lane and repeat the last one in spare lanes") {
  const auto f = rope_frequencies({RopeConfig::Kind::plain, 100.0}, 4);
  std::vector<float> cos(2 * 16), sin(2 * 16);
  rope_tables(f, /*amplitude=*/1.0f, /*pos_begin=*/1000, /*n_tok=*/3, /*lanes=*/16, cos.data(),
              sin.data());
  CHECK(cos[0] == Approx(std::cos(1000.0)).margin(1e-6));
  CHECK(sin[2] == Approx(std::sin(1002.0)).margin(1e-6));
  CHECK(sin[15] == sin[2]);
  CHECK(cos[16 + 1] == Approx(std::cos(1001.0 * 0.1)).margin(1e-5));
}

}  // namespace kvscope::test::rope_test
