// The page of all attention maps: what it holds are the analysis's numbers, and text stays text.
#include "notebooks_export/attention_page.hpp"
#include "core/trace/result.hpp"

#include <fmt/format.h>
#include <catch2/catch_approx.hpp>
#include <catch2/catch_test_macros.hpp>
#include <catch2/generators/catch_generators.hpp>
#include <catch2/matchers/catch_matchers_string.hpp>
#include <cmath>

#include "core/base/error.hpp"
#include "tests/support/planted_trace.hpp"

namespace kvscope::attention_page_test {
namespace {

using Catch::Approx;
using Catch::Matchers::ContainsSubstring;

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

AttentionPage page_of(const TraceSource& trace, const AttentionPageOptions& options) {
  ThreadPool pool(2);
  return make_attention_page(trace, options, pool, {}, {},
                             {"kvscope export --html \"<b>.h5\"", "kvscope 0.1.0", ""});
}

TEST_CASE("attention page: every cell is the analysis's, to 2e-4", "[attention_page]") {
  test::PlantOptions plant;
  plant.n_tokens = 53;
  plant.sink = 1.0;
  plant.has_sink_logits = GENERATE(false, true);
  MemoryTrace planted = test::planted_trace(plant);
  TraceInfo info = planted.info();
  info.window[1] = 20;
  MemoryTrace trace(info);
  for (Index layer = 0; layer < 2; ++layer) {
    std::copy_n(planted.q(layer).data(), planted.q(layer).shape().count(), trace.q(layer).data());
    std::copy_n(planted.k(layer).data(), planted.k(layer).shape().count(), trace.k(layer).data());
  }
  trace.set_tokens(std::vector<TokenId>(53, 1));
  AttentionPageOptions options;
  options.max_cells = GENERATE(0, 16);
  options.selection.q_heads = {1, 3};
  const AttentionPage page = page_of(trace, options);
  REQUIRE(page.n_heads == 4);
  REQUIRE(page.block == (options.max_cells == 0 ? 1 : 4));

  for (Index slot = 0; slot < 4; ++slot) {
    const Index layer = slot / 2;
    MemoryResult result;
    ThreadPool pool(1);
    analyze_attention_map(trace, {layer, slot % 2 == 0 ? 1 : 3, page.n_cells, options.pooling},
                          result, pool, {}, {});
    const auto map = result.values<float>("map");
    const auto bytes = from_base64(element(page.html, fmt::format("map-{}", slot)));
    std::size_t at = 0;
    for (Index r = 0; r < page.n_cells; ++r) {
      for (Index c = 0; c < page.n_cells; ++c) {
        const double exact = map[static_cast<std::size_t>(r * page.n_cells + c)];
        const bool stored = c <= r && c >= first_page_column(r, page.block, window_of(info, layer));
        if (!stored) {
          CHECK(std::isnan(exact));
          continue;
        }
        REQUIRE(at + 1 < bytes.size());
        const double found = weight_of_page_code(
            static_cast<std::uint16_t>(bytes[at] | static_cast<unsigned>(bytes[at + 1]) << 8));
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

TEST_CASE("attention page: codes keep their order and their ends", "[attention_page]") {
  CHECK(std::isnan(weight_of_page_code(page_code(std::nan("")))));
  CHECK(page_code(0.0) == 1);
  CHECK(page_code(kPageFloor) == 2);
  CHECK(page_code(1.0) == 65535);
  CHECK(weight_of_page_code(65535) == 1.0);
  for (double w = kPageFloor; w < 1.0; w *= 1.37) {
    CHECK(weight_of_page_code(page_code(w)) == Approx(w).epsilon(2e-4));
    CHECK(page_code(w) <= page_code(w * 1.001));
  }
}

TEST_CASE("attention page: what is text in a trace is text in the page", "[attention_page]") {
  test::PlantOptions plant;
  plant.n_tokens = 16;
  MemoryTrace planted = test::planted_trace(plant);
  TraceInfo info = planted.info();
  info.model_name = "<img src=x onerror=alert(1)>";
  MemoryTrace trace(info);
  const std::vector<TokenId> ids(16, 7);
  std::vector<std::string> texts(16, "</pre><script>alert(1)</script>");
  texts[3] = "\xff\"\\ \n";
  trace.write_tokens(ids, texts);
  const AttentionPage page = page_of(trace, {});
  CHECK(page.html.find("<img") == std::string::npos);
  CHECK(page.html.find("alert(1)</script>") == std::string::npos);
  CHECK_THAT(page.html, ContainsSubstring("kvscope export --html &quot;&lt;b&gt;.h5&quot;"));
  CHECK_THAT(page.html, ContainsSubstring("default-src 'none'"));
  CHECK(page.html.find("http://") == std::string::npos);
  CHECK(page.html.find("https://") == std::string::npos);
  CHECK_THAT(element(page.html, "page-data"), ContainsSubstring("&lt;script&gt;"));
}

TEST_CASE("attention page: maps get coarser until the page fits, or it is refused",
          "[attention_page]") {
  test::PlantOptions plant;
  plant.n_tokens = 1200;
  plant.chunk = 600;
  const MemoryTrace trace = test::planted_trace(plant);
  AttentionPageOptions options;
  options.max_size = 1.0;
  const AttentionPage page = page_of(trace, options);
  CHECK(page.block > 1);
  CHECK(page.html.size() < 1.0e6);
  CHECK(page.html.size() > 0.5e6);
  options.max_cells = 1200;
  CHECK_THROWS_WITH(page_of(trace, options), ContainsSubstring("expected at most 1 (--max-size)"));
}

}  // namespace
}  // namespace kvscope::attention_page_test
