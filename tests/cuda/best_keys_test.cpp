// The keys of largest exact attention on the GPU against the f64 reference.
#include "core/cuda/best_keys.hpp"

#include "tests/cuda/device_batch.hpp"

namespace kvscope::test::best_keys_test {

using Owner = ListPlan::Owner;

constexpr double kRounding = 1e-5;  // of a score, or of the logarithm of a sum of weights

struct Case {
  const char* name;
  BatchShape batch;
  gpu::BestKeysOptions options;
};

/// What the keys of a list are ranked by: scores, or logarithms of weights.
std::vector<double> ranks(const Sequence1& s, const gpu::BestKeysOptions& options, int owner,
                          int row) {
  std::vector<double> scores;
  if (options.owner == Owner::q_head) {
    scores = row_scores(s, owner, row);
  } else {
    scores =
        joined_weights(s, owner, options.joins_rows ? 0 : row,
                       options.joins_rows ? s.n_tok : row + 1, options.owner == Owner::group_max);
    for (double& x : scores) x = std::log(x);
  }
  scores.resize(static_cast<std::size_t>(options.forces_own ? s.n_past : s.n_past + row + 1));
  return scores;
}

void check_case(const Case& c) {
  INFO(c.name);
  DeviceBatch batch(c.batch);
  const Sequence1& s = batch.sequences[0];
  gpu::BestKeys best;
  best.choose(batch.shape, c.options, batch.rows(), s.n_past, batch.stream);
  batch.stream.wait();
  const int n_owners = c.options.owner == Owner::q_head ? s.n_q : s.n_kv;
  REQUIRE(best.lists().n_owners == n_owners);
  REQUIRE(best.n_row_blocks() == (c.options.joins_rows ? 1 : s.n_tok));
  int n_lists = 0, n_unequal = 0, n_swapped = 0, n_wrong = 0;
  double farthest = 0.0;
  const int row_step = std::max(1, best.n_row_blocks() / 9);
  for (int row = 0; row < best.n_row_blocks();
       row = row_after(row, row_step, best.n_row_blocks())) {
    for (int owner = 0; owner < n_owners; ++owner) {
      const std::vector<double> scores = ranks(s, c.options, owner, row);
      const int n_kept = std::min(c.options.budget, static_cast<int>(scores.size()));
      const ListDifference difference =
          compare_list(list_of(best.lists(), row, owner), scores, n_kept, kRounding);
      ++n_lists;
      n_unequal += difference.n_swapped > 0 ? 1 : 0;
      n_swapped += difference.n_swapped;
      n_wrong += difference.is_right ? 0 : 1;
      farthest = std::max(farthest, difference.farthest);
    }
  }
  std::printf("  best keys %-24s lists %d, unequal %d, swapped %d, farthest %.1e\n", c.name,
              n_lists, n_unequal, n_swapped, farthest);
  CHECK(n_wrong == 0);
  // equal keys have equal scores, of which the earlier ones stay
  if (c.batch.draw == Draw::copies) CHECK(n_swapped == 0);
}

TEST_CASE("gpu: lists of the keys of largest attention are the reference's", "[gpu][picks]") {
  KVSCOPE_NEEDS_DEVICE();
  using gpu::Dtype;
  const BatchShape small{.n_q = 6, .n_kv = 2, .n_past = {300}, .n_tok = 40};
  const auto with = [](BatchShape shape, const auto& change) {
    change(shape);
    return shape;
  };
  const auto in_f32 = [&](const BatchShape& shape) {
    return with(shape, [](BatchShape& x) { x.dtype = Dtype::f32; });
  };
  const BatchShape step{.n_q = 24, .n_kv = 8, .n_past = {5000}, .n_tok = 1};
  const BatchShape narrow{.n_q = 8, .n_kv = 2, .d = 64, .n_past = {777}, .n_tok = 9};
  const BatchShape copies{.n_past = {3000}, .n_tok = 5, .draw = Draw::copies};
  const BatchShape start{.n_past = {0}, .n_tok = 70};
  const BatchShape many{.n_q = 24, .n_kv = 8, .n_past = {20000}, .n_tok = 24};
  const gpu::BestKeysOptions per_head{.budget = 64};
  const gpu::BestKeysOptions past{.budget = 64, .forces_own = true};
  const gpu::BestKeysOptions sum{.budget = 64, .owner = Owner::group_sum};
  const gpu::BestKeysOptions largest{.budget = 64, .owner = Owner::group_max, .forces_own = true};
  const gpu::BestKeysOptions joined{
      .budget = 64, .owner = Owner::group_sum, .forces_own = true, .joins_rows = true};
  const auto few_rows = [](gpu::BestKeysOptions options) {
    options.most_bytes = 30000;  // three rows of `small` at a time
    return options;
  };
  for (const Case& c : {Case{"per head", small, per_head},
                        Case{"per head f32", in_f32(small), per_head},
                        Case{"past", small, past},
                        Case{"group's sum", small, sum},
                        Case{"group's sum f32", in_f32(small), sum},
                        Case{"group's largest", small, largest},
                        Case{"all rows", small, joined},
                        Case{"all rows f32", in_f32(small), joined},
                        Case{"per head, few rows", small, few_rows(per_head)},
                        Case{"group's sum, few rows", small, few_rows(sum)},
                        Case{"all rows, few rows", small, few_rows(joined)},
                        Case{"step", step, {.budget = 1024}},
                        Case{"step f32", in_f32(step), {.budget = 1024}},
                        Case{"step, sum", step, {.budget = 512, .owner = Owner::group_sum}},
                        Case{"step, joined", step, joined},
                        Case{"d 64", narrow, per_head},
                        Case{"d 64, sum f32", in_f32(narrow), sum},
                        Case{"d 64, joined", narrow, joined},
                        Case{"copies", copies, per_head},
                        Case{"copies, sum", copies, sum},
                        Case{"copies, joined", copies, joined},
                        Case{"no past", start, per_head},
                        Case{"no past, past", start, past},
                        Case{"no past, joined", start, joined},
                        Case{"many lists", many, {.budget = 300}},
                        Case{"budget beyond all", narrow, {.budget = 5000}}})
    check_case(c);
}

/// True if the list has the largest weights, of equal ones the earlier keys, and as many as reach
/// the weight or the share; sums and weights near the cut may fall on either side.
bool holds_what_it_should(const std::vector<int>& list, const std::vector<double>& weights,
                          const gpu::BestKeysOptions& options) {
  if (std::ranges::adjacent_find(list, std::greater_equal{}) != list.end()) return false;
  std::vector<bool> is_in(weights.size(), false);
  for (const int pos : list) is_in[pos] = true;
  double mass = 0.0, least_in = 2.0, most_out = 0.0;
  int last_in = -1;  // of those of the least weight
  for (std::size_t pos = 0; pos < weights.size(); ++pos) {
    if (!is_in[pos]) {
      most_out = std::max(most_out, weights[pos]);
      continue;
    }
    mass += weights[pos];
    if (weights[pos] <= least_in) last_in = static_cast<int>(pos);
    least_in = std::min(least_in, weights[pos]);
  }
  if (options.least_weight > 0.0)
    return least_in >= options.least_weight * (1.0 - kRounding) &&
           most_out < options.least_weight * (1.0 + kRounding);
  for (int pos = 0; pos < last_in; ++pos) {
    if (!is_in[pos] && weights[pos] == least_in) return false;
  }
  return !list.empty() && most_out <= least_in * (1.0 + kRounding) && mass >= options.mass - 1e-6 &&
         mass - least_in < options.mass + 1e-6;
}

TEST_CASE("gpu: lists without a budget have the weights that they should", "[gpu][picks]") {
  KVSCOPE_NEEDS_DEVICE();
  const BatchShape small{.n_q = 6, .n_kv = 2, .n_past = {300}, .n_tok = 40};
  const BatchShape in_f32{
      .n_q = 6, .n_kv = 2, .d = 64, .n_past = {2300}, .n_tok = 7, .dtype = gpu::Dtype::f32};
  const BatchShape step{.n_q = 24, .n_kv = 8, .n_past = {5000}, .n_tok = 1};
  const BatchShape copies{.n_past = {3000}, .n_tok = 5, .draw = Draw::copies};
  const BatchShape start{.n_past = {0}, .n_tok = 70};
  int n_lists = 0, n_wrong = 0, n_empty = 0;
  std::size_t n_keys = 0;
  for (const BatchShape& shape : {small, in_f32, step, copies, start}) {
    DeviceBatch batch(shape);
    const Sequence1& s = batch.sequences[0];
    for (const gpu::BestKeysOptions& options : {gpu::BestKeysOptions{.mass = 0.05},
                                                {.mass = 0.6},
                                                {.mass = 0.95},
                                                {.mass = 0.9999, .most_bytes = 30000},
                                                {.least_weight = 1e-3},
                                                {.least_weight = 0.9},
                                                {.least_weight = 1e-6, .most_bytes = 30000}}) {
      INFO("past " << s.n_past << ", share " << options.mass << ", " << options.least_weight);
      gpu::BestKeys best;
      best.choose(batch.shape, options, batch.rows(), s.n_past, batch.stream);
      batch.stream.wait();
      for (int row = 0; row < s.n_tok; row = row_after(row, 9, s.n_tok)) {
        for (int head = 0; head < s.n_q; ++head) {
          const std::vector<int> list = list_of(best.lists(), row, head);
          ++n_lists;
          n_keys += list.size();
          n_empty += list.empty() ? 1 : 0;
          n_wrong += holds_what_it_should(list, row_weights(s, head, row), options) ? 0 : 1;
        }
      }
      CHECK(n_wrong == 0);
    }
  }
  CHECK(n_empty > 0);  // no key has nine tenths of a row
  std::printf("  without a budget: lists %d, %d of them empty, keys %zu\n", n_lists, n_empty,
              n_keys);
}

}  // namespace kvscope::test::best_keys_test
