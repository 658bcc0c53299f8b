#include "analysis/cost/measure_machine.hpp"

#include <fmt/format.h>
#include <unistd.h>

#include <algorithm>
#include <chrono>
#include <cmath>

#include "analysis/analysis.hpp"
#include "core/attention/dense_attention.hpp"
#include "core/attention/sparse_attention.hpp"
#include "core/attention/top_cuts.hpp"
#include "core/selectors/linear_scores.hpp"
#include "core/selectors/score_engine.hpp"
#include "core/tensor/lane_kernels.hpp"

namespace kvscope {

namespace {

// a layer of a small model, as kvscope bench select has it
constexpr Index kQueryHeads = 24;
constexpr Index kKvHeads = 8;
constexpr Index kChannels = 128;
constexpr Index kKeys = 32768;
constexpr Index kFewKeys = 512;  // 4 MiB of K and V: arithmetic, not memory, limits the kernels
constexpr Index kQueryRows = 128;
constexpr Index kListKeys = 2048;
constexpr int kRepeats = 9;
constexpr double kElement = 4.0;  // bytes of f32

/// The least of some repeats, after one that does not count: other programs only add. Short work
/// is repeated inside.
template <class Work>
double least_seconds(Work&& work) {
  using Clock = std::chrono::steady_clock;
  const auto once = [&](int n) {
    const auto start = Clock::now();
    for (int i = 0; i < n; ++i) work();
    return std::chrono::duration<double>(Clock::now() - start).count() / n;
  };
  const double first = once(1);
  const int n = std::clamp(static_cast<int>(1e-3 / std::max(first, 1e-9)), 1, 10000);
  std::vector<double> seconds;
  for (int i = 0; i < kRepeats; ++i) seconds.push_back(once(n));
  return *std::min_element(seconds.begin(), seconds.end());
}

void fill(Tensor<float>& tensor, std::uint32_t seed) {
  for (float& x : tensor.flat()) {
    seed = seed * 1664525u + 1013904223u;
    x = static_cast<float>(seed >> 8) / 8388608.0f - 1.0f;
  }
}

float sum_of_part(std::span<const float> values) {
  float sums[32] = {};
  for (std::size_t i = 0; i + 32 <= values.size(); i += 32) {
    for (std::size_t j = 0; j < 32; ++j) sums[j] += values[i + j];
  }
  float sum = 0.0f;
  for (const float one : sums) sum += one;
  return sum;
}

class Machine {
 public:
  explicit Machine(ThreadPool& pool)
      : pool_(pool),
        q_({kQueryHeads, kQueryRows, kChannels}),
        k_({kKvHeads, kKeys, kChannels}),
        v_({kKvHeads, kKeys, kChannels}) {
    fill(q_, 1);
    fill(k_, 2);
    fill(v_, 3);
  }

  /// Bytes per second of reading `n_bytes`, again and again.
  double bandwidth(double n_bytes) {
    const std::span<const float> all = k_.flat();
    const auto n = std::min(static_cast<std::size_t>(n_bytes / kElement), all.size());
    const auto parts = static_cast<std::size_t>(pool_.n_threads());
    std::vector<float> sums(parts);
    const double seconds = least_seconds([&] {
      pool_.parallel_for(static_cast<Index>(parts), [&](Index part, int) {
        const auto i = static_cast<std::size_t>(part);
        sums[i] = sum_of_part(all.subspan(n * i / parts, n / parts));
      });
    });
    unused_sum_ += sums[0];
    return kElement * static_cast<double>(n) / seconds;
  }

  /// FLOP/s of a product with many columns.
  double product() {
    constexpr Index kSide = 512;
    const Index n_tasks = 4 * pool_.n_threads();
    Tensor<float> x({kSide, kWideLanes});
    fill(x, 4);
    Tensor<float> y({n_tasks, kSide, kWideLanes});
    const double seconds = least_seconds([&] {
      pool_.parallel_for(n_tasks, [&](Index task, int) {
        lane_matmul(k_.data(), kSide, kSide, kSide, nullptr, x.data(), y.view().sub(task).data(),
                    kWideLanes);
      });
    });
    return 2.0 * static_cast<double>(kSide * kSide * kWideLanes * n_tasks) / seconds;
  }

