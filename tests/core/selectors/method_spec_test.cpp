// Specifications of methods: what is read from a text, what is written back, and what is refused.
#include "core/selectors/method_spec.hpp"

#include <fmt/format.h>

#include <random>

#include "core/selectors/registry.hpp"
#include "tests/core/selectors/sequence.hpp"
#include "tests/support/planted_trace.hpp"
#include "tests/support/test.hpp"

namespace kvscope::test::method_spec_test {

/// Every fact of caps as one text, so that a test names the difference.
std::string text_of(const SelectorCaps& caps) {
  std::string budgets;
  for (const Budget::Kind kind : caps.budgets)
    budgets += fmt::format("{} ", static_cast<int>(kind));
  return fmt::format(
      "prefill {} decode {} verify {} owner {} permanent {} probs {} calibration {} draft {} "
      "values {} cross {} static {} pool {} budgets {}forced {} page {} dense {}",
      caps.prefill, caps.decode, caps.verify, static_cast<int>(caps.owner), caps.permanent,
      caps.needs_probs, caps.needs_calibration, caps.needs_draft, caps.needs_values,
      caps.cross_layer, caps.is_static, caps.uses_pool, budgets, caps.forced_inside_budget,
      caps.page_size, caps.dense_layers);
}

/// A value that is not the default, where the listing says what is expected.
std::string other_value(const SelectorOption& option, std::mt19937_64& rng) {
  if (option.expected == "true or false") return option.default_value == "true" ? "false" : "true";
  if (option.expected == "a whole number") return fmt::format("{}", 1 + rng() % 3);
  if (const std::string words = "one of "; option.expected.starts_with(words)) {
    std::vector<std::string> names(1);
    for (const char c : option.expected.substr(words.size())) {
      if (c == ',') {
        names.emplace_back();
      } else if (c != ' ') {
        names.back() += c;
      }
    }
    return names[rng() % names.size()];
  }
  return option.default_value;
}

/// "name" or "name:option=value,...", with options that the method accepts together.
std::string random_stage(const SelectorEntry& entry, std::mt19937_64& rng) {
  std::string text = entry.name;
  bool has_options = false;
  for (const SelectorOption& option : entry.options) {
    if (rng() % 2 == 0) continue;
    const std::string longer = fmt::format("{}{}{}={}", text, has_options ? ',' : ':', option.name,
                                           other_value(option, rng));
    try {
      MethodSpec{longer};
    } catch (const ConfigError&) {
      continue;  // out of a range
    }
    text = longer;
    has_options = true;
  }
  return text;
}

std::string message(const std::string& text) {
  try {
    MethodSpec{text};
  } catch (const ConfigError& error) {
    return error.what();
  }
  return "";
}

TEST_CASE("every method's text with random options comes back as it was") {
  std::mt19937_64 rng(7);
  for (const SelectorEntry& entry : selector_registry().entries()) {
    for (int trial = 0; trial < 8; ++trial) {
      const std::string text = random_stage(entry, rng);
      INFO(text);
      const MethodSpec spec = text;
      CHECK(spec.text() == text);
      CHECK(MethodSpec(spec.text()) == spec);
      CHECK(spec.is_plain() == (text == entry.name));
      const auto selector = spec.make();
      CHECK(selector->name() == entry.name);
      CHECK(text_of(spec.caps()) == text_of(selector->caps()));
    }
    for (const auto& [preset, assignments] : entry.presets) {
      INFO(preset);
      const MethodSpec spec = preset;
      CHECK(spec.text() == preset);
      CHECK(!spec.is_plain());
      CHECK(spec.stages()[0].method == &entry);
      CHECK(text_of(spec.caps()) == text_of(spec.make()->caps()));
      if (entry.preset_wrappers.contains(preset)) continue;
      CHECK(text_of(spec.caps()) == text_of(entry.make(assignments)->caps()));
    }
  }
}

TEST_CASE("wrappers stand behind the method that they are around") {
  for (const std::string text :
       {"quest+every=4", "quest:page-size=32+coarsen:owner=layer,page=64", "quest+coarsen+every=2",
        "quest+every=2+coarsen:query=mean", "keydiff@tokens=64+quest+every=4",
        "quest@tokens=64+coarsen:page=64+every=4+oracle-topp", "quest-sglang+coarsen:page=64",
        "quoka:n-queries=8+coarsen:scores=bf16,ties=last"}) {
    INFO(text);
    const MethodSpec spec = text;
    CHECK(spec.text() == text);
    CHECK(MethodSpec(spec.text()) == spec);
    CHECK(!spec.is_plain());
    CHECK(text_of(spec.caps()) == text_of(spec.make()->caps()));
  }
  CHECK(MethodSpec("quest+every:n=4").text() == "quest+every=4");
  CHECK(MethodSpec("quest+every").text() == "quest+every=4");
  CHECK(MethodSpec("quest+coarsen,page=64").text() == "quest+coarsen:page=64");
}

TEST_CASE("a wrapper that does not fit is refused in a sentence that helps") {
  CHECK_HAS(message("every=4"), "goes around the method before it, as quest+every=4");
  CHECK_HAS(message("quest+every=0"), "n: expected");
  CHECK_HAS(message("quest+every=many"), "expected a whole number, found \"many\"");
  CHECK_HAS(message("quest+every=2+every=4"), "every is given twice around quest");
  CHECK_HAS(message("quest+every=4@tokens=64"), "takes no budget");
  CHECK_HAS(message("quest+coarsen:pages=64"), "coarsen has no option pages: did you mean page?");
  CHECK_HAS(message("quest+coarsen:page"), "expected option=value, found \"page\"");
  CHECK_HAS(message("quest+coarsen:scores=fp4"), "one of f64, f32, bf16, fp8");
  CHECK_HAS(message("quest+coarsen:page=24"),
            "chooses in pages of 16: expected a page that is a multiple, found 24");
  CHECK_HAS(message("quoka+coarsen:owner=q_head"), "quoka has one list per KV head");
  CHECK_HAS(message("streamingllm+coarsen:page=16"), "streamingllm gives no score per key or page");
  CHECK_HAS(message("sparq+coarsen:page=16"), "expected mean-value=false");
  CHECK_HAS(message("quoka:scope=whole+coarsen:page=16"), "expected scope=past");
  CHECK_HAS(message("keydiff+every=4"), "keydiff evicts keys for good");
  CHECK_HAS(message("h2o+coarsen:query=mean"), "attention weights");
  CHECK_HAS(message("quest+every=4+coarsen:page=64"), "put every behind");
}

TEST_CASE("random stacks come back as they were, with the caps of what they make") {
  std::mt19937_64 rng(11);
  const auto& entries = selector_registry().entries();
  for (int trial = 0; trial < 60; ++trial) {
    std::string text;
    std::vector<std::string> names;
    const std::size_t n_stages = 2 + rng() % 2;
    while (names.size() < n_stages) {
      const SelectorEntry& entry = entries[rng() % entries.size()];
      if (std::ranges::find(names, entry.name) != names.end()) continue;
      names.push_back(entry.name);
      const std::string stage = random_stage(entry, rng);
      const std::vector<Budget::Kind> kinds = MethodSpec(stage).caps().budgets;
      text += (names.size() == 1 ? "" : "+") + stage;
      if (names.size() == n_stages || kinds.empty()) continue;
      const bool takes_share =
          kinds.front() == Budget::Kind::mass || kinds.front() == Budget::Kind::ratio;
      text += "@" + Budget{kinds.front(), takes_share ? 0.25 : 48}.to_string();
    }
    INFO(text);
    const MethodSpec spec = text;
    CHECK(spec.text() == text);
    REQUIRE(spec.stages().size() == n_stages);
    for (std::size_t i = 0; i < n_stages; ++i) CHECK(spec.stages()[i].method->name == names[i]);
    const auto selector = spec.make();
    CHECK(selector->name() == text);
    CHECK(text_of(selector->caps()) == text_of(spec.caps()));
  }
}

TEST_CASE("a text is brought to one form") {
  CHECK(MethodSpec("quest:page-size=8,page-size=32").text() == "quest:page-size=32");
  CHECK(MethodSpec("quest,page-size=32").text() == "quest:page-size=32");
  CHECK(MethodSpec("quest:page-size=32,").text() == "quest:page-size=32");
  CHECK(MethodSpec("keydiff@64+quest").text() == "keydiff@tokens=64+quest");
  CHECK(MethodSpec("oracle-topp@p=0.90+quest").text() == "oracle-topp@p=0.9+quest");
  CHECK(MethodSpec("twilight:base=quest:page-size=8,base-budget=ratio=0.5").text() ==
        "twilight:base=quest:page-size=8,base-budget=ratio=0.5");
  CHECK(MethodSpec() == MethodSpec());
  CHECK(MethodSpec().empty());
  CHECK_THROWS_AS(MethodSpec().make(), ConfigError);
  CHECK(fmt::format("{:>8}", MethodSpec("quest")) == "   quest");
}

TEST_CASE("options are set and filled in without touching the text of the others") {
  MethodSpec spec = "quest";
  CHECK(spec.leaves_open("dense-layers"));
  CHECK(!spec.leaves_open("n-queries"));  // it has none
  spec.fill("n-queries", 8);
  CHECK(spec.text() == "quest");
  spec.fill("dense-layers", 3);
  CHECK(spec.text() == "quest:dense-layers=3");
  CHECK(spec.caps().dense_layers == 3);
  spec.fill("dense-layers", 5);  // not open any more
  CHECK(spec.caps().dense_layers == 3);
  spec.set("page-size", 32);
  spec.set("dense-layers", 1);
  CHECK(spec.text() == "quest:dense-layers=1,page-size=32");
  CHECK(spec.caps().dense_layers == 1);
  CHECK(spec.caps().page_size == 32);
  CHECK_SAYS(spec.set("page-sise", 8), "did you mean page-size?");
  CHECK_SAYS(spec.set("page-size", 0), "page-size");
  CHECK(spec.text() == "quest:dense-layers=1,page-size=32");
  CHECK(spec.caps().page_size == 32);
}

TEST_CASE("in a stack, options are set in the stages that have them") {
  MethodSpec spec = "full+quest:dense-layers=4@tokens=64+quoka";
  spec.fill("dense-layers", 1);
  CHECK(spec.text() == "full+quest:dense-layers=4@tokens=64+quoka:dense-layers=1");
  spec.set("dense-layers", 2);
  CHECK(spec.text() == "full+quest:dense-layers=2@tokens=64+quoka:dense-layers=2");
  spec.set("n-queries", 8);
  CHECK(spec.text() == "full+quest:dense-layers=2@tokens=64+quoka:dense-layers=2,n-queries=8");
  CHECK(spec.stages()[1].budget->value == 64);
  CHECK(MethodSpec(spec.text()) == spec);
}

TEST_CASE("a text that does not fit is refused in a sentence that helps") {
  CHECK_HAS(message("quset"), "unknown selector quset: did you mean quest?");
  CHECK_HAS(message(""), "unknown selector");
  CHECK_HAS(message("quest:page-sise=8"),
            "selector quest has no option page-sise: did you mean page-size?");
  CHECK_HAS(message("quest:zzzzzzzz=8"), "known: ");
  CHECK_HAS(message("quest:page-size"),
            "selector quest: expected option=value, found \"page-size\"");
  CHECK_HAS(message("quest:page-size=many"), "page-size: expected a whole number, found \"many\"");
  CHECK_HAS(message("snapkv:kernel=4"), "kernel");
  CHECK_HAS(message("quest@tokens=8"), "only the lower stages of a stack");
  CHECK_HAS(message("keydif@tokens=8+quest"), "did you mean keydiff?");
  CHECK_HAS(message("keydiff+quest"), "keydiff@tokens=1024");
  CHECK_HAS(message("keydiff@p=0.5+quest"), "keydiff");
  CHECK_HAS(message("keydiff@tokens=0+quest"), "at least 1");
  CHECK_HAS(message("keydiff@tokens=8+quest@tokens=4"), "@tokens=4");
  CHECK_HAS(message("keydiff@tokens=8+keydiff"), "twice");
  CHECK_HAS(message("quest@tokens=8+quest-paper"), "twice");
  CHECK_HAS(message("+quest"), "a stage is empty");
  CHECK_HAS(message("full+"), "a stage is empty");
  CHECK_HAS(message("oracle-topp:x=1e+3"), "no option x");  // no stack of "3"
}

}  // namespace kvscope::test::method_spec_test
