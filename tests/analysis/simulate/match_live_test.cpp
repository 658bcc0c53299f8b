// Equal cost inside a running model: settings whose cost is what was asked for, counted here by
// hand on a tiny golden model.
#include "analysis/simulate/match_live.hpp"

#include <nlohmann/json.hpp>

#include "analysis/simulate/perplexity.hpp"
#include "tests/analysis/simulate/rows.hpp"
#include "tests/support/golden.hpp"
#include "tests/support/planted_trace.hpp"
#include "tests/support/test.hpp"

namespace kvscope::test::match_live_test {

constexpr Index kTokens = 64;
constexpr Index kPrefill = 6;  // a tenth

struct Tiny {
  Transformer model = Transformer::load(golden_dir() / "llama3_gqa");
  std::vector<TokenId> text = [] {
    std::vector<TokenId> ids;
    for (Index i = 0; i < 400; ++i) ids.push_back(static_cast<TokenId>((i * i * 7 + i * 31) % 320));
    return ids;
  }();

  SimulationOptions options(std::vector<MethodSpec> selectors, const std::string& match,
                            std::optional<Index> dense_layers) const {
    return SimulationOptions{.selectors = std::move(selectors),
                             .match = parse_matches({match}),
                             .dense_layers = dense_layers,
                             .n_calibration = 64};
  }
  SimulationSetup setup(std::vector<MethodSpec> selectors, const std::string& match,
                        std::optional<Index> dense_layers = std::nullopt, int threads = 2) const {
    SimulationModels models{
        .verifier = &model, .verifier_name = "tiny", .text = text, .text_name = "numbers"};
    ThreadPool pool(threads);
    SimulationSetup setup = set_up_simulation(
        models, options(std::move(selectors), match, dense_layers), {Phase::decode}, pool);
    match_setup(
        setup, [](const SimulationSetup& alone) { return task(alone); }, pool);
    return setup;
  }
  static std::unique_ptr<SimulationTask> task(const SimulationSetup& setup) {
    PerplexityOptions options{.n_tokens = kTokens, .offset = 0, .windows = 2};
    return make_perplexity_task(setup, options);
  }
  static SimulationResult run(const SimulationSetup& setup) {
    ThreadPool pool(2);
    const auto own = task(setup);
    Store store;
    return run_simulation(*own, setup, store, pool);
  }
};

std::string text(const Table& table, const std::string& selector, std::string_view column) {
  return table.text(column).at(row_of(table, selector));
}

/// Keys that one query head keeps and sees over the decode steps of a window, by hand.
struct ByHand {
  double kept = 0.0, seen = 0.0, rows = 0.0;
  explicit ByHand(const std::function<double(double)>& keeps) {
    for (Index t = kPrefill; t < kTokens - 1; ++t) {
      kept += keeps(static_cast<double>(t + 1));
      seen += static_cast<double>(t + 1);
      rows += 1.0;
    }
  }
};

TEST_CASE("a matched run costs what was asked for, as counted by hand, dense layers included") {
  const Tiny tiny;
  for (const Index dense_layers : {0, 1}) {
    const SimulationSetup setup = tiny.setup(
        {"full", "oracle-topk", "streamingllm", "quest:page-size=4"}, "density=0.4", dense_layers);
    REQUIRE(setup.pairs.size() == 4);
    const Table table = Tiny::run(setup).table;
    for (const std::string selector : {"oracle-topk", "streamingllm"}) {
      const LivePair& pair = setup.pairs[selector == "oracle-topk" ? 1 : 2];
      INFO(selector << " with " << pair.labels.setting << ", " << dense_layers << " dense layers");
      REQUIRE(pair.options.budget.has_value());
      const ByHand hand([&](double n) {
        return static_cast<double>(pair.options.budget->tokens(static_cast<Index>(n), 1));
      });
      const double dense_share = static_cast<double>(dense_layers) / 4.0;
      const double density = dense_share + (1.0 - dense_share) * hand.kept / hand.seen;
      CHECK(number(table, selector, "density") == Approx(density));
      CHECK(number(table, selector, "kept") == Approx(density * hand.seen / hand.rows));
      CHECK(number(table, selector, "match_reached") == number(table, selector, "density"));
      CHECK(number(table, selector, "kv_reduction") == Approx(1.0 - hand.kept / hand.seen));
      CHECK(number(table, selector, "match_reached") == Approx(0.4).epsilon(kMatchTolerance));
      CHECK(text(table, selector, "match") == "density=0.4");
      CHECK(text(table, selector, "knob") == pair.labels.setting);
      CHECK(text(table, selector, "match_note").empty());
    }
    CHECK(number(table, "full", "density") == 1.0);
    CHECK_HAS(text(table, "full", "match_note"), "no budget setting");
    CHECK(text(table, "full", "knob").empty());
  }
}

TEST_CASE("keys and bytes are matched as the columns count them") {
  const Tiny tiny;
  const SimulationSetup by_keys = tiny.setup({"streamingllm"}, "keys=12,20", 0);
  REQUIRE(by_keys.pairs.size() == 2);
  const SimulationResult keys = Tiny::run(by_keys);
  for (std::size_t p = 0; p < 2; ++p) {
    const ByHand hand(
        [&](double n) { return std::min(n, by_keys.pairs[p].options.budget->value); });
    const double reached = keys.table.numbers("match_reached")[p];
    CHECK(reached == Approx(hand.kept / hand.rows));
    CHECK(reached == Approx(p == 0 ? 12.0 : 20.0).epsilon(0.05));  // budgets are whole
  }
  CHECK(by_keys.pairs[0].label() == "streamingllm keys=12");
  CHECK(keys.config.at("match") == nlohmann::ordered_json({"keys=12", "keys=20"}));

  // 2 KV heads read keys and values of 16 numbers in two bytes each; the window scores nothing
  const SimulationSetup by_bytes = tiny.setup({"streamingllm"}, "bytes=2560", 0);
  const double budget = by_bytes.pairs[0].options.budget->value;
  const ByHand hand([&](double n) { return std::min(n, budget); });
  const Table table = Tiny::run(by_bytes).table;
  CHECK(number(table, "streamingllm", "bytes") == Approx(hand.kept / hand.rows * 2 * 2 * 16 * 2));
  CHECK(number(table, "streamingllm", "match_reached") == number(table, "streamingllm", "bytes"));
}

}  // namespace kvscope::test::match_live_test
