// Which keys stay, against kvpress 0.5.5 (NVIDIA, Apache-2.0): tests/golden/conformance, made by
// tests/golden/make_conformance.py. Where kvscope departs on purpose, a case here says so and names
// the option that removes the difference; core/selectors/CONFORMANCE.md has the table.
#include <fmt/format.h>

#include <algorithm>
#include <catch2/catch_test_macros.hpp>
#include <cmath>
#include <fstream>
#include <functional>
#include <limits>
#include <nlohmann/json.hpp>
#include <optional>

#include "core/base/parallel.hpp"
#include "core/selectors/owners.hpp"
#include "core/selectors/registry.hpp"
#include "core/sim/protocol.hpp"
#include "core/trace/memory_trace.hpp"
#include "tests/core/selectors/press_scores.hpp"
#include "tests/core/selectors/sequence.hpp"
#include "tests/support/golden.hpp"

namespace kvscope::test::published_lists_test {
namespace {

using Json = nlohmann::json;

std::filesystem::path folder() {
  return golden_dir() / "conformance";
}

Json published(const std::string& file) {
  std::ifstream stream(folder() / file);
  REQUIRE(stream);
  const Json all = Json::parse(stream);
  CHECK(all["program"] == "kvpress 0.5.5");
  return all["cases"];
}

Tensor<float> tensor_of(const std::string& input, const std::string& name) {
  return read_golden(folder() / "inputs.h5", input + "/" + name);
}

Prompt prompt_of(const std::string& input) {
  return {tensor_of(input, "hidden"), tensor_of(input, "w_q"), tensor_of(input, "w_o"),
          tensor_of(input, "q"),      tensor_of(input, "k"),   tensor_of(input, "v")};
}

/// Keys per KV head that the program holds on the average: its budget.
Index budget_of(const Json& run) {
  std::size_t n_kept = 0;
  for (const Json& head : run["kept"]) n_kept += head.size();
  return static_cast<Index>(n_kept / run["kept"].size());
}

/// The prompt as a recording, for methods that learn before they run.
MemoryTrace recording_of(const Prompt& prompt) {
  MemoryTrace text(make_trace_info(1, prompt.q.dim(0), prompt.k.dim(0), prompt.k.dim(2),
                                   prompt.n_tok(), prompt.n_tok()));
  std::copy_n(prompt.q.data(), prompt.q.count(), text.q(0).data());
  std::copy_n(prompt.k.data(), prompt.k.count(), text.k(0).data());
  std::copy_n(prompt.v.data(), prompt.v.count(), text.v(0).data());
  return text;
}

/// What a method holds after the prompt in one call; of one that evicts nothing, what the last
/// query sees.
KeptKeys kept_by(const std::string& spec, const Prompt& prompt, Index budget) {
  const auto d = static_cast<float>(prompt.k.dim(2));
  const AttentionShape shape{.n_layers = 1,
                             .n_q = prompt.q.dim(0),
                             .n_kv = prompt.k.dim(0),
                             .d_head = prompt.k.dim(2),
                             .max_tokens = prompt.n_tok(),
                             .score_scale = 1.0f / std::sqrt(d)};
  std::unique_ptr<Selector> selector = selector_registry().make(spec);
  if (selector->caps().needs_calibration) {
    const MemoryTrace text = recording_of(prompt);
    ThreadPool pool(1);
    selector->calibrate(text, text.info().layers, pool);
  }
  SelectorRun run(std::move(selector), shape, {{Budget::Kind::tokens, static_cast<double>(budget)}},
                  /*dense_layers=*/0);
  run.begin_call(Phase::prefill, prompt.n_tok());
  const Selection& answer =
      run.layer_call({.layer = 0, .q = prompt.q.view(), .k = prompt.k.view(), .v = prompt.v.view()})
          .front();
  KeptKeys kept;
  for (Index head = 0; head < shape.n_kv; ++head) {
    if (run.caps().permanent) {
      const std::set<KeyPos> alive = alive_keys(run.alive(0), head);
      kept.emplace_back(alive.begin(), alive.end());
    } else {
      kept.push_back(merged(answer.list(owner_of(answer.owner, head * shape.group(), shape.group()),
                                        prompt.n_tok() - 1)));
    }
  }
  return kept;
}

/// The same keys; where the program's scores at its border are equal, any of those.
void check_kept(const KeptKeys& ours, const Json& run, const Json& scores) {
  const auto its = run["kept"].get<KeptKeys>();
  if (!run["tied"].get<bool>()) {
    CHECK(ours == its);
    return;
  }
  for (std::size_t h = 0; h < its.size(); ++h) {
    const auto score = scores[h].get<std::vector<double>>();
    double border = std::numeric_limits<double>::infinity();
    for (const KeyPos pos : its[h]) border = std::min(border, score[static_cast<std::size_t>(pos)]);
    CHECK(ours[h].size() == its[h].size());
    for (const KeyPos pos : ours[h]) CHECK(score[static_cast<std::size_t>(pos)] >= border);
    const auto is_above = [&](KeyPos pos) { return score[static_cast<std::size_t>(pos)] > border; };
    CHECK(std::count_if(ours[h].begin(), ours[h].end(), is_above) ==
          std::count_if(its[h].begin(), its[h].end(), is_above));
  }
}

/// Calls look(prompt, case, run, budget) for every case and ratio of a file.
void for_each_run(const std::string& file,
                  const std::function<void(const Prompt&, const Json&, const Json&, Index)>& look) {
  for (const Json& one : published(file)) {
    const Prompt prompt = prompt_of(one["input"]);
    for (const Json& run : one["runs"]) {
      INFO(file << ", input " << one["input"] << ", " << one["options"] << ", ratio "
                << run["compression_ratio"]);
      look(prompt, one, run, budget_of(run));
    }
  }
}

using SpecOf = std::function<std::string(const Json& options, Index budget)>;

void check_method(const std::string& file, const SpecOf& spec_of) {
  for_each_run(file, [&](const Prompt& prompt, const Json& one, const Json& run, Index budget) {
    const std::string spec = spec_of(one["options"], budget);
    INFO(spec);
    check_kept(kept_by(spec, prompt, budget), run, one["scores"]);
  });
}

SpecOf always(const std::string& spec) {
  return [spec](const Json&, Index) { return spec; };
}

bool is_registered(const std::string& method) {
  const auto& entries = selector_registry().entries();
  return std::any_of(entries.begin(), entries.end(),
                     [&](const SelectorEntry& entry) { return entry.name == method; });
}

#define NEEDS_METHOD(method) \
  if (!is_registered(method)) SKIP("this build has no method " method)

void check_scores(const Scores& ours, const Json& its, double tolerance) {
  double largest = 0.0;  // of what is not forced to stay
  const auto expected = its.get<Scores>();
  constexpr double kForced = std::numeric_limits<double>::max();
  for (const auto& head : expected) {
    for (const double score : head)
      if (score < kForced) largest = std::max(largest, std::abs(score));
  }
  REQUIRE(ours.size() == expected.size());
  for (std::size_t h = 0; h < ours.size(); ++h) {
    REQUIRE(ours[h].size() == expected[h].size());
    for (std::size_t j = 0; j < ours[h].size(); ++j) {
      INFO("KV head " << h << ", key " << j << ": " << ours[h][j] << ", " << expected[h][j]);
      if (expected[h][j] == kForced || ours[h][j] == kForced) {
        CHECK(ours[h][j] == expected[h][j]);
      } else {
        CHECK(std::abs(ours[h][j] - expected[h][j]) <= tolerance * largest);
      }
    }
  }
}

/// SnapKV's scores inside another press.
Scores inner_scores(const Prompt& prompt, const Json& options) {
  return snapkv_scores(prompt, options["window_size"], options["kernel_size"]);
}

// ---- what kvpress computes ----

TEST_CASE("the presses' scores are those of the loops", "[selectors]") {
  const auto check = [](const std::string& file, double tolerance, const auto& scores_of) {
    for (const Json& one : published(file)) {
      INFO(file << ", input " << one["input"] << ", " << one["options"]);
      const Prompt prompt = prompt_of(one["input"]);
      check_scores(scores_of(prompt, one), one["scores"], tolerance);
    }
  };
  check("knorm/kept.json", 1e-12,
        [](const Prompt& prompt, const Json&) { return knorm_scores(prompt); });
  check("qfilters/kept.json", 1e-12, [](const Prompt& prompt, const Json& one) {
    return filter_scores(prompt, tensor_of(one["input"], "q_filters"));
  });
  // Where it keeps sinks and the latest, in float32.
  check("lagkv/kept.json", 1e-7, [](const Prompt& prompt, const Json& one) {
    const Json& options = one["options"];
    return lagkv_scores(prompt, {.n_sink = options["n_sink"],
                                 .lag = options["lag_size"],
                                 .is_cross = options["cross_scoring"]});
  });
  // transformers turns by angles in float32.
  check("expected-attention/kept.json", 2e-5, [](const Prompt& prompt, const Json& one) {
    const Json& options = one["options"];
    return expected_attention_scores(prompt, {.n_future = options["n_future_positions"],
                                              .n_sink = options["n_sink"],
                                              .has_covariance = options["use_covariance"],
                                              .has_value_norm = options["use_vnorm"],
                                              .eps = options["epsilon"]});
  });
  // SnapKV's softmax is in float32.
  for (const std::string file :
       {"snapkv/kept.json", "adakv/kept.json", "critical/kept_adakv.json"}) {
    check(file, 1e-6, [](const Prompt& prompt, const Json& one) {
      return inner_scores(prompt, one["options"]);
    });
  }
  check("critical/kept.json", 1e-6, [](const Prompt& prompt, const Json& one) {
    const Json& options = one["options"];
    const double part = (1.0 - one["runs"][0]["compression_ratio"].get<double>()) *
                        static_cast<double>(prompt.n_tok()) *
                        options["first_stage_ratio"].get<double>();
    const auto n_first = static_cast<Index>(part);
    Scores scores =
        critical_scores(prompt, inner_scores(prompt, options), n_first, options["epsilon"]);
    const Index window = options["window_size"];
    if (n_first < window) {  // SnapKV's window is equal in the first stage: torch's order decides
      const auto its = one["scores"].get<Scores>();
      for (std::size_t h = 0; h < scores.size(); ++h)
        std::copy(its[h].end() - window, its[h].end(), scores[h].end() - window);
    }
    return scores;
  });
}

TEST_CASE("the keys that Ada-KV's presses keep are those of the loops", "[selectors]") {
  for_each_run(
      "adakv/kept.json", [](const Prompt& prompt, const Json& one, const Json& run, Index budget) {
        const Json& options = one["options"];
        CHECK(ada_keys(inner_scores(prompt, options), budget, options["alpha_safeguard"]) ==
              run["kept"].get<KeptKeys>());
      });
  for_each_run("critical/kept_adakv.json",
               [](const Prompt& prompt, const Json& one, const Json& run, Index budget) {
                 const Json& options = one["options"];
                 CHECK(critical_ada_keys(prompt, inner_scores(prompt, options), budget,
                                         options["alpha_safeguard"], options["first_stage_ratio"],
                                         options["epsilon"]) == run["kept"].get<KeptKeys>());
               });
}

TEST_CASE("the channels that ThinK's press keeps are those of the loops", "[selectors]") {
  for (const Json& one : published("think/kept.json")) {
    INFO("input " << one["input"] << ", " << one["options"]);
    CHECK(think_channels(prompt_of(one["input"]), one["options"]["key_channel_compression_ratio"],
                         one["options"]["window_size"]) ==
          one["kept_channels"].get<std::vector<std::vector<Index>>>());
  }
}

// ---- what kvscope's methods keep ----

TEST_CASE("snapkv keeps what kvpress keeps", "[snapkv]") {
  check_method("snapkv/kept.json", [](const Json& options, Index) {
    return fmt::format("snapkv:window={},kernel={}", options["window_size"].get<Index>(),
                       options["kernel_size"].get<Index>());
  });
}

TEST_CASE("tova-kvpress keeps what kvpress keeps", "[tova]") {
  check_method("tova/kept.json", always("tova-kvpress"));
}

TEST_CASE("tova lets the last key go, which kvpress holds", "[tova]") {
  Index n_departures = 0;
  for_each_run("tova/kept.json",
               [&](const Prompt& prompt, const Json&, const Json& run, Index budget) {
                 const auto its = run["kept"].get<KeptKeys>();
                 const KeptKeys ours = kept_by("tova", prompt, budget);
                 for (std::size_t h = 0; h < its.size(); ++h) {
                   std::vector<KeyPos> lost;
                   std::set_difference(its[h].begin(), its[h].end(), ours[h].begin(), ours[h].end(),
                                       std::back_inserter(lost));
                   if (lost.empty()) continue;
                   ++n_departures;
                   CHECK(lost == std::vector<KeyPos>{static_cast<KeyPos>(prompt.n_tok() - 1)});
                 }
               });
  CHECK(n_departures > 0);
}

TEST_CASE("keydiff keeps what kvpress keeps", "[keydiff]") {
  check_method("keydiff/kept.json", always("keydiff"));
}

TEST_CASE("streamingllm shows its last query what kvpress keeps", "[streamingllm]") {
  check_method("streamingllm/kept.json", [](const Json& options, Index) {
    return fmt::format("streamingllm:n-sink={}", options["n_sink"].get<Index>());
  });
}

constexpr const char* kAdaKv = "adakv-kvpress:window={},kernel={}";

TEST_CASE("adakv-kvpress keeps what kvpress keeps, if its floor counts the window", "[adakv]") {
  // kvpress: trunc(share * budget) keys of a head are safe, and its window comes first among
  // them. Here a floor is a share of what the budget leaves beside the window.
  check_method("adakv/kept.json", [](const Json& options, Index budget) {
    const Index window = options["window_size"];
    const double share = options["alpha_safeguard"];
    const auto n_safe = static_cast<Index>(share * static_cast<double>(budget));
    const auto n_more = static_cast<double>(std::max<Index>(0, n_safe - window));
    return fmt::format(fmt::runtime(std::string(kAdaKv) + ",floor={}"), window,
                       options["kernel_size"].get<Index>(),
                       (n_more + 0.5) / static_cast<double>(budget - window));
  });
}

TEST_CASE("adakv-kvpress: a head that votes for nothing holds a floor beside its window",
          "[adakv]") {
  Index n_starved = 0;
  for_each_run(
      "adakv/kept.json", [&](const Prompt& prompt, const Json& one, const Json& run, Index budget) {
        if (one["options"]["alpha_safeguard"] != 0.2) return;
        const Index window = one["options"]["window_size"];
        const KeptKeys ours = kept_by(
            fmt::format(fmt::runtime(kAdaKv), window, one["options"]["kernel_size"].get<Index>()),
            prompt, budget);
        const auto floor = static_cast<Index>(0.2 * static_cast<double>(budget - window));
        const auto its = run["kept"].get<KeptKeys>();
        for (std::size_t h = 0; h < its.size(); ++h) {
          const auto n_ours = static_cast<Index>(ours[h].size());
          CHECK(n_ours >= window + floor);
          if (static_cast<Index>(its[h].size()) >= window + floor) continue;
          ++n_starved;
          CHECK(n_ours == window + floor);
        }
      });
  CHECK(n_starved > 0);
}

TEST_CASE("knorm keeps what kvpress keeps", "[knorm]") {
  NEEDS_METHOD("knorm");
  check_method("knorm/kept.json", always("knorm"));
}

TEST_CASE("lagkv keeps what kvpress keeps", "[lagkv]") {
  NEEDS_METHOD("lagkv");
  check_method("lagkv/kept.json", [](const Json& options, Index) {
    return fmt::format("lagkv:n-sink={},lag={},cross={}", options["n_sink"].get<Index>(),
                       options["lag_size"].get<Index>(), options["cross_scoring"].get<bool>());
  });
}

TEST_CASE("qfilters keeps what kvpress keeps with filters of the same queries", "[qfilters]") {
  NEEDS_METHOD("qfilters");
  check_method("qfilters/kept.json", always("qfilters"));
}

TEST_CASE("expected-attention keeps what kvpress keeps", "[expected-attention]") {
  NEEDS_METHOD("expected-attention");
  check_method("expected-attention/kept.json", [](const Json& options, Index) {
    return fmt::format(
        "expected-attention:n-future={},n-sink={},covariance={},value-norm={},eps={}",
        options["n_future_positions"].get<Index>(), options["n_sink"].get<Index>(),
        options["use_covariance"].get<bool>(), options["use_vnorm"].get<bool>(),
        options["epsilon"].get<double>());
  });
}

std::string critical_spec(const Json& options) {
  return fmt::format("critical:window={},kernel={},eps={},first-stage={}",
                     options["window_size"].get<Index>(), options["kernel_size"].get<Index>(),
                     options["epsilon"].get<double>(), options["first_stage_ratio"].get<double>());
}

TEST_CASE("critical keeps what kvpress keeps, an even budget per head", "[critical]") {
  NEEDS_METHOD("critical");
  check_method("critical/kept.json", [](const Json& options, Index) {
    return critical_spec(options) + ",division=even";
  });
}

TEST_CASE("critical keeps what kvpress keeps where heads compete", "[critical]") {
  NEEDS_METHOD("critical");
  check_method("critical/kept_adakv.json", [](const Json& options, Index) {
    return critical_spec(options) +
           fmt::format(",division=safeguard,floor={}", options["alpha_safeguard"].get<double>());
  });
}

}  // namespace
}  // namespace kvscope::test::published_lists_test
