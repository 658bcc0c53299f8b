// Exact choosing by bounds: what must be read against a search that reads page by page.
#include "analysis/kinds/pruning.hpp"

#include "tests/analysis/kit.hpp"

namespace kvscope::pruning_test {

constexpr test::OnPool run{analyze_pruning};

/// Share of the pages that a best-first search reads before no unread page can hold one of the
/// best `budget` keys, and the keys that it finds.
struct Searched {
  double read = 0.0;
  std::vector<Index> keys;
};
Searched search(TensorView<const float> k, std::span<const float> q, Index budget, Index page) {
  const Index n = k.dim(0);
  std::vector<double> scores(static_cast<std::size_t>(n), 0.0);
  for (Index i = 0; i < n; ++i) {
    for (std::size_t c = 0; c < q.size(); ++c)
      scores[i] += static_cast<double>(q[c]) * static_cast<double>(k.row(i)[c]);
  }
  std::vector<std::pair<double, Index>> pages;  // by bound
  for (Index begin = 0; begin < n; begin += page) {
    double bound = 0.0;
    for (std::size_t c = 0; c < q.size(); ++c) {
      double largest = -1e300;
      for (Index i = begin; i < std::min(n, begin + page); ++i)
        largest = std::max(largest, static_cast<double>(q[c]) * static_cast<double>(k.row(i)[c]));
      bound += largest;
    }
    pages.emplace_back(bound, begin);
  }
  std::ranges::sort(pages, std::greater<>());
  std::vector<Index> seen;
  const auto worst_of_best = [&] {
    std::ranges::sort(seen, [&](Index a, Index b) { return scores[a] > scores[b]; });
    return static_cast<Index>(seen.size()) < budget ? -1e300 : scores[seen[budget - 1]];
  };
  Index n_read = 0;
  for (const auto& [bound, begin] : pages) {
    if (bound < worst_of_best()) break;
    ++n_read;
    for (Index i = begin; i < std::min(n, begin + page); ++i) seen.push_back(i);
  }
  worst_of_best();
  seen.resize(static_cast<std::size_t>(budget));
  return {static_cast<double>(n_read) / static_cast<double>(pages.size()), seen};
}

TEST_CASE("pruning: the oracle's pages are those that a best-first search reads") {
  test::PlantOptions plant{.n_q = 4, .n_kv = 2, .n_tokens = 96};
  const MemoryTrace trace = test::planted_trace(plant);
  const PruningOptions options{.budget = 8, .page_sizes = "4,7", .chunk = 16, .steps = 2};
  MemoryResult result;
  run(trace, options, result, /*threads=*/2);
  const auto read = result.values<float>("oracle/read");
  const auto hold = result.values<float>("oracle/hold");
  std::size_t at = 0;
  for (Index layer = 0; layer < plant.n_layers; ++layer) {
    for (Index head = 0; head < plant.n_q; ++head) {
      for (const Index end : {48, 96}) {
        const Tensor<float> k = trace.read_k(layer, head / 2, {0, end - 16});
        const Tensor<float> q = trace.read_q(layer, head, {end - 1, end});
        for (const Index page : {4, 7}) {
          const Searched found = search(k.view(), q.view().row(0), 8, page);
          CAPTURE(layer, head, end, page);
          CHECK(static_cast<double>(read[at]) == Approx(found.read));
          std::vector<Index> pages;
          for (const Index key : found.keys) pages.push_back(key / page);
          std::ranges::sort(pages);
          const auto n_hold =
              std::ranges::distance(pages.begin(), std::ranges::unique(pages).begin());
          CHECK(static_cast<double>(hold[at]) ==
                Approx(static_cast<double>(n_hold) /
                       std::ceil(static_cast<double>(end - 16) / static_cast<double>(page))));
          ++at;
        }
      }
    }
  }
  CHECK(at == read.size());
}

TEST_CASE("pruning: pages of one key read what they hold; a page of all reads everything") {
  const MemoryTrace trace = test::planted_trace(test::PlantOptions{.n_tokens = 80});
  MemoryResult result;
  run(trace, {.budget = 8, .page_sizes = "1,80", .chunk = 16, .steps = 1}, result);
  for (const char* score : {"quoka", "oracle", "sparq"}) {
    const auto read = result.values<float>(std::string(score) + "/read");
    const auto hold = result.values<float>(std::string(score) + "/hold");
    for (std::size_t i = 0; i < read.size(); i += 2) {
      CAPTURE(score, i);
      CHECK(read[i] >= hold[i]);
      CHECK(static_cast<double>(hold[i]) == Approx(8.0 / 64.0));
      CHECK(static_cast<double>(read[i]) == Approx(8.0 / 64.0).margin(1.5 / 64.0));  // ties
      CHECK(read[i + 1] == 1.0f);
    }
  }
}

TEST_CASE("pruning: a sequence that the budget takes is refused in a sentence") {
  const MemoryTrace trace = test::planted_trace(test::PlantOptions{.n_tokens = 40});
  MemoryResult result;
  CHECK_SAYS(run(trace, {.budget = 32}, result), "found a recording of 40 tokens");
  CHECK_SAYS(run(trace, {.budget = 4, .page_sizes = "0", .chunk = 8}, result), "page-sizes");
}

}  // namespace kvscope::pruning_test
