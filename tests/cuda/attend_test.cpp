// Attention on the GPU against f64: every kernel, splits, dense calls, and lists of every form.
#include "core/cuda/attend.hpp"

#include <numeric>
#include <random>

#include <catch2/generators/catch_generators.hpp>

#include "tests/cuda/device_batch.hpp"

namespace kvscope::test::attend_test {

using gpu::AttendBy;

const char* name_of(AttendBy by) {
  return by == AttendBy::chunk    ? "chunk"
         : by == AttendBy::decode ? "decode"
         : by == AttendBy::rows   ? "rows"
                                  : "auto";
}

/// Random ascending lists of keys before the call, some of them empty.
struct RandomLists {
  RandomLists(const DeviceBatch& batch, int n_owners, double share, unsigned seed) {
    std::mt19937 rng(seed);
    std::uniform_real_distribution<double> uniform;
    int stride = 1;
    for (const Sequence1& s : batch.sequences) {
      for (int owner = 0; owner < n_owners; ++owner) {
        std::vector<int> list;
        for (int pos = 0; pos < s.n_past; ++pos) {
          if (uniform(rng) < share && owner % 3 != 2) list.push_back(pos);
        }
        stride = std::max(stride, static_cast<int>(list.size()));
        of_owner.push_back(list);
      }
    }
    std::vector<std::int32_t> items(of_owner.size() * static_cast<std::size_t>(stride), -1);
    std::vector<std::int32_t> counts;
    for (std::size_t i = 0; i < of_owner.size(); ++i) {
      std::copy(of_owner[i].begin(), of_owner[i].end(),
                items.begin() + static_cast<std::ptrdiff_t>(i) * stride);
      counts.push_back(static_cast<std::int32_t>(of_owner[i].size()));
    }
    item_memory = gpu::DeviceBuffer(4 * items.size(), "lists");
    item_memory.upload(items.data(), 4 * items.size());
    count_memory = gpu::DeviceBuffer(4 * counts.size(), "lists");
    count_memory.upload(counts.data(), 4 * counts.size());
    lists = {reinterpret_cast<const std::int32_t*>(item_memory.data()),
             reinterpret_cast<const std::int32_t*>(count_memory.data()), stride, n_owners, 1};
  }
  std::vector<std::vector<int>> of_owner;
  gpu::DeviceBuffer item_memory, count_memory;
  gpu::DeviceLists lists;
};

struct Case {
  const char* name;
  BatchShape batch;
  bool per_q_head = false;
  double share = 0.3;  // of the past in a list; above 1: dense
};

void check_case(const Case& c, AttendBy by, int n_splits) {
  INFO(c.name << " by " << name_of(by) << ", splits " << n_splits);
  DeviceBatch batch(c.batch);
  const int n_owners = c.per_q_head ? c.batch.n_q : c.batch.n_kv;
  const RandomLists lists(batch, n_owners, c.share, 7);
  const bool is_dense = c.share > 1.0;
  batch.attend(is_dense ? gpu::DeviceLists{} : lists.lists, {.by = by, .n_splits = n_splits});
  batch.stream.wait();
  const OutputDifference output = compare_outputs(
      batch,
      [&](int b, int head, int row) {
        const Sequence1& s = batch.sequences[b];
        std::vector<int> keys(static_cast<std::size_t>(s.n_past));
        std::iota(keys.begin(), keys.end(), 0);
        if (!is_dense)
          keys = lists.of_owner[b * n_owners + (c.per_q_head ? head : head / s.group())];
        for (int pos = s.n_past; pos <= s.n_past + row; ++pos) keys.push_back(pos);
        return keys;
      },
      std::max(1, c.batch.n_tok / 9));
  std::printf("  attend %-26s by %-6s splits %2d  out %.1e lse %.1e\n", c.name, name_of(by),
              n_splits, output.out, output.lse);
  const bool is_exact = c.batch.dtype == DType::f32;
  CHECK(output.out < (is_exact ? 2e-5 : 8e-3));
  CHECK(output.lse < 1e-4);
}

TEST_CASE("gpu: attention over lists and densely is the reference's", "[gpu]") {
  KVSCOPE_NEEDS_DEVICE();
  const std::vector<Case> chunks = {
      {"chunk", {.n_past = {500}, .n_tok = 70}},
      {"chunk d 64", {.n_q = 8, .n_kv = 2, .d = 64, .n_past = {333}, .n_tok = 128}},
      {"chunk batch", {.n_past = {0, 3, 64, 700}, .n_tok = 31}},
      {"chunk per query head", {.n_past = {300}, .n_tok = 40}, true},
      {"chunk dense", {.n_past = {450}, .n_tok = 100}, false, 2.0},
      {"chunk alone", {.n_past = {0}, .n_tok = 130}, false, 2.0},
      {"chunk of the figure", {.n_q = 24, .n_kv = 8, .n_past = {4096}, .n_tok = 128}, false, 0.25},
  };
  for (const Case& c : chunks) {
    for (const int n_splits : {0, 1, 2, 4, 5, 6, 8}) check_case(c, AttendBy::chunk, n_splits);
    for (const int n_splits : {0, 1, 8}) check_case(c, AttendBy::rows, n_splits);
  }
  const std::vector<Case> steps = {
      {"step", {.n_past = {900}, .n_tok = 1}},
      {"step d 64", {.n_q = 8, .n_kv = 2, .d = 64, .n_past = {901}, .n_tok = 1}},
      {"step batch", {.n_past = {0, 1, 17, 700}, .n_tok = 1}},
      {"step per query head", {.n_past = {300}, .n_tok = 1}, true},
      {"step dense", {.n_past = {2450}, .n_tok = 1}, false, 2.0},
      {"verify 4", {.n_past = {1200}, .n_tok = 4}},
      {"group 16", {.n_q = 16, .n_kv = 1, .n_past = {640}, .n_tok = 1}},
  };
  for (const Case& c : steps) {
    for (const int n_splits : {0, 1, 2, 4, 8, 16}) check_case(c, AttendBy::decode, n_splits);
    check_case(c, AttendBy::chunk, 2);
    check_case(c, AttendBy::rows, 0);
  }
  for (Case c : chunks) {
    c.batch.dtype = DType::f32;
    check_case(c, AttendBy::automatic, 0);
  }
  for (Case c : steps) {
    c.batch.dtype = DType::f32;
    check_case(c, AttendBy::automatic, 0);
  }
}

struct RuleCase {
  const char* name;
  BatchShape batch;
  gpu::AttendRule rule = {};  // but for the sinks
  bool has_sinks = false;
};

TEST_CASE("gpu: windows, sinks and caps are the reference's, and no bit depends on blocks",
          "[gpu]") {
  KVSCOPE_NEEDS_DEVICE();
  const DType dtype = GENERATE(DType::f32, DType::bf16);
  const BatchShape smollm{.n_q = 9, .n_kv = 3, .d = 64, .n_past = {1900}, .n_tok = 128};
  const BatchShape gemma{.n_q = 4, .n_kv = 1, .d = 256, .n_past = {1100}, .n_tok = 128};
  const std::vector<RuleCase> cases = {
      {"few heads", smollm},
      {"a step", {.n_q = 9, .n_kv = 3, .d = 64, .n_past = {2570}, .n_tok = 1}},
      {"capacity", {.n_q = 9, .n_kv = 3, .d = 64, .n_past = {70}, .n_tok = 9, .capacity = 9000}},
      {"256 channels", gemma},
      {"window 512", gemma, {.window = 512}},
      {"window of one", smollm, {.window = 1}},
      {"window 200", smollm, {.window = 200}},
      {"window behind few keys", {.n_past = {3}, .n_tok = 80}, {.window = 60}},
      {"cap", gemma, {.score_cap = 1.5f}},
      {"sinks", smollm, {}, true},
      {"everything",
       {.n_past = {0, 5, 600, 1300}, .n_tok = 40},
       {.window = 300, .score_cap = 2.0f},
       true},
  };
  for (RuleCase c : cases) {
    c.batch.dtype = dtype;
    DeviceBatch batch(c.batch);
    RowRule expected{static_cast<double>(c.rule.score_cap), {}};
    gpu::DeviceBuffer sinks;
    if (c.has_sinks) {
      for (int head = 0; head < c.batch.n_q; ++head)
        expected.sinks.push_back(0.7f * static_cast<float>(head) - 1.0f);
      const std::size_t n_bytes = 4 * expected.sinks.size();
      sinks = gpu::DeviceBuffer(n_bytes, "sinks");
      sinks.upload(expected.sinks.data(), n_bytes);
      c.rule.sink_logits = reinterpret_cast<const float*>(sinks.data());
    }
    std::vector<float> first_out, first_lse;
    for (const int n_splits : {1, 0, 2, 3, 4, 8}) {
      INFO(c.name << ", splits " << n_splits);
      batch.poison();
      batch.attend({}, {.by = c.rule.is_plain() ? AttendBy::rows : AttendBy::automatic,
                        .n_splits = n_splits,
                        .rule = c.rule});
      batch.stream.wait();
      if (n_splits == 1) {
        first_out = batch.out();
        first_lse = batch.lse();
      } else {
        CHECK(batch.out() == first_out);
        CHECK(batch.lse() == first_lse);
        continue;
      }
      const OutputDifference output = compare_outputs(
          batch,
          [&](int b, int, int row) {
            const int pos = batch.sequences[b].n_past + row;
            std::vector<int> keys;
            for (int key = 0; key <= pos; ++key) {
              if (c.rule.window == 0 || key > pos - c.rule.window) keys.push_back(key);
            }
            return keys;
          },
          std::max(1, c.batch.n_tok / 9), expected);
      std::printf("  attend %-26s out %.1e lse %.1e\n", c.name, output.out, output.lse);
      CHECK(output.out < (dtype == DType::f32 ? 2e-5 : 5e-3));
      CHECK(output.lse < 1e-4);
    }
  }
}

TEST_CASE("gpu: a rule that a kernel does not compute is refused", "[gpu]") {
  KVSCOPE_NEEDS_DEVICE();
  DeviceBatch batch({.n_past = {30}, .n_tok = 40});
  CHECK_THROWS_AS(batch.attend({}, {.by = AttendBy::chunk, .rule = {.window = 5}}), ShapeError);
  const RandomLists lists(batch, 2, 0.3, 7);
  CHECK_THROWS_AS(batch.attend(lists.lists, {.by = AttendBy::rows, .rule = {.window = 5}}),
                  ShapeError);
  CHECK_THROWS_AS(batch.attend({}, {.by = AttendBy::rows, .n_splits = 9}), ShapeError);
}

TEST_CASE("gpu: a query that is no number gets no numbers, and nobody else does", "[gpu]") {
  KVSCOPE_NEEDS_DEVICE();
  DeviceBatch batch({.n_past = {300}, .n_tok = 60});
  const RandomLists lists(batch, 2, 0.3, 7);
  constexpr std::uint16_t kNaN = 0x7fc0;
  constexpr std::size_t kRow = 3 * 60 + 17;  // of query head 3
  batch.q.upload(&kNaN, 2, (kRow * 128 + 5) * 2);
  batch.attend(lists.lists, {.by = AttendBy::chunk, .n_splits = 2});
  batch.stream.wait();
  const std::vector<float> out = batch.out();
  const std::vector<float> lse = batch.lse();
  int n_wrong = 0;
  for (std::size_t i = 0; i < out.size(); ++i)
    n_wrong += std::isfinite(out[i]) == (i / 128 == kRow) ? 1 : 0;
  for (std::size_t i = 0; i < lse.size(); ++i)
    n_wrong += std::isfinite(lse[i]) == (i == kRow) ? 1 : 0;
  CHECK(n_wrong == 0);
}

}  // namespace kvscope::test::attend_test
