// The head-averaged attention rows of a running call, against loops.
#include "core/sim/draft_rows.hpp"

#include "core/base/rng.hpp"
#include "tests/support/test.hpp"

namespace kvscope::test::draft_rows_test {

Tensor<float> drawn(const Shape& shape, std::uint64_t seed) {
  Tensor<float> out(shape);
  const CounterRng rng({seed});
  for (std::size_t i = 0; i < out.flat().size(); ++i)
    out.flat()[i] = static_cast<float>(rng.normal(static_cast<std::uint64_t>(i)));
  return out;
}

TEST_CASE("a call's mean attention is that of the loops, with windows, caps and sinks") {
  constexpr Index kHeads = 6, kKvHeads = 2, kPast = 150, kTok = 5, kWidth = 16, kFirst = 2;
  const Tensor<float> q = drawn({kHeads, kTok, kWidth}, 1);
  const Tensor<float> k = drawn({kKvHeads, kPast + kTok, kWidth}, 2);
  const std::vector<float> sinks = {0.5f, -1.0f, 2.0f, 0.0f, 3.0f, 1.0f};
  for (const bool is_plain : {true, false}) {
    AttentionQuestion question;
    question.pos_begin = kPast;
    question.n_tok = kTok;
    question.score_scale = 0.25f;
    question.q = q.view();
    question.k = k.view();
    if (!is_plain) {
      question.score_cap = 2.0f;
      question.window = 40;
      question.sink_logits = sinks;
    }
    ThreadPool one(1), three(3);
    const Tensor<float> found = mean_attention(question, kFirst, three);
    CHECK(std::ranges::equal(mean_attention(question, kFirst, one).flat(), found.flat()));
    REQUIRE(found.shape() == Shape{kTok - kFirst, kPast + kTok});
    double worst = 0.0;
    for (Index row = kFirst; row < kTok; ++row) {
      std::vector<double> expected(static_cast<std::size_t>(kPast + kTok), 0.0);
      for (Index head = 0; head < kHeads; ++head) {
        const Index begin = is_plain ? 0 : kPast + row + 1 - 40;
        std::vector<double> exponents(expected.size(), 0.0);
        double total = is_plain ? 0.0 : std::exp(static_cast<double>(sinks[head]));
        for (Index pos = begin; pos <= kPast + row; ++pos) {
          double score = 0.0;
          for (Index c = 0; c < kWidth; ++c)
            score += 0.25 * static_cast<double>(q(head, row, c)) *
                     static_cast<double>(k(head / (kHeads / kKvHeads), pos, c));
          if (!is_plain) score = 2.0 * std::tanh(score / 2.0);
          exponents[pos] = std::exp(score);
          total += exponents[pos];
        }
        for (std::size_t i = 0; i < expected.size(); ++i)
          expected[i] += exponents[i] / total / static_cast<double>(kHeads);
      }
      for (std::size_t i = 0; i < expected.size(); ++i)
        worst = std::max(
            worst, std::abs(static_cast<double>(found.view().row(row - kFirst)[i]) - expected[i]));
    }
    CHECK(worst < 1e-6);
  }
}

}  // namespace kvscope::test::draft_rows_test
