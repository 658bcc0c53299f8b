// The keys of largest exact attention on the GPU against the f64 reference.
#include "core/cuda/row_votes.hpp"
#include "tests/cuda/device_batch.hpp"

namespace kvscope::test::best_keys_test {

constexpr double kRounding = 1e-5;  // of a score

struct Case {
  const char* name;
  BatchShape batch;
  gpu::BestRule rule;
};

void check_case(const Case& c) {
  INFO(c.name);
  DeviceBatch batch(c.batch);
  const Sequence1& s = batch.sequences[0];
  gpu::RowVotes votes;
  const gpu::DeviceLists lists =
      votes.best(batch.shape, batch.rows(), s.n_past, c.rule, batch.stream);
  batch.stream.wait();
  int n_lists = 0, n_unequal = 0, n_swapped = 0, n_wrong = 0;
  double farthest = 0.0;
  for (int row = 0; row < s.n_tok; row = row_after(row, std::max(1, s.n_tok / 9), s.n_tok)) {
    for (int head = 0; head < s.n_q; ++head) {
      std::vector<double> scores = row_scores(s, head, row);
      scores.resize(static_cast<std::size_t>(c.rule.before_call ? s.n_past : s.n_past + row + 1));
      const int n_kept = std::min(c.rule.budget, static_cast<int>(scores.size()));
      const ListDifference difference =
          compare_list(list_of(lists, row, head), scores, n_kept, kRounding);
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
  const BatchShape small{.n_q = 6, .n_kv = 2, .n_past = {300}, .n_tok = 40};
  const auto with = [](BatchShape shape, const auto& change) {
    change(shape);
    return shape;
  };
  const auto in_f32 = [&](const BatchShape& shape) {
    return with(shape, [](BatchShape& x) { x.dtype = DType::f32; });
  };
  const BatchShape step{.n_q = 24, .n_kv = 8, .n_past = {5000}, .n_tok = 1};
  const BatchShape narrow{.n_q = 8, .n_kv = 2, .d = 64, .n_past = {777}, .n_tok = 9};
  const BatchShape copies{.n_past = {3000}, .n_tok = 5, .draw = Draw::copies};
  const BatchShape start{.n_past = {0}, .n_tok = 70};
  const BatchShape many{.n_q = 24, .n_kv = 8, .n_past = {20000}, .n_tok = 80};  // in two parts
  const gpu::BestRule per_head{.budget = 64};
  const gpu::BestRule past{.budget = 64, .before_call = true};
  for (const Case& c :
       {Case{"per head", small, per_head}, Case{"per head f32", in_f32(small), per_head},
        Case{"past", small, past}, Case{"step", step, {.budget = 1024}},
        Case{"step f32", in_f32(step), {.budget = 1024}}, Case{"d 64", narrow, per_head},
        Case{"copies", copies, per_head}, Case{"no past", start, per_head},
        Case{"no past, past", start, past}, Case{"many lists", many, {.budget = 300}},
        Case{"budget beyond all", narrow, {.budget = 5000}}})
    check_case(c);
}

/// True if the list has the largest weights, of equal ones the earlier keys, and as many as reach
/// the weight or the share; sums and weights near the cut may fall on either side.
bool holds_what_it_should(const std::vector<int>& list, const std::vector<double>& weights,
                          const gpu::BestRule& rule) {
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
  if (rule.least_weight > 0.0)
    return least_in >= rule.least_weight * (1.0 - kRounding) &&
           most_out < rule.least_weight * (1.0 + kRounding);
  for (int pos = 0; pos < last_in; ++pos) {
    if (!is_in[pos] && weights[pos] == least_in) return false;
  }
  return !list.empty() && most_out <= least_in * (1.0 + kRounding) && mass >= rule.mass - 1e-6 &&
         mass - least_in < rule.mass + 1e-6;
}

TEST_CASE("gpu: lists without a budget have the weights that they should", "[gpu][picks]") {
  KVSCOPE_NEEDS_DEVICE();
  const BatchShape small{.n_q = 6, .n_kv = 2, .n_past = {300}, .n_tok = 40};
  const BatchShape in_f32{
      .n_q = 6, .n_kv = 2, .d = 64, .n_past = {2300}, .n_tok = 7, .dtype = DType::f32};
  const BatchShape step{.n_q = 24, .n_kv = 8, .n_past = {5000}, .n_tok = 1};
  const BatchShape copies{.n_past = {3000}, .n_tok = 5, .draw = Draw::copies};
  const BatchShape start{.n_past = {0}, .n_tok = 70};
  const BatchShape many{.n_q = 24, .n_kv = 8, .n_past = {20000}, .n_tok = 80};  // in two parts
  int n_lists = 0, n_wrong = 0, n_empty = 0;
  std::size_t n_keys = 0;
  for (const BatchShape& shape : {small, in_f32, step, copies, start, many}) {
    DeviceBatch batch(shape);
    const Sequence1& s = batch.sequences[0];
    for (const gpu::BestRule& rule : {gpu::BestRule{.mass = 0.05},
                                      {.mass = 0.6},
                                      {.mass = 0.95},
                                      {.mass = 0.9999},
                                      {.least_weight = 1e-3},
                                      {.least_weight = 0.9},
                                      {.least_weight = 1e-6}}) {
      INFO("past " << s.n_past << ", share " << rule.mass << ", " << rule.least_weight);
      gpu::RowVotes votes;
      const gpu::DeviceLists lists =
          votes.best(batch.shape, batch.rows(), s.n_past, rule, batch.stream);
      batch.stream.wait();
      for (int row = 0; row < s.n_tok; row = row_after(row, 9, s.n_tok)) {
        for (int head = 0; head < s.n_q; ++head) {
          const std::vector<int> list = list_of(lists, row, head);
          ++n_lists;
          n_keys += list.size();
          n_empty += list.empty() ? 1 : 0;
          n_wrong += holds_what_it_should(list, row_weights(s, head, row), rule) ? 0 : 1;
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
