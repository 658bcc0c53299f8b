// A job's surroundings for tests that call computations directly.
#pragma once

#include "gui/model/jobs/jobs.hpp"

namespace kvscope::gui::test {

struct TestJob {
  explicit TestJob(int n_threads = 2) : pool(n_threads) {}
  ThreadPool pool;
  JobContext context{pool, {}, {}};
};

}  // namespace kvscope::gui::test
