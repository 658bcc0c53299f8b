// Calibration artifacts: what is written is read back, lists from a file are those of the
// calibration itself, and every wrong file ends in a sentence.
#include <fmt/format.h>

#include <nlohmann/json.hpp>

#include "core/base/parallel.hpp"
#include "core/selectors/artifact.hpp"
#include "core/selectors/learned.hpp"
#include "core/selectors/method_spec.hpp"
#include "core/selectors/registry.hpp"
#include "tests/core/selectors/call_fixture.hpp"
#include "tests/core/selectors/sequence.hpp"
#include "tests/support/planted_trace.hpp"
#include "tests/support/test.hpp"

namespace kvscope::test::artifact_test {

struct Fitted {
  std::string method;   // what is fitted
  std::string option;   // that takes the file
  std::string running;  // what runs on the calibration text itself
};

const std::vector<Fitted>& fitted_methods() {
  static const std::vector<Fitted> all = {{"kascade:n-anchors=2", "map", "kascade:n-anchors=2"},
                                          {"duoattention", "gates", "duoattention"},
                                          {"doublesparsity", "channels", "doublesparsity"},
                                          {"loki", "directions", "loki:basis=calibrated"},
                                          {"indexer:d-index=3", "index", "indexer:d-index=3"},
                                          {"shadowkv", "rotation", "shadowkv:keys=rebuilt"},
                                          {"skip-softmax", "fit", "skip-softmax:by=target"}};
  return all;
}

Sequence long_sequence() {
  SequenceOptions options{.n_layers = 4};
  options.n_tokens = 460;  // beyond DuoAttention's window
  options.chunk = 64;
  options.n_decode = 3;
  return random_sequence(options);
}

std::string fit(const Fitted& one, const Sequence& sequence) {
  auto selector = selector_registry().make(one.method);
  MemoryTrace text = calibration_text(sequence.shape);
  ThreadPool pool(2);
  selector->calibrate(text, text.info().layers, pool);
  TraceInfo info = text.info();
  info.uuid = "the-uuid";
  info.content_hash = "xxh128:the-hash";
  info.text_source = "a \xff name.txt";  // no UTF-8
  return artifact_text(selector->name(), selector->learned(), info);
}

std::string base_name(const std::string& spec) {
  return spec.substr(0, spec.find(':'));
}

TEST_CASE("methods list what they learn by an option, and only those") {
  std::vector<std::string> able;
  for (const SelectorEntry& entry : selector_registry().entries()) {
    if (!entry.caps.artifact_option.empty()) able.push_back(entry.name);
  }
  for (const Fitted& one : fitted_methods())
    CHECK(std::ranges::find(able, base_name(one.method)) != able.end());
}

TEST_CASE("a run that loads a file has the lists of one that learned from the text") {
  const TempDir dir;
  const Sequence sequence = long_sequence();
  for (const Fitted& one : fitted_methods()) {
    INFO(one.method);
    const auto file = dir.write(base_name(one.method) + ".json", fit(one, sequence));
    const std::string spec =
        fmt::format("{}:{}={}", base_name(one.method), one.option, file.string());
    const auto loaded = selector_registry().make(spec);
    CHECK(!loaded->caps().needs_calibration);
    CHECK(selector_registry().make(one.running)->caps().needs_calibration);
    REQUIRE(loaded->artifacts().size() == 1);
    CHECK(loaded->artifacts()[0].trace_uuid == "the-uuid");
    CHECK(loaded->artifacts()[0].trace_hash == "xxh128:the-hash");
    const Budget budget = Budget::parse("tokens=40");
    CHECK(run_all(spec, sequence, budget) == run_all(one.running, sequence, budget));
    // through other methods
    const auto stacked = selector_registry().make("keydiff@tokens=200+" + spec);
    CHECK(stacked->artifacts().size() == 1);
    CHECK(!stacked->caps().needs_calibration);
  }
}

TEST_CASE(
    "an artifact of another method, another model, damaged, or of something else is refused") {
  const TempDir dir;
  const Sequence sequence = long_sequence();
  const auto run = [&](const std::string& spec, const AttentionShape& shape) {
    SelectorRun made(selector_registry().make(spec), shape, {Budget::parse("tokens=40")});
  };
  for (std::size_t i = 0; i < fitted_methods().size(); ++i) {
    const Fitted& one = fitted_methods()[i];
    const Fitted& other = fitted_methods()[(i + 1) % fitted_methods().size()];
    const std::string name = base_name(one.method);
    const std::string text = fit(one, sequence);
    const auto with = [&](std::string_view contents) {
      return fmt::format("{}:{}={}", name, one.option, dir.write("file.json", contents).string());
    };
    INFO(name);
    CHECK_NOTHROW(run(with(text), sequence.shape));
    CHECK_SAYS(run(with(fit(other, sequence)), sequence.shape),
               "an artifact of " + base_name(other.method), "expected one of " + name);
    AttentionShape larger = sequence.shape;
    larger.n_layers += 1;
    CHECK_SAYS(run(with(text), larger), "with 4 layers", "expected the 5");
    larger = sequence.shape;
    larger.d_head *= 2;
    CHECK_THROWS_AS(run(with(text), larger), ConfigError);
    std::string damaged = text;
    damaged[damaged.find("\"n_q\": ") + 7] = '9';
    CHECK_SAYS(run(with(damaged), sequence.shape), "damaged");
    CHECK_THROWS_AS(run(with(text.substr(0, text.size() / 2)), sequence.shape), FormatError);
    CHECK_THROWS_AS(run(with(""), sequence.shape), FormatError);
    CHECK_THROWS_AS(run(with("\x89HDF"), sequence.shape), FormatError);
    CHECK_SAYS(run(with("{\"kind\": \"sweep\"}"), sequence.shape), "something else");
    CHECK_THROWS_AS(run(with("[1, 2]"), sequence.shape), FormatError);
    CHECK_THROWS_AS(
        run(fmt::format("{}:{}=/nowhere/at/all.json", name, one.option), sequence.shape), IoError);
  }
}

TEST_CASE("values that no fit writes are refused, though the checksum holds") {
  const TempDir dir;
  const Sequence sequence = long_sequence();
  const AttentionShape& shape = sequence.shape;
  const TraceInfo info = make_trace_info(shape.n_layers, shape.n_q, shape.n_kv, shape.d_head, 8, 8);
  const auto run = [&](const std::string& method, const std::string& option, const char* values) {
    Learned learned{.values = nlohmann::ordered_json::parse(values)};
    const auto file = dir.write("file.json", artifact_text(method, learned, info));
    SelectorRun made(
        selector_registry().make(fmt::format("{}:{}={}", method, option, file.string())), shape,
        {Budget::parse("tokens=4")});
  };
  CHECK_THROWS_AS(run("kascade", "map", "{}"), FormatError);
  CHECK_THROWS_AS(run("kascade", "map", "7"), FormatError);
  CHECK_THROWS_AS(run("kascade", "map", R"({"anchors": [0], "layers": [0], "map": [[0, 2]]})"),
                  FormatError);
  CHECK_THROWS_AS(run("kascade", "map", R"({"anchors": [9], "layers": [0], "map": [[0, 1]]})"),
                  FormatError);
  CHECK_THROWS_AS(run("kascade", "map", R"({"layers": [0], "map": [[0, 1]]})"), FormatError);
  CHECK_THROWS_AS(run("duoattention", "gates", R"({"layers": [1, 0], "gates": [[0, 0], [0, 0]]})"),
                  FormatError);
  CHECK_THROWS_AS(run("duoattention", "gates", R"({"layers": [0], "gates": [[0, "x"]]})"),
                  FormatError);
  CHECK_THROWS_AS(
      run("doublesparsity", "channels", R"({"layers": [0], "channels": [[[0, 1], [1, 0]]]})"),
      FormatError);
  CHECK_THROWS_AS(run("doublesparsity", "channels", R"({"layers": [0], "channels": [7]})"),
                  FormatError);
  CHECK_THROWS_AS(
      run("indexer", "index",
          R"({"layers": [0], "channels": [1], "shared": [2], "queries": [[[1], [1]]], "keys": [[[1], [1]]]})"),
      FormatError);
  CHECK_THROWS_AS(
      run("indexer", "index",
          R"({"layers": [0], "channels": [99], "shared": [0], "queries": [[]], "keys": [[]]})"),
      FormatError);
  CHECK_THROWS_AS(
      run("indexer", "index",
          R"({"layers": [0], "channels": [1], "shared": [0], "queries": [[[1], [1]]], "keys": [7]})"),
      FormatError);
  CHECK_THROWS_AS(
      run("shadowkv", "rotation",
          R"({"layers": [0], "frequencies": [["x"]], "interleaved": [0], "amplitude": [1]})"),
      FormatError);
  CHECK_THROWS_AS(
      run("shadowkv", "rotation",
          R"({"layers": [0], "frequencies": [[]], "interleaved": [0], "amplitude": [0]})"),
      FormatError);
  CHECK_THROWS_AS(
      run("shadowkv", "rotation",
          R"({"layers": [0], "frequencies": [7], "interleaved": [2], "amplitude": [1]})"),
      FormatError);
  CHECK_THROWS_AS(run("skip-softmax", "fit", R"({"prefill": [1], "decode": [1, 2]})"), FormatError);
  CHECK_THROWS_AS(run("skip-softmax", "fit", R"({"prefill": [1, 2]})"), FormatError);
  CHECK_THROWS_AS(run("loki", "directions", R"({"layers": [0], "bases": [[[1], [1]]]})"),
                  FormatError);
}

}  // namespace kvscope::test::artifact_test
