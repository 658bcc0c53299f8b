// The pages of largest exact attention on the GPU against the f64 reference.
#include "core/cuda/best_pages.hpp"

#include "tests/cuda/device_batch.hpp"

namespace kvscope::test::best_pages_test {

using Owner = ListPlan::Owner;
using Pages = ListPlan::Pages;

constexpr double kRounding = 1e-5;  // of the logarithm of a page's weight

/// What pages are ranked by, in logarithms.
std::vector<double> ranks(const Sequence1& s, const gpu::BestPagesOptions& options, int owner) {
  const auto add_pages = [&](const std::vector<double>& weights, std::vector<double>& sums,
                             bool takes_largest) {
    std::vector<double> own(sums.size(), 0.0);
    for (std::size_t pos = 0; pos < weights.size(); ++pos)
      own[pos / static_cast<std::size_t>(options.page_size)] += weights[pos];
    for (std::size_t p = 0; p < sums.size(); ++p)
      sums[p] = takes_largest ? std::max(sums[p], own[p]) : sums[p] + own[p];
  };
  std::vector<double> sums(
      static_cast<std::size_t>((s.n_ctx() + options.page_size - 1) / options.page_size), 0.0);
  if (s.n_tok > 1) {
    add_pages(joined_weights(s, owner, 0, s.n_tok, false), sums, false);
  } else {
    const int n_heads = options.owner == Owner::q_head ? 1 : s.group();
    for (int head = owner * n_heads; head < (owner + 1) * n_heads; ++head)
      add_pages(row_weights(s, head, 0), sums, options.owner == Owner::group_max);
  }
  for (double& x : sums) x = std::log(x);
  return sums;
}

TEST_CASE("gpu: pages of largest attention are the reference's", "[gpu][picks]") {
  KVSCOPE_NEEDS_DEVICE();
  const BatchShape step{.n_q = 8, .n_kv = 2, .n_past = {3003}, .n_tok = 1};
  const BatchShape in_f32{
      .n_q = 6, .n_kv = 2, .d = 64, .n_past = {700}, .n_tok = 1, .dtype = gpu::Dtype::f32};
  const BatchShape copies{.n_past = {2000}, .n_tok = 1, .draw = Draw::copies};
  const BatchShape first{.n_past = {0}, .n_tok = 1};
  int n_lists = 0, n_wrong = 0, n_swapped = 0;
  for (const BatchShape& shape : {step, in_f32, copies, first}) {
    DeviceBatch batch(shape);
    const Sequence1& s = batch.sequences[0];
    for (const Pages pages : {Pages::eval, Pages::kernel, Pages::frontier, Pages::hub}) {
      for (const Owner owner : {Owner::q_head, Owner::group_sum, Owner::group_max}) {
        for (const auto& [page_size, budget] : {std::pair{16, 128}, {8, 100}, {4, 9000}}) {
          const gpu::BestPagesOptions options{page_size, budget, pages, owner};
          gpu::BestPages best;
          const gpu::DeviceLists lists =
              best.choose(batch.shape, options, batch.rows(), s.n_past, batch.stream);
          batch.stream.wait();
          const PageCounts counts =
              page_counts(static_cast<Rule>(pages), budget, page_size, s.n_ctx());
          for (int i = 0; i < lists.n_owners; ++i) {
            std::vector<double> scores = ranks(s, options, i);
            const auto n_pages = static_cast<int>(scores.size());
            scores.resize(static_cast<std::size_t>(counts.n_scored));
            std::vector<int> list = list_of(lists, 0, i);
            ++n_lists;
            if (counts.keeps_last) {
              n_wrong += !list.empty() && list.back() == n_pages - 1 ? 0 : 1;
              if (!list.empty()) list.pop_back();
            }
            const ListDifference difference =
                compare_list(list, scores, std::max(0, counts.n_kept), kRounding);
            n_wrong += difference.is_right ? 0 : 1;
            n_swapped += difference.n_swapped;
          }
        }
      }
    }
  }
  std::printf("  best pages of steps: lists %d, pages swapped %d\n", n_lists, n_swapped);
  CHECK(n_wrong == 0);
}

TEST_CASE("gpu: pages of largest attention before a chunk are the reference's", "[gpu][picks]") {
  KVSCOPE_NEEDS_DEVICE();
  const BatchShape small{.n_q = 6, .n_kv = 2, .n_past = {509}, .n_tok = 40};
  const BatchShape in_f32{
      .n_q = 4, .n_kv = 2, .d = 64, .n_past = {320}, .n_tok = 9, .dtype = gpu::Dtype::f32};
  const BatchShape start{.n_past = {0}, .n_tok = 20};
  int n_wrong = 0, n_swapped = 0;
  for (const BatchShape& shape : {small, in_f32, start}) {
    DeviceBatch batch(shape);
    const Sequence1& s = batch.sequences[0];
    for (const auto& [page_size, budget] : {std::pair{16, 128}, {8, 100}, {4, 9000}}) {
      const gpu::BestPagesOptions options{page_size, budget, Pages::kernel, Owner::group_sum};
      gpu::BestPages best;
      const gpu::DeviceLists lists =
          best.choose_before(batch.shape, options, batch.rows(), s.n_past, batch.stream);
      batch.stream.wait();
      const int n_whole = s.n_past / page_size;
      const int n_kept = budget >= n_whole * page_size
                             ? n_whole
                             : std::max(1, std::min(budget / page_size, n_whole));
      for (int kv_head = 0; kv_head < s.n_kv; ++kv_head) {
        std::vector<double> scores = ranks(s, options, kv_head);
        scores.resize(static_cast<std::size_t>(n_whole));
        const std::vector<int> keys = list_of(lists, 0, kv_head);
        REQUIRE(static_cast<int>(keys.size()) == n_kept * page_size + s.n_past % page_size);
        std::vector<int> pages;
        for (int i = 0; i < n_kept * page_size; ++i) {
          if (i % page_size == 0) pages.push_back(keys[i] / page_size);
          n_wrong += keys[i] == pages.back() * page_size + i % page_size ? 0 : 1;
        }
        for (std::size_t i = pages.size() * static_cast<std::size_t>(page_size); i < keys.size();
             ++i)
          n_wrong += keys[i] == s.n_past - static_cast<int>(keys.size() - i) ? 0 : 1;
        const ListDifference difference = compare_list(pages, scores, n_kept, kRounding);
        n_wrong += difference.is_right ? 0 : 1;
        n_swapped += difference.n_swapped;
      }
    }
  }
  CHECK(n_wrong == 0);
  std::printf("  best pages before chunks: pages swapped %d\n", n_swapped);
}

}  // namespace kvscope::test::best_pages_test
