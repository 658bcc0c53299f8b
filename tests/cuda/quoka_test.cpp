// QuoKA on the GPU against the f64 reference: queries, lists, and attention to the lists.
#include "core/cuda/quoka.hpp"

#include "tests/cuda/device_batch.hpp"

namespace kvscope::test::quoka_test {

constexpr double kEps = 1e-12;
constexpr double kRounding = 2e-6;  // of a cosine made of f32 products and norms

struct Case {
  const char* name;
  BatchShape batch;
  int n_queries = 16;
  int budget = 1024;
};

struct Findings {
  int n_lists = 0, n_unequal = 0, n_swapped = 0, n_wrong = 0, n_wrong_picks = 0;
  double farthest = 0.0;
};

/// Keys of the list of a query's KV head, and its chunk up to itself.
std::vector<int> keys_of_row(const Sequence1& s, std::vector<int> list, int row) {
  for (int pos = s.n_past; pos <= s.n_past + row; ++pos) list.push_back(pos);
  return list;
}

Findings compare(const Case& c, DeviceBatch& batch, const gpu::Quoka& quoka) {
  Findings findings;
  const auto picks = gpu::read_device<std::int32_t>(
      quoka.picks(), static_cast<std::size_t>(batch.n_batch()) * c.batch.n_q * 16);
  for (int b = 0; b < batch.n_batch(); ++b) {
    const Sequence1& s = batch.sequences[b];
    const auto expected = quoka_picks(s, c.n_queries, kEps);
    for (int head = 0; head < s.n_q; ++head) {
      for (std::size_t slot = 0; slot < expected[0].size(); ++slot) {
        const std::size_t at = (static_cast<std::size_t>(b) * s.n_q + head) * 16 + slot;
        if (picks[at] != expected[head][slot]) ++findings.n_wrong_picks;
      }
    }
    for (int kv_head = 0; kv_head < s.n_kv; ++kv_head) {
      const ListDifference difference =
          compare_list(list_of(quoka.lists(), b, kv_head), quoka_scores(s, expected, kv_head, kEps),
                       std::min(c.budget, s.n_past), kRounding);
      ++findings.n_lists;
      findings.n_unequal += difference.n_swapped > 0 ? 1 : 0;
      findings.n_swapped += difference.n_swapped;
      findings.n_wrong += difference.is_right ? 0 : 1;
      findings.farthest = std::max(findings.farthest, difference.farthest);
    }
  }
  return findings;
}

void check_case(const Case& c) {
  INFO(c.name);
  DeviceBatch batch(c.batch);
  gpu::QuokaOptions options{
      .n_queries = c.n_queries, .budget = c.budget, .most_tok = std::max(128, c.batch.n_tok)};
  gpu::Quoka quoka(batch.shape, options);
  // norms of all keys, the past as one long chunk
  const std::vector<std::int32_t> zeros(c.batch.n_past.size(), 0);
  gpu::DeviceBuffer from_zero(4 * zeros.size(), "positions");
  quoka.append(batch.k.data(), reinterpret_cast<const std::int32_t*>(from_zero.data()),
               static_cast<int>(batch.shape.capacity), batch.stream);
  quoka.choose(batch.rows(), batch.stream);
  batch.attend(quoka.lists(), {});
  batch.stream.wait();
  const Findings f = compare(c, batch, quoka);
  std::vector<std::vector<int>> lists;
  for (int b = 0; b < batch.n_batch(); ++b) {
    for (int h = 0; h < c.batch.n_kv; ++h) lists.push_back(list_of(quoka.lists(), b, h));
  }
  const int row_step = std::max(1, c.batch.n_tok / 7);
  const OutputDifference output = compare_outputs(
      batch,
      [&](int b, int head, int row) {
        const Sequence1& s = batch.sequences[b];
        return keys_of_row(s, lists[b * s.n_kv + head / s.group()], row);
      },
      row_step);
  std::printf(
      "  quoka %-26s lists %d, unequal %d, swapped %d, farthest %.1e; picks off %d; "
      "out %.1e lse %.1e\n",
      c.name, f.n_lists, f.n_unequal, f.n_swapped, f.farthest, f.n_wrong_picks, output.out,
      output.lse);
  CHECK(f.n_wrong == 0);
  CHECK(f.n_wrong_picks == 0);
  if (c.batch.draw == Draw::copies) CHECK(f.n_swapped == 0);
  const bool is_bf16 = c.batch.dtype == DType::bf16;
  CHECK(output.out < (is_bf16 ? 8e-3 : 2e-5));
  CHECK(output.lse < (is_bf16 ? 1e-4 : 1e-4));
}

TEST_CASE("gpu: QuoKA's lists and attention are the reference's", "[gpu]") {
  KVSCOPE_NEEDS_DEVICE();
  const std::vector<Case> cases = {
      {"small bf16", {.n_q = 6, .n_kv = 2, .d = 128, .n_past = {300}, .n_tok = 40}, 16, 64},
      {"small f32",
       {.n_q = 6, .n_kv = 2, .d = 128, .n_past = {300}, .n_tok = 40, .dtype = DType::f32},
       16,
       64},
      {"d 64 bf16", {.n_q = 8, .n_kv = 2, .d = 64, .n_past = {777}, .n_tok = 128}, 16, 100},
      {"d 64 f32",
       {.n_q = 8, .n_kv = 2, .d = 64, .n_past = {777}, .n_tok = 128, .dtype = DType::f32},
       16,
       100},
      {"fewer queries than slots", {.n_past = {500}, .n_tok = 9}, 16, 33},
      {"decode", {.n_past = {2000}, .n_tok = 1}, 16, 128},
      {"decode f32", {.n_past = {2000}, .n_tok = 1, .dtype = DType::f32}, 16, 128},
      {"4 slots", {.n_past = {900}, .n_tok = 64}, 4, 128},
      {"budget beyond the past", {.n_past = {50}, .n_tok = 20}, 16, 128},
      {"no past", {.n_past = {0}, .n_tok = 70}, 16, 128},
      {"batch of lengths",
       {.n_q = 4, .n_kv = 1, .n_past = {0, 5, 64, 1111, 4097}, .n_tok = 33},
       16,
       256},
      {"batch of lengths f32",
       {.n_q = 4, .n_kv = 1, .n_past = {0, 5, 64, 1111, 4097}, .n_tok = 33, .dtype = DType::f32},
       16,
       256},
      {"ties", {.n_past = {3000}, .n_tok = 32, .draw = Draw::ties}, 16, 500},
      {"ties f32",
       {.n_past = {3000}, .n_tok = 32, .dtype = DType::f32, .draw = Draw::ties},
       16,
       500},
      {"copies of four keys", {.n_past = {9000}, .n_tok = 32, .draw = Draw::copies}, 16, 700},
      {"copies of four keys f32",
       {.n_past = {9000}, .n_tok = 32, .dtype = DType::f32, .draw = Draw::copies},
       16,
       700},
      {"copies, blocks share", {.n_past = {40000}, .n_tok = 16, .draw = Draw::copies}, 16, 1500},
      {"8k, group 3", {.n_q = 24, .n_kv = 8, .n_past = {8192}, .n_tok = 128}, 16, 1024},
      {"8k, group 3 f32",
       {.n_q = 24, .n_kv = 8, .n_past = {8192}, .n_tok = 128, .dtype = DType::f32},
       16,
       1024},
      {"33k, group 3", {.n_q = 6, .n_kv = 2, .n_past = {33000}, .n_tok = 128}, 16, 1024},
      {"chunk of 512", {.n_q = 4, .n_kv = 2, .n_past = {2048}, .n_tok = 512}, 16, 333},
      {"no group", {.n_q = 3, .n_kv = 3, .n_past = {1500}, .n_tok = 100}, 16, 200},
      {"group 8", {.n_q = 8, .n_kv = 1, .n_past = {1500}, .n_tok = 17}, 16, 200},
      {"70k, one list", {.n_q = 3, .n_kv = 1, .n_past = {70001}, .n_tok = 40}, 16, 2048},
      {"a longer list", {.n_q = 3, .n_kv = 1, .n_past = {5000}, .n_tok = 40}, 16, 2049},
      {"all but one", {.n_past = {801}, .n_tok = 40}, 16, 800},
      {"all", {.n_past = {800}, .n_tok = 40}, 16, 800},
      {"chunk of 256", {.n_q = 4, .n_kv = 2, .n_past = {1700}, .n_tok = 256}, 16, 333},
      {"64 lists",
       {.n_q = 16, .n_kv = 8, .d = 64, .n_past = {700, 0, 31, 300, 1, 33, 64, 500}, .n_tok = 24},
       16,
       64},
      {"96 lists",
       {.n_q = 16, .n_kv = 8, .d = 64, .n_past = std::vector<int>(12, 150), .n_tok = 24},
       16,
       64},
  };
  for (const Case& c : cases) check_case(c);
}

TEST_CASE("gpu: QuoKA follows the positions in device memory", "[gpu]") {
  KVSCOPE_NEEDS_DEVICE();
  // the same memory at several lengths, as a graph that was recorded once meets them
  Case c{"positions", {.n_q = 6, .n_kv = 2, .n_past = {3000}, .n_tok = 40}, 16, 128};
  DeviceBatch batch(c.batch);
  gpu::Quoka quoka(batch.shape, gpu::QuokaOptions{.budget = c.budget});
  gpu::DeviceBuffer from_zero(4, "positions");
  quoka.append(batch.k.data(), reinterpret_cast<const std::int32_t*>(from_zero.data()), 3040,
               batch.stream);
  batch.stream.wait();
  for (const int past : {3000, 1700, 40, 2999}) {
    INFO("past " << past);
    batch.n_past.upload(&past, 4);
    for (int repeat = 0; repeat < 3; ++repeat) {
      quoka.append(batch.k.data(), batch.rows().n_past, batch.n_tok, batch.stream);
      quoka.choose(batch.rows(), batch.stream);
      batch.attend(quoka.lists(), {});
    }
    batch.stream.wait();
    Sequence1 s = batch.sequences[0];
    for (int head = 0; head < s.n_kv; ++head) {
      std::vector<double> scores = quoka_scores(s, quoka_picks(s, 16, kEps), head, kEps);
      scores.resize(static_cast<std::size_t>(past));
      const ListDifference difference = compare_list(list_of(quoka.lists(), 0, head), scores,
                                                     std::min(past, c.budget), kRounding);
      CHECK(difference.is_right);
    }
  }
}

TEST_CASE("gpu: QuoKA ends with lists of the right length where a query is no number", "[gpu]") {
  KVSCOPE_NEEDS_DEVICE();
  DeviceBatch batch({.n_past = {2000}, .n_tok = 40});
  constexpr std::uint16_t kNaN = 0x7fc0;
  batch.q.upload(&kNaN, 2, 7 * 128 * 2);
  gpu::Quoka quoka(batch.shape, {.budget = 100});
  gpu::DeviceBuffer from_zero(4, "positions");
  quoka.append(batch.k.data(), reinterpret_cast<const std::int32_t*>(from_zero.data()), 2040,
               batch.stream);
  for (int repeat = 0; repeat < 3; ++repeat) quoka.choose(batch.rows(), batch.stream);
  batch.stream.wait();
  for (int head = 0; head < 2; ++head) {
    const std::vector<int> list = list_of(quoka.lists(), 0, head);
    CHECK(list.size() == 100);
    CHECK(std::is_sorted(list.begin(), list.end()));
  }
}

}  // namespace kvscope::test::quoka_test
