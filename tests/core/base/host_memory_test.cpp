// What this process may still take of the machine's memory, and what a sequence on the CPU takes.
#include "core/base/host_memory.hpp"

#include <unistd.h>

#include "core/base/data_dir.hpp"
#include "core/model/transformer.hpp"
#include "tests/support/test.hpp"

namespace kvscope::test::host_memory_test {

TEST_CASE("what this process may still take is some of the machine's memory") {
  const auto free = available_memory();
  REQUIRE(free);  // Linux tells
  const auto all = static_cast<std::size_t>(::sysconf(_SC_PHYS_PAGES)) *
                   static_cast<std::size_t>(::sysconf(_SC_PAGESIZE));
  CHECK(*free > std::size_t{1} << 20);
  CHECK(*free <= all);
}

TEST_CASE("a sequence on the CPU takes its keys and values, and the memory of a call") {
  const Transformer model = Transformer::load(embedded_draft());
  const ModelConfig& config = model.config();
  const auto few = model.backend().memory_of(100, 32);
  const auto many = model.backend().memory_of(1100, 32);
  REQUIRE(few);
  REQUIRE(many);
  const auto cache =
      static_cast<std::size_t>(2 * config.n_layers * config.n_kv * config.d_head * 4);
  CHECK(few->needed > 100 * cache);
  CHECK(many->needed - few->needed >= 1000 * cache);
  CHECK(many->needed < 10 * 1100 * cache);
}

}  // namespace kvscope::test::host_memory_test
