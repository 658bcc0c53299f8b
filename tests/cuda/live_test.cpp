// Methods inside models on the GPU: Quest, QuoKA and exact attention choose there, others ask it
// for sums, norms, products or scores, all with the lists of the CPU's engine.
#include <algorithm>
#include <cmath>
#include <cstdio>
#include <map>
#include <optional>

#include <catch2/generators/catch_generators.hpp>
#include "core/base/data_dir.hpp"
#include "core/cuda/backend.hpp"
#include "core/sim/live.hpp"
#include "tests/cuda/device_batch.hpp"
#include "tests/support/model_capture.hpp"

namespace kvscope::test::live_test {

// Lets the GPU choose, fetches its lists, and asks the host's method about the very rows.
class Compared final : public AttentionPolicy, public Observer {
 public:
  Compared(const ModelConfig& config, const MethodSpec& method, const Budget& budget, Index n)
      : run_(method.make(), attention_shape(config, n), {budget}, std::nullopt,
             ScorePrecision::f32),
        remote_run_(method.make(), attention_shape(config, n), {budget}, std::nullopt,
                    ScorePrecision::f32) {}
  void begin(Phase phase, Index n_tok) {
    run_.begin_call(phase, n_tok);
    remote_run_.begin_call(phase, n_tok);
  }

  bool takes(Index) const override { return true; }
  std::optional<ListPlan> plan(Index layer) override { return run_.plan(layer); }
  ChosenAbout asks(const ListPlan&) const override { return ChosenAbout::lists; }
  HostRows host_rows(Index) override { return remote_run_.host_rows(); }
  const Selection& choose(const AttentionQuestion& question) override {
    if (question.remote != nullptr) {
      const Selection& selection = remote_run_.layer_call(question)[0];
      remote_selection_ = selection.lists_alone();
      return selection;
    }
    ++n_on_host;
    pass_over(question, dense(question.n_tok));
    return host_ = dense(question.n_tok);
  }
  void on_planned(const AttentionQuestion& question, const ListPlan& plan,
                  const ChosenKeys& chosen) override {
    if (plan.by == ListPlan::By::nothing) return pass_over(question, dense(question.n_tok));
    Selection found = chosen.lists();
    const Selection& expected = expected_.at(question.layer);
    // of pages nobody says which was kept by rule
    if (!expected.is_dense) compare(expected, found, plan.by != ListPlan::By::page_bounds);
    pass_over(question, std::move(found));
  }
  bool wants(Index) const override { return true; }
  void on_attention(const AttentionEvent& event) override {
    const Selection& selection = run_.layer_call(
        {.layer = event.layer, .q = event.q, .k = event.k_cache, .v = event.v_cache})[0];
    if (remote_selection_) {
      CHECK(selection.is_dense == remote_selection_->is_dense);
      if (!selection.is_dense) compare(selection, *remote_selection_, /*tells_forced=*/true);
      remote_selection_.reset();
    }
    expected_.insert_or_assign(event.layer, selection.lists_alone());
  }
  int n_lists = 0, n_different = 0, n_on_host = 0;

 private:
  static Selection dense(Index n_tok) {
    Selection all(ListOwner::layer, n_tok, n_tok);
    all.is_dense = true;
    return all;
  }
  /// Others answered this call.
  void pass_over(const AttentionQuestion& question, Selection selection) {
    remote_run_.planned_call(question, std::move(selection));
  }
  void compare(const Selection& expected, const Selection& found, bool tells_forced) {
    REQUIRE(expected.n_lists() == found.n_lists());
    for (Index i = 0; i < expected.n_lists(); ++i) {
      const auto a = expected.at(i).keys;
      const auto b = found.at(i).keys;
      ++n_lists;
      if (tells_forced && a.size() == b.size())
        CHECK(std::ranges::equal(expected.at(i).is_forced, found.at(i).is_forced));
      n_different += std::ranges::equal(a, b) ? 0 : 1;
    }
  }

