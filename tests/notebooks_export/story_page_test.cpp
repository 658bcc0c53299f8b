// The page of a story: what it holds are the analyses' numbers, and text stays text.
#include "notebooks_export/story_page.hpp"

#include <fmt/format.h>

#include "analysis/kinds/attention_map.hpp"
#include "analysis/kinds/explain_key.hpp"
#include "core/trace/result.hpp"
#include "notebooks_export/story_kept.hpp"
#include "tests/support/planted_trace.hpp"
#include "tests/support/test.hpp"

namespace kvscope::story_page_test {

/// The text of the element with this id.
std::string element(const std::string& html, const std::string& id) {
  const std::size_t at = html.find("id=\"" + id + "\"");
  REQUIRE(at != std::string::npos);
  const std::size_t begin = html.find('>', at) + 1;
  return html.substr(begin, html.find('<', begin) - begin);
}

std::vector<std::uint8_t> from_base64(const std::string& text) {
  static const std::string kSigns =
      "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";
  std::vector<std::uint8_t> bytes;
  std::uint32_t group = 0;
  int n_bits = 0;
  for (const char sign : text) {
    if (sign == '=') break;
    group = group << 6 | static_cast<std::uint32_t>(kSigns.find(sign));
    n_bits += 6;
    if (n_bits < 8) continue;
    n_bits -= 8;
    bytes.push_back(static_cast<std::uint8_t>(group >> n_bits & 0xff));
  }
  return bytes;
}

std::vector<std::uint8_t> bytes_of(const std::string& html, const std::string& id) {
  return from_base64(element(html, id));
}

unsigned word16(const std::vector<std::uint8_t>& bytes, std::size_t at) {
  return bytes.at(at) | static_cast<unsigned>(bytes.at(at + 1)) << 8;
}

StoryPage page_of(const TraceSource& trace, const Story& story,
                  const StoryPageOptions& options = {}) {
  ThreadPool pool(2);
  const TraceOpener open = [&](const std::filesystem::path&) {
    return std::shared_ptr<const TraceSource>(&trace, [](const TraceSource*) {});
  };
  return make_story_page(story, options, open, pool, {}, {},
                         {"kvscope export --html \"<b>.h5\"", "kvscope 0.1.0", ""});
}

StoryPage atlas_of(const TraceSource& trace, const StoryPageOptions& options = {},
                   const TraceSelection& selection = {}) {
  return page_of(trace, atlas_story(trace, "t.h5", selection), options);
}

/// The planted trace with texts and a window in layer 1.
MemoryTrace windowed_trace(bool has_sink_logits) {
  test::PlantOptions plant{.n_tokens = 53, .sink = 1.0, .has_sink_logits = has_sink_logits};
  MemoryTrace planted = test::planted_trace(plant);
  TraceInfo info = planted.info();
  info.window[1] = 20;
  MemoryTrace trace(info);
  for (Index layer = 0; layer < 2; ++layer) {
    std::copy_n(planted.q(layer).data(), planted.q(layer).shape().count(), trace.q(layer).data());
    std::copy_n(planted.k(layer).data(), planted.k(layer).shape().count(), trace.k(layer).data());
    std::copy_n(planted.v(layer).data(), planted.v(layer).shape().count(), trace.v(layer).data());
  }
  trace.set_tokens(std::vector<TokenId>(53, 1));
  return trace;
}

/// A step about a head, with methods that keep few keys.
Story head_story(Index layer, std::vector<StoryPanel> panels) {
  StoryStep step;
  step.title = "A step";
  step.panels = std::move(panels);
  step.view.trace = "t.h5";
  step.view.layer = layer;
  step.view.head = 2;
  step.view.chunk = 16;
  for (const char* method : {"quest:page-size=4", "streamingllm"})
    step.view.methods.push_back({method, Budget{Budget::Kind::tokens, 8}});
  return {"Title", "", {step}};
}

/// What explain says of a query; a method that leaves it dense keeps all that it sees.
QueryLook look_of(const TraceSource& trace, const StoryMethod& method, Index pos) {
  ThreadPool pool(1);
  const KeyQuestion question{0, 2, pos, method.method, method.budget, 16, {}, false};
  QueryLook look = look_at_query({trace, nullptr, nullptr}, question, pool, {});
  for (Index key = look.visible.begin; look.is_dense && key < look.visible.end; ++key) {
    look.kept.push_back(static_cast<KeyPos>(key));
    look.kept_mass += look.weight(key);
  }
  return look;
}

TEST_CASE("story page: every cell of an atlas is the analysis's, to 2e-4", "[story_page]") {
  const MemoryTrace trace = windowed_trace(GENERATE(false, true));
  StoryPageOptions options{.max_cells = GENERATE(0, 16)};
  const StoryPage page = atlas_of(trace, options, {{}, {1, 3}});
  REQUIRE(page.n_heads == 4);
  REQUIRE(page.block == (options.max_cells == 0 ? 1 : 4));
  for (Index slot = 0; slot < 4; ++slot) {
    const Index layer = slot / 2;
    MemoryResult result;
    ThreadPool pool(1);
    analyze_attention_map(trace, {layer, slot % 2 == 0 ? 1 : 3, page.n_cells, options.pooling},
                          {result, pool});
    const auto map = result.values<float>("map");
    const auto bytes = bytes_of(page.html, fmt::format("map-{}", slot));
    const CellGrid grid{{0, 53}, {0, 53}, page.block, window_of(trace.info(), layer)};
    std::size_t at = 0;
    for (Index r = 0; r < page.n_cells; ++r) {
      for (Index c = 0; c < page.n_cells; ++c) {
        const double exact = map[r * page.n_cells + c];
        const TokenRange seen = grid.seen_cols(r);
        if (c < seen.begin || c >= seen.end) {
          CHECK(std::isnan(exact));
          continue;
        }
        const double found = weight_of_page_code(static_cast<std::uint16_t>(word16(bytes, at)));
        at += 2;
        if (exact < kPageFloor) {
          CHECK(found == 0.0);
        } else {
          CHECK(found == Approx(exact).epsilon(2e-4));
        }
      }
    }
    CHECK(at == bytes.size());
  }
}

TEST_CASE("story page: a part of the context, and what methods keep of it, are the analyses'",
          "[story_page]") {
  const MemoryTrace trace = windowed_trace(true);
  Story story = head_story(0, {StoryPanel::map});
  StoryView& view = story.steps[0].view;
  view.queries = TokenRange{21, 50};
  view.keys = TokenRange{3, 40};
  StoryPageOptions options{.max_cells = GENERATE(0, 10)};
  const StoryPage page = page_of(trace, story, options);
  const CellGrid grid{*view.queries, *view.keys, page.block, std::nullopt};
  REQUIRE(page.block == (options.max_cells == 0 ? 1 : 4));
  // map 0 is the whole context behind the part
  const auto weights = bytes_of(page.html, "map-1");
  std::vector<std::vector<double>> rows;
  for (Index pos = 0; pos < 53; ++pos) rows.push_back(test::naive_row(trace, 0, 2, pos));
  for (std::size_t m = 0; m < 2; ++m) {
    const auto kept = bytes_of(page.html, fmt::format("kept-1-{}", m));
    const auto masses = bytes_of(page.html, fmt::format("mass-1-{}", m));
    std::vector<QueryLook> looks;
    for (Index pos = view.queries->begin; pos < view.queries->end; ++pos)
      looks.push_back(look_of(trace, view.methods[m], pos));
    std::size_t at = 0;
    for (Index r = 0; r < grid.rows(); ++r) {
      const TokenRange own = grid.row_queries(r);
      double mass = 0.0;
      for (Index pos = own.begin; pos < own.end; ++pos)
        mass += looks[pos - 21].kept_mass / static_cast<double>(own.size());
      CHECK(share_of_code(static_cast<std::uint16_t>(
                word16(masses, 2 * static_cast<std::size_t>(r)))) == Approx(mass).margin(1e-5));
      for (Index c = grid.seen_cols(r).begin; c < grid.seen_cols(r).end; ++c, ++at) {
        double largest = 0.0;
        Index n_seen = 0;
        Index n_kept = 0;
        for (Index pos = own.begin; pos < own.end; ++pos) {
          const auto& list = looks[pos - 21].kept;
          for (Index key = 3 + c * page.block;
               key < std::min<Index>({40, 3 + (c + 1) * page.block, pos + 1}); ++key) {
            largest = std::max(largest, rows[pos][key]);
            ++n_seen;
            n_kept += std::binary_search(list.begin(), list.end(), static_cast<KeyPos>(key));
          }
        }
        REQUIRE(n_seen > 0);
        CHECK(weight_of_page_code(static_cast<std::uint16_t>(word16(weights, 2 * at))) ==
              Approx(largest).epsilon(2e-4));
        if (page.block == 1) {
          CHECK((kept.at(at / 4) >> (2 * (at % 4)) & 3U) == (n_kept > 0 ? 2U : 1U));
        } else {
          const double share = static_cast<double>(n_kept) / static_cast<double>(n_seen);
          CHECK((static_cast<double>(kept.at(at)) - 1.0) / 254.0 == Approx(share).margin(2e-3));
        }
      }
    }
    CHECK(weights.size() == 2 * at);
  }
}

TEST_CASE("story page: the heaviest keys of words are the analysis's", "[story_page]") {
  const MemoryTrace trace = windowed_trace(false);
  const Story story = head_story(0, {StoryPanel::text});
  const StoryPage page = page_of(trace, story);
  const auto reads = bytes_of(page.html, "reads-0");
  const auto masses = bytes_of(page.html, "read-masses-0");
  constexpr std::size_t kMost = 32;
  REQUIRE(reads.size() == 53 * kMost * 8);
  for (Index pos = 0; pos < 53; ++pos) {
    const auto& methods = story.steps[0].view.methods;
    std::vector<QueryLook> looks;
    for (std::size_t m = 0; m < 2; ++m) {
      looks.push_back(look_of(trace, methods[m], pos));
      const double mass = share_of_code(
          static_cast<std::uint16_t>(word16(masses, 2 * (static_cast<std::size_t>(pos) * 2 + m))));
      CHECK(mass == Approx(looks.back().kept_mass).margin(1e-5));
    }
    const std::vector<Index> heaviest = looks[0].heaviest(kMost);
    for (std::size_t j = 0; j < kMost; ++j) {
      const std::size_t at = (static_cast<std::size_t>(pos) * kMost + j) * 8;
      const unsigned key = word16(reads, at) | word16(reads, at + 2) << 16;
      if (j >= heaviest.size()) {
        CHECK(key == 0xffffffffU);
        continue;
      }
      REQUIRE(key == static_cast<unsigned>(heaviest[j]));
      CHECK(weight_of_page_code(static_cast<std::uint16_t>(word16(reads, at + 4))) ==
            Approx(looks[0].weight(heaviest[j])).epsilon(2e-4));
      for (std::size_t m = 0; m < 2; ++m) {
        const KeyEnd end = fate_of(looks[m], heaviest[j]).end;
        CHECK((reads[at + 6] >> m & 1U) == (end == KeyEnd::dropped ? 0U : 1U));
        CHECK((reads[at + 7] >> m & 1U) == (end == KeyEnd::by_rule ? 1U : 0U));
      }
    }
  }
}

TEST_CASE("story page: what a method does not answer is said, not drawn", "[story_page]") {
  const MemoryTrace trace = windowed_trace(false);
  const StoryPage page = page_of(trace, head_story(1, {StoryPanel::map, StoryPanel::text}));
  REQUIRE(page.notes.size() == 2);
  CHECK_HAS(page.notes[0], "leaves layer 1 dense: it sees the last 20 keys");
  for (const std::uint8_t four : bytes_of(page.html, "kept-0-0")) CHECK(four == 0);
}

TEST_CASE("story page: codes keep their order and their ends", "[story_page]") {
  CHECK(std::isnan(weight_of_page_code(page_code(std::nan("")))));
  CHECK(page_code(0.0) == 1);
  CHECK(page_code(kPageFloor) == 2);
  CHECK(page_code(1.0) == 65535);
  CHECK(weight_of_page_code(65535) == 1.0);
  for (double w = kPageFloor; w < 1.0; w *= 1.37) {
    CHECK(weight_of_page_code(page_code(w)) == Approx(w).epsilon(2e-4));
    CHECK(page_code(w) <= page_code(w * 1.001));
  }
  CHECK(std::isnan(share_of_code(share_code(std::nan("")))));
  for (const double share : {0.0, 0.25, 0.999, 1.0})
    CHECK(share_of_code(share_code(share)) == Approx(share).margin(8e-6));
}

TEST_CASE("story page: what is text in a trace or a story is text in the page", "[story_page]") {
  MemoryTrace planted = test::planted_trace(test::PlantOptions{.n_tokens = 16});
  TraceInfo info = planted.info();
  info.model_name = "<img src=x onerror=alert(1)>";
  MemoryTrace trace(info);
  const std::vector<TokenId> ids(16, 7);
  std::vector<std::string> texts(16, "</pre><script>alert(1)</script>");
  texts[3] = "\xff\"\\ \n";
  trace.write_tokens(ids, texts);
  Story story = atlas_story(trace, "t.h5", {});
  story.author = "</header><script>alert(1)</script>";
  story.steps[0].note = "**<img src=x>** [</p>](javascript:alert(1)) [a](https://x/\"><img>)";
  story.steps[0].title = "<img>";
  const std::string html = page_of(trace, story).html;
  CHECK(html.find("<img") == std::string::npos);
  CHECK(html.find("alert(1)</script>") == std::string::npos);
  CHECK(html.find("href=\"javascript") == std::string::npos);
  CHECK_HAS(html, "kvscope export --html &quot;&lt;b&gt;.h5&quot;", "default-src 'none'",
            "<b>&lt;img src=x&gt;</b>");
  CHECK_HAS(element(html, "page-data"), "&lt;script&gt;");
}

TEST_CASE("story page: maps get coarser until the page fits, or it is refused", "[story_page]") {
  const MemoryTrace trace = test::planted_trace(test::PlantOptions{.n_tokens = 1200, .chunk = 600});
  StoryPageOptions options{.max_size = 1.0};
  const StoryPage page = atlas_of(trace, options);
  CHECK(page.block > 1);
  CHECK(page.html.size() < 1.0e6);
  CHECK(page.html.size() > 0.5e6);
  options.max_cells = 1200;
  CHECK_SAYS(atlas_of(trace, options), "expected at most 1 (--max-size)");
}

TEST_CASE("story page: steps that a trace does not hold are refused by name", "[story_page]") {
  const MemoryTrace trace = windowed_trace(false);
  Story story = head_story(0, {StoryPanel::map});
  story.steps[0].view.queries = TokenRange{10, 60};
  CHECK_SAYS(page_of(trace, story), "step 1 (\"A step\"): queries up to position 59",
             "holds positions 0 to 52");
  story.steps[0].view.queries = TokenRange{10, 20};
  story.steps[0].view.keys = TokenRange{20, 30};
  CHECK_SAYS(page_of(trace, story), "no query up to 19 sees a key");
  story = head_story(7, {StoryPanel::map});
  CHECK_SAYS(page_of(trace, story), "step 1 (\"A step\"): ");
}

}  // namespace kvscope::story_page_test
