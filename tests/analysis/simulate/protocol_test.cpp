// What runs under each protocol.
#include "analysis/simulate/protocol.hpp"

#include "analysis/simulate/ask_prompt.hpp"
#include "analysis/simulate/retrieval.hpp"
#include "core/base/data_dir.hpp"
#include "core/base/progress.hpp"
#include "tests/analysis/simulate/rows.hpp"
#include "tests/support/planted_trace.hpp"
#include "tests/support/test.hpp"

namespace kvscope::test::protocol_test {

struct World {
  Transformer verifier = Transformer::load(embedded_verifier());
  Tokenizer tokenizer = Tokenizer::load(embedded_verifier());
  std::vector<TokenId> text =
      tokenizer.encode(testing::read_file(embedded_text()).substr(0, 20000));
  ThreadPool pool{2};
  SimulationModels models() const {
    return {&verifier, nullptr, &tokenizer, "verifier", "", text, "book", {}};
  }
  SimulationSetup setup(std::vector<MethodSpec> selectors, std::vector<std::string> budgets,
                        std::vector<Phase> phases) {
    SimulationOptions options{.selectors = std::move(selectors)};
    for (const std::string& budget : budgets) options.budgets.push_back(Budget::parse(budget));
    options.chunk = 64;
    return set_up_simulation(models(), options, phases, pool);
  }
  SimulationResult run(SimulationTask& task, const SimulationSetup& setup, int threads = 2) {
    ThreadPool own(threads);
    Store store;
    return run_simulation(task, setup, store, own);
  }
};

TEST_CASE("every protocol: full finds the key, a window that question and answer see does not") {
  World world;
  RetrievalOptions options{.protocols = parse_protocols("papers,dense/sparse/dense+unseen"),
                           .lengths = {400},
                           .n_depths = 1,
                           .trials = 1};
  const SimulationSetup setup =
      world.setup({"full", "streamingllm"}, {"tokens=48"}, phases_of(options.protocols));
  const auto task = make_retrieval_task(setup, options);
  const auto result = world.run(*task, setup);
  for (const Protocol& protocol : options.protocols) {
    INFO(protocol.name);
    CHECK(number(result, "full", "accuracy", protocol.name) == 1.0);
    CHECK(number(result, "full", "kv_reduction", protocol.name) == 0.0);
    CHECK(number(result, "full", "prompts", protocol.name) == 1.0);
    const double window = number(result, "streamingllm", "accuracy", protocol.name);
    // who asks and answers under a window of 48 keys has not seen the middle of 400 tokens
    if (protocol.sparse_question && protocol.sparse_answer) CHECK(window == 0.0);
    CHECK(number(result, "streamingllm", "kv_reduction", protocol.name) > 0.3);
  }
  CHECK(task->config().at("protocols").at("question") ==
        "context dense, question sparse (not seen while the context goes in), answer sparse");
  CHECK(simulation_json(*task, world.run(*task, setup, 1)).dump() ==
        simulation_json(*task, result).dump());
}

TEST_CASE("inside: one list for the chunk that holds the answer, read off where it stands") {
  World world;
  const SimulationSetup setup = world.setup({"full", "quoka"}, {"tokens=16"}, {Phase::prefill});
  const Prompt prompt = make_prompt(PromptSpec{.length = 300}, world.text, world.tokenizer);
  std::vector<std::size_t> begins;
  const auto expected = answer_tokens(prompt.answers, world.tokenizer, begins);
  CHECK(world.tokenizer.decode(expected) == " " + prompt.answers.front());
  const DensePrefix nothing(setup, {}, world.pool, {});
  for (const LivePair& pair : setup.pairs) {
    const auto turn = ask_prompt(setup, pair, PromptKind::passkey, prompt,
                                 {parse_protocol("inside")}, nothing, world.pool, {})
                          .front();
    // by hand: whole chunks of 64 with the shorter one first, the last of them holds the answer
    auto tokens = prompt.tokens;
    tokens.insert(tokens.end(), expected.begin(), expected.end() - 1);
    const std::size_t first = tokens.size() % 64;
    LiveSequence live(world.verifier, pair.options, 400, world.pool);
    Tensor<float> logits;
    for (std::size_t at = 0, size = first; at < tokens.size(); at += size, size = 64) {
      if (at > 0) size = 64;
      logits = live.run(Phase::prefill, std::span(tokens).subspan(at, size), Logits::all);
      if (at + size == tokens.size()) break;
    }
    std::vector<TokenId> likeliest;
    const Index n = static_cast<Index>(expected.size());
    for (Index i = 0; i < n; ++i) likeliest.push_back(argmax(logits.view().row(64 - n + i)));
    CHECK(turn.answer == likeliest);
    CHECK(turn.score == (likeliest == expected ? 1.0 : 0.0));
    if (pair.asked.selector == "full") CHECK(turn.score == 1.0);
  }
}

TEST_CASE("turns: several questions over one cache, or each from the context again") {
  World world;
  RetrievalOptions options{.protocols = parse_protocols("all,question"),
                           .kinds = {PromptKind::multi_key},
                           .lengths = {300},
                           .n_depths = 1,
                           .trials = 2,
                           .n_facts = 3,
                           .turns = 3};
  const SimulationSetup setup =
      world.setup({"full", "quoka"}, {"tokens=4096"}, phases_of(options.protocols));
  for (const bool shared : {false, true}) {
    options.shared_prefix = shared;
    const auto task = make_retrieval_task(setup, options);
    const auto result = world.run(*task, setup);
    CHECK(result.table.n_rows() == 2 * 3 * 2);  // protocols, turns, methods
    CHECK(result.table.has("turn"));
    CHECK(simulation_json(*task, result).at("outcomes").at(0).at("scores").at("full").size() == 3);
    if (shared) CHECK(number(result, "full", "accuracy", "all") == 1.0);
    // a budget of everything is the dense model, turn by turn
    for (std::size_t c = 0; c < result.units.size(); ++c) {
      for (std::size_t t = 0; t < 3; ++t)
        CHECK(result.units[c][0].values[t * 5] == result.units[c][1].values[t * 5]);
    }
  }
  options.kinds = {PromptKind::passkey};
  CHECK_SAYS(make_retrieval_task(setup, options), "has 1 question, found 3");
  options.protocols = parse_protocols("inside");
  options.shared_prefix = false;
  CHECK_SAYS(make_retrieval_task(setup, options), "ends the sequence");
}

}  // namespace kvscope::test::protocol_test
