// kvscope fit: what it writes, runs that load it, and what it refuses.
#include "tests/cli/run_program.hpp"
#include "tests/support/places.hpp"

namespace kvscope::test::fit_test {

struct TwoTexts {
  TempDir dir;
  std::string text = file("text.h5");
  std::string tested = file("tested.h5");
  TwoTexts() {
    ran({"record", text, "--max-tokens", "420"});
    const auto other = dir.write("other.txt", read_file(testing::source_dir() / "README.md"));
    ran({"record", tested, "--text", other.string(), "--max-tokens", "420"});
  }
  std::string file(const std::string& name) const { return dir.file(name); }
};

TEST_CASE(
    "fit writes what a sweep loads; on the recording that it learned from the sweep says so") {
  const TwoTexts texts;
  const Words methods = {"kascade:n-anchors=3,min-keys=16", "duoattention", "doublesparsity",
                         "loki", "indexer:index-share=0.5"};
  const Words options = {"map", "gates", "channels", "directions", "index"};
  std::string selectors;
  for (std::size_t i = 0; i < methods.size(); ++i) {
    const std::string name = methods[i].substr(0, methods[i].find(':'));
    const std::string out = texts.file(name + ".json");
    const auto run = ran({"fit", methods[i], texts.text, "--out", out, "--json", "--threads", "2"});
    CHECK(run.json()["method"] == name);
    CHECK(nlohmann::json::parse(read_file(out))["trace"]["hash"] == run.json()["trace"]["hash"]);
    selectors += (i == 0 ? "" : ",") + run.json()["use"].get<std::string>();
    CHECK(run.json()["use"] == name + ":" + options[i] + "=" + out);
    const auto again = ran({"fit", methods[i], texts.text, "--out", texts.file("again.json"),
                            "--overwrite", "--threads", "1"});
    CHECK_HAS(again.out, "use it as --selector");
    CHECK(read_file(out) == read_file(texts.file("again.json")));
  }
  const auto sweep = [&](const std::string& trace) {
    return kvscope_run({"sweep", trace, "--selector", selectors, "--budget", "32", "--phase",
                        "decode", "--steps", "3", "--json"});
  };
  const auto honest = sweep(texts.tested);
  INFO(honest.err);
  REQUIRE(honest.code == 0);
  CHECK(honest.json()["warnings"].empty());
  CHECK(honest.json()["config"]["artifacts"].size() == 5);
  const auto same = sweep(texts.text);
  REQUIRE(same.code == 0);
  CHECK(same.json()["warnings"].size() == 5);
  CHECK_HAS(same.err, "learned from text.h5, the recording that it is tested on");
  for (const std::string kind : {"heads", "overlap"}) {
    const Words asked = {"analyze",    kind,      texts.tested,
                         "--selector", selectors, "--budget",
                         "32",         "--out",   texts.file(kind + ".h5")};
    ran(asked);
    CHECK_HAS(ran(asked).err, "is complete");
    ran({"fit", "loki", kind == "heads" ? texts.tested : texts.text, "--out",
         texts.file("loki.json"), "--overwrite"});
    refused(asked, 3, {"--overwrite replaces it"});  // another artifact of that name
  }
}

TEST_CASE("fit and runs refuse with one sentence") {
  const TwoTexts texts;
  const std::string out = texts.file("out.json");
  refused({"fit", "quest", texts.text, "--out", out}, 2,
          {"methods that have: doublesparsity, duoattention"});
  refused({"fit", "kascade", texts.text}, 2, {"--out is missing"});
  refused({"fit", "kascade", texts.text, "--out", texts.text, "--overwrite"}, 3,
          {"it is not replaced"});
  refused({"fit", "kascade:map=x.json", texts.text, "--out", out}, 2, {"leave it out"});
  refused({"fit", "omnikv", texts.text, "--out", out}, 2,
          {"map and anchors contradict each other"});
  refused({"fit", "kascade", texts.text, "--out", texts.file("a,b.json")}, 2,
          {"expected a name without"});
  refused({"fit", "keydiff@tokens=64+kascade", texts.text, "--out", out}, 2, {"found a stack"});
  refused({"fit", "duoattention:n-recent=4000", texts.text, "--out", out}, 2,
          {"more than n-sink + n-recent"});
  refused({"fit", "kascade", texts.file("none.h5"), "--out", out}, 3, {"none.h5"});
  CHECK(!std::filesystem::exists(out));
  ran({"fit", "kascade", texts.text, "--out", out});
  refused({"fit", "kascade", texts.text, "--out", out}, 3, {"exists"});
  const auto sweep = [&](const std::string& selector) {
    return Words{"sweep", texts.tested, "--selector", selector, "--budget", "32"};
  };
  refused(sweep("duoattention:gates=" + out), 2,
          {"an artifact of kascade, expected one of duoattention"});
  refused(sweep("kascade:map=" + texts.text), 3, {"expected a file of kvscope fit kascade"});
  refused(sweep("kascade:map=" + texts.file("none.json")), 3, {"none.json"});
  refused(sweep("kascade"), 2, {"map=FILE"});
  const std::string draft = texts.file("draft.h5");
  ran({"record", draft, "--model", "draft", "--tokens", texts.tested});
  refused({"sweep", draft, "--selector", "kascade:map=" + out, "--budget", "32"}, 2,
          {"expected the"});
}

}  // namespace kvscope::test::fit_test
