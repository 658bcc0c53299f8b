// This machine as a hardware profile of kvscope cost: bandwidth by the size of a read, the rates of
// products, attention and scoring, gathering by the length of runs, ranking, a parallel loop, as
// the program's own kernels do them. Nothing else should run at the same time.
//
//   build/release/tests/bench_machine [THREADS] > here.json
//   kvscope cost trace.h5 --selector quest --budget 256 --hardware ./here.json
#include <fmt/format.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <chrono>

#include "analysis/cost/hardware.hpp"
#include "core/attention/dense_attention.hpp"
#include "core/attention/sparse_attention.hpp"
#include "core/attention/top_cuts.hpp"
#include "core/base/cpu.hpp"
#include "core/base/json.hpp"
#include "core/base/parallel.hpp"
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
constexpr Index kListsInTurn = 16;
constexpr int kRepeats = 9;
constexpr double kElement = 4.0;  // bytes of f32

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

using Clock = std::chrono::steady_clock;

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

  /// Attention over lists of kListKeys keys before the call, in runs spread over the context. Every
  /// repeat has other keys: in a model's next call, these are no longer in a cache.
  double list_seconds(Index n_tok, Index run, Index n_keys) {
    const Index n_runs = kListKeys / run;
    const Index step = (n_keys - n_tok) / n_runs;
    const Index n_lists = std::clamp<Index>(step / run, 1, kListsInTurn);
    std::vector<Selection> selections;
    for (Index turn = 0; turn < n_lists; ++turn) {
      KeyList list;
      for (Index r = 0; r < n_runs; ++r) {
        for (Index i = 0; i < run; ++i)
          list.scored.push_back(static_cast<KeyPos>(r * step + turn * run + i));
      }
      selections.emplace_back(ListOwner::kv_head, n_tok, n_tok);
      for (Index head = 0; head < kKvHeads; ++head) selections.back().add(list);
    }
    const Index lanes = n_tok > kNarrowLanes ? kWideLanes : kNarrowLanes;
    Tensor<float> out({(n_tok + lanes - 1) / lanes, kQueryHeads * kChannels, lanes});
    Tensor<float> lse({kQueryHeads, n_tok});
    ListMemory memory;
    const AttentionQuestion asked = question(n_tok, n_keys);
    std::size_t turn = 0;
    return least_seconds([&] {
      const Selection& selection = selections[turn++ % selections.size()];
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
  /// The least of some repeats, after one that does not count: other programs only add. Short work
  /// is repeated inside.
  template <class Work>
  double least_seconds(Work&& work) const {
    const auto once = [&](int n) {
      const auto start = Clock::now();
      for (int i = 0; i < n; ++i) work();
      return std::chrono::duration<double>(Clock::now() - start).count() / n;
    };
    const double first = once(1);
    const int n = std::clamp(static_cast<int>(1e-3 / std::max(first, 1e-9)), 1, 10000);
    double least = once(n);
    for (int i = 1; i < kRepeats; ++i) least = std::min(least, once(n));
    return least;
  }

  ThreadPool& pool_;
  Tensor<float> q_, k_, v_;
  std::atomic<float> unused_sum_ = 0.0f;  // so that no sum is left out
};

constexpr std::array<double, 7> kReadBytes = {2.6e5, 1e6, 4e6, 1.6e7, 3.2e7, 6.4e7, 1.28e8};
constexpr std::array<Index, 8> kDenseRows = {1, 2, 4, 8, 16, 32, 64, 128};
constexpr std::array<Index, 6> kRuns = {1, 2, 4, 16, 64, 256};

/// Everything that is measured, per second.
struct MachineRates {
  double loops = 0.0, product = 0.0, dense = 0.0, lists = 0.0, ranked = 0.0;
  double dots_4 = 0.0, dots_64 = 0.0;
  std::array<double, kReadBytes.size()> read{};        // bytes
  std::array<double, kDenseRows.size()> dense_rows{};  // FLOPs, over few keys
  std::array<double, kRuns.size()> gathered{};         // lists of one query
  double dense_read = 0.0;                             // dense attention of one query
};

/// Measures all once more and keeps the best of each.
void measure_again(Machine& machine, MachineRates& best) {
  const auto take = [](double& known, double rate) { known = std::max(known, rate); };
  take(best.loops, 1.0 / machine.loop());
  for (std::size_t i = 0; i < kReadBytes.size(); ++i)
    take(best.read[i], machine.bandwidth(kReadBytes[i]));
  take(best.product, machine.product());
  for (std::size_t i = 0; i < kDenseRows.size(); ++i)
    take(best.dense_rows[i], machine.dense_rate(kDenseRows[i], kFewKeys));
  take(best.dense, std::max(machine.dense_rate(kQueryRows, 4096), best.dense_rows.back()));
  take(best.lists, 1.0 / machine.list_seconds(kQueryRows, 1, kKeys));
  take(best.dots_4, machine.score_rate(4));
  take(best.dots_64, machine.score_rate(64));
  take(best.ranked, 1.0 / machine.ranking());
  for (std::size_t i = 0; i < kRuns.size(); ++i)
    take(best.gathered[i], 1.0 / machine.list_seconds(1, kRuns[i], kKeys));
  take(best.dense_read,
       machine.dense_rate(1, kKeys) /
           (4.0 * static_cast<double>(kQueryHeads * kChannels) * static_cast<double>(kKeys)));
}

HardwareProfile measure_machine(const std::string& cpu, ThreadPool& pool) {
  constexpr int kRounds = 3;  // a program that is busy for a second does not meet all of them
  Machine machine(pool);
  MachineRates rates;
  for (int round = 0; round < kRounds; ++round) measure_again(machine, rates);

  const int n_threads = pool.n_threads();
  const std::string here = fmt::format("measured by bench_machine on {} with {} thread{}", cpu,
                                       n_threads, n_threads == 1 ? "" : "s");
  HardwareProfile profile;
  profile.name = "this-machine";
  profile.title = cpu;
  profile.kind = "cpu";
  profile.compute = "f32";
  profile.memory = {
      static_cast<double>(sysconf(_SC_PHYS_PAGES)) * static_cast<double>(sysconf(_SC_PAGE_SIZE)),
      "the operating system: physical memory"};
  profile.launch = {1.0 / rates.loops, here + ": an empty parallel loop"};
  profile.bandwidth.source = here + ": reading an array of that size again and again";
  for (std::size_t i = 0; i < kReadBytes.size(); ++i)
    profile.bandwidth.points.emplace_back(kReadBytes[i], rates.read[i]);
  profile.topk = {1.0 / rates.ranked, here + ": the largest 1024 of 32768 scores"};
  const double lists =
      4.0 * rates.lists * static_cast<double>(kQueryHeads * kChannels * kQueryRows * kListKeys);
  const double peak = std::max({rates.product, rates.dense, rates.dots_4, rates.dots_64, lists});
  profile.peak["f32"] = {peak, here + ": the fastest of products, attention and scoring"};
  const auto share = [&](double rate, const std::string& how) {
    return Sourced{std::min(rate / peak, 1.0), here + ": " + how};
  };
  profile.matmul = share(rates.product, "products of 512 x 512 with a block of columns");
  profile.attend = share(rates.dense, "dense attention of 128 queries");
  profile.attend_rows.source = here + ": dense attention over 512 keys, 3 query heads to a KV head";
  double before = 0.0;
  for (std::size_t i = 0; i < kDenseRows.size(); ++i) {
    // More rows are not slower: what wavers is noise.
    before = std::clamp(rates.dense_rows[i] / rates.dense, before, 1.0);
    profile.attend_rows.points.emplace_back(kDenseRows[i] * kQueryHeads / kKvHeads, before);
  }
  profile.score = share(rates.dots_4, "products of four vectors per KV head with 16384 keys");
  profile.kernels["score-many"] =
      share(rates.dots_64, "products of 64 vectors per KV head with 16384 keys");
  profile.kernels["lists"] = share(lists, "attention of 128 queries over a list of 2048 keys");
  profile.gather.source = here +
                          ": one query over 2048 of 32768 keys, and over all of them, against the "
                          "bandwidth for as many bytes";
  const double key_bytes = 2.0 * static_cast<double>(kKvHeads * kChannels) * kElement;
  const auto put_gathered = [&](Index run, Index n_keys, double per_second) {
    const double bytes = key_bytes * static_cast<double>(n_keys);
    const double of_bandwidth = bytes * per_second / profile.bandwidth.at(bytes);
    before = std::clamp(of_bandwidth, before, 1.0);  // nor are longer runs
    profile.gather.points.emplace_back(static_cast<double>(run * kChannels) * kElement, before);
  };
  before = 0.0;
  for (std::size_t i = 0; i < kRuns.size(); ++i)
    put_gathered(kRuns[i], kListKeys, rates.gathered[i]);
  put_gathered(kKeys, kKeys, rates.dense_read);
  return profile;
}

}  // namespace

}  // namespace kvscope

int main(int argc, char** argv) {
  using namespace kvscope;
  ThreadPool pool(argc > 1 ? std::max(1, std::atoi(argv[1])) : available_cores());
  fmt::print("{}\n", hardware_json(measure_machine(cpu_name(), pool)).dump(1));
}
