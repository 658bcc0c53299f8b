// What the recorder's observer hands on: chosen heads and rows, attention that fits them, keys
// before rotation.
#include "traces/recorder.hpp"

#include <algorithm>
#include <catch2/catch_test_macros.hpp>
#include <catch2/matchers/catch_matchers_floating_point.hpp>
#include <cmath>

#include "tests/traces/synthetic.hpp"
#include "traces/attention_rows.hpp"
#include "traces/reader.hpp"
#include "traces/recording_observer.hpp"
#include "traces/verify.hpp"
#include "traces/writer.hpp"

namespace kvscope::test::recorder_test {

ModelConfig model() {
  return ModelConfig{.n_layers = 3,
                     .n_q = 4,
                     .n_kv = 2,
                     .d_head = 8,
                     .d_model = 32,
                     .n_vocab = 50,
                     .max_positions = 64,
                     .window = {std::nullopt, 6, std::nullopt}};
}

/// Shows the observer what a model would show it, call by call.
void play(const SyntheticTrace& truth, RecordingObserver& observer, TraceReceiver& receiver) {
  const TraceInfo& info = truth.info;
  for (const ForwardCall& call : info.calls) {
    const Index begin = call.tokens.begin;
    const Index end = call.tokens.end;
    for (Index i = 0; i < info.n_layers; ++i) {
      if (!observer.wants(i)) continue;
      const auto& layer = truth.layers[i];
      AttentionEvent event{.layer = i,
                           .pos_begin = begin,
                           .n_tok = end - begin,
                           .score_scale = info.score_scale,
                           .q = layer.q.view().range(1, begin, end),
                           .k = layer.k.view().range(1, begin, end),
                           .v = layer.v.view().range(1, begin, end),
                           .lse = layer.lse.view().range(1, begin, end),
                           .k_cache = layer.k.view().range(1, 0, end),
                           .v_cache = layer.v.view().range(1, 0, end)};
      observer.on_attention(event);
    }
    observer.on_logits(begin, truth.logits.view().range(0, begin, end));
    const auto b = static_cast<std::size_t>(begin);
    const auto n = static_cast<std::size_t>(end - begin);
    receiver.write_tokens(std::span(truth.tokens).subspan(b, n),
                          std::span(truth.texts).subspan(b, n));
    receiver.commit_call();
  }
}

TEST_CASE("keys before rotation: turned back pair by pair, where the layer turns them") {
  ModelConfig config = model();
  config.rotary_dim = 6;
  const auto powers = [](double theta) {
    std::vector<float> frequencies;
    for (const double i : {0.0, 1.0, 2.0})
      frequencies.push_back(static_cast<float>(std::pow(theta, -2.0 * i / 6.0)));
    return frequencies;
  };
  config.rope = {powers(100.0), 1.5};
  config.local_rope = RopeConfig{powers(7.0)};
  config.has_rope = {true, true, false};
  const PreRotary pre_rotary(config);
  Tensor<float> before({2, 5, 8});
  for (Index i = 0; i < before.count(); ++i)
    before.data()[i] = std::sin(static_cast<float>(i) * 0.7f);
  for (Index layer = 0; layer < 3; ++layer) {
    Tensor<float> after({2, 5, 8});
    std::copy_n(before.data(), before.count(), after.data());
    const double theta = layer == 1 ? 7.0 : 100.0;  // layer 1 has a window
    const double amplitude = layer == 1 ? 1.0 : 1.5;
    for (Index head = 0; head < 2 && layer < 2; ++head) {
      for (Index t = 0; t < 5; ++t) {
        for (Index i = 0; i < 3; ++i) {
          const double angle =
              static_cast<double>(40 + t) * std::pow(theta, -2.0 * static_cast<double>(i) / 6.0);
          const auto x = static_cast<double>(before(head, t, i));
          const auto y = static_cast<double>(before(head, t, i + 3));
          after(head, t, i) =
              static_cast<float>(amplitude * (x * std::cos(angle) - y * std::sin(angle)));
          after(head, t, i + 3) =
              static_cast<float>(amplitude * (y * std::cos(angle) + x * std::sin(angle)));
        }
      }
    }
    const Tensor<float> found = pre_rotary.before(layer, 40, after.view());
    for (Index i = 0; i < before.count(); ++i)
      CHECK_THAT(found.data()[i], WithinAbs(before.data()[i], layer == 2 ? 0.0 : 1e-5));
  }
}

TEST_CASE(
    "the observer records the chosen heads and rows of what it sees, and attention to match") {
  Plan plan;
  plan.capture.attn_dense = plan.capture.logits = plan.capture.stats = true;
  plan.capture.attn_topk = 5;
  plan.capture.page_size = 4;
  SECTION("everything") {}
  SECTION("heads apart, some rows") {
    plan.layers = {0, 1};
    plan.q_heads = {0, 1, 3};
    plan.rows = {3, 22};
  }
  SECTION("one head of the second group") {
    plan.layers = {1};
    plan.q_heads = {3};
    plan.kv_heads = {1};
    plan.rows = {10, 12};
  }
  const SyntheticTrace truth = make_trace(plan);
  const TraceInfo& info = truth.info;
  const TempFolder folder;
  ThreadPool pool(3);
  auto receiver = create_trace(folder / "t.h5", {});
  receiver->begin(info);
  RecordingObserver observer(info, *receiver, pool);
  play(truth, observer, *receiver);
  receiver->finish(TraceStatus::complete);

  const TraceFile file = TraceFile::open(folder / "t.h5");
  for (const Index i : info.layers) {
    const auto& layer = truth.layers[i];
    for (const Index h : info.q_heads) {
      const auto q = file.read_q(i, h, info.rows);
      const auto lse = file.read_lse(i, h, info.rows);
      const auto attn = file.read_attn(i, h, info.rows);
      const auto top = file.read_topk(i, h, info.rows);
      for (Index t = 0; t < info.rows.size(); ++t) {
        const Index pos = info.rows.begin + t;
        REQUIRE(q(t, 5) == layer.q(h, pos, 5));
        REQUIRE(lse(t) == layer.lse(h, pos));
        for (Index j = 0; j < info.n_tokens; ++j)
          REQUIRE_THAT(attn(t, j), WithinAbs(layer.attn(h, pos, j), 1e-5));
        for (Index n = 0; n < 5; ++n) {
          if (top.pos(t, n) < 0) {
            REQUIRE(top.prob(t, n) == 0.0f);
            continue;
          }
          REQUIRE(top.prob(t, n) == attn(t, top.pos(t, n)));
          if (n > 0) REQUIRE(top.prob(t, n) <= top.prob(t, n - 1));
        }
        REQUIRE(file.read_logits({pos, pos + 1})(0, 7) == truth.logits(pos, 7));
      }
    }
    for (const Index h : info.kv_heads) {
      REQUIRE(file.read_v(i, h, {9, 10})(0, 2) == layer.v(h, 9, 2));
      float low = INFINITY;
      for (Index t = 16; t < 20; ++t) low = std::min(low, layer.k(h, t, 6));
      REQUIRE(file.read_stat("page_min", i, h)(4, 6) == low);
    }
  }
  check_verifies(folder / "t.h5");
}

TEST_CASE("the N largest, ties to the lower position, short rows padded") {
  const std::vector<float> probs = {0.1f, 0.3f, 0.1f, 0.2f, 0.3f};
  std::vector<std::int32_t> order;
  std::vector<std::int32_t> pos(4);
  std::vector<float> prob(4);
  largest_entries(probs, 0, 5, order, pos, prob);
  CHECK(pos == std::vector<std::int32_t>{1, 4, 3, 0});
  largest_entries(probs, 2, 4, order, pos, prob);
  CHECK(pos == std::vector<std::int32_t>{3, 2, -1, -1});
  CHECK(prob == std::vector<float>{0.2f, 0.1f, 0.0f, 0.0f});
}

}  // namespace kvscope::test::recorder_test
