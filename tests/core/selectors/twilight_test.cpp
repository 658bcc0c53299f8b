// What Twilight says about itself before it is asked: it needs what its base needs.
#include "core/sim/protocol.hpp"
#include "tests/core/selectors/kit.hpp"

namespace kvscope::twilight_test {

using namespace kvscope::test;

TEST_CASE("twilight: caps are its base's before the first call") {
  CHECK(MethodSpec("twilight:base=specattn,base-budget=p=0.9").caps().needs_draft);
  CHECK(MethodSpec("twilight:base=lessismore").caps().cross_layer);
  CHECK(MethodSpec("twilight:base=loki:basis=calibrated").caps().needs_calibration);
  CHECK(MethodSpec("twilight:base=sparq").caps().needs_values);
  CHECK(MethodSpec("twilight:base=oracle-topk").caps().uses_pool);
  CHECK_FALSE(MethodSpec("twilight:base=recent,bits=16").caps().needs_draft);
}

TEST_CASE("twilight: a sequence changes none of its caps") {
  for (const SelectorEntry& base : selector_registry().entries()) {
    if (base.name == "twilight" || base.caps.permanent || base.caps.needs_probs) continue;
    INFO(base.name);
    const MethodSpec spec("twilight:base=" + base.name);
    const auto selector = spec.make();
    selector->reset({.n_layers = 3, .n_q = 4, .n_kv = 2, .d_head = 8, .max_tokens = 64});
    const SelectorCaps later = selector->caps();
    CHECK(spec.caps().prefill == later.prefill);
    CHECK(spec.caps().decode == later.decode);
    CHECK(spec.caps().verify == later.verify);
    CHECK(spec.caps().needs_calibration == later.needs_calibration);
    CHECK(spec.caps().needs_draft == later.needs_draft);
    CHECK(spec.caps().needs_values == later.needs_values);
    CHECK(spec.caps().cross_layer == later.cross_layer);
    CHECK(spec.caps().uses_pool == later.uses_pool);
  }
}

TEST_CASE("twilight does not show its base's scores as its own") {
  const Sequence sequence = random_sequence({.n_tokens = 60, .n_decode = 4, .seed = 3});
  SelectorRun run(make_selector("twilight:dense-layers=0", sequence), sequence.shape,
                  {{Budget::Kind::mass, 0.9}});
  run_call(run, sequence, Phase::prefill, 40);
  run.begin_call(Phase::decode, 1);
  SelectionTrace trace;
  LayerCall call{.q = sequence.q[0].view().range(1, 40, 41),
                 .k = sequence.k[0].view().range(1, 0, 41),
                 .v = sequence.v[0].view().range(1, 0, 41),
                 .trace = &trace};
  CHECK_FALSE(run.layer_call(call)[0].is_dense);
  CHECK(trace.scores.empty());
}

}  // namespace kvscope::twilight_test
