// Whoever waits for a queue of calls waits for the one that runs, too.
#include <atomic>
#include <chrono>
#include <memory>
#include <thread>

#include "tests/support/test.hpp"
#include "traces/queued_writer.hpp"

namespace kvscope::test::settle_test {

/// Takes long over a commit, and says when it begins and when it is over.
class Slow final : public CountingReceiver {
 public:
  struct State {
    std::atomic<bool> has_begun = false;
    std::atomic<bool> is_over = false;
  };
  explicit Slow(State& state) : state_(state) {}
  void begin(const TraceInfo&) override {}
  void write(const CallRows&) override {}
  void write_tokens(std::span<const TokenId>, std::span<const std::string>) override {}
  void commit_call() override {
    state_.has_begun = true;
    std::this_thread::sleep_for(std::chrono::milliseconds(200));
    state_.is_over = true;
  }
  void finish(TraceStatus) override {}
  std::size_t n_committed() const override { return state_.is_over ? 1 : 0; }

 private:
  State& state_;
};

TEST_CASE("what waits for a queue waits for the call that runs") {
  Slow::State state;
  const auto writer = queued(std::make_unique<Slow>(state), 1000);
  writer->begin({});
  writer->commit_call();
  while (!state.has_begun) std::this_thread::yield();  // the queue is empty, its last call runs
  SECTION("the number of bytes") {
    (void)writer->bytes_written();
  }
  SECTION("the end") {
    writer->finish(TraceStatus::complete);
  }
  CHECK(state.is_over);
  CHECK(writer->n_waiting_calls() == 0);
}

}  // namespace kvscope::test::settle_test
