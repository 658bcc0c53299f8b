// kvscope analyze coverage, run as a user runs it.
#include "tests/cli/run_program.hpp"

namespace kvscope::test::coverage_test {

struct Pair {
  TempDir dir;
  std::string verifier = recording(160);
  std::string draft = draft_recording(160);
  Words coverage(Words more) const { return with({"analyze", "coverage", verifier}, more); }
};

TEST_CASE("coverage prints a table, JSON or CSV, and writes its maps") {
  const Pair pair;
  const auto plain = ran(pair.coverage({}));
  CHECK(plain.out.starts_with("layer"));
  CHECK_HAS(plain.out, "\ncoverage: an oracle needs");

  const std::string out = pair.dir.file("c.h5");
  const Words options = {"--selector", "quest:dense-layers=0,quoka",
                         "--selector", "twilight",
                         "--budget",   "16,32",
                         "--draft",    pair.draft};
  const auto run = kvscope_run(pair.coverage(with(options, {"--json", "--out", out})));
  const auto json = run.json();
  CHECK_HAS(json.at("skipped").dump(), "twilight is not defined for prefill");
  CHECK_HAS(ran(pair.coverage(options)).out, "left out: twilight is not defined for prefill");
  CHECK(json.at("kind") == "coverage");
  CHECK(json.at("layers").size() == 8);
  CHECK(json.at("pairs").size() == 4);
  CHECK(json.at("pairs")[0].at("pair") == "quest:dense-layers=0 tokens=16");
  CHECK(json.at("pinsker").at("violations") == 0);
  CHECK(json.at("options").at("draft") == pair.draft);
  const auto info = kvscope_run({"info", out, "--json"}).json();
  CHECK(info.at("kind") == "coverage");
  CHECK(info.at("trace_uuids").size() == 2);

  CHECK_HAS(kvscope_run(pair.coverage(options)).out, "Pinsker floor", "quoka tokens=32");
  CHECK(std::ranges::count(kvscope_run(pair.coverage({"--csv", "-"})).out, '\n') == 9);
  CHECK_HAS(kvscope_run(pair.coverage({"--json"})).json().at("pinsker").get<std::string>(),
            "no draft trace was given");
}

TEST_CASE("coverage refuses what makes no sense with one line and exit code 2") {
  const Pair pair;
  const auto check = [&](const Words& words, const std::string& sentence) {
    CHECK(refused(pair.coverage(words), 2, {sentence}).out.empty());
  };
  const std::string out = pair.dir.file("r.h5");
  check({"--selector", "qest", "--budget", "8", "--out", out}, "did you mean quest?");
  check({"--selector", "quest", "--budget", "0", "--out", out}, "tokens=0");
  check({"--selector", "quest", "--budget", "p=1.5"}, "p=1.5");
  check({"--selector", "quest:page-size=0", "--budget", "8", "--out", out}, "page-size");
  check({"--page-size", "0"}, "page-size");
  check({"--p", "0.5,0", "--out", out}, "(0, 1], found 0");
  check({"--p", "much"}, "--p: expected a number");
  check({"--nucleus", "0", "--draft", pair.draft}, "nucleus");
  check({"--selector", "specattn", "--budget", "p=0.9", "--phase", "verify", "--out", out},
        "has no draft trace");
  check({"--max-cells", "10", "--out", out}, "max-cells");
  check({"--budget", "8"}, "without a selector");
  check({"--draft", pair.draft, "--layer-map", "diagonal"}, "monotone");
  check({"--draft", pair.draft, "--layer-map", "0/9/1/1/1/1/1/1", "--out", out}, "draft");
  CHECK(!fs::exists(out));
  const std::string before = read_file(pair.draft);
  refused(pair.coverage({"--draft", pair.draft, "--out", pair.draft, "--overwrite"}), 3,
          {"a trace of kvscope", "it is not replaced"});
  CHECK(read_file(pair.draft) == before);
  CHECK(kvscope_run(pair.coverage({"--draft", "/no/such/file.h5"})).code == 3);
}

}  // namespace kvscope::test::coverage_test
