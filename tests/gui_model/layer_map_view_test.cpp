// The layer map between two traces: the sentences for traces that cannot be compared.
#include "gui/model/bounds/layer_map_view.hpp"

#include <fmt/format.h>

#include <catch2/catch_test_macros.hpp>
#include <catch2/generators/catch_generators.hpp>
#include <catch2/matchers/catch_matchers_string.hpp>

#include "tests/gui_model/job_context.hpp"
#include "tests/support/planted_trace.hpp"

namespace kvscope::gui::test::layer_map_view_test {

using Catch::Matchers::ContainsSubstring;
using kvscope::test::planted_trace;
using kvscope::test::PlantOptions;

MemoryTrace model(Index n_layers, std::uint64_t seed, Index n_tokens = 48) {
  PlantOptions plant{.n_layers = n_layers, .n_tokens = n_tokens, .sink = 1.5, .seed = seed};
  return planted_trace(plant);
}

TEST_CASE("layer map view: traces of other tokens get a sentence with the way out",
          "[layer_map_view]") {
  const MemoryTrace verifier = model(3, 1, 48);
  LayerMapOptions options;
  SECTION("the same tokens") {
    CHECK_FALSE(layer_map_obstacle(verifier, model(2, 2, 48), options));
  }
  SECTION("a longer trace of the same text") {
    const MemoryTrace draft = model(2, 2, 64);
    const auto obstacle = layer_map_obstacle(verifier, draft, options);
    REQUIRE(obstacle);
    CHECK(obstacle->prefix_helps);
    CHECK_THAT(obstacle->sentence, ContainsSubstring("48") && ContainsSubstring("64"));
    options.token_match = TokenMatch::common_prefix;
    CHECK_FALSE(layer_map_obstacle(verifier, draft, options));
    TestJob job;
    CHECK(layer_map(verifier, draft, options, job.context).total("tokens") == 48);
  }
  SECTION("another text") {
    MemoryTrace draft = model(2, 2, 48);
    const Index at = GENERATE(0, 20);
    std::vector<TokenId> ids(draft.tokens().begin(), draft.tokens().end());
    ids[at] = 999;
    draft.set_tokens(ids);
    const auto obstacle = layer_map_obstacle(verifier, draft, options);
    REQUIRE(obstacle);
    CHECK(obstacle->prefix_helps == (at == 20));
    CHECK_THAT(obstacle->sentence,
               ContainsSubstring(fmt::format("position {}", at)) && ContainsSubstring("id 999"));
    options.token_match = TokenMatch::common_prefix;
    CHECK(layer_map_obstacle(verifier, draft, options).has_value() == (at == 0));
  }
}

}  // namespace kvscope::gui::test::layer_map_view_test
