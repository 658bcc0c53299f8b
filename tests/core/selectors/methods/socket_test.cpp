// SOCKET: its lists against loops over all buckets, in decode and verification.
#include <fmt/format.h>

#include "core/base/rng.hpp"
#include "core/selectors/method_spec.hpp"
#include "tests/core/selectors/call_fixture.hpp"
#include "tests/core/selectors/sequence.hpp"
#include "tests/support/planted_trace.hpp"
#include "tests/support/test.hpp"

namespace kvscope::test::socket_test {

/// The score of the past keys for one query head, summed over the rows: a softmax over the 2^n_bits
/// corners of every table, as printed.
std::vector<double> naive_scores(const CallFixture& f, Index q_head, Index n_bits, Index n_tables,
                                 double tau, bool scaled, std::uint64_t seed) {
  const Index d = f.q.dim(2);
  const Index kv_head = q_head / f.group();
  const CounterRng rng({seed});
  const auto plane = [&](Index table, Index bit, Index c) {
    return static_cast<double>(
        static_cast<float>(rng.normal(static_cast<std::uint64_t>((table * n_bits + bit) * d + c))));
  };
  std::vector<double> scores(static_cast<std::size_t>(f.call.pos_begin), 0.0);
  for (Index row = 0; row < f.call.n_tok; ++row) {
    for (Index table = 0; table < n_tables; ++table) {
      std::vector<double> h;
      for (Index bit = 0; bit < n_bits; ++bit) {
        double z = 0.0;
        for (Index c = 0; c < d; ++c)
          z += static_cast<double>(f.q(q_head, row, c)) * plane(table, bit, c);
        h.push_back(std::tanh(z) / (scaled ? std::sqrt(static_cast<double>(d)) : 1.0));
      }
      std::vector<double> chance;
      double sum = 0.0;
      for (Index corner = 0; corner < Index{1} << n_bits; ++corner) {
        double logit = 0.0;
        for (Index bit = 0; bit < n_bits; ++bit)
          logit += (corner >> bit & 1) == 1 ? h[bit] : -h[bit];
        chance.push_back(std::exp(logit / tau));
        sum += chance.back();
      }
      for (Index pos = 0; pos < f.call.pos_begin; ++pos) {
        Index bucket = 0;
        for (Index bit = 0; bit < n_bits; ++bit) {
          double z = 0.0;
          for (Index c = 0; c < d; ++c)
            z += static_cast<double>(f.k(kv_head, pos, c)) * plane(table, bit, c);
          bucket |= (z >= 0.0 ? Index{1} : Index{0}) << bit;
        }
        scores[pos] += chance[bucket] / sum;
      }
    }
  }
  for (Index pos = 0; pos < f.call.pos_begin; ++pos) {
    double square = 0.0;
    for (Index c = 0; c < d; ++c)
      square += std::pow(static_cast<double>(f.v(kv_head, pos, c)), 2.0);
    scores[pos] *= std::sqrt(square);
  }
  return scores;
}

TEST_CASE("socket: lists are those of a softmax over all buckets, times the values' lengths") {
  for (const bool scaled : {true, false}) {
    for (const Index n_tok : {1, 3}) {
      CallShape shape = step_shape(70, 5);
      shape.n_tok = n_tok;
      if (n_tok > 1) shape.phase = Phase::verify;
      CallFixture fixture(shape);
      fixture.call.budget = Budget::parse("tokens=11");
      for (KeyPos pos = 20; pos < 26; ++pos) fixture.alive.kill(1, pos);
      const Selection selection = made(fmt::format("{}:bits=4,tables=9,n-sink=3,n-recent=5,seed=7",
                                                   scaled ? "socket" : "socket-page"),
                                       fixture)
                                      ->select(fixture.call);
      for (Index q_head = 0; q_head < 4; ++q_head) {
        INFO("scaled " << scaled << ", rows " << n_tok << ", head " << q_head);
        std::vector<double> scores = naive_scores(fixture, q_head, 4, 9, 0.3, scaled, 7);
        for (Index pos = 0; pos < 70; ++pos) {
          if (pos < 3 || pos >= 65 || !fixture.alive.is_alive(q_head / 2, static_cast<KeyPos>(pos)))
            scores[pos] = -std::numeric_limits<double>::infinity();
        }
        CHECK(selection.at(q_head).scored() == naive_top_k(scores, 11));
        std::vector<KeyPos> forced = positions(0, 3);
        for (Index pos = 65; pos < 70 + n_tok; ++pos) forced.push_back(static_cast<KeyPos>(pos));
        CHECK(selection.at(q_head).forced() == forced);
      }
    }
  }
}

}  // namespace kvscope::test::socket_test