  SelectorRun run_;         // asked about the device's rows on the host
  SelectorRun remote_run_;  // of a method that asks the device
  Selection host_;
  std::optional<Selection> remote_selection_;
  std::map<Index, Selection> expected_;  // by layer, of the running call
};

TEST_CASE("gpu: methods inside a model choose the lists of the host's engine",
          "[gpu][backend][live]") {
  KVSCOPE_NEEDS_DEVICE();
  const DType dtype = GENERATE(DType::f32, DType::bf16);
  const Transformer model =
      Transformer::load(embedded_verifier(), gpu::cuda_backend({0, false, dtype}));
  struct Case {
    const char* method;
    Index chunk;
    double budget;  // of tokens; below 1: a share
  };
  for (const Case& c : {Case{"quoka", 128, 64},
                        Case{"quoka:n-queries=4", 50, 200},
                        Case{"quest:dense-layers=0", 1, 64},
                        Case{"quest-frontier", 1, 96},
                        Case{"quest:dense-layers=0", 60, 64},
                        Case{"quest-frontier:page-size=8", 128, 96},
                        Case{"quest-paper", 100, 40},
                        Case{"quest:owner=group_max,pages=hub,dense-layers=1", 1, 64},
                        Case{"streamingllm", 128, 64},
                        Case{"streamingllm:n-sink=0", 1, 96},
                        Case{"oracle-topk", 60, 64},
                        Case{"oracle-topk", 1, 200},
                        Case{"oracle-topk-past", 50, 64},
                        Case{"oracle-topk-group", 60, 64},
                        Case{"oracle-topk-group", 1, 64},
                        Case{"oracle-topk:variant=per_group_max,scope=past", 1, 64},
                        Case{"oracle-topk-chunk", 128, 64},
                        Case{"oracle-topk-chunk", 1, 64},
                        Case{"minference-vertical-slash:n-vertical=40,n-slash=60", 100, 64},
                        Case{"minference-vertical-slash:n-voters=200,forced-vertical=3,forced-"
                             "slash=5",
                             128, 64},
                        Case{"oracle-topp", 60, 0.9},
                        Case{"oracle-topp", 1, 0.99},
                        Case{"ceiling", 60, 64},
                        Case{"ceiling:level=0.03", 1, 64},
                        Case{"oracle-pages", 60, 64},
                        Case{"oracle-pages:owner=group_max,pages=hub", 1, 96},
                        Case{"oracle-pages:page-size=8", 1, 64},
                        Case{"tova", 60, 64},
                        Case{"tova-kvpress", 1, 64},
                        Case{"snapkv:window=16", 100, 64},
                        Case{"snapkv", 1, 96},
                        Case{"sparq", 60, 64},
                        Case{"sparq:n-channels=16", 128, 96},
                        Case{"keydiff", 60, 64},
                        Case{"keydiff:anchor=raw,recent-share=0.25", 1, 64},
                        Case{"adakv:window=16", 100, 64},
                        Case{"h2o", 100, 64},
                        Case{"knorm", 60, 64},
                        Case{"sparq", 1, 64},
                        Case{"sparq:mean-value=false,local-share=0", 1, 96},
                        Case{"sparq:n-channels=8,local-share=0.7", 1, 700},
                        Case{"quoka:queries=nearest", 60, 64},
                        Case{"kascade:anchors=0/3", 100, 96},
                        Case{"lessismore", 100, 96},
                        Case{"lessismore", 1, 96},
                        Case{"bigbird", 60, 64},
                        Case{"random", 1, 64}}) {
    INFO(c.method);
    constexpr Index kTokens = 900;
    Compared compared(model.config(), MethodSpec(c.method),
                      {c.budget < 1.0 ? Budget::Kind::mass : Budget::Kind::tokens, c.budget},
                      kTokens);
    const auto store = model.make_store(kTokens);
    ThreadPool pool(2);
    std::vector<TokenId> tokens;
    for (Index t = 0; t < kTokens; ++t)
      tokens.push_back(static_cast<TokenId>((t * t / 5 + t * 31) % 4096));
    // Quest's lists matter in decode: most of the text comes in one call.
    Index at = 0;
    while (at < kTokens) {
      const Index n = c.chunk > 1 ? std::min(c.chunk, kTokens - at) : at == 0 ? 860 : 1;
      compared.begin(c.chunk > 1 || at == 0 ? Phase::prefill : Phase::decode, n);
      model.forward({tokens.data() + at, static_cast<std::size_t>(n)}, *store, pool,
                    {Logits::none, &compared, &compared});
      at += n;
    }
    CHECK(compared.n_lists > 0);
    // a weight, or a sum of weights, at the very edge of a level or share may fall on either side
    const bool has_edge = std::string_view(c.method).starts_with("oracle-topp") ||
                          std::string_view(c.method).starts_with("ceiling");
    CHECK(compared.n_different <= (has_edge ? 5 : 0));
    CHECK(compared.n_on_host == 0);
    fmt::print("{:<50} {}: {} lists, {} differ\n", c.method, enum_name(dtype), compared.n_lists,
               compared.n_different);
  }
}

TEST_CASE("gpu: a sequence under a method gives the CPU's logits and counts",
          "[gpu][backend][live]") {
  KVSCOPE_NEEDS_DEVICE();
  const Transformer cpu = Transformer::load(embedded_verifier());
  const Transformer gpu =
      Transformer::load(embedded_verifier(), gpu::cuda_backend({0, false, DType::f32}));
  std::vector<TokenId> tokens;
  for (Index t = 0; t < 700; ++t)
    tokens.push_back(static_cast<TokenId>((t * t / 3 + t * 7) % 4096));
  for (const char* method :
       {"full", "quoka", "quest", "quest-frontier:page-size=8",
        "quest:dense-layers=0,page-size=2,pages=eval", "sparq", "sparq:mean-value=false", "snapkv",
        "tova", "keydiff", "streamingllm", "oracle-topk", "oracle-topk-group", "oracle-topk-chunk",
        "oracle-topp", "ceiling", "oracle-pages"}) {
    INFO(method);
    ThreadPool pool(2);
    const auto play = [&](const Transformer& model) {
      const MethodSpec spec(method);
      std::optional<Budget> budget;
      if (!spec.caps().budgets.empty())
        budget = spec.caps().budgets.front() == Budget::Kind::mass
                     ? Budget{Budget::Kind::mass, 0.9}
                     : Budget{Budget::Kind::tokens, 96};
      LiveSequence live(model, {spec, budget, std::nullopt}, 720, pool);
      const bool is_sparse = spec.caps().prefill;
      // the prompt ends in a call of one token, which is no decode step
      live.prefill({tokens.data(), 641}, 128, is_sparse ? PrefillMode::sparse : PrefillMode::dense);
      live.run(Phase::decode, {tokens.data() + 640, 1}, Logits::none);
      live.rollback(630);
      Tensor<float> last;
      for (std::size_t t = 640; t < 650; ++t)
        last = live.run(Phase::decode, {tokens.data() + t, 1}, Logits::last);
      const CostTotals kept = live.stats().all();
      CHECK(live.stats().times.total > 0.0);
      return std::pair(std::move(last), std::pair(kept.attended, kept.loaded));
    };
    const auto expected = play(cpu);
    const auto found = play(gpu);
    double worst = 0.0;
    for (std::size_t i = 0; i < expected.first.flat().size(); ++i)
      worst = larger_gap(
          worst, static_cast<double>(std::abs(expected.first.flat()[i] - found.first.flat()[i])));
    std::printf("%-17s logits differ by at most %.1e\n", method, worst);
    CHECK(worst < 2e-3);
    // a sum of weights that ends on a share's very edge may end on its other side
    const double tolerance = std::string_view(method) == "oracle-topp" ? 1e-4 : 0.0;
    const auto is_same = [&](double a, double b) { return std::abs(a - b) <= tolerance * a; };
    CHECK(is_same(expected.second.first, found.second.first));
    CHECK(is_same(expected.second.second, found.second.second));
  }
}

}  // namespace kvscope::test::live_test
