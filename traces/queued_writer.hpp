// Writing while the model computes: a thread that does the calls of a part's writer, in order.
#pragma once

#include <cstddef>
#include <memory>

#include "traces/part_writer.hpp"

namespace kvscope {

/// Takes all calls between begin() and complete() and returns at once; one thread does them with
/// `writer`. Rows that come with their memory wait in it; others are copied, and a call waits while
/// the copies take more than most_bytes. After a call that threw none is done, and each later one
/// throws the same. What committed units may still be lost is what n_waiting_units() says; a queue
/// that is destroyed does what it holds first.
std::unique_ptr<PartWriter> queued(std::unique_ptr<PartWriter> writer, std::size_t most_bytes);

}  // namespace kvscope
