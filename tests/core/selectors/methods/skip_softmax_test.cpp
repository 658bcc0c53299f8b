// Skip softmax against a stream of tiles by loops; its limits; and that it saves half of the bytes
// at most.
#include <fmt/format.h>

#include "core/base/parallel.hpp"
#include "core/selectors/learned.hpp"
#include "core/selectors/method_spec.hpp"
#include "core/selectors/registry.hpp"
#include "tests/core/selectors/call_fixture.hpp"
#include "tests/core/selectors/lists.hpp"
#include "tests/core/selectors/sequence.hpp"
#include "tests/support/planted_trace.hpp"
#include "tests/support/test.hpp"

namespace kvscope::test::skip_softmax_test {

std::vector<KeyPos> naive_stream(const CallFixture& f, Index block_q, Index block_k, double lambda,
                                 Index q_head, Index first) {
  const Index kv_head = q_head / f.group();
  const Index end = std::min(first + block_q, f.call.n_tok);
  std::vector<double> running(static_cast<std::size_t>(end),
                              -std::numeric_limits<double>::infinity());
  std::vector<KeyPos> keys;
  for (Index tile = 0; tile < f.call.pos_begin + end; tile += block_k) {
    const Index tile_end = std::min(tile + block_k, f.call.pos_begin + end);
    bool is_skipped = true;
    for (Index row = first; row < end; ++row) {
      double largest = -std::numeric_limits<double>::infinity();
      for (Index t = tile; t < tile_end; ++t)
        if (f.sees(q_head, row, t)) largest = std::max(largest, f.logit(q_head, row, t));
      double& max = running[row];
      max = std::max(max, largest);
      if (std::exp(largest - max) >= lambda) is_skipped = false;
    }
    for (Index t = tile; !is_skipped && t < tile_end; ++t)
      if (f.alive.is_alive(kv_head, static_cast<KeyPos>(t))) keys.push_back(static_cast<KeyPos>(t));
  }
  return keys;
}

TEST_CASE("skip-softmax: a stream of tiles by loops agrees, in chunks and decode, with dead keys") {
  for (const Index n_tok : {1, 21}) {
    for (const bool has_dead : {false, true}) {
      CallFixture fixture({.n_q = 4,
                           .n_kv = 2,
                           .n_past = 90,
                           .n_tok = n_tok,
                           .phase = n_tok == 1 ? Phase::decode : Phase::prefill});
      for (float& x : fixture.q.flat()) x *= 4.0f;
      for (KeyPos pos = 11; has_dead && pos < 40; ++pos) fixture.alive.kill(1, pos);
      const Selection selection =
          made("skip-softmax:block-q=8,block-k=4,lambda=0.05", fixture)->select(fixture.call);
      const Selection scaled =
          made("skip-softmax:block-q=8,block-k=4,scale=3", fixture)->select(fixture.call);
      for (Index h = 0; h < 4; ++h) {
        for (Index first = 0; first < n_tok; first += 8) {
          INFO(n_tok << " rows, dead " << has_dead << ", head " << h << ", tile of queries from "
                     << first);
          CHECK(merged(selection.list(h, first)) == naive_stream(fixture, 8, 4, 0.05, h, first));
          CHECK(merged(scaled.list(h, first)) ==
                naive_stream(fixture, 8, 4, 3.0 / static_cast<double>(90 + n_tok), h, first));
        }
      }
    }
  }
}

TEST_CASE(
    "skip-softmax: the order matters, the largest score is always kept, a small lambda keeps "
    "everything") {
  CallFixture fixture({.n_q = 1, .n_kv = 1, .n_past = 63, .n_tok = 1, .phase = Phase::decode});
  for (Index t = 0; t < 64; ++t) {  // scores of 0, and 8 at position 33
    for (Index c = 0; c < 16; ++c)
      fixture.k(0, t, c) = t == 33 && c == 0 ? 32.0f / fixture.q(0, 0, 0) : 0.0f;
  }
  // what comes before the peak is kept, what comes after it is far below
  CHECK(merged(made("skip-softmax:block-k=8,lambda=0.5", fixture)->select(fixture.call).at(0)) ==
        positions(0, 40));
  CHECK(made("skip-softmax:block-k=8,lambda=0.0001", fixture)->select(fixture.call).at(0).size() ==
        64);
  CHECK(made("skip-softmax:block-k=8,scale=0", fixture)->select(fixture.call).at(0).size() == 64);
  // 1000 / 64 keys is more than 1, which is the most
  CHECK(merged(made("skip-softmax:block-k=8", fixture)->select(fixture.call).at(0)) ==
        positions(0, 40));
}

TEST_CASE("skip-softmax: with attention's own bytes all keys are read and at most half is saved") {
  for (const double lambda : {1e-9, 0.01, 1.0}) {
    CallFixture fixture({.n_q = 4, .n_kv = 2, .d_head = 8, .n_past = 90, .n_tok = 6});
    for (float& x : fixture.q.flat()) x *= 4.0f;
    const auto selector =
        made(fmt::format("skip-softmax:block-q=3,block-k=4,lambda={}", lambda), fixture);
    const Selection selection = selector->select(fixture.call);
    double n_union = 0.0;     // keys that a KV head reads
    double n_attended = 0.0;  // pairs of query and key
    double n_visible = 0.0;
    for (Index kv = 0; kv < 2; ++kv) {
      std::vector<bool> is_read(96, false);
      for (Index h = 2 * kv; h < 2 * kv + 2; ++h) {
        for (Index row = 0; row < 6; ++row) {
          n_visible += static_cast<double>(90 + row + 1);
          for (const KeyPos pos : selection.list(h, row).keys) {
            if (pos > 90 + row) continue;
            is_read[pos] = true;
            n_attended += 1.0;
          }
        }
      }
      n_union += static_cast<double>(std::ranges::count(is_read, true));
    }
    const SelectCost cost = selector->cost(fixture.call, selection);
    // keys of 16 bytes: all 192 once, and the values of those attended to
    CHECK(cost.score_bytes + 32.0 * n_union == Catch::Approx(192.0 * 16.0 + n_union * 16.0));
    CHECK(cost.score_bytes + 32.0 * n_union >= 0.5 * 192.0 * 32.0);
    // 2 d for the product of every visible pair, 2 d more with values
    CHECK(cost.score_flops + 32.0 * n_attended ==
          Catch::Approx(16.0 * n_visible + 16.0 * n_attended));
    if (lambda < 1e-6) CHECK(cost.score_bytes == 0.0);
    if (lambda == 1.0) CHECK(cost.score_bytes > 0.0);
  }
}

TEST_CASE(
    "skip-softmax: the fit counts what lists of the same thresholds leave out, and its "
    "target is about what is skipped") {
  PlantOptions plant{
      .n_layers = 2, .n_q = 4, .n_kv = 2, .d_head = 16, .n_tokens = 512, .query_scale = 3.0};
  const MemoryTrace text = planted_trace(plant);
  const std::string spec = "skip-softmax:block-q=4,block-k=16";
  const auto fitted = [&](const std::string& more, int n_threads) {
    auto selector = selector_registry().make(spec + more);
    ThreadPool pool(n_threads);
    selector->calibrate(text, text.info().layers, pool);
    return selector;
  };
  CHECK(selector_registry().make(spec + ",by=target")->caps().needs_calibration);
  CHECK(!selector_registry().make(spec)->caps().needs_calibration);
  CHECK(fitted(",by=target", 1)->learned().values == fitted(",by=target", 3)->learned().values);
  for (const double target : {0.3, 0.6}) {
    auto selector = fitted(fmt::format(",by=target,target={}", target), 2);
    double n_kept = 0.0;
    double n_all = 0.0;
    for (Index layer = 0; layer < 2; ++layer) {
      for (Index end = 300; end < 512; end += 7) {
        CallFixture fixture(
            {.d_head = 16, .n_past = end - 1, .n_tok = 1, .phase = Phase::decode, .layer = layer});
        for (Index h = 0; h < 4; ++h) {
          const Tensor<float> q = text.read_q(layer, h, {end - 1, end});
          std::copy(q.flat().begin(), q.flat().end(), fixture.q.view().sub(h).data());
        }
        for (Index h = 0; h < 2; ++h) {
          const Tensor<float> k = text.read_k(layer, h, {0, end});
          std::copy(k.flat().begin(), k.flat().end(), fixture.k.view().sub(h).data());
        }
        fixture.call.score_scale = text.info().score_scale;
        fixture.bind();
        selector->reset(fixture.attention());
        const Selection selection = selector->select(fixture.call);
        for (Index h = 0; h < 4; ++h) n_kept += static_cast<double>(selection.list(h, 0).size());
        n_all += 4.0 * static_cast<double>(end);
      }
    }
    INFO("target " << target << ", skipped " << 1.0 - n_kept / n_all);
    CHECK(1.0 - n_kept / n_all == Catch::Approx(target).margin(0.12));
  }
}

}  // namespace kvscope::test::skip_softmax_test
