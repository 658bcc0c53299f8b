// Quest on the GPU against the f64 reference: boxes, pages, and attention to them.
#include "core/cuda/quest.hpp"

#include "tests/cuda/device_batch.hpp"

namespace kvscope::test {
namespace {

struct Case {
  const char* name;
  BatchShape batch;  // n_tok 1
  gpu::QuestOptions options;
};

std::vector<double> bounds_of_owner(const Sequence1& s, const gpu::QuestOptions& options,
                                    int owner) {
  if (options.owner == gpu::QuestOwner::q_head) return quest_bounds(s, owner, options.page_size);
  std::vector<double> bounds;
  for (int h = owner * s.group(); h < (owner + 1) * s.group(); ++h) {
    const std::vector<double> own = quest_bounds(s, h, options.page_size);
    if (bounds.empty()) {
      bounds = own;
      continue;
    }
    for (std::size_t p = 0; p < own.size(); ++p) {
      bounds[p] = options.owner == gpu::QuestOwner::group_sum ? bounds[p] + own[p]
                                                              : std::max(bounds[p], own[p]);
    }
  }
  return bounds;
}

std::vector<int> keys_of_pages(const std::vector<int>& pages, int page_size, int n_keys) {
  std::vector<int> keys;
  for (const int page : pages) {
    for (int pos = page * page_size; pos < std::min((page + 1) * page_size, n_keys); ++pos)
      keys.push_back(pos);
  }
  return keys;
}

void check_case(const Case& c) {
  INFO(c.name);
  DeviceBatch batch(c.batch);
  gpu::Quest quest(batch.shape, c.options);
  // boxes key by key at the end, whole stretches before: as prefill and steps make them
  for (const int n_steps : {7, 3, 0}) {
    std::vector<std::int32_t> begin, length;
    std::vector<std::int32_t> past;
    int n_tok = 1;
    for (const int n : c.batch.n_past) past.push_back(std::max(0, n - n_steps));
    if (n_steps == 7) {
      past.assign(past.size(), 0);
      n_tok = static_cast<int>(batch.shape.capacity);
    } else if (n_steps == 3) {
      n_tok = 3;
    }
    gpu::DeviceBuffer positions(4 * past.size(), "positions");
    positions.upload(past.data(), 4 * past.size());
    quest.append(batch.k.data(), reinterpret_cast<const std::int32_t*>(positions.data()), n_tok,
                 batch.stream);
    batch.stream.wait();
  }
  quest.append(batch.k.data(), batch.rows().n_past, 1, batch.stream);
  quest.choose(batch.q.data(), batch.rows().n_past, batch.stream);
  quest.attend(batch.rows(), batch.out_rows.data(), reinterpret_cast<float*>(batch.lse_rows.data()),
               batch.stream);
  batch.stream.wait();
  int n_lists = 0, n_unequal = 0, n_wrong = 0;
  double farthest = 0.0;
  std::vector<std::vector<int>> lists;
  const auto rule = static_cast<Rule>(c.options.pages);
  for (int b = 0; b < batch.n_batch(); ++b) {
    const Sequence1& s = batch.sequences[static_cast<std::size_t>(b)];
    for (int owner = 0; owner < quest.n_owners(); ++owner) {
      const std::vector<int> found = list_of(quest.lists(), b, owner);
      lists.push_back(found);
      const PageCounts counts = page_counts(rule, c.options.budget, c.options.page_size, s.n_ctx());
      std::vector<double> bounds = bounds_of_owner(s, c.options, owner);
      double largest = 1.0;
      for (const double bound : bounds) largest = std::max(largest, std::abs(bound));
      std::vector<int> scored = found;
      bool ends_right = true;
      if (counts.keeps_last) {
        ends_right = !found.empty() && found.back() == static_cast<int>(bounds.size()) - 1;
        if (ends_right) scored.pop_back();
      }
      bounds.resize(static_cast<std::size_t>(counts.n_scored));
      const ListDifference difference = compare_list(scored, bounds, counts.n_kept, 1e-6 * largest);
      ++n_lists;
      n_unequal += difference.n_swapped > 0 ? 1 : 0;
      n_wrong += difference.is_right && ends_right ? 0 : 1;
      farthest = std::max(farthest, difference.farthest);
    }
  }
  const int per_kv = quest.n_owners() / c.batch.n_kv;
  const AnswerDifference answer = compare_answers(batch, [&](int b, int head, int) {
    const Sequence1& s = batch.sequences[static_cast<std::size_t>(b)];
    const int owner = per_kv == 1 ? head / s.group() : head;
    return keys_of_pages(lists[static_cast<std::size_t>(b * quest.n_owners() + owner)],
                         c.options.page_size, s.n_ctx());
  });
  std::printf("  quest %-34s lists %d, unequal %d, farthest %.1e; out %.1e lse %.1e\n", c.name,
              n_lists, n_unequal, farthest, answer.out, answer.lse);
  CHECK(n_wrong == 0);
  const bool is_bf16 = c.batch.dtype == gpu::Dtype::bf16;
  CHECK(answer.out < (is_bf16 ? 8e-3 : 2e-5));
  CHECK(answer.lse < 1e-4);
}

TEST_CASE("gpu: Quest's pages and attention are the reference's", "[gpu]") {
  KVSCOPE_NEEDS_DEVICE();
  using gpu::Dtype, gpu::QuestOwner, gpu::QuestPages;
  const BatchShape one{.n_q = 6, .n_kv = 2, .d = 128, .n_past = {1000}, .n_tok = 1};
  const BatchShape many{
      .n_q = 8, .n_kv = 2, .d = 64, .n_past = {0, 1, 15, 16, 17, 900, 3333}, .n_tok = 1};
  const BatchShape long_one{.n_q = 24, .n_kv = 8, .d = 128, .n_past = {32767}, .n_tok = 1};
  std::vector<Case> cases;
  for (const auto pages :
       {QuestPages::kernel, QuestPages::eval, QuestPages::frontier, QuestPages::hub}) {
    for (const auto owner : {QuestOwner::q_head, QuestOwner::group_sum, QuestOwner::group_max}) {
      cases.push_back({"one", one, {16, 256, pages, owner}});
      cases.push_back({"batch of lengths", many, {16, 256, pages, owner}});
    }
  }
  BatchShape f32 = one;
  f32.dtype = Dtype::f32;
  for (const auto owner : {QuestOwner::q_head, QuestOwner::group_sum, QuestOwner::group_max})
    cases.push_back({"one f32", f32, {16, 256, QuestPages::kernel, owner}});
  f32 = many;
  f32.dtype = Dtype::f32;
  cases.push_back({"batch of lengths f32", f32, {16, 256, QuestPages::kernel, QuestOwner::q_head}});
  BatchShape ties = one;
  ties.draw = Draw::ties;
  cases.push_back({"ties", ties, {4, 128, QuestPages::kernel, QuestOwner::group_sum}});
  ties.draw = Draw::copies, ties.n_past = {20000};
  cases.push_back({"copies", ties, {16, 2048, QuestPages::kernel, QuestOwner::group_max}});
  cases.push_back({"pages of one key", one, {1, 100, QuestPages::eval, QuestOwner::q_head}});
  cases.push_back({"pages of 64", many, {64, 512, QuestPages::kernel, QuestOwner::group_max}});
  cases.push_back(
      {"budget beyond the context", one, {16, 4096, QuestPages::kernel, QuestOwner::q_head}});
  cases.push_back(
      {"32k, group 3", long_one, {16, 2048, QuestPages::kernel, QuestOwner::group_max}});
  cases.push_back({"32k, group 3, per query head",
                   long_one,
                   {16, 2048, QuestPages::kernel, QuestOwner::q_head}});
  for (const Case& c : cases) check_case(c);
}

}  // namespace
}  // namespace kvscope::test
