// Keys that are put back into an explained answer, as one clicks them.
#include <GLFW/glfw3.h>

#include "core/base/shell_word.hpp"
#include "gui/model/results/answer_view.hpp"
#include "gui/model/runs/child_program.hpp"
#include "tests/gui/app_rig.hpp"
#include "tests/support/test.hpp"

namespace kvscope::gui::test::answer_panel_test {

/// An answer that a window of 48 tokens changes, explained by the program.
std::filesystem::path explained(const std::string& program, const std::filesystem::path& folder) {
  const auto file = folder / "the answer.h5";
  const ProgramEnd end =
      run_program({program, "explain", "--facts", "6", "--selector", "streamingllm", "--budget",
                   "48", "--lengths", "600", "--depths", "1", "--out", file.string()},
                  [](const std::string&) {}, {});
  REQUIRE(end.code() == 0);
  return file;
}

TEST_CASE("a click puts a blamed key back and the next tokens change, another takes it out") {
  const testing::TempDir folder;
  Rig rig;
  rig.open(explained(rig.app().runs().program(), folder.path()));
  rig.app().show_panel_alone("answer");
  rig.settle();
  Panel& panel = rig.app().panel("answer");
  const auto prompts = explained_prompts(*rig.session().results().front());
  REQUIRE(prompts.size() == 1);
  const ExplainedPrompt& prompt = prompts.front();
  REQUIRE(!prompt.keys.empty());
  CHECK(prompt.heads.front().recovered >= prompt.heads.back().recovered);
  const BlamedKeys& key = prompt.keys.front();
  const std::string name = "put back " + key.what.words();
  const std::string before = *panel.csv();
  rig.click(rig.mark(name, "answer"));
  rig.settle();
  REQUIRE(panel.csv());
  CHECK(*panel.csv() != before);
  const PutBackAnswer answer = [&] {
    ThreadPool pool(1);
    JobContext job{pool, {}, {}};
    return run_put_back(rig.app().runs().program(),
                        put_back_words(*rig.session().results().front(), 0, {key.what}), job);
  }();
  CHECK(answer.tokens[prompt.token].mended == key.says);
  CHECK_THAT(*panel.csv(), ContainsSubstring(std::to_string(prompt.token + 1) + ","));
  CHECK(rig.app().panel_errors().empty());
  rig.click(rig.mark(name, "answer"));
  rig.settle();
  CHECK(*panel.csv() == before);
  // The same without a mouse: Tab into the panel, down into the lists, and Space.
  rig.tap(GLFW_KEY_TAB);
  rig.frame(2);
  for (int i = 0; i < 4; ++i) {
    rig.tap(GLFW_KEY_DOWN);
    rig.frame(2);
  }
  rig.tap(GLFW_KEY_SPACE);
  rig.settle();
  CHECK(*panel.csv() != before);
}

TEST_CASE("a command line is read as it is written, and asks again without its file") {
  CHECK(words_of_line("kvscope explain --prompt 'It'\\''s a' --out 'a b.h5'") ==
        std::vector<std::string>{"kvscope", "explain", "--prompt", "It's a", "--out", "a b.h5"});
  CHECK(words_of_line("").empty());
  CHECK(words_of_line("a '' b") == std::vector<std::string>{"a", "", "b"});
  MemoryResult result;
  result.begin({.kind = kAnswerKind,
                .command_line = "kvscope explain --answer --budget 2 --out x.h5 --json"});
  result.finish({{"prompts", nlohmann::ordered_json::array()}});
  CHECK(put_back_words(result, 2, {{5, 6, -1}, {}}) ==
        std::vector<std::string>{"explain", "--budget", "2", "--put-back", "5:6", "--put-back",
                                 "all", "--which", "3", "--json"});
  CHECK(explained_prompts(result).empty());
  CHECK_THROWS_AS(put_back_answer("{}"), FormatError);
  MemoryResult other;
  other.begin({.kind = kAnswerKind});
  other.finish({{"prompts", 3}});
  CHECK_THROWS_AS(put_back_words(other, 0, {}), FormatError);
}

TEST_CASE("putting back can be stopped") {
  Rig rig;
  ThreadPool pool(1);
  std::stop_source stop;
  stop.request_stop();
  JobContext job{pool, stop.get_token(), {}};
  CHECK_THROWS_AS(run_put_back(rig.app().runs().program(),
                               {"explain", "--facts", "6", "--selector", "quoka", "--budget", "64",
                                "--lengths", "4000", "--depths", "5", "--put-back", "all"},
                               job),
                  Interrupted);
}

TEST_CASE("a command that fails says why in the panel") {
  ThreadPool pool(1);
  JobContext job{pool, {}, {}};
  Rig rig;
  CHECK_THROWS_WITH(
      run_put_back(rig.app().runs().program(), {"explain", "--selector", "nothing"}, job),
      ContainsSubstring("nothing"));
}

}  // namespace kvscope::gui::test::answer_panel_test
