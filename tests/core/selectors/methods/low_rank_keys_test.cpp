// Rotations read off a recording, and ShadowKV's rebuilt keys against loops.
#include <random>

#include "core/base/parallel.hpp"
#include "core/selectors/key_rotation.hpp"
#include "core/selectors/registry.hpp"
#include "core/tensor/dtype.hpp"
#include "core/trace/memory_trace.hpp"
#include "tests/core/selectors/call_fixture.hpp"
#include "tests/core/selectors/lists.hpp"
#include "tests/core/selectors/sequence.hpp"
#include "tests/support/planted_trace.hpp"
#include "tests/support/test.hpp"

namespace kvscope::test::low_rank_keys_test {

constexpr Index kHead = 16;

struct Turning {
  Index width = kHead;
  bool is_interleaved = false;
  double amplitude = 1.0;
  double angle(Index pair) const {
    return std::pow(10000.0, -2.0 * static_cast<double>(pair) / static_cast<double>(width));
  }
};

/// A key [d_head] of a position after rotation, pair by pair.
std::vector<double> naive_turned(std::vector<double> key, Index pos, const Turning& how,
                                 double direction = 1.0) {
  for (Index i = 0; i < how.width / 2; ++i) {
    const auto a = static_cast<std::size_t>(how.is_interleaved ? 2 * i : i);
    const auto b = static_cast<std::size_t>(how.is_interleaved ? 2 * i + 1 : i + how.width / 2);
    const double angle = direction * static_cast<double>(pos) * how.angle(i);
    const double factor = direction > 0.0 ? how.amplitude : 1.0 / how.amplitude;
    const double x = key[a];
    const double y = key[b];
    key[a] = factor * (x * std::cos(angle) - y * std::sin(angle));
    key[b] = factor * (y * std::cos(angle) + x * std::sin(angle));
  }
  return key;
}

/// Random keys of two KV heads and one layer, and the same rotated.
MemoryTrace rotated_text(const Turning& how, bool in_bf16) {
  TraceInfo info = make_trace_info(1, 4, 2, kHead, /*n_tokens=*/300, /*chunk=*/300);
  info.capture.k_pre_rope = true;
  MemoryTrace text(info);
  std::mt19937 rng(5);
  std::normal_distribution<double> normal;
  for (Index head = 0; head < 2; ++head) {
    for (Index t = 0; t < 300; ++t) {
      std::vector<double> key(kHead);
      for (double& x : key) x = normal(rng);
      const std::vector<double> turned = naive_turned(key, t, how);
      for (Index c = 0; c < kHead; ++c) {
        const auto round = [&](double x) {
          const auto full = static_cast<float>(x);
          std::uint16_t half = 0;
          float back = full;
          from_float(&full, DType::bf16, &half, 1);
          if (in_bf16) to_float(DType::bf16, &half, &back, 1);
          return back;
        };
        text.side(SideTensor::k_pre_rope, 0)(head, t, c) = round(key[c]);
        text.k(0)(head, t, c) = round(turned[c]);
      }
    }
  }
  return text;
}

TEST_CASE("a rotation is read off keys before and after it") {
  for (const bool in_bf16 : {false, true}) {
    for (const Turning& how : {Turning{}, Turning{.is_interleaved = true}, Turning{.width = 8},
                               Turning{.amplitude = 1.25},
                               Turning{.width = 4, .is_interleaved = true, .amplitude = 0.5}}) {
      INFO(how.width << " channels, interleaved " << how.is_interleaved << ", bf16 " << in_bf16);
      const KeyRotation found = fit_rotation(rotated_text(how, in_bf16), 0);
      REQUIRE(static_cast<Index>(found.frequencies.size()) == how.width / 2);
      CHECK(found.is_interleaved == how.is_interleaved);
      CHECK_THAT(found.amplitude, WithinAbs(how.amplitude, in_bf16 ? 1e-3 : 1e-6));
      for (Index i = 0; i < how.width / 2; ++i)
        CHECK_THAT(found.frequencies[i], WithinAbs(how.angle(i), in_bf16 ? 1e-5 : 1e-8));
      std::vector<double> key(kHead);
      for (std::size_t c = 0; c < key.size(); ++c) key[c] = std::sin(1.0 + static_cast<double>(c));
      std::vector<double> turned = key;
      found.turn(290, turned);
      const std::vector<double> expected = naive_turned(key, 290, how);
      for (std::size_t c = 0; c < key.size(); ++c)
        CHECK_THAT(turned[c], WithinAbs(expected[c], in_bf16 ? 1e-2 : 1e-5));
      found.turn_back(290, turned);
      for (std::size_t c = 0; c < key.size(); ++c) CHECK_THAT(turned[c], WithinAbs(key[c], 1e-12));
    }
  }
}

TEST_CASE("keys that do not turn, turn otherwise, or have no record before rotation") {
  MemoryTrace text = rotated_text({}, false);
  const auto before = text.side(SideTensor::k_pre_rope, 0);
  const TensorView<float> after = text.k(0);
  std::copy_n(before.data(), before.shape().count(), after.data());
  CHECK(fit_rotation(text, 0).frequencies.empty());
  for (Index i = 0; i < after.shape().count(); ++i)
    after.data()[i] = std::cos(0.1f * static_cast<float>(i));
  CHECK_SAYS(fit_rotation(text, 0), "turned by their positions");
  const MemoryTrace plain(make_trace_info(1, 4, 2, kHead, 30, 30));
  CHECK_SAYS(fit_rotation(plain, 0), "--capture k-pre-rope");
}

/// The nearest matrix of a rank to `rows` (a token each), by orthogonal iteration: rows again.
std::vector<std::vector<double>> naive_low_rank(const std::vector<std::vector<double>>& rows,
                                                std::size_t n_fitted, std::size_t rank) {
  const std::size_t n = rows.front().size();
  std::vector<std::vector<double>> axes(rank, std::vector<double>(n));
  for (std::size_t r = 0; r < rank; ++r) {
    for (std::size_t c = 0; c < n; ++c)
      axes[r][c] = std::cos(static_cast<double>(1 + r * n + c) * 1.7);
  }
  const auto dot = [](const std::vector<double>& a, const std::vector<double>& b) {
    double sum = 0.0;
    for (std::size_t c = 0; c < a.size(); ++c) sum += a[c] * b[c];
    return sum;
  };
  for (int round = 0; round < 3000; ++round) {
    for (std::size_t r = 0; r < rank; ++r) {
      std::vector<double> next(n, 0.0);
      for (std::size_t t = 0; t < n_fitted; ++t) {
        const double along = dot(rows[t], axes[r]);
        for (std::size_t c = 0; c < n; ++c) next[c] += along * rows[t][c];
      }
      for (std::size_t other = 0; other < r; ++other) {
        const double along = dot(next, axes[other]);
        for (std::size_t c = 0; c < n; ++c) next[c] -= along * axes[other][c];
      }
      const double length = std::sqrt(dot(next, next));
      for (std::size_t c = 0; c < n; ++c) axes[r][c] = next[c] / length;
    }
  }
  std::vector<std::vector<double>> out(rows.size(), std::vector<double>(n, 0.0));
  for (std::size_t t = 0; t < rows.size(); ++t) {
    for (const auto& axis : axes) {
      const double along = dot(rows[t], axis);
      for (std::size_t c = 0; c < n; ++c) out[t][c] += along * axis[c];
    }
  }
  return out;
}

TEST_CASE("shadowkv: rebuilt keys have the scores of a low-rank factorisation before rotation") {
  const Turning how;
  CallFixture fixture(
      {.n_q = 4, .n_kv = 2, .n_past = 97, .n_tok = 1, .phase = Phase::decode, .layer = 0});
  fixture.call.budget = Budget::parse("tokens=24");
  std::vector<std::vector<double>> before;  // both heads after each other
  for (Index t = 0; t < 98; ++t) {
    auto& row = before.emplace_back();
    for (Index head = 0; head < 2; ++head) {
      std::vector<double> key(kHead);
      for (Index c = 0; c < kHead; ++c) key[c] = static_cast<double>(fixture.k(head, t, c));
      const std::vector<double> back = naive_turned(key, t, how, -1.0);
      row.insert(row.end(), back.begin(), back.end());
    }
  }
  const MemoryTrace text = rotated_text(how, false);
  ThreadPool pool(2);
  const auto selected = [&](const std::string& options) {
    auto selector = selector_registry().make("shadowkv:outliers=1" + options);
    if (selector->caps().needs_calibration) selector->calibrate(text, text.info().layers, pool);
    selector->reset(fixture.attention());
    return selector->select(fixture.call);
  };
  const Selection exact = selected("");
  CHECK(exact.log_weights().empty());
  const Selection whole = selected(",keys=rebuilt,rank-share=1");
  const Selection low = selected(",keys=rebuilt,rank-share=0.16");  // 5 of 32
  const auto rebuilt = naive_low_rank(before, 97, 5);
  CHECK(low.owner == ListOwner::q_head);
  for (Index q_head = 0; q_head < 4; ++q_head) {
    const ListView list = low.list(q_head, 0);
    CHECK(merged(list) == merged(exact.at(q_head / 2)));
    CHECK(list.forced() == exact.at(q_head / 2).forced());
    for (const float weight : whole.list(q_head, 0).log_weight) CHECK(std::abs(weight) < 1e-5f);
    double largest = 0.0;
    for (std::size_t i = 0; i < list.keys.size(); ++i) {
      const Index pos = list.keys[i];
      const auto first = rebuilt[pos].begin() + (q_head / 2) * kHead;
      const std::vector<double> key = naive_turned({first, first + kHead}, pos, how);
      double score = 0.0;
      for (Index c = 0; c < kHead; ++c)
        score += static_cast<double>(fixture.q(q_head, 0, c)) * key[c];
      score *= static_cast<double>(fixture.call.score_scale);
      const double wanted = list.is_forced[i] != 0 ? 0.0 : score - fixture.logit(q_head, 0, pos);
      CHECK_THAT(static_cast<double>(list.log_weight[i]), WithinAbs(wanted, 1e-4));
      largest = std::max(largest, std::abs(wanted));
    }
    CHECK(largest > 0.1);
  }
}

TEST_CASE("shadowkv: what rebuilding costs, counted by hand") {
  CallFixture fixture(
      {.n_q = 4, .n_kv = 2, .n_past = 96, .n_tok = 1, .phase = Phase::decode, .layer = 0});
  fixture.call.budget = Budget::parse("tokens=16");
  const MemoryTrace text = rotated_text({}, false);
  ThreadPool pool(1);
  auto selector = selector_registry().make("shadowkv:outliers=1,keys=rebuilt,rank-share=0.25");
  selector->calibrate(text, text.info().layers, pool);
  selector->reset(fixture.attention());
  const Selection selection = selector->select(fixture.call);
  const SelectCost cost = selector->cost(fixture.call, selection);
  // 12 chunks: 4 latest, 1 outlier, 7 compete in each of 2 KV heads; 2 chunks each are chosen. Rank
  // 8 of 32 channels.
  const auto both = merged(selection.list(0, 0)) == merged(selection.list(2, 0)) ? 16.0 : -1.0;
  std::vector<KeyPos> read = selection.list(0, 0).scored();
  const std::vector<KeyPos> others = selection.list(2, 0).scored();
  read.insert(read.end(), others.begin(), others.end());
  std::ranges::sort(read);
  const auto n_read = static_cast<double>(std::unique(read.begin(), read.end()) - read.begin());
  CHECK((n_read >= 16.0 && n_read <= 32.0 && (both < 0.0 || n_read == both)));
  CHECK(cost.score_flops == 2.0 * 2.0 * 14.0 * 16.0 + 2.0 * 8.0 * (32.0 * 16.0 + 32.0));
  CHECK(cost.score_bytes == (14.0 * 16.0 + (n_read + 32.0) * 8.0) * 2.0);
  CHECK(cost.metadata_bytes == (24.0 * 16.0 + (97.0 + 32.0) * 8.0) * 2.0);
}

}  // namespace kvscope::test::low_rank_keys_test
