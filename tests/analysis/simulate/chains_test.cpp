// Chains: what follows is known, full takes part, errors are counted where they begin.
#include "analysis/simulate/chains.hpp"

#include "core/base/data_dir.hpp"
#include "tests/support/test.hpp"

namespace kvscope::test::chains_test {

struct World {
  Transformer verifier = Transformer::load(embedded_verifier());
  Tokenizer tokenizer = Tokenizer::load(embedded_verifier());
  std::vector<TokenId> text =
      tokenizer.encode(testing::read_file(embedded_text()).substr(0, 20000));
  ThreadPool pool{2};
  SimulationModels models() const {
    return {&verifier, nullptr, &tokenizer, "verifier", "", text, "book", {}};
  }
};

TEST_CASE("chains go on as their prompts begin") {
  const World world;
  ChainOptions options{.prompt = 220, .steps = 300};
  const Chain copy = make_chain(ChainKind::copy, options, 0, 0, world.models());
  CHECK(copy.prompt.size() == 220);
  CHECK(copy.expected.size() == 300);
  auto all = copy.prompt;
  all.insert(all.end(), copy.expected.begin(), copy.expected.end());
  for (std::size_t i = 200; i < all.size(); ++i) CHECK(all[i] == all[i - 200]);

  const Chain sum = make_chain(ChainKind::running_sum, options, 0, 0, world.models());
  all = sum.prompt;
  all.insert(all.end(), sum.expected.begin(), sum.expected.end());
  const std::string text = world.tokenizer.decode(all);
  int addends[3] = {}, value = 0;
  REQUIRE(std::sscanf(text.c_str(), " Add %d, %d and %d in turn, modulo 1000: %d,", &addends[0],
                      &addends[1], &addends[2], &value) == 4);
  std::size_t at = text.find(':') + 1;
  for (int i = 0; (at = text.find(',', at)) != std::string::npos; ++i, ++at) {
    const std::size_t end = text.find(',', at + 1);
    if (end == std::string::npos) break;
    value = (value + addends[i % 3]) % 1000;
    CHECK(std::stoi(text.substr(at + 1, end - at - 1)) == value);
  }
  const Chain lines = make_chain(ChainKind::rewriting, options, 0, 1, world.models());
  CHECK(lines.prompt.size() + lines.expected.size() == 520);
  CHECK(lines.prompt != make_chain(ChainKind::rewriting, options, 0, 2, world.models()).prompt);
}

TEST_CASE("a budget of everything decodes what the dense model does, any threads the same") {
  World world;
  SimulationOptions simulation;
  simulation.selectors = {"full", "quest", "streamingllm"};
  simulation.budgets = {Budget::parse("tokens=16"), Budget::parse("tokens=4096")};
  const SimulationSetup setup =
      set_up_simulation(world.models(), simulation, Phase::decode, world.pool);
  ChainOptions options{.prompt = 96, .steps = 40, .trials = 2};
  const auto task = make_chain_task(setup, options);
  const auto run = [&](int threads) {
    ThreadPool own(threads);
    return run_simulation(*task, setup, std::nullopt, JournalMode::fresh, own);
  };
  const auto result = run(1);
  CHECK(simulation_json(*task, result).dump() == simulation_json(*task, run(3)).dump());
  const auto& names = result.table.number_names;
  const auto number = [&](const ColumnTable::Row& row, std::string_view name) {
    return row.numbers.at(static_cast<std::size_t>(std::ranges::find(names, name) - names.begin()));
  };
  CHECK(result.table.rows.size() == 3 * 5);
  for (const ColumnTable::Row& row : result.table.rows) {
    INFO(row.texts[2] << " " << row.texts[4]);
    CHECK(number(row, "steps") == 40.0);
    CHECK(number(row, "accuracy") >= number(row, "accuracy_low"));
    CHECK(number(row, "accuracy") <= number(row, "accuracy_high"));
    if (number(row, "budget") == 4096.0 || row.texts[2] == "full") {
      CHECK(number(row, "same_as_dense") == 1.0);
      CHECK(std::isnan(number(row, "first_difference")));
    }
  }
  CHECK_HAS(task->show(result.units, 1), "--- copy, trial 1", "quest tokens=16");
  options.steps = 40000;
  CHECK_SAYS(make_chain_task(setup, options), "positions");
}

}  // namespace kvscope::test::chains_test
