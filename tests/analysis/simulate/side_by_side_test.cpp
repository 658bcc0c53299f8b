// What runs at once in a simulation, on a device that holds fewer sequences than it says.
#include "analysis/simulate/side_by_side.hpp"

#include <atomic>

#include "analysis/simulate/perplexity.hpp"
#include "core/base/data_dir.hpp"
#include "core/base/device_memory.hpp"
#include "core/base/progress.hpp"
#include "tests/support/planted_trace.hpp"
#include "tests/support/test.hpp"

namespace kvscope::test::side_by_side_test {

/// Stores of another backend, of which only so many exist at a time.
struct CountedStore final : KvStore {
  CountedStore(std::unique_ptr<KvStore> of, std::atomic<int>& count)
      : KvStore(of->n_layers(), of->capacity(), of->dtype()),
        inner(std::move(of)),
        n_stores(count) {}
  ~CountedStore() override { --n_stores; }
  void advance(Index n) override {
    KvStore::advance(n);
    inner->advance(n);
  }
  void truncate(Index n) override {
    KvStore::truncate(n);
    inner->truncate(n);
  }
  void copy_from(const KvStore& other) override {
    inner->copy_from(*dynamic_cast<const CountedStore&>(other).inner);
    n_tokens_ = other.n_tokens();
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

Table perplexity_rows(const BackendFactory& backend) {
  const Transformer verifier = Transformer::load(embedded_verifier(), backend);
  const Tokenizer tokenizer = Tokenizer::load(embedded_verifier());
  const std::vector<TokenId> text =
      tokenizer.encode(testing::read_file(embedded_text()).substr(0, 8000));
  ThreadPool pool(3);
  SimulationOptions options{.selectors = {"full", "streamingllm", "oracle-topk", "quest", "snapkv"},
                            .budgets = {Budget::parse("tokens=32")}};
  SimulationModels models{&verifier, nullptr, &tokenizer, "verifier", "", text, "book", {}};
  const SimulationSetup setup = set_up_simulation(models, options, {Phase::decode}, pool);
  PerplexityOptions of_task{.n_tokens = 48, .offset = 0, .windows = 3};
  const auto task = make_perplexity_task(setup, of_task);
  Store store;
  return run_simulation(*task, setup, store, pool).table;
}

TEST_CASE("a device that holds fewer runs than planned gives the same rows") {
  const auto expected = perplexity_rows(make_lane_backend);
  const auto on_device = [](int n_stores) -> BackendFactory {
    return [=](const ModelConfig& config, const ModelWeights& weights) {
      return std::make_unique<SmallDevice>(make_lane_backend(config, weights), n_stores);
    };
  };
  // of 2 stores one is the dense prefix
  for (const int n_stores : {2, 3, 4}) {
    INFO(n_stores);
    const auto found = perplexity_rows(on_device(n_stores));
    REQUIRE(found.n_rows() == expected.n_rows());
    for (const TableColumn& column : expected.columns()) {
      for (std::size_t r = 0; r < found.n_rows(); ++r)
        CHECK(found.at(column.name).cell(r) == column.cell(r));
    }
  }
  CHECK_THROWS_AS(perplexity_rows(on_device(1)), DeviceMemoryError);
}

}  // namespace kvscope::test::side_by_side_test
