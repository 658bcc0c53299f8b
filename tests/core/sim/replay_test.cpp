// Replay against brute force, against the oracle, on planted needles, and for its invariances.
#include "core/sim/replay.hpp"

#include <cstring>
#include <numeric>
#include <set>

#include "core/sim/metrics.hpp"
#include "tests/support/planted_trace.hpp"
#include "tests/support/test.hpp"

namespace kvscope::test::replay_test {

PlantOptions small() {
  return PlantOptions{.n_layers = 3, .n_tokens = 90, .chunk = 16, .sink = 1.0, .band = 1.0};
}

ReplayOptions prefill() {
  return ReplayOptions{.calls = {.chunk = 16}, .rows_per_chunk = 5, .dense_layers = 0};
}

std::vector<LayerReplay> replay(const TraceSource& trace, const std::vector<ReplayPair>& pairs,
                                const ReplayOptions& options, std::vector<Index> layers = {0, 1},
                                int threads = 1) {
  ThreadPool pool(threads);
  return replay_layers(trace, nullptr, layers, pairs, options, pool);
}

bool same_bits(const std::vector<double>& a, const std::vector<double>& b) {
  return a.size() == b.size() && std::memcmp(a.data(), b.data(), a.size() * sizeof(double)) == 0;
}

/// Output error by three loops: softmax over the kept keys only, then the distance of the two
/// outputs.
double brute_error(const std::vector<double>& scores, TensorView<const float> v,
                   const std::vector<KeyPos>& keys) {
  const auto attend = [&](const std::vector<KeyPos>& list) {
    double total = 0.0;
    std::vector<double> out(static_cast<std::size_t>(v.dim(1)), 0.0);
    for (KeyPos key : list) total += std::exp(scores[key]);
    for (KeyPos key : list) {
      for (std::size_t c = 0; c < out.size(); ++c) {
        out[c] +=
            std::exp(scores[key]) / total * static_cast<double>(v(key, static_cast<Index>(c)));
      }
    }
    return out;
  };
  std::vector<KeyPos> all;
  for (std::size_t i = 0; i < scores.size(); ++i) all.push_back(static_cast<KeyPos>(i));
  const auto dense = attend(all);
  const auto sparse = attend(keys);
  double sum = 0.0;
  for (std::size_t c = 0; c < dense.size(); ++c)
    sum += (dense[c] - sparse[c]) * (dense[c] - sparse[c]);
  return std::sqrt(sum);
}

TEST_CASE("row metrics agree with brute force and obey the exact identities") {
  Random random(7);
  for (int round = 0; round < 60; ++round) {
    const Index n = 1 + random.below(round < 40 ? 60 : 150);  // some with far keys
    const Index d = 1 + random.below(9);
    std::vector<double> scores(static_cast<std::size_t>(n));
    for (double& s : scores) s = 2.0 * random.normal();
    if (n > 4) scores[3] = scores[1];  // a tie
    Tensor<float> v(Shape{n, d});
    for (float& x : v.flat()) x = static_cast<float>(random.normal());
    std::vector<KeyPos> keys;
    for (Index t = 0; t < n; ++t) {
      if (random.uniform() < 0.5 || (t + 1 == n && keys.empty()))
        keys.push_back(static_cast<KeyPos>(t));
    }
    DenseRow row;
    const bool with_best = round % 2 == 0;
    row.prepare(scores, {0, n}, v.view(), {}, std::nullopt, with_best);
    const RowQuality quality = row.compare(keys, /*k=*/0, /*n_sink=*/2);
    CHECK(std::isnan(quality.best_mass) == !with_best);
    if (with_best) {
      std::vector<double> largest(row.probs().begin(), row.probs().end());
      std::ranges::sort(largest, std::greater<>());
      largest.resize(keys.size());
      CHECK_THAT(quality.best_mass, WithinAbs(std::reduce(largest.begin(), largest.end()), 1e-12));
    }

    double mass = 0.0;
    std::vector<double> inside(static_cast<std::size_t>(d), 0.0);
    std::vector<double> outside(static_cast<std::size_t>(d), 0.0);
    for (Index t = 0; t < n; ++t) {
      const bool kept = std::ranges::find(keys, t) != keys.end();
      const double p = row.probs()[t];
      if (kept) mass += p;
      for (Index c = 0; c < d; ++c)
        (kept ? inside : outside)[c] += p * static_cast<double>(v(t, c));
    }
    CHECK_THAT(quality.mass, WithinAbs(mass, 1e-12));
    double far = 0.0;
    double far_kept = 0.0;
    for (Index t = 2; t < n - kNearKeys; ++t) {
      const double p = row.probs()[t];
      far += p;
      far_kept += std::ranges::find(keys, t) != keys.end() ? p : 0.0;
    }
    CHECK_THAT(quality.far_share, WithinAbs(far, 1e-12));
    CHECK_THAT(quality.far_kept, WithinAbs(far_kept, 1e-12));
    CHECK_THAT(quality.output_error, WithinAbs(brute_error(scores, v.view(), keys), 1e-10));
    if (static_cast<Index>(keys.size()) == n) continue;
    double gap = 0.0;   // |mean outside - mean inside|
    double lost = 0.0;  // |mean outside|
    for (std::size_t c = 0; c < inside.size(); ++c) {
      gap += std::pow(outside[c] / (1.0 - mass) - inside[c] / mass, 2);
      lost += std::pow(outside[c] / (1.0 - mass), 2);
    }
    CHECK_THAT(quality.output_error, WithinAbs((1.0 - mass) * std::sqrt(gap), 1e-10));
    CHECK_THAT(quality.output_error_raw, WithinAbs((1.0 - mass) * std::sqrt(lost), 1e-10));
  }
}

TEST_CASE("recall and Jaccard count against the best keys, ties by position") {
  const std::vector<double> scores = {0.0, 5.0, 4.0, 4.0, -1.0, 3.0};
  Tensor<float> v(Shape{6, 2});
  DenseRow row;
  row.prepare(scores, {0, 6}, v.view(), {});
  const std::vector<KeyPos> keys = {1, 3};  // the best, and the later one of the tie
  const RowQuality two = row.compare(keys, /*k=*/2, /*n_sink=*/0);
  CHECK(two.recallk == 0.5);
  CHECK_THAT(two.jaccard, WithinAbs(1.0 / 3.0, 1e-15));
  CHECK(row.compare(keys, /*k=*/3, 0).recallk == 2.0 / 3.0);
  CHECK(row.compare(keys, /*k=*/100, 0).recallk == 2.0 / 6.0);
  CHECK(row.compare(keys, 2, 0).recall10 == 2.0 / 6.0);
}

TEST_CASE("rows that keep the same list are compared together with the bits of each one alone") {
  Random random(31);
  const Index n = 50;
  const Index d = 12;
  Tensor<float> v(Shape{n, d});
  for (float& x : v.flat()) x = static_cast<float>(random.normal());
  std::vector<KeyPos> all;
  std::vector<KeyPos> some;
  for (Index t = 0; t < n; ++t) {
    all.push_back(static_cast<KeyPos>(t));
    if (t % 3 != 0) some.push_back(static_cast<KeyPos>(t));
  }
  std::vector<DenseRow> rows(11);
  std::vector<DenseRow*> together;
  for (DenseRow& row : rows) {
    std::vector<double> scores(static_cast<std::size_t>(n));
    for (double& s : scores) s = 3.0 * random.normal();
    row.prepare(scores, {0, n}, v.view(), {});
    together.push_back(&row);
  }
  std::vector<RowExtras> extras(rows.size());
  extras[4].list_share = 0.25;  // this row is not exact with all keys
  extras[4].summary_v = v.view().range(0, 0, 1);
  for (const auto& keys : {all, some, std::vector<KeyPos>{}}) {
    std::vector<RowQuality> qualities(rows.size());
    DenseRow::compare(together, keys, /*k=*/20, /*n_sink=*/4, extras, qualities);
    for (std::size_t r = 0; r < rows.size(); ++r) {
      const RowQuality alone = rows[r].compare(keys, 20, 4, extras[r]);
      CHECK(qualities[r].mass == alone.mass);
      CHECK(qualities[r].recall10 == alone.recall10);
      CHECK(qualities[r].recallk == alone.recallk);
      CHECK(qualities[r].output_error == alone.output_error);
      CHECK(qualities[r].output_error_raw == alone.output_error_raw);
      CHECK(qualities[r].jaccard == alone.jaccard);
      CHECK(qualities[r].sink_share == alone.sink_share);
      CHECK((alone.output_error == 0.0) == (keys.size() == all.size() && r != 4));
    }
  }
}

TEST_CASE("weights that underflow still give a renormalised output") {
  const std::vector<double> scores = {1000.0, 0.0, 0.0};
  Tensor<float> v(Shape{3, 1});
  v(0, 0) = 1.0f;
  v(1, 0) = 3.0f;
  v(2, 0) = 5.0f;
  DenseRow row;
  row.prepare(scores, {0, 3}, v.view(), {});
  const RowQuality quality = row.compare(std::vector<KeyPos>{1, 2}, 0, 0);
  CHECK(quality.mass == 0.0);
  CHECK_THAT(quality.output_error, WithinAbs(3.0, 1e-12));  // (3 + 5) / 2 - 1
  CHECK_THAT(quality.output_error_raw, WithinAbs(1.0, 1e-12));
}

TEST_CASE("age bins are 0, 1, 2-3, 4-7, ...") {
  AgeHistogram ages{};
  count_ages(std::vector<KeyPos>{6, 7, 9, 10}, 10, ages);
  CHECK(std::ranges::count(ages, 1) == 4);
  CHECK(ages[0] * ages[1] * ages[2] * ages[3] == 1);
}

TEST_CASE("calls of the phases") {
  TraceInfo info = make_trace_info(1, 2, 1, 4, 50, 16);
  CallPlan plan{.chunk = 16};
  CHECK(plan_calls(info, plan, "t") ==
        std::vector<TokenRange>{{0, 16}, {16, 32}, {32, 48}, {48, 50}});
  plan.phase = Phase::decode;
  plan.steps = 3;
  CHECK(plan_calls(info, plan, "t") == std::vector<TokenRange>{{25, 26}, {37, 38}, {49, 50}});
  info.n_prompt = 40;
  CHECK(plan_calls(info, plan, "t").front() == TokenRange{40, 41});
  plan.phase = Phase::verify;
  plan.drafts = 4;
  plan.steps = 9;
  CHECK(plan_calls(info, plan, "t") == std::vector<TokenRange>{{42, 46}, {46, 50}});
  plan = {.phase = Phase::decode, .steps = 4, .period = 2};  // runs in which each second one is
  CHECK(plan_calls(info, plan, "t") ==
        std::vector<TokenRange>{{40, 41}, {41, 42}, {48, 49}, {49, 50}});
  info.n_tokens = info.n_prompt = 1;
  CHECK_SAYS(plan_calls(info, plan, "short.h5"), "short.h5: 1 prompt");
}

TEST_CASE("full attention and budgets of the whole context are exact") {
  const MemoryTrace trace = planted_trace(small());
  for (const LayerReplay& layer : replay(trace,
                                         {{"full", {}},
                                          {"oracle-topk", Budget::parse("1000")},
                                          {"streamingllm", Budget::parse("1000")}},
                                         prefill())) {
    for (const PairReplay& pair : layer.pairs) {
      for (double mass : pair.mass_rows) CHECK(mass == 1.0);
      for (double error : pair.of(ReplayMetric::output_error)) CHECK(error == 0.0);
      for (double jaccard : pair.of(ReplayMetric::jaccard)) CHECK(jaccard == 1.0);
      CHECK(pair.of(ReplayMetric::union_keys) == layer.pairs[0].of(ReplayMetric::union_keys));
    }
  }
}

TEST_CASE("counted work of a window is what its definition says") {
  const MemoryTrace trace = planted_trace(small());
  ReplayOptions options = prefill();
  options.rows_per_chunk = std::nullopt;
  const auto layers = replay(trace, {{"streamingllm:n-sink=2", Budget::parse("10")}}, options, {1});
  const PairReplay& pair = layers[0].pairs[0];
  const std::size_t second = 1;  // call [16, 32): every row keeps 2 sinks and 8 recent keys
  CHECK(pair.of(ReplayMetric::kept)[second] == 10.0);
  CHECK(pair.of(ReplayMetric::forced_share)[second] == 1.0);
  CHECK(pair.of(ReplayMetric::union_keys)[second] == 2.0 + 16.0 + 7.0);
  CHECK(pair.of(ReplayMetric::attend_flops)[second] == 4.0 * 8.0 * 10.0 * 16.0);
  CHECK(pair.of(ReplayMetric::churn)[second] == 16.0 / 10.0);  // the last rows share only the sinks
  CHECK(std::isnan(pair.of(ReplayMetric::churn)[0]));
}

TEST_CASE("a method that learns from keys gets those of another text, never the replayed ones") {
  MemoryTrace trace = planted_trace(small());
  PlantOptions plant = small();
  plant.seed = 2;
  plant.n_tokens = 60;
  const MemoryTrace text = planted_trace(plant);
  const std::vector<ReplayPair> pairs = {{"loki:basis=calibrated,rank=2", Budget::parse("8")},
                                         {"loki:rank=2", Budget::parse("8")}};
  ReplayOptions options = prefill();
  CHECK_SAYS(replay(trace, pairs, options), "--calibration");
  options.calibration = &text;
  const auto before = replay(trace, pairs, options, {0});
  // Only the last prompt chunk's keys change: what earlier chunks keep does not.
  for (Index head = 0; head < trace.info().n_kv; ++head) {
    for (Index pos = 85; pos < 90; ++pos) trace.k(0)(head, pos, 0) += 50.0f;
  }
  const auto after = replay(trace, pairs, options, {0});
  for (std::size_t p = 0; p < pairs.size(); ++p) {
    for (std::size_t call = 0; call < 5; ++call) {
      CHECK(before[0].pairs[p].of(ReplayMetric::mass)[call] ==
            after[0].pairs[p].of(ReplayMetric::mass)[call]);
    }
  }
  plant.d_head = 16;
  const MemoryTrace other = planted_trace(plant);
  options.calibration = &other;
  CHECK_SAYS(replay(trace, pairs, options), "channels");
}

TEST_CASE("loki passes over layers with a sliding window") {
  const MemoryTrace trace = planted_trace(small(), [](TraceInfo& info) { info.window[1] = 8; });
  PlantOptions plant = small();
  plant.seed = 2;
  const MemoryTrace text = planted_trace(plant);
  ReplayOptions options = prefill();
  options.calibration = &text;
  for (const Phase phase : {Phase::prefill, Phase::decode}) {
    options.calls.phase = phase;
    for (const std::string spec :
         {"loki:rank=2", "loki:basis=calibrated,rank=2", "keydiff@tokens=16+loki:rank=2"}) {
      INFO(spec);
      CHECK(replay(trace, {{spec, Budget::parse("8")}}, options).size() == 2);
    }
  }
}

TEST_CASE("decode steps of a recording that decoded nothing are lived through as steps") {
  const MemoryTrace source = planted_trace(small());  // 90 tokens, all of them prompt
  const MemoryTrace decoded = planted_trace(small(), [](TraceInfo& info) { info.n_prompt = 45; });
  ReplayOptions options = prefill();
  options.calls.phase = Phase::decode;
  options.calls.steps = 6;
  const std::vector<ReplayPair> pairs = {{"keydiff", Budget::parse("12")},
                                         {"snapkv:window=4", Budget::parse("12")}};
  const auto prompt_only = replay(source, pairs, options);
  const auto with_decoded = replay(decoded, pairs, options);
  REQUIRE(prompt_only[0].calls == with_decoded[0].calls);
  for (std::size_t p = 0; p < pairs.size(); ++p) {
    CHECK(same_bits(prompt_only[1].pairs[p].of(ReplayMetric::mass),
                    with_decoded[1].pairs[p].of(ReplayMetric::mass)));
    CHECK(same_bits(prompt_only[1].pairs[p].of(ReplayMetric::kept),
                    with_decoded[1].pairs[p].of(ReplayMetric::kept)));
  }
}

TEST_CASE("a call has the same numbers whichever other calls are measured") {
  const MemoryTrace trace = planted_trace(small(), [](TraceInfo& info) { info.n_prompt = 45; });
  const std::vector<ReplayPair> pairs = {{"tova", Budget::parse("12")},
                                         {"h2o", Budget::parse("12")},
                                         {"quest:page-size=4+every=4", Budget::parse("12")}};
  for (const Phase phase : {Phase::decode, Phase::verify}) {
    ReplayOptions options = prefill();
    options.calls = {.phase = phase, .steps = 90, .drafts = 3};
    const auto all = replay(trace, pairs, options)[1];
    options.calls.steps = 4;
    const auto some = replay(trace, pairs, options)[1];
    REQUIRE(some.calls.size() == 4);
    for (std::size_t p = 0; p < pairs.size(); ++p) {
      INFO(enum_name(phase) << ", " << pairs[p].selector.text());
      for (std::size_t c = 0; c < some.calls.size(); ++c) {
        const auto at = std::ranges::find(all.calls, some.calls[c]) - all.calls.begin();
        CHECK(some.pairs[p].of(ReplayMetric::mass)[c] ==
              all.pairs[p].of(ReplayMetric::mass)[static_cast<std::size_t>(at)]);
      }
    }
  }
}

TEST_CASE("a verification gets the draft's rows of the queries that proposed its tokens") {
  const MemoryTrace trace = planted_trace(small());
  ThreadPool pool(1);
  ReplayOptions options = prefill();
  options.calls.phase = Phase::verify;
  options.calls.drafts = 1;  // one token, proposed by the query before it
  options.rows_per_chunk.reset();
  std::vector<std::vector<KeyPos>> kept;
  std::vector<Index> positions;
  options.q_heads = {0};
  options.on_row = [&](const MeasuredRow& row) {
    positions.push_back(row.pos);
    kept.emplace_back(row.kept[0].begin(), row.kept[0].end());
  };
  const ReplayPair pair{"specattn:blocks=none,layer-map=identity", Budget::parse("p=0.5")};
  replay_layers(trace, &trace, {1}, {pair}, options, pool);
  REQUIRE(!positions.empty());
  for (std::size_t i = 0; i < positions.size(); ++i) {
    const Index t = positions[i];
    std::vector<double> mean(static_cast<std::size_t>(t), 0.0);  // of the row at t - 1
    for (Index head = 0; head < trace.info().n_q; ++head) {
      const auto row = kvscope::test::naive_row(trace, 1, head, t - 1);
      for (std::size_t j = 0; j < row.size(); ++j) mean[j] += row[j];
    }
    std::vector<Index> order(mean.size());
    for (std::size_t j = 0; j < order.size(); ++j) order[j] = static_cast<Index>(j);
    std::ranges::sort(order, [&](Index a, Index b) { return mean[a] > mean[b]; });
    double total = 0.0;
    for (const double x : mean) total += x;
    std::set<KeyPos> expected = {static_cast<KeyPos>(t - 1), static_cast<KeyPos>(t)};
    double mass = 0.0;
    for (const Index key : order) {
      if (mass >= 0.5 * total) break;
      mass += mean[key];
      expected.insert(static_cast<KeyPos>(key));
    }
    CHECK(std::set<KeyPos>(kept[i].begin(), kept[i].end()) == expected);
  }
}

}  // namespace kvscope::test::replay_test
