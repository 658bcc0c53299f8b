// The wrapper coarsen against loops over the method's own scores.
#include "core/selectors/coarsen.hpp"

#include <fmt/format.h>

#include "core/selectors/method_spec.hpp"
#include "core/sim/protocol.hpp"
#include "tests/core/selectors/call_fixture.hpp"
#include "tests/core/selectors/sequence.hpp"
#include "tests/support/planted_trace.hpp"
#include "tests/support/test.hpp"

namespace kvscope::test::coarsen_test {

constexpr double kNone = -std::numeric_limits<double>::infinity();

/// Scores of Quest's pages for one query vector, by loops. [n_pages]
std::vector<double> page_bounds(const CallFixture& fixture, const std::vector<double>& q,
                                Index kv_head, Index page) {
  std::vector<double> bounds;
  for (Index begin = 0; begin < fixture.k.dim(1); begin += page) {
    double bound = 0.0;
    for (Index c = 0; c < fixture.k.dim(2); ++c) {
      double best = kNone;
      for (Index t = begin; t < std::min(begin + page, fixture.k.dim(1)); ++t)
        best = std::max(best, q[c] * static_cast<double>(fixture.k(kv_head, t, c)));
      bound += best;
    }
    bounds.push_back(bound);
  }
  return bounds;
}

std::vector<double> query(const CallFixture& fixture, Index head) {
  std::vector<double> q;
  for (Index c = 0; c < fixture.q.dim(2); ++c)
    q.push_back(static_cast<double>(fixture.q(head, 0, c)));
  return q;
}

TEST_CASE("quest-sglang: mean queries, bounds summed over the KV heads, one list") {
  CallFixture fixture({.n_q = 6, .n_kv = 2, .n_past = 70, .n_tok = 1, .phase = Phase::decode});
  fixture.call.budget = Budget::parse("tokens=24");
  const Selection selection = made("quest-sglang:page-size=4", fixture)->select(fixture.call);
  CHECK(selection.owner == ListOwner::layer);
  REQUIRE(selection.n_lists() == 1);
  std::vector<double> sums(18, 0.0);
  for (Index kv = 0; kv < 2; ++kv) {
    std::vector<double> mean(16, 0.0);
    for (Index h = 3 * kv; h < 3 * kv + 3; ++h) {
      for (std::size_t c = 0; c < 16; ++c) mean[c] += query(fixture, h)[c] / 3.0;
    }
    for (double& x : mean) x = static_cast<double>(static_cast<float>(x));
    const auto bounds = page_bounds(fixture, mean, kv, 4);
    for (std::size_t p = 0; p < sums.size(); ++p) sums[p] += bounds[p];
  }
  sums[17] = kNone;  // the last page is forced: 5 of 6 pages are earned
  CHECK(selection.at(0).scored() == keys_of_pages(naive_top_k(sums, 5), 4, 71));
  CHECK(selection.at(0).forced() == positions(68, 71));
}

TEST_CASE("lists per KV head and layer are by sums, pages by their best, scores rounded first") {
  CallFixture fixture(
      {.n_q = 4, .n_kv = 2, .n_past = 95, .n_tok = 1, .phase = Phase::decode, .seed = 7});
  fixture.call.budget = Budget::parse("tokens=20");
  for (const std::string type : {"f64", "f32", "bf16", "fp8"}) {
    for (const Index page : {Index{1}, Index{4}, Index{16}}) {
      for (const std::string owner : {"own", "kv_head", "layer"}) {
        for (const bool takes_last : {false, true}) {
          INFO(type << ' ' << page << ' ' << owner << ' ' << takes_last);
          ScoreType score_type = ScoreType::f64;
          parse_field(Field{"scores", ""}, type, score_type);
          const std::string spec =
              fmt::format("loki:rank-share=1+coarsen:owner={},page={},scores={},ties={}", owner,
                          page, type, takes_last ? "last" : "first");
          const Selection selection = made(spec, fixture)->select(fixture.call);
          const Index n_owners = owner == "own" ? 4 : owner == "kv_head" ? 2 : 1;
          REQUIRE(selection.n_lists() == n_owners);
          SelectionTrace trace;
          fixture.call.trace = &trace;
          made("loki:rank-share=1", fixture)->select(fixture.call);
          fixture.call.trace = nullptr;
          for (Index o = 0; o < n_owners; ++o) {
            std::vector<double> sums(95, 0.0);
            for (Index h = o * 4 / n_owners; h < (o + 1) * 4 / n_owners; ++h) {
              std::vector<double> row = trace.scores[h];
              round_scores(row, score_type);
              for (std::size_t t = 0; t < 95; ++t) sums[t] += row[t];
            }
            std::vector<double> pages(static_cast<std::size_t>((95 + page - 1) / page), kNone);
            for (Index t = 0; t < 95; ++t) {
              double& best = pages[t / page];
              best = std::max(best, sums[t]);
            }
            round_scores(pages, score_type);
            if (takes_last) std::ranges::reverse(pages);
            std::vector<KeyPos> best = naive_top_k(pages, std::max<Index>(1, 20 / page));
            if (takes_last) {
              for (KeyPos& p : best) p = static_cast<KeyPos>(pages.size()) - 1 - p;
              std::ranges::reverse(best);
            }
            CHECK(selection.at(o).scored() == keys_of_pages(best, page, 95));
            CHECK(selection.at(o).forced() == positions(95, 96));
          }
        }
      }
    }
  }
}

TEST_CASE("pages that are seen in part count with the keys they have") {
  CallFixture fixture({.n_q = 2, .n_kv = 1, .n_past = 67, .n_tok = 1, .phase = Phase::decode});
  for (Index t = 0; t < 67; ++t) {
    for (Index c = 0; c < 16; ++c)
      fixture.k(0, t, c) = t / 16 == 4   ? fixture.q(0, 0, c)
                           : t / 16 == 2 ? 0.5f * fixture.q(0, 0, c)
                                         : 0.0f;
  }
  fixture.call.budget = Budget::parse("tokens=20");
  const Selection selection =
      made("loki:rank-share=1+coarsen:page=16", fixture)->select(fixture.call);
  // The second best page: 16 keys beside the best one's 3.
  std::vector<KeyPos> expected = positions(32, 48);
  const std::vector<KeyPos> last = positions(64, 67);
  expected.insert(expected.end(), last.begin(), last.end());
  CHECK(selection.at(0).scored() == expected);
}

}  // namespace kvscope::test::coarsen_test
