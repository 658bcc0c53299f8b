// ThinK: the channels that stay are those of kvpress 0.5.5, a list gives the attention over keys
// with zeros, and chunks of a prompt do not change that.
#include <fmt/format.h>

#include "core/selectors/method_spec.hpp"
#include "core/selectors/registry.hpp"
#include "core/sim/protocol.hpp"
#include "tests/core/selectors/published.hpp"
#include "tests/support/planted_trace.hpp"
#include "tests/support/test.hpp"

namespace kvscope::test::think_test {

/// A step's queries behind a prompt; its last key is the step's own.
Tensor<float> step_queries(const Tensor<float>& q) {
  Tensor<float> step({q.dim(0), 1, q.dim(2)});
  for (Index h = 0; h < q.dim(0); ++h) {
    for (Index c = 0; c < q.dim(2); ++c)
      step(h, Index{0}, c) = static_cast<float>(std::cos(3.0 * static_cast<double>(h + 2 * c)));
  }
  return step;
}

TEST_CASE("think drops the channels that kvpress drops") {
  for (const nlohmann::json& one : published_cases("think/kept.json")) {
    const Prompt prompt = published_prompt(one["input"]);
    const auto stays = one["kept_channels"].get<std::vector<std::vector<Index>>>();
    const Index n = prompt.n_tok();
    const Index d = prompt.k.dim(2);
    const AttentionShape shape{.n_layers = 1,
                               .n_q = prompt.q.dim(0),
                               .n_kv = prompt.k.dim(0),
                               .d_head = d,
                               .max_tokens = n + 1,
                               .score_scale = 0.25f};
    const Tensor<float> q = step_queries(prompt.q);
    const std::string spec = fmt::format(
        "think:drop={},window={}", one["options"]["key_channel_compression_ratio"].get<double>(),
        one["options"]["window_size"].get<Index>());
    INFO(one["input"] << ", " << spec);
    for (const Index chunk : {n, Index{7}}) {
      SelectorRun run(selector_registry().make(spec), shape, {Budget{}});
      for (Index begin = 0; begin < n; begin += chunk) {
        const Index end = std::min(n, begin + chunk);
        run.begin_call(Phase::prefill, end - begin);
        const auto selections = run.layer_call({.layer = 0,
                                                .q = prompt.q.view().range(1, begin, end),
                                                .k = prompt.k.view().range(1, 0, end),
                                                .v = prompt.v.view().range(1, 0, end)});
        CHECK(selections[0].is_dense);
      }
      Tensor<float> k({shape.n_kv, n + 1, d});
      for (Index h = 0; h < shape.n_kv; ++h) {
        for (Index pos = 0; pos <= n; ++pos) {
          for (Index c = 0; c < d; ++c) k(h, pos, c) = pos < n ? prompt.k(h, pos, c) : 1.0f;
        }
      }
      run.begin_call(Phase::decode, 1);
      const auto selections =
          run.layer_call({.layer = 0, .q = q.view(), .k = k.view(), .v = k.view()});
      for (Index h = 0; h < shape.n_q; ++h) {
        const Index kv_head = h * shape.n_kv / shape.n_q;
        const ListView list = selections[0].list(h, 0);
        REQUIRE(list.size() == n + 1);
        for (Index pos = 0; pos <= n; ++pos) {
          double lost = 0.0;
          for (Index c = 0; c < d; ++c)
            lost += static_cast<double>(q(h, 0, c)) * k(kv_head, pos, c);
          for (const Index c : stays[kv_head])
            lost -= static_cast<double>(q(h, 0, c)) * k(kv_head, pos, c);
          CHECK(static_cast<double>(list.log_weight[pos]) ==
                Catch::Approx(pos < n ? -0.25 * lost : 0.0).margin(1e-5));
        }
        CHECK(list.forced() == std::vector<KeyPos>{static_cast<KeyPos>(n)});
      }
    }
  }
}

}  // namespace kvscope::test::think_test
