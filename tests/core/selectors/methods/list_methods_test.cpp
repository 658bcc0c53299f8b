// LessIsMore, SpecAttn, Twilight, KeyDiff and the oracles against naive references; keys all alike.
#include <fmt/format.h>

#include <functional>
#include <numeric>
#include <set>

#include "core/selectors/method_spec.hpp"
#include "tests/core/selectors/call_fixture.hpp"
#include "tests/core/selectors/lists.hpp"
#include "tests/core/selectors/sequence.hpp"
#include "tests/support/planted_trace.hpp"
#include "tests/support/test.hpp"

namespace kvscope::test::list_methods_test {

TEST_CASE("lessismore: the list of layer 2 in rank-major order serves the others") {
  CallFixture fixture(
      {.n_q = 4, .n_kv = 2, .n_past = 99, .n_tok = 1, .phase = Phase::decode, .layer = 3});
  fixture.call.budget = Budget::parse("tokens=32");  // 24 merged, 4 sinks, 4 recents
  auto selector = made("lessismore", fixture);
  CHECK_THROWS_AS(selector->select(fixture.call), ConfigError);  // nobody made a list yet
  fixture.call.layer = 2;
  CHECK(selector->select(fixture.call).is_dense);

  std::set<KeyPos> kept;
  std::vector<std::vector<std::pair<double, Index>>> ranked(4);
  for (Index h = 0; h < 4; ++h) {
    for (Index t = 4; t < 96; ++t) ranked[h].emplace_back(-fixture.logit(h, 0, t), t);
    std::sort(ranked[h].begin(), ranked[h].end());
  }
  for (std::size_t rank = 0; kept.size() < 24; ++rank) {
    for (const auto& head : ranked) {
      if (kept.size() < 24) kept.insert(static_cast<KeyPos>(head[rank].second));
    }
  }
  // Other layers look elsewhere.
  for (Index c = 0; c < fixture.q.count(); ++c) fixture.q.data()[c] = -fixture.q.data()[c];
  fixture.call.layer = 3;
  const Selection selection = selector->select(fixture.call);
  CHECK(selection.owner == ListOwner::layer);
  CHECK(selection.at(0).scored() == std::vector<KeyPos>(kept.begin(), kept.end()));
  CHECK(selection.at(0).forced() == std::vector<KeyPos>{0, 1, 2, 3, 96, 97, 98, 99});
  fixture.call.layer = 1;
  CHECK(selector->select(fixture.call).is_dense);
  fixture.call.context = nullptr;
  fixture.call.layer = 2;
  CHECK_THROWS_AS(selector->select(fixture.call), ConfigError);
}

TEST_CASE("specattn: nucleus of the mapped draft rows, union, blocks, forced positions") {
  CallFixture fixture({.n_past = 100, .n_tok = 3, .phase = Phase::verify, .layer = 4});
  std::vector<Tensor<float>> rows;
  for (int layer = 0; layer < 3; ++layer) rows.emplace_back(Shape{2, 103});
  rows[1](0, 0) = 0.6f;
  rows[1](0, 37) = 0.35f;
  rows[1](0, 70) = 0.05f;
  rows[1](1, 0) = 0.5f;
  rows[1](1, 50) = 0.46f;
  rows[1](1, 101) = 0.04f;
  rows[2](0, 5) = 1.0f;
  rows[2](1, 5) = 1.0f;
  fixture.call.draft_rows = rows;
  fixture.call.budget = Budget::parse("p=0.9");
  const auto list = [&](std::string_view spec) {
    const Selection selection = made(spec, fixture)->select(fixture.call);
    return KeyList{selection.at(0).scored(), selection.at(0).forced(), {}};
  };
  const KeyList tokens = list("specattn:layer-map=0/0/0/0/1,blocks=none");
  CHECK(tokens.scored == std::vector<KeyPos>{0, 37, 50});
  CHECK(tokens.forced == positions(99, 103));
  std::vector<KeyPos> closed = positions(0, 16);
  for (const KeyPos pos : positions(32, 64)) closed.push_back(pos);
  CHECK(list("specattn:layer-map=0/0/0/0/1").scored == closed);
  CHECK(list("specattn:layer-map=0/0/0/0/1,blocks=block_mass").scored == closed);
  // 4 * 3 / 8.
  CHECK(list("specattn:layer-map=proportional,blocks=none").scored ==
        std::vector<KeyPos>{0, 37, 50});
  CHECK(list("specattn:layer-map=0/0/0/0/2,blocks=none").scored == std::vector<KeyPos>{5});
  CHECK_THROWS_AS(list("specattn:layer-map=identity"), ConfigError);  // the draft has 3 layers
  CHECK_THROWS_AS(list("specattn:layer-map=0/1"), ConfigError);       // names 2 layers
  CHECK_THROWS_AS(list("specattn:layer-map=0/x"), ConfigError);
  fixture.call.layer = 1;
  CHECK(made("specattn", fixture)->select(fixture.call).is_dense);
  fixture.call.layer = 2;
  fixture.call.draft_rows = {};
  CHECK_THROWS_AS(list("specattn"), ConfigError);
  fixture.call.draft_rows = rows;
  fixture.call.budget = Budget::parse("tokens=8");
  CHECK_THROWS_AS(list("specattn"), ConfigError);
}

TEST_CASE(
    "twilight: exact estimates over all keys are the top-p oracle; 4 bits stay close; the "
    "base bounds the list") {
  CallFixture fixture({.n_past = 80, .n_tok = 1, .phase = Phase::decode});
  fixture.call.budget = Budget::parse("p=0.9");
  const Selection oracle = made("oracle-topp", fixture)->select(fixture.call);
  const Selection exact = made("twilight:base=full,bits=16", fixture)->select(fixture.call);
  const Selection rough = made("twilight:base=full", fixture)->select(fixture.call);
  for (Index h = 0; h < 4; ++h) {
    CHECK(exact.list(h, 0).scored() == oracle.list(h, 0).scored());
    double mass = 0.0;
    for (const KeyPos pos : rough.list(h, 0).scored()) mass += fixture.weights(h, 0)[pos];
    CHECK(mass > 0.85);
  }
  const Selection on_quest =
      made("twilight:base=quest:page-size=8,base-budget=pages=3", fixture)->select(fixture.call);
  fixture.call.budget = Budget::parse("pages=3");
  const Selection quest = made("quest:page-size=8", fixture)->select(fixture.call);
  for (Index h = 0; h < 4; ++h) {
    const auto all = merged(quest.list(h, 0));
    const auto kept = on_quest.list(h, 0).scored();
    CHECK(std::includes(all.begin(), all.end(), kept.begin(), kept.end()));
    CHECK(kept.size() < all.size());
  }
}

TEST_CASE("oracle-topk: three loops agree on every variant") {
  CallFixture fixture({.n_q = 4, .n_kv = 2, .n_past = 60, .n_tok = 20});
  fixture.call.window = 50;
  fixture.alive.kill(1, 30);
  fixture.call.budget = Budget::parse("tokens=7");
  const Selection head = made("oracle-topk", fixture)->select(fixture.call);
  const Selection past = made("oracle-topk-past", fixture)->select(fixture.call);
  const Selection sum = made("oracle-topk-group", fixture)->select(fixture.call);
  const Selection max = made("oracle-topk:variant=per_group_max", fixture)->select(fixture.call);
  const Selection chunk = made("oracle-topk-chunk", fixture)->select(fixture.call);
  constexpr double kNone = -std::numeric_limits<double>::infinity();
  for (Index kv = 0; kv < 2; ++kv) {
    std::vector<double> columns(60, 0.0);
    for (Index row = 0; row < 20; ++row) {
      const auto a = fixture.weights(2 * kv, row);
      const auto b = fixture.weights(2 * kv + 1, row);
      std::vector<double> head_scores(80), sums(80), largest(80);
      for (std::size_t t = 0; t < 80; ++t) {
        const bool sees = fixture.sees(2 * kv, row, static_cast<Index>(t));
        head_scores[t] = sees ? a[t] : kNone;
        sums[t] = sees ? a[t] + b[t] : kNone;
        largest[t] = sees ? std::max(a[t], b[t]) : kNone;
        if (t < 60) columns[t] += a[t] + b[t];
      }
      CHECK(head.list(2 * kv, row).scored() == naive_top_k(head_scores, 7));
      CHECK(sum.list(kv, row).scored() == naive_top_k(sums, 7));
      CHECK(max.list(kv, row).scored() == naive_top_k(largest, 7));
      head_scores.resize(60);
      CHECK(past.list(2 * kv, row).scored() == naive_top_k(head_scores, 7));
      CHECK(past.list(2 * kv, row).forced() == positions(60, 61 + row));
    }
    for (Index t = 0; t < 60; ++t) {
      if (!fixture.sees(2 * kv, 0, t)) columns[t] = kNone;
    }
    CHECK(chunk.list(kv, 0).scored() == naive_top_k(columns, 7));
    CHECK(chunk.list(kv, 0).forced() == positions(60, 80));
  }
}

TEST_CASE("oracle-topp reaches p with the fewest keys; oracle-pages keeps the heaviest pages") {
  CallFixture fixture({.n_q = 4, .n_kv = 2, .n_past = 69, .n_tok = 1, .phase = Phase::decode});
  fixture.call.budget = Budget::parse("p=0.8");
  const Selection topp = made("oracle-topp", fixture)->select(fixture.call);
  fixture.call.budget = Budget::parse("pages=3");
  const Selection pages =
      made("oracle-pages:page-size=8,pages=eval", fixture)->select(fixture.call);
  const Selection by_max =
      made("oracle-pages:page-size=8,pages=eval,score=max", fixture)->select(fixture.call);
  for (Index h = 0; h < 4; ++h) {
    const auto weights = fixture.weights(h, 0);
    const auto n = static_cast<Index>(topp.list(h, 0).scored().size());
    double kept = 0.0;
    for (const KeyPos pos : topp.list(h, 0).scored()) kept += weights[pos];
    double one_less = 0.0;
    for (const KeyPos pos : naive_top_k(weights, n - 1)) one_less += weights[pos];
    CHECK(kept >= 0.8 - 1e-6);
    CHECK(one_less < 0.8 + 1e-6);
    std::vector<double> mass(9, 0.0);
    std::vector<double> largest(9, -1e9);
    for (std::size_t t = 0; t < 70; ++t) {
      mass[t / 8] += weights[t];
      largest[t / 8] = std::max(largest[t / 8], fixture.logit(h, 0, static_cast<Index>(t)));
    }
    CHECK(pages.list(h, 0).scored() == keys_of_pages(naive_top_k(mass, 3), 8, 70));
    CHECK(by_max.list(h, 0).scored() == keys_of_pages(naive_top_k(largest, 3), 8, 70));
  }
}

TEST_CASE("ceiling: no other way to give out as many keys holds more of the attention") {
  CallFixture fixture({.n_q = 2, .n_kv = 1, .n_past = 7, .n_tok = 2, .phase = Phase::prefill});
  // heaviest first, by (head, row)
  std::vector<std::vector<double>> rows;
  std::vector<double> all;
  for (Index h = 0; h < 2; ++h) {
    for (Index row = 0; row < 2; ++row) {
      rows.push_back(fixture.weights(h, row));
      std::ranges::sort(rows.back(), std::greater<>());
      all.insert(all.end(), rows.back().begin(), rows.back().end());
    }
  }
  std::ranges::sort(all, std::greater<>());
  const auto mass = [&](std::size_t of, std::size_t n) {
    return std::accumulate(rows[of].begin(), rows[of].begin() + static_cast<Index>(n), 0.0);
  };
  for (const std::size_t n_keys : {1U, 5U, 12U, 20U}) {
    double best = 0.0;
    for (std::size_t a = 0; a <= rows[0].size(); ++a) {
      for (std::size_t b = 0; b <= rows[1].size() && a + b <= n_keys; ++b) {
        for (std::size_t c = 0; c <= rows[2].size() && a + b + c <= n_keys; ++c) {
          const std::size_t d = n_keys - a - b - c;
          if (d <= rows[3].size())
            best = std::max(best, mass(0, a) + mass(1, b) + mass(2, c) + mass(3, d));
        }
      }
    }
    const double level = 0.5 * (all[n_keys - 1] + all[n_keys]);
    const Selection kept =
        made(fmt::format("ceiling:level={:.17g}", level), fixture)->select(fixture.call);
    double found = 0.0;
    std::size_t n = 0;
    for (Index h = 0; h < 2; ++h) {
      for (Index row = 0; row < 2; ++row) {
        const auto weights = fixture.weights(h, row);
        for (const KeyPos pos : kept.list(h, row).scored()) {
          found += weights[pos];
          ++n;
        }
      }
    }
    CHECK(n == n_keys);
    CHECK(found == Catch::Approx(best));
  }
}

TEST_CASE("ceiling of the output: no way to give out as many keys in its orders errs less") {
  CallFixture fixture({.n_q = 2, .n_kv = 1, .n_past = 7, .n_tok = 2, .phase = Phase::prefill});
  /// Relative error of the output of a row that keeps these keys.
  const auto error_of = [&](Index h, Index row, std::span<const KeyPos> keys) {
    const auto weights = fixture.weights(h, row);
    const auto v = fixture.v.view().sub(0);
    double square = 0.0;
    double norm = 0.0;
    for (Index c = 0; c < v.dim(1); ++c) {
      double all = 0.0;
      double some = 0.0;
      double mass = 0.0;
      for (std::size_t t = 0; t < weights.size(); ++t)
        all += weights[t] * static_cast<double>(v(static_cast<Index>(t), c));
      for (const KeyPos t : keys) {
        some += weights[t] * static_cast<double>(v(t, c));
        mass += weights[t];
      }
      square += std::pow((mass > 0.0 ? some / mass : 0.0) - all, 2);
      norm += all * all;
    }
    return std::sqrt(square / norm);
  };
  std::vector<std::vector<double>> errors;  // [head and row][keys], of the heaviest
  for (Index h = 0; h < 2; ++h) {
    for (Index row = 0; row < 2; ++row) {
      const auto weights = fixture.weights(h, row);
      std::vector<KeyPos> order = positions(0, static_cast<Index>(weights.size()));
      std::ranges::stable_sort(order, std::greater<>(), [&](KeyPos t) { return weights[t]; });
      auto& of_row = errors.emplace_back();
      for (std::size_t n = 0; n <= order.size(); ++n)
        of_row.push_back(error_of(h, row, std::span(order).first(n)));
    }
  }
  for (const char* level : {"0.001", "0.01", "0.05", "0.2"}) {
    const Selection kept =
        made(fmt::format("ceiling:of=output,level={}", level), fixture)->select(fixture.call);
    double found = 0.0;
    std::size_t n_keys = 0;
    for (Index h = 0; h < 2; ++h) {
      for (Index row = 0; row < 2; ++row) {
        const auto keys = kept.list(h, row).scored();
        found += error_of(h, row, std::vector<KeyPos>(keys.begin(), keys.end()));
        n_keys += keys.size();
      }
    }
    double best = std::numeric_limits<double>::infinity();
    for (std::size_t a = 0; a < errors[0].size(); ++a) {
      for (std::size_t b = 0; b < errors[1].size() && a + b <= n_keys; ++b) {
        for (std::size_t c = 0; c < errors[2].size() && a + b + c <= n_keys; ++c) {
          const std::size_t d = std::min(n_keys - a - b - c, errors[3].size() - 1);
          best = std::min(best, errors[0][a] + errors[1][b] + errors[2][c] + errors[3][d]);
        }
      }
    }
    INFO(n_keys << " keys at level " << level);
    CHECK(n_keys > 0);
    CHECK(n_keys < 36);
    CHECK(found <= best + 1e-6);
  }
}

TEST_CASE("keydiff: a share of the budget for recent keys") {
  const Sequence sequence = random_sequence({.n_tokens = 30, .chunk = 30, .n_decode = 0});
  SelectorRun run(make_selector("keydiff:recent-share=0.5", sequence), sequence.shape,
                  {{Budget::Kind::tokens, 8.0}});
  run_call(run, sequence, Phase::prefill, 30);
  const auto alive = alive_keys(run.alive(0), 1);
  CHECK(alive.size() == 8);
  for (const KeyPos pos : {26, 27, 28, 29}) CHECK(alive.contains(pos));
}

}  // namespace kvscope::test::list_methods_test
