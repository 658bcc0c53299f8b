// A model's pass in memory holds what the model's cache holds.
#include "core/sim/memory_recording.hpp"

#include <nlohmann/json.hpp>

#include "core/model/kv_cache.hpp"
#include "support/golden.hpp"
#include "tests/support/test.hpp"

namespace kvscope::test::memory_recording_test {

TEST_CASE("a pass over a text in memory has the cache's keys, in any chunks") {
  const Transformer model = Transformer::load(golden_dir() / "llama3_gqa");
  const std::vector<TokenId> tokens = read_golden_tokens(golden_dir() / "llama3_gqa" / "golden.h5");
  const auto n = static_cast<Index>(tokens.size());
  ThreadPool pool(2);
  KvCache cache(model.config(), n);
  model.forward(tokens, cache, pool);
  const MemoryTrace whole = record_in_memory(model, tokens, n, pool);
  const MemoryTrace pieces = record_in_memory(model, tokens, 5, pool);
  const TraceInfo& info = whole.info();
  for (const Index layer : info.layers) {
    const auto keys = cache.host_k(layer, 0, n);
    for (Index head = 0; head < info.n_kv; ++head) {
      const Tensor<float> k = whole.read_k(layer, head, {0, n});
      for (Index t = 0; t < n; ++t)
        CHECK(std::ranges::equal(k.view().row(t), keys.sub(head).row(t)));
    }
    for (Index head = 0; head < info.n_q; ++head) {
      const Tensor<float> a = whole.read_q(layer, head, {0, n});
      const Tensor<float> b = pieces.read_q(layer, head, {0, n});
      CHECK(std::ranges::equal(a.flat(), b.flat()));
    }
  }
}

}  // namespace kvscope::test::memory_recording_test
