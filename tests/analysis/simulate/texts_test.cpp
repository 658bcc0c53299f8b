// Perplexity over several texts, on a tiny golden model: one mean over all, intervals that
// draw texts first.
#include "analysis/simulate/perplexity.hpp"
#include "tests/analysis/simulate/rows.hpp"
#include "tests/support/golden.hpp"
#include "tests/support/planted_trace.hpp"
#include "tests/support/test.hpp"

namespace kvscope::test::texts_test {

std::vector<TokenId> numbers_text(Index step) {
  std::vector<TokenId> ids;
  for (Index i = 0; i < 400; ++i) ids.push_back(static_cast<TokenId>((i * i * 7 + i * step) % 320));
  return ids;
}

TEST_CASE("perplexity over several texts: one mean over all, intervals over texts") {
  const Transformer model = Transformer::load(golden_dir() / "llama3_gqa");
  const std::vector<TokenId> first = numbers_text(31);
  const std::vector<TokenId> second = numbers_text(0);
  ThreadPool pool(1);
  PerplexityOptions options{.n_tokens = 70};
  options.windows = 4;  // a block of 64 in each: eight in all
  options.offset = 10;
  const auto run = [&](std::span<const TokenId> text, std::vector<FurtherText> more) {
    SimulationModels models{.verifier = &model,
                            .verifier_name = "tiny",
                            .text = text,
                            .text_name = "one",
                            .more_texts = std::move(more)};
    SimulationOptions selection{.selectors = {"full"}, .n_calibration = 64};
    const SimulationSetup setup = set_up_simulation(models, selection, {Phase::decode}, pool);
    const auto task = make_perplexity_task(setup, options);
    Store store;
    return run_simulation(*task, setup, store, pool);
  };
  const SimulationResult both = run(first, {{second, "another"}});
  CHECK(number(both, "full", "texts") == 2.0);
  CHECK(number(both, "full", "scored_tokens") == 2.0 * 4.0 * 62.0);
  CHECK(both.config.at("more_texts").at(0).at("text") == "another");
  const double a = number(run(first, {}), "full", "log_perplexity");
  const double b = number(run(second, {}), "full", "log_perplexity");
  CHECK_THAT(number(both, "full", "log_perplexity"), WithinRel((a + b) / 2.0, 1e-12));
  // two texts: an interval that reaches at least from one to the other
  REQUIRE(std::abs(a - b) > 0.01);
  CHECK(number(both, "full", "perplexity_low") <= 1.02 * std::exp(std::min(a, b)));
  CHECK(number(both, "full", "perplexity_high") >= 0.98 * std::exp(std::max(a, b)));
  CHECK_SAYS(run(first, {{std::span(second).first(200), "another"}}),
             "another has 200 tokens, expected at least 290");
}

}  // namespace kvscope::test::texts_test
