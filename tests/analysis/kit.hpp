// What tests of analyses begin with: planted traces, results in memory, analyses by a call.
#pragma once

#include <nlohmann/json.hpp>
#include <set>

#include "analysis/base/analysis.hpp"
#include "core/base/progress.hpp"
#include "core/trace/result.hpp"
#include "tests/support/planted_trace.hpp"
#include "tests/support/test.hpp"

namespace kvscope::test {

/// An analysis of one trace, on a pool of its own: constexpr test::OnPool run{analyze_quoka};
template <class Options>
struct OnPool {
  nlohmann::ordered_json (*analyze)(const TraceSource&, const Options&, const AnalysisRun&);
  nlohmann::ordered_json operator()(const TraceSource& trace, const Options& options,
                                    MemoryResult& result, int n_threads = 1) const {
    ThreadPool pool(n_threads);
    return analyze(trace, options, {result, pool});
  }
};

}  // namespace kvscope::test
