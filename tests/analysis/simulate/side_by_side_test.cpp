// What runs at once in a simulation: bounds, runs that had no memory beside others, and a device
// that holds fewer sequences than it says.
#include "analysis/simulate/side_by_side.hpp"

#include <algorithm>
#include <atomic>
#include <catch2/catch_test_macros.hpp>
#include <catch2/generators/catch_generators.hpp>
#include <fstream>
#include <mutex>
#include <thread>

#include "analysis/simulate/perplexity.hpp"
#include "core/base/data_dir.hpp"
#include "core/base/device_memory.hpp"
#include "core/base/error.hpp"
#include "tests/support/temp_dir.hpp"

namespace kvscope::test::side_by_side_test {
namespace {

using testing::TempDir;

/// Counts how many are inside, and how many were at most.
class Room {
 public:
  void enter() {
    const int n = ++n_;
    int most = most_;
    while (n > most && !most_.compare_exchange_weak(most, n)) {
    }
  }
  void leave() { --n_; }
  int most() const { return most_; }

 private:
  std::atomic<int> n_{0}, most_{0};
};

TEST_CASE("pairs run side by side up to a bound, each once", "[simulate]") {
  const std::size_t n_at_once = GENERATE(1, 2, 3, 100);
  ThreadPool pool(4);
  const std::vector<std::size_t> pairs = {3, 5, 7, 11, 13, 17, 19};
  std::mutex mutex;
  std::vector<std::size_t> seen;
  Room room;
  for_each_pair(pairs, n_at_once, pool, [&](std::size_t p, ThreadPool& own) {
    CHECK(own.n_threads() == 1);
    room.enter();
    std::this_thread::sleep_for(std::chrono::milliseconds(2));
    room.leave();
    const std::lock_guard lock(mutex);
    seen.push_back(p);
  });
  std::sort(seen.begin(), seen.end());
  CHECK(seen == pairs);
  CHECK(room.most() <= static_cast<int>(n_at_once));
}

TEST_CASE("pairs without memory beside others run again, one after another", "[simulate]") {
  const std::size_t n_at_once = GENERATE(2, 100);
  ThreadPool pool(4);
  const std::vector<std::size_t> pairs = {1, 2, 3, 4, 5, 6};
  std::mutex mutex;
  std::vector<std::size_t> tries(7), done;
  Room alone;
  for_each_pair(pairs, n_at_once, pool, [&](std::size_t p, ThreadPool&) {
    {
      const std::lock_guard lock(mutex);
      if (++tries[p] == 1 && p % 2 == 0) throw DeviceMemoryError("no room");
    }
    if (tries[p] == 2) {
      alone.enter();
      std::this_thread::sleep_for(std::chrono::milliseconds(2));
      alone.leave();
    }
    const std::lock_guard lock(mutex);
    done.push_back(p);
  });
  CHECK(tries == std::vector<std::size_t>{0, 1, 2, 1, 2, 1, 2});
  CHECK(std::vector(done.end() - 3, done.end()) == std::vector<std::size_t>{2, 4, 6});
  CHECK(alone.most() == 1);
  // alone it is the caller's error, as others are at once
  CHECK_THROWS_AS(for_each_pair(pairs, n_at_once, pool,
                                [](std::size_t, ThreadPool&) { throw DeviceMemoryError("none"); }),
                  DeviceMemoryError);
  CHECK_THROWS_AS(for_each_pair(pairs, n_at_once, pool,
                                [](std::size_t, ThreadPool&) { throw ConfigError("wrong"); }),
                  ConfigError);
}

/// Stores of another backend, of which only so many exist at a time.
struct CountedStore final : KvStore {
  CountedStore(std::unique_ptr<KvStore> of, std::atomic<int>& count)
      : inner(std::move(of)), n_stores(count) {}
  ~CountedStore() override { --n_stores; }
  Index capacity() const override { return inner->capacity(); }
  Index n_tokens() const override { return inner->n_tokens(); }
  Index n_layers() const override { return inner->n_layers(); }
  DType dtype() const override { return inner->dtype(); }
  void advance(Index n) override { inner->advance(n); }
  void truncate(Index n) override { inner->truncate(n); }
  void copy_from(const KvStore& other) override {
    inner->copy_from(*dynamic_cast<const CountedStore&>(other).inner);
  }
  TensorView<const float> host_k(Index layer, Index begin, Index end) const override {
    return inner->host_k(layer, begin, end);
  }
  TensorView<const float> host_v(Index layer, Index begin, Index end) const override {
    return inner->host_v(layer, begin, end);
  }
  std::unique_ptr<KvStore> inner;
  std::atomic<int>& n_stores;
};

/// The CPU as a device with room for `most` stores, which takes itself for a larger one.
class SmallDevice final : public Backend {
 public:
  SmallDevice(std::unique_ptr<Backend> inner, int most) : inner_(std::move(inner)), most_(most) {}
  std::string_view name() const override { return "small"; }
  std::unique_ptr<KvStore> make_store(Index capacity) const override {
    if (++n_stores_ > most_) {
      --n_stores_;
      throw DeviceMemoryError("no room for another store");
    }
    return std::make_unique<CountedStore>(inner_->make_store(capacity), n_stores_);
  }
  std::unique_ptr<BackendCall> begin(Index n_tok, KvStore& store, ThreadPool& pool) const override {
    return inner_->begin(n_tok, *dynamic_cast<CountedStore&>(store).inner, pool);
  }
  std::optional<SequenceMemory> memory_of(Index, Index) const override {
    return SequenceMemory{1, 1000};
  }

