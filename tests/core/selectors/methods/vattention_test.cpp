// vAttention: its sample against loops, its guarantee over many seeds.
#include <fmt/format.h>

#include "core/base/rng.hpp"
#include "core/selectors/method_spec.hpp"
#include "tests/core/selectors/call_fixture.hpp"
#include "tests/core/selectors/sequence.hpp"
#include "tests/support/planted_trace.hpp"
#include "tests/support/test.hpp"

namespace kvscope::test::vattention_test {

/// The method as printed, by loops, on a base that keeps the latest `n_base` past keys: of those
/// outside the windows, or of all.
struct NaiveSample {
  std::vector<KeyPos> kept;     // F
  std::vector<KeyPos> sampled;  // ascending
  double weight = 1.0;          // n_s / b
};

NaiveSample naive_sample(const CallFixture& fixture, Index q_head, Index row, Index n_base,
                         Index n_sink, Index n_recent, double base_sample, double epsilon, double z,
                         std::uint64_t seed, bool from_middle) {
  const Index own = fixture.call.pos_begin + row;
  const Index last = fixture.call.pos_begin + fixture.call.n_tok - 1;
  // a key that every row of the call has in its window is none of the base's
  const Index base_end =
      from_middle ? std::min(fixture.call.pos_begin, last + 1 - n_recent) : fixture.call.pos_begin;
  NaiveSample out;
  std::vector<KeyPos> rest;
  for (Index pos = 0; pos <= own; ++pos) {
    if (!fixture.sees(q_head, row, pos)) continue;
    const bool is_kept = pos < n_sink || pos > own - n_recent || pos >= fixture.call.pos_begin ||
                         (pos >= base_end - n_base && pos < base_end);
    (is_kept ? out.kept : rest).push_back(static_cast<KeyPos>(pos));
  }
  const std::size_t n = rest.size();
  const CounterRng rng({seed, static_cast<std::uint64_t>(fixture.call.layer),
                        static_cast<std::uint64_t>(q_head), static_cast<std::uint64_t>(own)});
  std::vector<KeyPos> order;  // of the draws
  std::vector<KeyPos> left = rest;
  for (std::size_t i = 0; i < n; ++i) {
    const std::size_t at = static_cast<std::size_t>(rng.bits(i) % (n - i));
    order.push_back(left[at]);
    left[at] = left.front();  // the place of the first one is given up
    left.erase(left.begin());
  }
  const std::size_t b0 = std::min(
      n, std::max<std::size_t>(2, static_cast<std::size_t>(base_sample * static_cast<double>(n))));
  double largest = -1e300;
  for (const KeyPos pos : out.kept) largest = std::max(largest, fixture.logit(q_head, row, pos));
  for (std::size_t i = 0; i < b0; ++i)
    largest = std::max(largest, fixture.logit(q_head, row, order[i]));
  const auto e = [&](KeyPos pos) { return std::exp(fixture.logit(q_head, row, pos) - largest); };
  double mean = 0.0;
  for (std::size_t i = 0; i < b0; ++i) mean += e(order[i]) / static_cast<double>(b0);
  double variance = 0.0;
  for (std::size_t i = 0; i < b0; ++i)
    variance += std::pow(e(order[i]) - mean, 2.0) / static_cast<double>(b0 - 1);
  double denominator = static_cast<double>(n) * mean;
  for (const KeyPos pos : out.kept) denominator += e(pos);
  const double wanted = std::ceil(
      std::pow(z * std::sqrt(variance) * static_cast<double>(n) / (epsilon * denominator), 2.0));
  const auto b =
      static_cast<std::size_t>(std::clamp(wanted, static_cast<double>(b0), static_cast<double>(n)));
  out.sampled.assign(order.begin(), order.begin() + static_cast<std::ptrdiff_t>(b));
  std::ranges::sort(out.sampled);
  out.weight = static_cast<double>(n) / static_cast<double>(b);
  return out;
}

TEST_CASE("vattention: the sample and its weights are those of the printed formulas") {
  constexpr double kZ = 1.6448536269514722;  // of 5 %
  for (unsigned seed = 1; seed <= 12; ++seed) {
    SeededStep fixture(150, seed);
    const bool from_middle = seed % 2 == 0;
    const Index n_recent = seed > 6 ? 5 : 2;
    const auto selector =
        made(fmt::format("vattention:base=recent,base-budget=tokens=9,n-sink=3,n-recent={},"
                         "base-sample=0.1,epsilon=0.3,seed=7{}",
                         n_recent, from_middle ? "" : ",base-from=all"),
             fixture);
    const Selection selection = selector->select(fixture.call);
    REQUIRE(selection.owner == ListOwner::q_head);
    for (Index q_head = 0; q_head < 4; ++q_head) {
      for (Index row = 0; row < fixture.call.n_tok; ++row) {
        INFO("seed " << seed << ", head " << q_head << ", row " << row);
        const NaiveSample naive =
            naive_sample(fixture, q_head, row, 9, 3, n_recent, 0.1, 0.3, kZ, 7, from_middle);
        const ListView list = selection.list(q_head, row);
        std::vector<KeyPos> kept;
        std::vector<KeyPos> sampled;
        for (std::size_t i = 0; i < list.keys.size(); ++i) {
          const bool is_sampled = std::ranges::binary_search(naive.sampled, list.keys[i]);
          (is_sampled ? sampled : kept).push_back(list.keys[i]);
          CHECK(list.log_weight[i] ==
                Catch::Approx(is_sampled ? std::log(naive.weight) : 0.0).margin(1e-6));
        }
        CHECK(kept == naive.kept);
        CHECK(sampled == naive.sampled);
      }
    }
  }
}

TEST_CASE("vattention: the base's share is of all keys and comes on top of the windows") {
  // 400 past keys: 20 sinks, 30 latest with the own one, a tenth of 400 between them. The own key
  // is the one that the query likes best, and costs none of that tenth.
  CallFixture fixture(step_shape(400, 3));
  for (Index c = 0; c < fixture.q.dim(2); ++c) fixture.k(0, 400, c) = 9.0F * fixture.q(0, 0, c);
  const auto n_certain = [&](const std::string& more) {
    const auto selector = made(
        "vattention:base-budget=ratio=0.1,n-sink=20,n-recent=30,base-sample=0.01,epsilon=1" + more,
        fixture);
    const Selection selection = selector->select(fixture.call);
    const ListView list = selection.list(0, 0);
    return std::ranges::count(list.log_weight, 0.0f);
  };
  CHECK(n_certain("") == 20 + 30 + 40);
  CHECK(n_certain(",base-from=all") < 20 + 30 + 40);
}

/// How often the error of the denominator exceeds epsilon, over seeds, heads and rows.
struct Exceeded {
  double share = 0.0;      // |D_hat / D - 1| > epsilon
  double too_large = 0.0;  // of one sign
  double too_small = 0.0;
  double sampled = 0.0;  // keys of the list, share of those seen
};

Exceeded exceeded(const std::string& options, double epsilon, Index n_past, float spread,
                  int n_seeds) {
  Exceeded out;
  double n = 0.0;
  for (unsigned data = 1; data <= 4; ++data) {
    CallFixture fixture(step_shape(n_past, data));
    for (float& x : fixture.q.flat()) x *= spread;
    for (int seed = 1; seed <= n_seeds; ++seed) {
      SelectionTrace trace;
      fixture.call.trace = &trace;
      const auto selector =
          made(fmt::format("vattention:{},epsilon={},seed={}", options, epsilon, seed), fixture);
      const Selection selection = selector->select(fixture.call);
      for (Index q_head = 0; q_head < 4; ++q_head) {
        const double error = trace.denominator_errors[q_head][0];
        // the trace says what the list says
        const ListView list = selection.list(q_head, 0);
        if (seed == 1) {
          double sum = 0.0;
          double exact = 0.0;
          for (std::size_t i = 0; i < list.keys.size(); ++i) {
            sum += std::exp(fixture.logit(q_head, 0, list.keys[i]) +
                            static_cast<double>(list.log_weight[i]));
          }
          for (Index pos = 0; pos <= n_past; ++pos)
            exact += std::exp(fixture.logit(q_head, 0, pos));
          CHECK(error == Catch::Approx(sum / exact - 1.0).margin(1e-5));
        }
        out.too_large += error > epsilon ? 1.0 : 0.0;
        out.too_small += error < -epsilon ? 1.0 : 0.0;
        out.sampled += static_cast<double>(list.size()) / static_cast<double>(n_past + 1);
        n += 1.0;
      }
    }
  }
  out.too_large /= n;
  out.too_small /= n;
  out.sampled /= n;
  out.share = out.too_large + out.too_small;
  return out;
}

TEST_CASE("vattention: the stated error is exceeded no oftener than stated") {
  constexpr int kSeeds = 150;  // times 4 texts and 4 heads: 2400 samples
  const std::string sets = "base=oracle-topk,base-budget=tokens=40,n-sink=4,n-recent=16";
  struct Case {
    double epsilon;
    double delta;
    double base_sample;
    float spread;
  };
  for (const Case& one :
       {Case{0.1, 0.05, 0.05, 1.0f}, Case{0.05, 0.2, 0.05, 1.0f}, Case{0.02, 0.1, 0.05, 0.5f},
        Case{0.1, 0.05, 0.1, 2.0f}, Case{0.2, 0.4, 0.02, 2.0f}}) {
    const std::string options =
        fmt::format("{},delta={},base-sample={}", sets, one.delta, one.base_sample);
    const Exceeded two = exceeded(options + ",tails=two", one.epsilon, 1500, one.spread, kSeeds);
    const Exceeded single = exceeded(options, one.epsilon, 1500, one.spread, kSeeds);
    INFO("epsilon " << one.epsilon << ", delta " << one.delta << ", spread " << one.spread
                    << ": two tails " << two.share << " of keys " << two.sampled << "; one tail "
                    << single.share << " = " << single.too_large << " + " << single.too_small
                    << " of keys " << single.sampled);
    const double noise = 3.0 * std::sqrt(one.delta * (1.0 - one.delta) / (16.0 * kSeeds));
    CHECK(two.share <= one.delta + noise);
    CHECK(single.too_large <= one.delta + noise);
    CHECK(single.too_small <= one.delta + noise);
    CHECK(single.sampled <= two.sampled + 1e-9);
  }
}

}  // namespace kvscope::test::vattention_test
