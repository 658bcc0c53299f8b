// Simulations on the embedded pair: dense results are the plain model's, results do not depend on
// threads or interruptions, the oracle is ahead of other methods.
#include "analysis/simulate/simulation.hpp"

#include <fstream>
#include <nlohmann/json.hpp>

#include "analysis/base/checked_lines.hpp"
#include "analysis/simulate/perplexity.hpp"
#include "analysis/simulate/retrieval.hpp"
#include "analysis/simulate/speculative.hpp"
#include "core/base/data_dir.hpp"
#include "core/base/progress.hpp"
#include "core/trace/result.hpp"
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
    return set_up_simulation(models(), options, phase, pool);
  }
};

const ColumnTable::Row& row_of(const SimulationResult& result, const std::string& selector) {
  for (const ColumnTable::Row& row : result.table.rows) {
    if (row.texts[2].starts_with(selector)) return row;
  }
  throw std::runtime_error("no row of " + selector);
}

double number(const SimulationResult& result, const std::string& selector, std::string_view name) {
  const auto& names = result.table.number_names;
  const auto at = std::ranges::find(names, name) - names.begin();
  return row_of(result, selector).numbers.at(static_cast<std::size_t>(at));
}

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

TEST_CASE("results are the same for any threads and any interruption") {
  World world;
  const TempDir dir;
  const SimulationSetup setup =
      world.setup({"full", "quest", "tova"}, {"tokens=32", "tokens=64"}, Phase::decode);
  PerplexityOptions options{.n_tokens = 60, .offset = 0, .windows = 2};
  const auto task = make_perplexity_task(setup, options);
  const auto run = [&](const std::string& folder, int threads, const std::stop_token& stop = {},
                       const ProgressFn& progress = {}) {
    ThreadPool pool(threads);
    Store store(dir.path() / folder);
    return simulation_json(*task, run_simulation(*task, setup, store, pool, progress, stop)).dump();
  };
  const std::string one = run("one", 1);
  CHECK(run("three", 3) == one);

  std::stop_source source;
  CHECK_THROWS_AS(run("cut", 2, source.get_token(),
                      [&](const Progress& p) {
                        if (p.done == 3) source.request_stop();
                      }),
                  Interrupted);
  for (const auto& segment : fs::directory_iterator(dir.path() / "cut" / "answers"))
    std::ofstream(segment.path(), std::ios::app) << "{\"sum\":\"half a li";  // as after a kill
  CHECK(run("cut", 2) == one);
  CHECK(run("cut", 2) == one);  // nothing left to do
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

TEST_CASE("pass keys: dense finds them, a window does not, pages do") {
  World world;
  const SimulationSetup setup = world.setup({"full", "quest", "streamingllm", "specattn"},
                                            {"tokens=128", "p=0.9"}, Phase::decode);
  const auto task = make_retrieval_task(
      setup,
      RetrievalOptions{.protocols = parse_protocols("quest"), .lengths = {600}, .n_depths = 2});
  Store store;
  const auto result = run_simulation(*task, setup, store, world.pool);
  CHECK(number(result, "full", "accuracy") == 1.0);
  CHECK(number(result, "quest", "accuracy") == 1.0);
  CHECK(number(result, "streamingllm", "accuracy") == 0.5);  // the key right before the question
  CHECK(number(result, "streamingllm", "kv_reduction") > 0.7);
  CHECK(row_of(result, "quest").texts[5] == "yes");
  CHECK(row_of(result, "quest").texts[6] == "decode");
  const auto json = simulation_json(*task, result);
  CHECK(json.at("grids").size() == 4);
  CHECK(json.at("grids")[0].at("accuracy").size() == 2);
  MemoryResult output;
  write_simulation(*task, result, output, "test");
  CHECK(output.values<double>("grid/passkey").size() == 8);
  CHECK(output.values<double>("rows/accuracy").size() == 4);
}

TEST_CASE("speculative: dense verification gives the greedy tokens") {
  World world;
  const SimulationSetup setup = world.setup({"full", "specattn"}, {"p=0.5"}, Phase::verify);
  SpeculativeOptions options{.prompt = 100, .n_new = 12, .prompts = 2, .offset = 0};
  const auto task = make_speculative_task(setup, options, {2, 4});
  Store store;
  const auto result = run_simulation(*task, setup, store, world.pool);
  CHECK(result.table.rows.size() == 5);
  CHECK(number(result, "full", "same_as_dense") == 1.0);
  CHECK(std::isnan(number(result, "full", "first_difference")));
  CHECK(number(result, "full", "tokens_per_pass") ==
        number(result, "full", "acceptance_length") + 1.0);
  CHECK(number(result, "specattn", "kv_reduction") > 0.0);
  CHECK(number(result, "greedy", "tokens_per_second") > 0.0);
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
