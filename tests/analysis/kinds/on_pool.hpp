// An analysis of one trace by a call, on a pool of its own.
#pragma once

#include <nlohmann/json.hpp>

#include "analysis/base/analysis.hpp"
#include "core/trace/result.hpp"

namespace kvscope::test {

/// constexpr test::OnPool run{analyze_quoka};
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
