// Quest on the GPU against the f64 reference: boxes, pages, and attention to them.
#include "core/cuda/quest.hpp"

#include "tests/cuda/device_batch.hpp"

namespace kvscope::test::quest_test {

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

/// What a step leaves behind.
struct Left {
  std::vector<std::vector<int>> lists;
  std::vector<std::vector<float>> bounds;         // of every list
  std::vector<std::vector<std::uint16_t>> boxes;  // of every sequence and KV head, as words
  std::vector<float> out, lse;
};

Left left_by(const gpu::Quest& quest, const DeviceBatch& batch, int page_size) {
  Left left;
  const auto stride = static_cast<std::size_t>((quest.max_pages() + 3) / 4 * 4);
  for (int b = 0; b < batch.n_batch(); ++b) {
    const int n_keys = batch.sequences[b].n_ctx();
    const auto n_pages = static_cast<std::size_t>((n_keys + page_size - 1) / page_size);
    for (int owner = 0; owner < quest.n_owners(); ++owner) {
      left.lists.push_back(list_of(quest.lists(), b, owner));
      const auto list = static_cast<std::size_t>(b * quest.n_owners() + owner);
      left.bounds.push_back(gpu::read_device<float>(quest.bounds() + list * stride, n_pages));
    }
    const std::size_t words =
        static_cast<std::size_t>(batch.shape.d_head) * size_of(batch.shape.dtype);
    for (int head = 0; head < batch.shape.n_kv; ++head) {
      const auto at = static_cast<std::size_t>(b * batch.shape.n_kv + head) *
                      static_cast<std::size_t>(quest.max_pages());
      left.boxes.push_back(gpu::read_device<std::uint16_t>(
          static_cast<const std::uint16_t*>(quest.boxes()) + at * words, n_pages * words));
    }
  }
  left.out = batch.out();
  left.lse = batch.lse();
  return left;
}

/// Boxes of all pages but what the step adds, in two stretches.
void note_past(gpu::Quest& quest, const DeviceBatch& batch, const std::vector<int>& n_past) {
  for (const int n_steps : {7, 3}) {
    std::vector<std::int32_t> past;
    for (const int n : n_past) past.push_back(n_steps == 7 ? 0 : std::max(0, n - n_steps));
    const int n_tok = n_steps == 7 ? static_cast<int>(batch.shape.capacity) : n_steps;
    gpu::DeviceBuffer positions(4 * past.size(), "positions");
    positions.upload(past.data(), 4 * past.size());
    quest.append(batch.k.data(), reinterpret_cast<const std::int32_t*>(positions.data()), n_tok,
                 batch.stream);
    batch.stream.wait();
  }
}

/// One step of the separate calls and of step() leave the same behind; outputs to rounding, and
/// both near the reference's over `lists`.
void check_step(const Case& c, DeviceBatch& batch, const Left& expected) {
  gpu::Quest quest(batch.shape, c.options);
  const bool is_one = quest.steps_in_one_kernel();
  const bool is_bf16 = c.batch.dtype == DType::bf16;
  note_past(quest, batch, c.batch.n_past);
  OutputDifference worst;
  double largest = 0.0, apart = 0.0;
  for (const float x : expected.out) largest = std::max(largest, std::abs(double{x}));
  for (const int n_blocks : {0, 8, 4, 2, 1, 16}) {
    INFO("blocks: " << n_blocks);
    batch.poison();
    // a wrong box of the newest page, which the step makes anew; not the first time: then the
    // kernel ahead makes many boxes
    if (n_blocks > 0) quest.append(batch.v.data(), batch.rows().n_past, 1, batch.stream);
    gpu::StepOptions options{.n_blocks = n_blocks};
    if (n_blocks == 4) options.n_stages = 4;  // rings that come round often, in the first phase too
    if (n_blocks == 2) options.n_stages = 5;
    quest.step(batch.rows(), batch.out_rows.data(), reinterpret_cast<float*>(batch.lse_rows.data()),
               batch.stream, options);
    batch.stream.wait();
    const Left found = left_by(quest, batch, c.options.page_size);
    CHECK(found.lists == expected.lists);
    CHECK(found.bounds == expected.bounds);
    CHECK(found.boxes == expected.boxes);
    for (std::size_t i = 0; i < found.out.size(); ++i)
      apart = larger_gap(apart, std::abs(double{found.out[i]} - double{expected.out[i]}));
    const int per_kv = quest.n_owners() / c.batch.n_kv;
    const OutputDifference output = compare_outputs(batch, [&](int b, int head, int) {
      const Sequence1& s = batch.sequences[b];
      const int owner = per_kv == 1 ? head / s.group() : head;
      return keys_of_pages(expected.lists[b * quest.n_owners() + owner], c.options.page_size,
                           s.n_ctx());
    });
    worst.out = larger_gap(worst.out, output.out);
    worst.lse = larger_gap(worst.lse, output.lse);
    if (!is_one) break;
  }
  std::printf("    step() in %s; out %.1e lse %.1e, apart %.1e\n",
              is_one ? "one kernel" : "three kernels", worst.out, worst.lse, apart / largest);
  CHECK(worst.out < (is_bf16 ? 8e-3 : 2e-5));
  CHECK(worst.lse < 1e-4);
  CHECK(apart <= (is_bf16 ? 8e-3 : 2e-5) * largest);
}

void check_case(const Case& c) {
  INFO(c.name);
  DeviceBatch batch(c.batch);
  gpu::Quest quest(batch.shape, c.options);
  note_past(quest, batch, c.batch.n_past);
  quest.append(batch.k.data(), batch.rows().n_past, 1, batch.stream);
  quest.choose(batch.q.data(), batch.rows().n_past, batch.stream);
  batch.attend(quest.lists(), {gpu::OwnKeys::in_list});
  batch.stream.wait();
  int n_lists = 0, n_unequal = 0, n_wrong = 0;
  double farthest = 0.0;
  std::vector<std::vector<int>> lists;
  const auto rule = static_cast<Rule>(c.options.pages);
  for (int b = 0; b < batch.n_batch(); ++b) {
    const Sequence1& s = batch.sequences[b];
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
  const OutputDifference output = compare_outputs(batch, [&](int b, int head, int) {
    const Sequence1& s = batch.sequences[b];
    const int owner = per_kv == 1 ? head / s.group() : head;
    return keys_of_pages(lists[b * quest.n_owners() + owner], c.options.page_size, s.n_ctx());
  });
  std::printf("  quest %-34s lists %d, unequal %d, farthest %.1e; out %.1e lse %.1e\n", c.name,
              n_lists, n_unequal, farthest, output.out, output.lse);
  CHECK(n_wrong == 0);
  const bool is_bf16 = c.batch.dtype == DType::bf16;
  CHECK(output.out < (is_bf16 ? 8e-3 : 2e-5));
  CHECK(output.lse < 1e-4);
  check_step(c, batch, left_by(quest, batch, c.options.page_size));
}

/// Many steps after each other that nobody waits for: a kernel begins while the one ahead makes
/// the newest box.
void check_steps_in_a_row(const BatchShape& shape, const gpu::QuestOptions& options) {
  constexpr int kSteps = 40;
  DeviceBatch batch(shape);
  gpu::Quest apart(batch.shape, options);
  gpu::Quest quest(batch.shape, options);
  std::vector<std::int32_t> past;
  for (int step = 0; step < kSteps; ++step) {
    for (const int n : shape.n_past) past.push_back(std::max(0, n - kSteps + 1 + step));
  }
  gpu::DeviceBuffer positions(4 * past.size(), "positions");
  positions.upload(past.data(), 4 * past.size());
  const auto* const at = reinterpret_cast<const std::int32_t*>(positions.data());
  std::vector<int> begin;
  for (const int n : shape.n_past) begin.push_back(std::max(0, n - kSteps + 1));
  Left expected;
  for (gpu::Quest* one : {&apart, &quest}) {
    note_past(*one, batch, begin);
    batch.poison();
    for (int step = 0; step < kSteps; ++step) {
      gpu::DeviceRows rows = batch.rows();
      rows.n_past = at + static_cast<std::size_t>(step) * shape.n_past.size();
      one->step(rows, batch.out_rows.data(), reinterpret_cast<float*>(batch.lse_rows.data()),
                batch.stream, {.in_one_kernel = one == &quest});
    }
    batch.stream.wait();
    const Left found = left_by(*one, batch, options.page_size);
    if (one == &apart) {
      expected = found;
      continue;
    }
    CHECK(found.lists == expected.lists);
    CHECK(found.bounds == expected.bounds);
    CHECK(found.boxes == expected.boxes);
    double gap = 0.0;
    for (std::size_t i = 0; i < found.out.size(); ++i)
      gap = larger_gap(gap, std::abs(double{found.out[i]} - double{expected.out[i]}));
    CHECK(gap < 2e-2);
  }
}

TEST_CASE("gpu: Quest's pages and attention are the reference's", "[gpu]") {
  KVSCOPE_NEEDS_DEVICE();
  using gpu::QuestOwner, gpu::QuestPages;
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
  f32.dtype = DType::f32;
  for (const auto owner : {QuestOwner::q_head, QuestOwner::group_sum, QuestOwner::group_max})
    cases.push_back({"one f32", f32, {16, 256, QuestPages::kernel, owner}});
  f32 = many;
  f32.dtype = DType::f32;
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
  const BatchShape eight{.n_q = 16, .n_kv = 2, .d = 128, .n_past = {700, 5000}, .n_tok = 1};
  const BatchShape wide{.n_q = 24, .n_kv = 2, .d = 64, .n_past = {700}, .n_tok = 1};
  const BatchShape two_long{
      .n_q = 6, .n_kv = 2, .d = 128, .n_past = {40000, 32751}, .n_tok = 1, .capacity = 40100};
  const BatchShape longest{.n_q = 2, .n_kv = 1, .d = 64, .n_past = {131071}, .n_tok = 1};
  cases.push_back({"8 heads", eight, {16, 512, QuestPages::hub, QuestOwner::group_max}});
  cases.push_back({"8 heads, sum", eight, {8, 512, QuestPages::eval, QuestOwner::group_sum}});
  cases.push_back({"12 heads, sum", wide, {16, 256, QuestPages::kernel, QuestOwner::group_sum}});
  cases.push_back(
      {"pages of one key, largest", one, {1, 100, QuestPages::frontier, QuestOwner::group_max}});
  cases.push_back(
      {"budget beyond, largest", many, {16, 4096, QuestPages::kernel, QuestOwner::group_max}});
  cases.push_back(
      {"32k, group 3, sum", long_one, {16, 2048, QuestPages::kernel, QuestOwner::group_sum}});
  cases.push_back({"two long", two_long, {16, 2048, QuestPages::kernel, QuestOwner::group_max}});
  cases.push_back({"8 heads, each", eight, {16, 512, QuestPages::hub, QuestOwner::q_head}});
  cases.push_back({"pages of 64, each", many, {64, 512, QuestPages::hub, QuestOwner::q_head}});
  cases.push_back({"128k", longest, {16, 4096, QuestPages::kernel, QuestOwner::group_max}});
  // the more involved kernels last: should one not end, the others have been seen
  std::stable_partition(cases.begin(), cases.end(),
                        [](const Case& c) { return c.options.owner != QuestOwner::q_head; });
  for (const Case& c : cases) check_case(c);
}

TEST_CASE("gpu: Quest's lists of chunks are whole pages before them by the reference's sums",
          "[gpu]") {
  KVSCOPE_NEEDS_DEVICE();
  using gpu::QuestOwner, gpu::QuestPages;
  const BatchShape chunk{.n_q = 6, .n_kv = 2, .n_past = {900}, .n_tok = 40};
  const BatchShape many{.n_q = 8, .n_kv = 2, .d = 64, .n_past = {0, 1, 15, 16, 17, 3333}};
  const BatchShape f32{.n_q = 6, .n_kv = 2, .n_past = {907}, .n_tok = 128, .dtype = DType::f32};
  const BatchShape longest{.n_q = 8, .n_kv = 2, .n_past = {40000}, .n_tok = 16};
  const BatchShape copies{.n_past = {9000}, .n_tok = 32, .draw = Draw::copies};
  const BatchShape one{.n_q = 24, .n_kv = 1, .n_past = {700}, .n_tok = 1};
  for (const Case& c :
       {Case{"chunk", chunk, {16, 256, QuestPages::kernel, QuestOwner::q_head}},
        Case{"few pages", chunk, {16, 20, QuestPages::eval, QuestOwner::group_max}},
        Case{"no page", chunk, {16, 15, QuestPages::frontier, QuestOwner::q_head}},
        Case{"rounded up", f32, {64, 130, QuestPages::hub, QuestOwner::group_sum}},
        Case{"batch of lengths", many, {16, 128, QuestPages::kernel, QuestOwner::q_head}},
        Case{"pages of one key", f32, {1, 100, QuestPages::eval, QuestOwner::q_head}},
        Case{"longest", longest, {16, 2048, QuestPages::kernel, QuestOwner::q_head}},
        Case{"copies", copies, {4, 512, QuestPages::kernel, QuestOwner::group_sum}},
        Case{"24 heads, one row", one, {16, 64, QuestPages::kernel, QuestOwner::group_sum}},
        Case{"budget beyond", chunk, {16, 4096, QuestPages::kernel, QuestOwner::q_head}}}) {
    INFO(c.name);
    DeviceBatch batch(c.batch);
    gpu::Quest quest(batch.shape, c.options);
    note_past(quest, batch, c.batch.n_past);
    quest.append(batch.k.data(), batch.rows().n_past, batch.n_tok, batch.stream);
    quest.choose_before(batch.q.data(), batch.rows().n_past, batch.n_tok, batch.stream);
    batch.stream.wait();
    const int page_size = c.options.page_size;
    double farthest = 0.0;
    for (int b = 0; b < batch.n_batch(); ++b) {
      const Sequence1& s = batch.sequences[static_cast<std::size_t>(b)];
      const auto n_pages = static_cast<std::size_t>(s.n_past / page_size);
      for (int kv_head = 0; kv_head < s.n_kv; ++kv_head) {
        std::vector<double> bounds(n_pages, 0.0);
        for (int h = kv_head * s.group(); h < (kv_head + 1) * s.group(); ++h) {
          for (int row = 0; row < s.n_tok; ++row) {
            const std::vector<double> more = quest_bounds(s, h, page_size, row);
            for (std::size_t p = 0; p < n_pages; ++p) bounds[p] += more[p];
          }
        }
        const std::vector<int> found = list_of(quest.lists_before(), b, kv_head);
        const int n_cut = s.n_past % page_size;
        const auto n_listed = static_cast<int>(found.size()) - n_cut;
        std::vector<int> pages;
        bool is_whole = n_listed >= 0 && n_listed % page_size == 0;
        for (int i = 0; is_whole && i < n_listed; ++i) {
          if (i % page_size == 0) pages.push_back(found[static_cast<std::size_t>(i)] / page_size);
          is_whole = found[static_cast<std::size_t>(i)] == pages.back() * page_size + i % page_size;
        }
        CHECK(is_whole);
        for (int i = 0; is_whole && i < n_cut; ++i)
          CHECK(found[static_cast<std::size_t>(n_listed + i)] == s.n_past - n_cut + i);
        double largest = 1.0;
        for (const double bound : bounds) largest = std::max(largest, std::abs(bound));
        const auto rule = static_cast<Rule>(c.options.pages);
        const int n_whole = static_cast<int>(n_pages) * page_size;
        PageCounts counts = page_counts(rule, c.options.budget, page_size, n_whole);
        // the last page competes as all others do: of `kernel` one more is kept by its bound
        if (rule == Rule::kernel) ++counts.n_kept;
        if (c.options.budget >= n_whole) counts.n_kept = static_cast<int>(n_pages);
        const ListDifference difference = compare_list(
            pages, bounds, std::min(counts.n_kept, static_cast<int>(n_pages)), 1e-6 * largest);
        CHECK(difference.is_right);
        farthest = std::max(farthest, difference.farthest / largest);
      }
    }
    std::printf("  quest before a call: %-18s farthest %.1e\n", c.name, farthest);
  }
}

TEST_CASE("gpu: Quest's steps after each other are those of separate calls", "[gpu]") {
  KVSCOPE_NEEDS_DEVICE();
  using gpu::QuestOwner, gpu::QuestPages;
  const BatchShape some{
      .n_q = 6, .n_kv = 2, .d = 128, .n_past = {20, 1000, 4000}, .n_tok = 1, .capacity = 4100};
  check_steps_in_a_row(some, {16, 256, QuestPages::kernel, QuestOwner::group_max});
  check_steps_in_a_row(some, {4, 64, QuestPages::eval, QuestOwner::group_sum});
  check_steps_in_a_row(some, {16, 128, QuestPages::frontier, QuestOwner::q_head});
}

}  // namespace kvscope::test::quest_test
