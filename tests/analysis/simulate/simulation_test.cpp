// Simulations on the embedded pair: dense results are the plain model's, the oracle is ahead of
// other methods. Threads and interruptions: tests/cli/runs/simulate_test.cpp.
#include "analysis/simulate/simulation.hpp"

#include <nlohmann/json.hpp>

#include "analysis/simulate/perplexity.hpp"
#include "analysis/simulate/retrieval.hpp"
#include "analysis/simulate/speculative.hpp"
#include "core/attention/monotone_map.hpp"
#include "core/base/data_dir.hpp"
#include "core/base/progress.hpp"
#include "core/trace/result.hpp"
#include "tests/analysis/simulate/rows.hpp"
#include "tests/support/planted_trace.hpp"
#include "tests/support/test.hpp"

namespace kvscope::test::simulation_test {

struct World {
  Transformer verifier = Transformer::load(embedded_verifier());
  Transformer draft = Transformer::load(embedded_draft());
  Tokenizer tokenizer = Tokenizer::load(embedded_verifier());
  std::vector<TokenId> text =
      tokenizer.encode(testing::read_file(embedded_text()).substr(0, 30000));
  ThreadPool pool{2};

  SimulationModels models() const {
    return {&verifier, &draft, &tokenizer, "verifier", "draft", text, "book", {}};
  }
  SimulationSetup setup(std::vector<MethodSpec> selectors, std::vector<std::string> budgets,
                        Phase phase) {
    SimulationOptions options{.selectors = std::move(selectors)};
    for (const std::string& budget : budgets) options.budgets.push_back(Budget::parse(budget));
    options.n_calibration = 100;
    return set_up_simulation(models(), options, {phase}, pool);
  }
};

TEST_CASE("perplexity: full is the plain model, reductions are ratios of totals") {
  World world;
  const SimulationSetup setup = world.setup({"full", "streamingllm", "oracle-topk", "specattn"},
                                            {"tokens=32", "p=0.6"}, Phase::decode);
  CHECK(setup.skipped.size() == 3);
  const auto task = make_perplexity_task(setup, PerplexityOptions{.n_tokens = 200, .offset = 100});
  Store store;
  const auto result = run_simulation(*task, setup, store, world.pool);
  KvCache cache(world.verifier.config(), 200);
  const Tensor<float> logits = world.verifier.forward(std::span(world.text).subspan(100, 200),
                                                      cache, world.pool, {Logits::all});
  double loss = 0.0;
  for (Index t = 20; t < 199; ++t)
    loss += negative_log_likelihood(logits.view().row(t), world.text[100 + t + 1]);
  CHECK_THAT(number(result, "full", "perplexity"), WithinRel(std::exp(loss / 179.0), 1e-12));
  CHECK(number(result, "full", "kv_reduction") == 0.0);
  CHECK(number(result, "full", "scored_tokens") == 179.0);
  double kept = 0.0;
  double all = 0.0;
  for (int t = 21; t < 200; ++t) {
    kept += std::min(32, t);
    all += t;
  }
  CHECK_THAT(number(result, "streamingllm", "kv_reduction"), WithinRel(1.0 - kept / all, 1e-12));
  CHECK(number(result, "streamingllm", "perplexity") > number(result, "full", "perplexity"));
  CHECK(number(result, "oracle-topk", "perplexity") < number(result, "streamingllm", "perplexity"));
  CHECK(number(result, "specattn", "kv_reduction") > 0.0);
  CHECK(std::isnan(number(result, "full", "budget")));
}

TEST_CASE("the measured layer map is the monotone map of the sampled divergences") {
  World world;
  const auto text = std::span(world.text).first(200);
  const auto map_of = [&](const Transformer& draft, std::size_t n) {
    return measure_layer_map(world.verifier, draft, text.first(n), 9, world.pool);
  };
  const auto own = map_of(world.verifier, 200);
  for (std::size_t j = 0; j < own.size(); ++j) CHECK(own[j] == static_cast<Index>(j));  // KL = 0
  const auto map = map_of(world.draft, 200);
  REQUIRE(map.size() == 8);
  CHECK(std::ranges::is_sorted(map));
  CHECK(map.back() < 4);
  CHECK(layer_map_text(std::vector<Index>{0, 0, 2}) == "0/0/2");
  CHECK_THROWS_AS(map_of(world.draft, 10), ConfigError);
}

TEST_CASE("answers of another size are refused, whatever their checksums") {
  World world;
  const SimulationSetup setup = world.setup({"full", "recent"}, {"tokens=16"}, Phase::decode);
  const auto check = [&](SimulationTask& task) {
    Store whole;
    run_simulation(task, setup, whole, world.pool);
    const Work work = simulation_work(task, setup, world.pool);
    REQUIRE(work.keys.size() == 2);
    const auto answer = answer_in(whole, work.keys[0]);
    for (const char* field : {"values", "series"}) {
      for (const auto& other :
           {nlohmann::ordered_json::array(), nlohmann::ordered_json::array({1.0}),
            nlohmann::ordered_json(std::vector<double>(300, 0.5)), nlohmann::ordered_json(7.0),
            nlohmann::ordered_json{{"a", 1}}}) {
        if (other == answer.at(field)) continue;
        auto forged = answer;
        forged[field] = other;
        Store store;
        store.add(answer_of(work.keys[0], forged));
        CHECK_THROWS_AS(run_simulation(task, setup, store, world.pool), FormatError);
      }
    }
    Store store;
    store.add(answer_of(work.keys[0], answer));
    CHECK_NOTHROW(run_simulation(task, setup, store, world.pool));
  };
  check(*make_perplexity_task(setup, PerplexityOptions{.n_tokens = 40}));
  check(*make_retrieval_task(setup, RetrievalOptions{.lengths = {96}, .n_depths = 1, .trials = 1}));
  SpeculativeOptions speculative{.prompt = 40, .n_new = 4, .prompts = 1, .offset = 0};
  check(*make_speculative_task(setup, speculative, {2}));
}

TEST_CASE("absurd counts of prompts are refused before memory is taken") {
  World world;
  const SimulationSetup setup = world.setup({"full"}, {}, Phase::decode);
  for (Index RetrievalOptions::*count : {&RetrievalOptions::n_depths, &RetrievalOptions::trials}) {
    RetrievalOptions options{.lengths = {96}};
    options.*count = 99'999'999'999;
    CHECK_THROWS_AS(make_retrieval_task(setup, options), ConfigError);
  }
  PerplexityOptions windows{.windows = 99'999'999'999};
  CHECK_THROWS_AS(make_perplexity_task(setup, windows), ConfigError);
  SpeculativeOptions prompts{.prompts = 99'999'999'999};
  CHECK_THROWS_AS(make_speculative_task(setup, prompts, {2}), ConfigError);
}

TEST_CASE("retrieval over several texts: trials take them in turn, intervals are over texts") {
  World world;
  SimulationSetup setup = world.setup({"full", "streamingllm"}, {"tokens=32"}, Phase::decode);
  const std::vector<TokenId> other(world.text.begin() + 2000, world.text.end());
  setup.models.more_texts = {{other, "another"}};
  RetrievalOptions options{.protocols = parse_protocols("decode"),
                           .kinds = {PromptKind::passkey},
                           .lengths = {200},
                           .n_depths = 2,
                           .trials = 4};
  SimulationResult result;
  const auto outcomes_of = [&] {
    const auto task = make_retrieval_task(setup, options);
    Store store;
    result = run_simulation(*task, setup, store, world.pool);
    return simulation_json(*task, result).at("outcomes");
  };
  const auto outcomes = outcomes_of();
  CHECK(number(result, "full", "texts") == 2.0);
  CHECK(number(result, "full", "prompts") == 8.0);
  for (const auto& outcome : outcomes)
    CHECK(outcome.at("text").get<int>() == outcome.at("trial").get<int>() % 2);
  // the prompts of the first text are those of a run over it alone
  setup.models.more_texts.clear();
  for (const auto& one : outcomes_of()) {
    for (const auto& outcome : outcomes) {
      if (outcome.at("depth") != one.at("depth") || outcome.at("trial") != one.at("trial"))
        continue;
      if (outcome.at("text") == 0) CHECK(outcome.at("scores") == one.at("scores"));
    }
  }
  setup.models.more_texts = {{other, "another"}};
  options.trials = 1;
  CHECK_SAYS(make_retrieval_task(setup, options),
             "expected at least 2 trials, one per text, found 1");
}

TEST_CASE("speculative over several texts: prompts of each, an interval of the acceptance length") {
  World world;
  SimulationSetup setup = world.setup({"full"}, {}, Phase::verify);
  const std::vector<TokenId> other(world.text.begin() + 3000, world.text.end());
  SpeculativeOptions options{.prompt = 60, .n_new = 10, .prompts = 2, .offset = 0};
  const auto run = [&] {
    const auto task = make_speculative_task(setup, options, {3});
    Store store;
    return run_simulation(*task, setup, store, world.pool);
  };
  const double first = number(run(), "full", "acceptance_length");
  setup.models.more_texts = {{other, "another"}};
  const SimulationResult both = run();
  setup.models.text = other;
  setup.models.more_texts.clear();
  const double second = number(run(), "full", "acceptance_length");
  CHECK(number(both, "full", "texts") == 2.0);
  CHECK(number(both, "full", "prompts") == 4.0);
  CHECK(number(both, "full", "tokens") == 40.0);
  const double length = number(both, "full", "acceptance_length");
  CHECK(length >= std::min(first, second));
  CHECK(length <= std::max(first, second));
  CHECK(number(both, "full", "acceptance_length_low") <= length);
  CHECK(number(both, "full", "acceptance_length_high") >= length);
}

}  // namespace kvscope::test::simulation_test