  AttentionQuestion question(Index n_tok, Index n_keys) const {
    AttentionQuestion question;
    question.pos_begin = n_keys - n_tok;
    question.n_tok = n_tok;
    question.score_scale = 0.09f;
    question.q = q_.view().range(1, 0, n_tok);
    question.k = k_.view().range(1, 0, n_keys);
    question.v = v_.view().range(1, 0, n_keys);
    return question;
  }

  double dense_rate(Index n_tok, Index n_keys) {
    Tensor<float> out({kQueryHeads, n_tok, kChannels});
    Tensor<float> lse({kQueryHeads, n_tok});
    const AttentionQuestion asked = question(n_tok, n_keys);
    const double seconds = least_seconds([&] {
      attend_dense(asked, {out.view(), lse.view()}, pool_);
    });
    const double pairs = static_cast<double>(n_tok * (n_keys - n_tok)) +
                         0.5 * static_cast<double>(n_tok * (n_tok + 1));
    return 4.0 * static_cast<double>(kQueryHeads * kChannels) * pairs / seconds;
  }

  /// Attention over lists of kListKeys keys before the call, in runs spread over the context.
  double list_seconds(Index n_tok, Index run, Index n_keys) {
    const Index past = n_keys - n_tok;
    const Index n_runs = kListKeys / run;
    KeyList list;
    for (Index r = 0; r < n_runs; ++r) {
      for (Index i = 0; i < run; ++i)
        list.scored.push_back(static_cast<KeyPos>(r * (past / n_runs) + i));
    }
    Selection selection(ListOwner::kv_head, n_tok, n_tok);
    for (Index head = 0; head < kKvHeads; ++head) selection.add(list);
    const Index lanes = n_tok > kNarrowLanes ? kWideLanes : kNarrowLanes;
    Tensor<float> out({(n_tok + lanes - 1) / lanes, kQueryHeads * kChannels, lanes});
    Tensor<float> lse({kQueryHeads, n_tok});
    ListMemory memory;
    const AttentionQuestion asked = question(n_tok, n_keys);
    return least_seconds([&] {
      attend_lists(asked, selection, {lanes, out.data(), lse.view()}, pool_, {}, &memory);
    });
  }

  /// FLOP/s of products of `n_vectors` per KV head with its keys.
  double score_rate(Index n_vectors) {
    SelectCall call;
    call.n_tok = 1;
    call.pos_begin = kKeys / 2 - 1;
    call.q = q_.view().range(1, 0, 1);
    call.k = k_.view().range(1, 0, kKeys / 2);
    call.v = v_.view().range(1, 0, kKeys / 2);
    ScoreEngine engine(ScorePrecision::f32, &pool_);
    call.engine = &engine;
    std::vector<double> vectors(static_cast<std::size_t>(kKvHeads * n_vectors * kChannels), 0.1);
    std::vector<std::vector<double>> scores(
        static_cast<std::size_t>(kKvHeads * n_vectors),
        std::vector<double>(static_cast<std::size_t>(kKeys / 2)));
    std::vector<std::span<double>> views(scores.begin(), scores.end());
    const double seconds = least_seconds([&] {
      linear_scores(call, vectors, {0, kKeys / 2}, views);
    });
    return static_cast<double>(kKvHeads * n_vectors * kKeys * kChannels) / seconds;
  }

  /// Seconds per score of finding the largest of many.
  double ranking() {
    const Index n_tasks = 4 * pool_.n_threads();
    std::vector<double> scores(static_cast<std::size_t>(kKeys));
    for (std::size_t i = 0; i < scores.size(); ++i) scores[i] = static_cast<double>(k_.flat()[i]);
    const std::vector<Index> ks = {1024};
    std::vector<TopCuts> finders(static_cast<std::size_t>(n_tasks));
    const double seconds = least_seconds([&] {
      pool_.parallel_for(n_tasks, [&](Index task, int) {
        finders[static_cast<std::size_t>(task)].find(scores, ks);
      });
    });
    return seconds / static_cast<double>(n_tasks * kKeys);
  }