 private:
  std::unique_ptr<Backend> inner_;
  int most_;
  mutable std::atomic<int> n_stores_{0};
};

std::vector<ColumnTable::Row> perplexity_rows(const BackendFactory& backend) {
  const Transformer verifier = Transformer::load(embedded_verifier(), backend);
  const Tokenizer tokenizer = Tokenizer::load(embedded_verifier());
  std::ifstream in(embedded_text());
  const std::string all((std::istreambuf_iterator<char>(in)), {});
  const std::vector<TokenId> text = tokenizer.encode(std::string_view(all).substr(0, 8000));
  ThreadPool pool(3);
  SimulationOptions options;
  options.selectors = {"full", "streamingllm", "oracle-topk", "quest", "snapkv"};
  options.budgets = {Budget::parse("tokens=32")};
  SimulationModels models{&verifier, nullptr, &tokenizer, "verifier", "", text, "book", {}};
  const SimulationSetup setup = set_up_simulation(models, options, Phase::decode, pool);
  PerplexityOptions of_task;
  of_task.n_tokens = 100;
  of_task.windows = 4;
  of_task.offset = 0;
  const auto task = make_perplexity_task(setup, of_task);
  const TempDir dir;
  return run_simulation(*task, setup, dir.path() / "journal", JournalMode::fresh, pool).table.rows;
}

TEST_CASE("a device that holds fewer runs than planned gives the same rows", "[simulate]") {
  const auto expected = perplexity_rows(make_lane_backend);
  const auto on_device = [](int n_stores) -> BackendFactory {
    return [=](const ModelConfig& config, const ModelWeights& weights) {
      return std::make_unique<SmallDevice>(make_lane_backend(config, weights), n_stores);
    };
  };
  // of 2 stores one is the dense prefix; of 3 two cases at once have two
  for (const int n_stores : {2, 3, 4, 100}) {
    INFO(n_stores);
    const auto found = perplexity_rows(on_device(n_stores));
    REQUIRE(found.size() == expected.size());
    for (std::size_t r = 0; r < found.size(); ++r) {
      CHECK(found[r].texts == expected[r].texts);
      for (std::size_t i = 0; i < found[r].numbers.size(); ++i) {
        const double a = expected[r].numbers[i];
        CHECK((found[r].numbers[i] == a || a != a));
      }
    }
  }
  CHECK_THROWS_AS(perplexity_rows(on_device(1)), DeviceMemoryError);
}

}  // namespace
}  // namespace kvscope::test::side_by_side_test
