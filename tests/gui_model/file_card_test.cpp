// Cards of files: a kept one serves as long as the file stays.
#include "gui/model/traces/file_card.hpp"

#include <catch2/catch_test_macros.hpp>
#include <catch2/matchers/catch_matchers_string.hpp>
#include <chrono>
#include <filesystem>
#include <string>
#include <vector>

#include "tests/gui_model/job_context.hpp"
#include "tests/gui_model/trace_files.hpp"

namespace kvscope::gui::test::file_card_test {

namespace fs = std::filesystem;
using Catch::Matchers::ContainsSubstring;

std::vector<fs::path> kept_in(const fs::path& folder) {
  std::vector<fs::path> files;
  for (const auto& entry : fs::directory_iterator(folder)) files.push_back(entry.path());
  return files;
}

/// Writes other words into the only card of a folder: whoever reads it shows them.
void replace_in_card(const fs::path& folder, const std::string& was, const std::string& now) {
  const auto cards = kept_in(folder);
  REQUIRE(cards.size() == 1);
  std::string text = slurp(cards[0]);
  const auto at = text.find(was);
  REQUIRE(at != std::string::npos);
  spill(cards[0], text.replace(at, was.size(), now));
}

TEST_CASE("a card is kept while the file stays as it is, and made anew from then on") {
  const TempFolder folder;
  const fs::path file = write_trace(folder / "a.h5", make_trace(Plan{}));
  const fs::path kept = folder / "cards";
  TestJob job;
  const auto card_now = [&] { return kept_file_card(file, *file_stamp(file), kept, job.context); };
  const FileCard first = card_now();
  CHECK(card_now() == first);
  replace_in_card(kept, "complete", "kept");
  CHECK_THAT(card_now().words, ContainsSubstring("kept"));

  fs::last_write_time(file, fs::last_write_time(file) + std::chrono::seconds(2));
  CHECK(card_now() == first);
  replace_in_card(kept, "\"width\":", "\"width\":9");  // no longer as many shades
  CHECK(card_now() == first);
  spill(kept_in(kept)[0], "{");
  CHECK(card_now() == first);
  // Without a folder nothing is written.
  fs::remove_all(kept);
  CHECK(kept_file_card(file, *file_stamp(file), {}, job.context) == first);
  CHECK_FALSE(fs::exists(kept));
}

TEST_CASE(
    "cards of other files: results and sessions by their kind, what is neither by its fault") {
  const TempFolder folder;
  TestJob job;
  const auto words_of = [&](const char* name, const std::string& text) {
    const fs::path file = folder / name;
    spill(file, text);
    const FileCard card = make_file_card(file, job.context);
    CHECK(card.shades.empty());
    return card.words;
  };
  CHECK(words_of("a.csv", "layer,mass\n0,0.5\n") == "result: table");
  CHECK(words_of("s.json", R"({"kind": "kvscope-session"})") == "session");
  CHECK_THAT(words_of("b.h5", "no trace"), ContainsSubstring("b.h5"));
  CHECK_THAT(words_of("c.json", "{"), ContainsSubstring("c.json"));
  CHECK_FALSE(make_file_card(folder / "gone.h5", job.context).words.empty());
}

}  // namespace kvscope::gui::test::file_card_test
