// kvscope fit draft: the folder that it writes drafts for the model that it was made of.
#include "tests/cli/run_program.hpp"

namespace kvscope::test::fit_draft_test {

TEST_CASE("a fitted draft beats the plain early exit and drafts in a simulation") {
  const TempDir dir;
  const std::string out = dir.file("draft");
  const Words fit = {"fit",  "draft",      "--n-layers", "2",     "--max-tokens",
                     "2560", "--held-out", "400",        "--out", out};
  const auto run = ran(with(fit, {"--json"}));
  const auto found = run.json();
  CHECK(found.at("held_out_tokens") == 399);
  CHECK(found.at("fitted").at("greedy") > found.at("plain_exit").at("greedy"));
  CHECK(found.at("fitted").at("sampled") > found.at("plain_exit").at("sampled"));
  const auto config =
      nlohmann::json::parse(testing::read_file(dir.path() / "draft" / "config.json"));
  CHECK(config.at("num_hidden_layers") == 2);
  CHECK_HAS(config.at("kvscope_draft").at("what").get<std::string>(), "early exit");
  ran({"simulate", "speculative", "--draft", out, "--selector", "full,specattn", "--budget",
       "p=0.9", "--prompt", "256", "--n-new", "16", "--prompts", "1", "--json"});

  refused(fit, 3, {"--overwrite replaces the files of a draft in it"});
}

TEST_CASE("fit draft says what it cannot do") {
  CHECK_HAS(kvscope_run({"fit", "draft"}).err, "--out is missing");
  const auto layers =
      refused({"fit", "draft", "--n-layers", "99", "--out", "never"}, 2, {"layers, found 99"});
  const TempDir dir;
  refused({"fit", "draft", "--n-layers", "2", "--out", "never", "--text",
           dir.write("a.txt", "too short").string()},
          2, {"to measure on (--held-out)"});
}

}  // namespace kvscope::test::fit_draft_test
