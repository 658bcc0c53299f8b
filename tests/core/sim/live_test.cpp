// A selector inside the running model: "full" is the plain model bit for bit, large budgets equal
// it to rounding, evicted keys are gone.
#include "core/sim/live.hpp"

#include <functional>
#include <nlohmann/json.hpp>

#include "core/sim/draft_runner.hpp"
#include "core/sim/memory_recording.hpp"
#include "support/golden.hpp"
#include "tests/support/test.hpp"

namespace kvscope::test::live_test {

struct Golden {
  Transformer model;
  std::vector<TokenId> tokens;
  explicit Golden(const std::string& name)
      : model(Transformer::load(golden_dir() / name)),
        tokens(read_golden_tokens(golden_dir() / name / "golden.h5")) {}
  Index n() const { return static_cast<Index>(tokens.size()); }
  std::span<const TokenId> part(Index begin, Index end) const {
    return std::span(tokens).subspan(static_cast<std::size_t>(begin),
                                     static_cast<std::size_t>(end - begin));
  }
};

/// Logits of every position: prefill in chunks of 10 up to 20, decode up to 28, verify 5 at a time.
struct Phases {
  std::vector<std::pair<Phase, Index>> calls = {
      {Phase::prefill, 10}, {Phase::prefill, 10}, {Phase::decode, 1}, {Phase::decode, 1},
      {Phase::decode, 1},   {Phase::verify, 5},   {Phase::verify, 5}, {Phase::decode, 1}};
};

using RunCall = std::function<Tensor<float>(Phase, std::span<const TokenId>)>;

std::vector<float> logits_of(const Golden& golden, const RunCall& run) {
  std::vector<float> all;
  Index begin = 0;
  for (const auto& [phase, n] : Phases{}.calls) {
    const Tensor<float> logits = run(phase, golden.part(begin, begin + n));
    all.insert(all.end(), logits.flat().begin(), logits.flat().end());
    begin += n;
  }
  return all;
}

std::vector<float> plain_logits(const Golden& golden) {
  ThreadPool pool(2);
  KvCache cache(golden.model.config(), golden.n());
  return logits_of(golden, [&](Phase, std::span<const TokenId> tokens) {
    return golden.model.forward(tokens, cache, pool, {Logits::all});
  });
}

std::vector<float> live_logits(const Golden& golden, LiveSequence& live, DraftRunner* draft) {
  return logits_of(golden, [&](Phase phase, std::span<const TokenId> tokens) {
    std::vector<Tensor<float>> rows;
    if (draft != nullptr) rows = draft->consume(tokens);
    return live.run(phase, tokens, Logits::all, rows);
  });
}

double worst_difference(const std::vector<float>& a, const std::vector<float>& b) {
  REQUIRE(a.size() == b.size());
  double worst = 0.0;
  for (std::size_t i = 0; i < a.size(); ++i) {
    const double gap = std::abs(static_cast<double>(a[i]) - static_cast<double>(b[i]));
    worst = std::isnan(gap) ? INFINITY : std::max(worst, gap);
  }
  return worst;
}

TEST_CASE("full is the plain model bit for bit in prefill, decode and verification") {
  const std::string name = GENERATE("llama3_gqa", "llama2_mha", "mistral_window", "qwen2", "qwen3",
                                    "qwen3_moe", "smollm3", "gpt_oss", "gemma2", "gemma3", "gemma4",
                                    "phi3", "olmo2", "gpt_neox", "gpt_neox_serial");
  const int threads = GENERATE(1, 3);
  const Golden golden(name);
  ThreadPool pool(threads);
  LiveSequence live(golden.model, {}, golden.n(), pool);
  CHECK(live_logits(golden, live, nullptr) == plain_logits(golden));
  CHECK(live.stats().all().attended == live.stats().all().visible);
  CHECK(live.stats().times.total > 0.0);
}

TEST_CASE("a budget of the context equals the plain model to rounding, for every method") {
  // Plain, attention sinks, a soft cap, layers that differ.
  const std::string name = GENERATE("llama3_gqa", "gpt_oss", "gemma2", "gemma4");
  const Golden golden(name);
  const auto plain = plain_logits(golden);
  ThreadPool pool(2);
  const MemoryTrace calibration = record_in_memory(golden.model, golden.tokens, golden.n(), pool);
  for (const SelectorEntry& entry : selector_registry().entries()) {
    const auto& kinds = entry.caps.budgets;
    const auto has = [&](Budget::Kind kind) {
      return std::ranges::find(kinds, kind) != kinds.end();
    };
    LiveOptions options{.selector = entry.name, .dense_layers = 0};
    if (has(Budget::Kind::tokens)) {
      options.budget = Budget{Budget::Kind::tokens, 4096};
    } else if (has(Budget::Kind::mass)) {
      options.budget = Budget{Budget::Kind::mass, 1.0};
    } else {
      continue;  // static patterns keep what they keep
    }
    if (entry.name == "specattn") options.selector.set("layer-map", "identity");
    // Else the base has a budget too.
    if (entry.name == "twilight") options.selector.set("base", "full");
    // Else centroids stand for keys.
    if (entry.name == "doublep") options.selector.set("refine", 1);
    INFO(entry.name);
    LiveSequence live(golden.model, options, golden.n(), pool, {&calibration});
    DraftRunner draft(golden.model, golden.n(), pool);
    CHECK(worst_difference(live_logits(golden, live, &draft), plain) < 1e-4);
  }
}

TEST_CASE("small budgets change the output and are counted") {
  const Golden golden("llama3_gqa");
  ThreadPool pool(2);
  LiveOptions options{"streamingllm:n-sink=2", Budget{Budget::Kind::tokens, 6}, 1};
  LiveSequence live(golden.model, options, golden.n(), pool);
  CHECK(worst_difference(live_logits(golden, live, nullptr), plain_logits(golden)) > 1e-3);
  const CostTotals kept = live.stats().all();
  double attended = 0.0;
  double visible = 0.0;
  for (Index pos = 0; pos < 34; ++pos) {
    attended += static_cast<double>(std::min<Index>(6, pos + 1));
    visible += static_cast<double>(pos + 1);
  }
  CHECK(std::abs(kept.density() - attended / visible) < 1e-12);
  const Index n_sparse_layers = golden.model.config().n_layers - 1;
  CHECK(kept.n_calls == static_cast<double>(n_sparse_layers * 8));
}

TEST_CASE("sliding-window layers stay as they are") {
  for (const std::string name : {"mistral_window", "qwen2"}) {
    const Golden golden(name);
    const auto& windows = golden.model.config().window;
    const auto n_full = std::count(windows.begin(), windows.end(), std::nullopt);
    ThreadPool pool(1);
    LiveOptions options{"recent", Budget{Budget::Kind::tokens, 2}, 0};
    LiveSequence live(golden.model, options, golden.n(), pool);
    live_logits(golden, live, nullptr);
    CHECK(live.stats().all().n_calls == static_cast<double>(n_full * 8));
  }
}

TEST_CASE("evicted keys never come back: overwriting them changes no bit") {
  const std::string method = GENERATE("tova", "h2o", "snapkv:window=4", "keydiff");
  INFO(method);
  const Golden golden("llama3_gqa");
  ThreadPool pool(2);
  const LiveOptions options{method, Budget{Budget::Kind::tokens, 8}, 0};
  LiveSequence clean(golden.model, options, golden.n(), pool);
  LiveSequence poisoned(golden.model, options, golden.n(), pool);
  const auto& config = golden.model.config();
  std::vector<std::vector<KeyPos>> dead(static_cast<std::size_t>(config.n_layers * config.n_kv));
  Index n_poisoned = 0;
  Index begin = 0;
  for (const auto& [phase, n] : Phases{}.calls) {
    if (phase == Phase::verify) break;  // its evictions may be undone
    const auto tokens = golden.part(begin, begin + n);
    const Tensor<float> a = clean.run(phase, tokens, Logits::all);
    const Tensor<float> b = poisoned.run(phase, tokens, Logits::all);
    CHECK(std::equal(a.flat().begin(), a.flat().end(), b.flat().begin()));
    begin += n;
    for (Index layer = 0; layer < config.n_layers; ++layer) {
      const AliveMask& alive = poisoned.selector_run().alive(layer);
      for (Index head = 0; head < config.n_kv; ++head) {
        auto& known = dead[layer * config.n_kv + head];
        for (const KeyPos pos : known) CHECK_FALSE(alive.is_alive(head, pos));
        known.clear();
        for (Index pos = 0; pos < begin; ++pos) {
          if (alive.is_alive(head, static_cast<KeyPos>(pos))) continue;
          known.push_back(static_cast<KeyPos>(pos));
          for (Index c = 0; c < config.d_head; ++c) {
            dynamic_cast<KvCache&>(poisoned.cache()).k(layer)(head, pos, c) = 1000.0f;
            dynamic_cast<KvCache&>(poisoned.cache()).v(layer)(head, pos, c) = -1000.0f;
          }
          ++n_poisoned;
        }
      }
    }
  }
  CHECK(n_poisoned > 0);
}

TEST_CASE("a dense prefill that was taken over equals one's own") {
  const Golden golden("qwen3");
  ThreadPool pool(2);
  KvCache dense(golden.model.config(), 20);
  golden.model.forward(golden.part(0, 20), dense, pool);
  for (const std::string spec :
       {"quest:page-size=4", "quoka", "streamingllm", "sparq", "oracle-topk",
        "quest-sglang:page-size=4", "quoka+coarsen:owner=layer,page=4,scores=bf16+every=3"}) {
    INFO(spec);
    const LiveOptions options{spec, Budget{Budget::Kind::tokens, 8}, 0};
    LiveSequence own(golden.model, options, golden.n(), pool);
    LiveSequence taken(golden.model, options, golden.n(), pool);
    own.prefill(golden.part(0, 20), 7, PrefillMode::dense);
    REQUIRE(taken.shares_dense_prefill());
    taken.adopt(dense);
    for (Index pos = 20; pos < 26; ++pos) {
      const Tensor<float> a = own.run(Phase::decode, golden.part(pos, pos + 1), Logits::last);
      const Tensor<float> b = taken.run(Phase::decode, golden.part(pos, pos + 1), Logits::last);
      CHECK(std::equal(a.flat().begin(), a.flat().end(), b.flat().begin()));
    }
    CHECK(own.stats().all().attended == taken.stats().all().attended);
    CHECK(own.stats().of(Phase::prefill).n_calls == 0.0);
  }
}

TEST_CASE("what cannot run is refused in a sentence") {
  const Golden golden("llama3_gqa");
  ThreadPool pool(1);
  const auto make = [&](const LiveOptions& options, Index capacity = 40) {
    return LiveSequence(golden.model, options, capacity, pool);
  };
  CHECK_THROWS_AS(make({"nothing", std::nullopt, {}}), ConfigError);
  CHECK_THROWS_AS(make({"quest", std::nullopt, {}}), ConfigError);
  CHECK_THROWS_AS(make({"quest", Budget{Budget::Kind::mass, 0.5}, {}}), ConfigError);
  CHECK_THROWS_AS(make({"loki:basis=calibrated", Budget{Budget::Kind::tokens, 8}, {}}),
                  ConfigError);
  CHECK_THROWS_AS(make({}, golden.model.config().max_positions + 1), ConfigError);
  LiveSequence evicting = make({"tova", Budget{Budget::Kind::tokens, 8}, {}});
  KvCache dense(golden.model.config(), 20);
  CHECK_THROWS_AS(evicting.adopt(dense), ConfigError);
  LiveSequence draftless = make({"specattn", Budget{Budget::Kind::mass, 0.9}, 0});
  CHECK_THROWS_AS(draftless.run(Phase::decode, golden.part(0, 1), Logits::none), ConfigError);
}

}  // namespace kvscope::test::live_test
