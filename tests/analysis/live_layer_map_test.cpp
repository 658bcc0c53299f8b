// The layer map of running models against `analyze layer-map` on recordings of the same text: one
// method, two ways to its rows.
#include "core/sim/live_layer_map.hpp"
#include "analysis/kinds/layer_map.hpp"
#include "core/base/data_dir.hpp"
#include "core/base/progress.hpp"
#include "core/trace/memory_trace.hpp"
#include "core/trace/result.hpp"
#include "tests/support/golden.hpp"
#include "tests/support/planted_trace.hpp"
#include "tests/support/test.hpp"

namespace kvscope::live_layer_map_test {

/// Records q and k of one forward call.
class Recorder final : public Observer {
 public:
  explicit Recorder(MemoryTrace& trace) : trace_(trace) {}
  bool wants(Index) const override { return true; }
  void on_attention(const AttentionEvent& event) override {
    copy(event.q, trace_.q(event.layer));
    copy(event.k, trace_.k(event.layer));
  }

 private:
  static void copy(TensorView<const float> from, TensorView<float> to) {
    for (Index head = 0; head < from.dim(0); ++head) {
      for (Index row = 0; row < from.dim(1); ++row)
        std::copy_n(from.sub(head).row(row).data(), from.dim(2), to.sub(head).row(row).data());
    }
  }
  MemoryTrace& trace_;
};

MemoryTrace recorded(const Transformer& model, std::span<const TokenId> text, ThreadPool& pool) {
  const ModelConfig& config = model.config();
  const auto n = static_cast<Index>(text.size());
  TraceInfo info = make_trace_info(config.n_layers, config.n_q, config.n_kv, config.d_head, n, n);
  info.score_scale = config.score_scale();
  info.window = config.window;
  info.sink_logits = model.sink_logits();
  MemoryTrace trace(info);
  trace.set_tokens({text.begin(), text.end()});
  Recorder recorder(trace);
  KvCache cache(config, n);
  model.forward(text, cache, pool, ForwardOptions{.observer = &recorder});
  return trace;
}

void check_maps(const Transformer& verifier, const Transformer& draft,
                std::span<const TokenId> text) {
  ThreadPool pool(2);
  const MemoryTrace verifier_trace = recorded(verifier, text, pool);
  const MemoryTrace draft_trace = recorded(draft, text, pool);
  LayerMapOptions options{.row_choice = RowChoice::all};
  options.min_visible = 17;  // the live map's rows: from position 16 on
  MemoryResult result;
  analyze_layer_map(verifier_trace, draft_trace, options, {result, pool});
  const auto kl = result.values<double>("kl");
  const Tensor<double> live = measure_layer_divergences(verifier, draft, text, /*stride=*/1, pool);
  REQUIRE(kl.size() == live.flat().size());
  for (std::size_t i = 0; i < kl.size(); ++i) {
    INFO(i);
    CHECK(live.flat()[i] == Catch::Approx(kl[i]).epsilon(1e-9).margin(1e-12));
  }
  const auto map = measure_layer_map(verifier, draft, text, /*stride=*/1, pool);
  const auto monotone = result.values<std::int64_t>("monotone_map");
  CHECK(std::equal(map.begin(), map.end(), monotone.begin(), monotone.end()));
}

TEST_CASE("layer-map: running models and their recordings have the same divergences") {
  std::vector<TokenId> text;
  for (Index i = 0; i < 60; ++i) text.push_back(static_cast<TokenId>(5 + (i * 37) % 90));
  SECTION("a pair") {
    check_maps(Transformer::load(embedded_verifier()), Transformer::load(embedded_draft()), text);
  }
  SECTION("attention sinks and sliding windows") {
    const Transformer model = Transformer::load(test::golden_dir() / "gpt_oss");
    REQUIRE_FALSE(model.sink_logits().empty());
    check_maps(model, model, text);
  }
}

}  // namespace kvscope::live_layer_map_test
