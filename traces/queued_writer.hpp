// Writing while the model computes: a thread that does a writer's calls, in order.
#pragma once

#include <cstddef>
#include <memory>

#include "core/trace/receiver.hpp"

namespace kvscope {

/// A receiver that says how many forward calls survive a kill.
class CountingReceiver : public TraceReceiver {
 public:
  virtual std::size_t n_committed() const = 0;
};

/// Takes all calls between begin() and finish() and returns at once; one thread does them with
/// `writer`. Rows that come with their memory wait in it; others are copied, and a call waits while
/// the copies take more than most_bytes. After a call that threw none is done, and each later one
/// throws the same. What committed forward calls may still be lost is what n_waiting_calls() says;
/// a queue that is destroyed does what it holds first.
std::unique_ptr<TraceReceiver> queued(std::unique_ptr<CountingReceiver> writer,
                                      std::size_t most_bytes);

}  // namespace kvscope
