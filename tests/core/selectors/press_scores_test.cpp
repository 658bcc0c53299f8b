// The presses of kvpress 0.5.5 against loops: their formulas, before any method is compared with
// them (published_lists_test.cpp). Data: tests/golden/conformance.
#include <algorithm>
#include <catch2/catch_test_macros.hpp>
#include <cmath>
#include <limits>

#include "tests/core/selectors/published.hpp"

namespace kvscope::test::press_scores_test {
namespace {

using Json = nlohmann::json;

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

TEST_CASE("the presses' scores are those of the loops", "[selectors]") {
  const auto check = [](const std::string& file, double tolerance, const auto& scores_of) {
    for (const Json& one : published_cases(file)) {
      INFO(file << ", input " << one["input"] << ", " << one["options"]);
      const Prompt prompt = published_prompt(one["input"]);
      check_scores(scores_of(prompt, one), one["scores"], tolerance);
    }
  };
  check("knorm/kept.json", 1e-12,
        [](const Prompt& prompt, const Json&) { return knorm_scores(prompt); });
  check("qfilters/kept.json", 1e-12, [](const Prompt& prompt, const Json& one) {
    return filter_scores(prompt, published_tensor(one["input"], "q_filters"));
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
  for (const Json& one : published_cases("think/kept.json")) {
    INFO("input " << one["input"] << ", " << one["options"]);
    CHECK(think_channels(published_prompt(one["input"]),
                         one["options"]["key_channel_compression_ratio"],
                         one["options"]["window_size"]) ==
          one["kept_channels"].get<std::vector<std::vector<Index>>>());
  }
}

}  // namespace
}  // namespace kvscope::test::press_scores_test
