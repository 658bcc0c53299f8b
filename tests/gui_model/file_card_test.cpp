// Cards of files: what they show is the analysis', and a kept one serves as long as the file stays.
#include "gui/model/traces/file_card.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <catch2/catch_test_macros.hpp>
#include <catch2/matchers/catch_matchers_string.hpp>
#include <chrono>
#include <cmath>
#include <filesystem>
#include <string>
#include <vector>

#include "analysis/kinds/heads.hpp"
#include "core/trace/result.hpp"
#include "tests/gui_model/job_context.hpp"
#include "tests/gui_model/trace_files.hpp"

namespace kvscope::gui::test::file_card_test {

namespace fs = std::filesystem;
using Catch::Matchers::ContainsSubstring;
using Catch::Matchers::StartsWith;

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

TEST_CASE("a trace's card: maps of the middle layer as analyze heads has them, words and text") {
  const TempFolder folder;
  const fs::path file = write_trace(folder / "a.h5", make_trace(Plan{}));
  TestJob job;
  const FileCard card = make_file_card(file, job.context);
  CHECK_THAT(card.words, ContainsSubstring("tokens · complete"));

  const TraceFile trace = TraceFile::open(file);
  const TraceInfo& info = trace.info();
  HeadsOptions options;
  options.selector.clear();
  options.cells = 24;
  options.rows = 96;
  options.selection.layers = {info.layers[info.layers.size() / 2]};
  MemoryResult result;
  analyze_heads(trace, options, {result, job.pool});
  const auto maps = result.values<float>("map");
  const auto cells = static_cast<int>(result.values<std::int64_t>("query_block").size());
  REQUIRE(card.height == cells);
  REQUIRE(card.width >= cells);
  REQUIRE(card.shades.size() == static_cast<std::size_t>(card.width * card.height));
  bool has_weight = false;
  for (int q = 0; q < cells; ++q) {  // the last recorded head is always shown, at the right
    for (int k = 0; k < cells; ++k) {
      const auto head = info.q_heads.size() - 1;
      const float weight = maps[head * static_cast<std::size_t>(cells * cells) +
                                static_cast<std::size_t>(q * cells + k)];
      const int shade = card.shades[q * card.width + card.width - cells + k];
      INFO(q << ", " << k << ": " << weight);
      if (std::isnan(weight)) {
        CHECK(shade == 0);
      } else {
        const double unit = std::clamp(1.0 + std::log10(weight) / 4.0, 0.0, 1.0);
        CHECK(std::abs(shade - (1.0 + 254.0 * unit)) < 1.0);
        has_weight = true;
      }
    }
  }
  CHECK(has_weight);
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

TEST_CASE("no more cards are kept than there is room for, and the oldest go first") {
  const TempFolder folder;
  const fs::path kept = folder / "cards";
  TestJob job;
  fs::path oldest;
  for (std::size_t i = 0; i < kMostKeptCards + 3; ++i) {
    const fs::path file = folder / fmt::format("{}.csv", i);
    spill(file, "layer,mass\n0,0.5\n");
    kept_file_card(file, *file_stamp(file), kept, job.context);
    if (i > 0) continue;
    oldest = kept_in(kept)[0];
    fs::last_write_time(oldest, fs::last_write_time(oldest) - std::chrono::hours(1));
  }
  CHECK(kept_in(kept).size() == kMostKeptCards);
  CHECK_FALSE(fs::exists(oldest));
}

}  // namespace kvscope::gui::test::file_card_test