  double loop() {
    return least_seconds([&] { pool_.parallel_for(pool_.n_threads(), [](Index, int) {}); });
  }

 private:
  ThreadPool& pool_;
  Tensor<float> q_, k_, v_;
  float unused_sum_ = 0.0f;  // so that no sum is left out
};

}  // namespace

HardwareProfile measure_machine(ThreadPool& pool, const std::string& cpu,
                                const ProgressFn& progress, const std::stop_token& stop) {
  const std::string here = fmt::format("measured by kvscope bench machine on {} with {} thread{}",
                                       cpu, pool.n_threads(), pool.n_threads() == 1 ? "" : "s");
  constexpr std::int64_t kSteps = 8;
  std::int64_t done = 0;
  const auto step = [&] {
    check_stop(stop, "bench machine");
    if (progress) progress({"bench machine", done++, kSteps, "parts"});
  };
  step();
  Machine machine(pool);
  HardwareProfile profile;
  profile.name = "this-machine";
  profile.title = cpu;
  profile.kind = "cpu";
  profile.compute = "f32";
  profile.memory = {
      static_cast<double>(sysconf(_SC_PHYS_PAGES)) * static_cast<double>(sysconf(_SC_PAGE_SIZE)),
      "the operating system: physical memory"};
  profile.launch = {machine.loop(), here + ": an empty parallel loop"};
  step();
  profile.bandwidth.source = here + ": reading an array of that size again and again";
  for (const double n_bytes : {2.6e5, 1e6, 4e6, 1.6e7, 3.2e7, 6.4e7, 1.28e8})
    profile.bandwidth.points.emplace_back(n_bytes, machine.bandwidth(n_bytes));
  step();
  const double product = machine.product();
  step();
  std::vector<std::pair<double, double>> rates;  // rows of a KV head, FLOP/s
  for (const Index n_tok : {1, 2, 4, 8, 16, 32, 64, 128}) {
    rates.emplace_back(static_cast<double>(n_tok * kQueryHeads / kKvHeads),
                       machine.dense_rate(n_tok, kFewKeys));
  }
  step();
  const double dense = std::max(machine.dense_rate(kQueryRows, 4096), rates.back().second);
  const double lists = 4.0 * static_cast<double>(kQueryHeads * kChannels * kQueryRows * kListKeys) /
                       machine.list_seconds(kQueryRows, 1, kKeys);
  step();
  const double score = machine.score_rate(4);
  const double score_many = machine.score_rate(64);
  profile.topk = {machine.ranking(), here + ": the largest 1024 of 32768 scores"};
  const double peak = std::max({product, dense, score, score_many, lists});
  profile.peak["f32"] = {peak, here + ": the fastest of products, attention and scoring"};
  profile.matmul = {product / peak, here + ": products of 512 x 512 with a block of columns"};
  profile.attend = {dense / peak, here + ": dense attention of 128 queries"};
  profile.attend_rows.source = here + ": dense attention over 512 keys, 3 query heads to a KV head";
  for (const auto& [rows, rate] : rates)
    profile.attend_rows.points.emplace_back(rows, std::min(rate / dense, 1.0));
  profile.score = {score / peak, here + ": products of four vectors per KV head with 16384 keys"};
  profile.kernels["score-many"] = {score_many / peak,
                                   here + ": products of 64 vectors per KV head with 16384 keys"};
  profile.kernels["lists"] = {lists / peak,
                              here + ": attention of 128 queries over a list of 2048 single keys"};
  step();
  profile.gather.source =
      here + ": one query over 2048 of 32768 keys, against the bandwidth for as many bytes";
  const double bytes = 2.0 * static_cast<double>(kListKeys * kKvHeads * kChannels) * kElement;
  double before = 0.0;
  for (const Index run : {1, 2, 4, 16, 64, 256}) {
    const double share = bytes / machine.list_seconds(1, run, kKeys) / profile.bandwidth.at(bytes);
    before = std::clamp(share, before, 1.0);  // longer runs are not slower: what wavers is noise
    profile.gather.points.emplace_back(static_cast<double>(run * kChannels) * kElement, before);
  }
  step();
  return profile;
}

}  // namespace kvscope
