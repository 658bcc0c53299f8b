// How far the ledger's published figures lie from what the model predicts for them: the interval
// around every prediction of a shape.
#pragma once

#include "analysis/cost/ledger.hpp"

namespace kvscope {

/// What is predicted: errors of ratios say nothing of times. attention: speedup of attention alone;
/// model: of a whole call or prompt; time: seconds of either, tokens per second.
enum class ErrorOf { attention, model, time };

/// Between low and high times the predicted value a further published one lies with a chance of
/// eight in ten: of n rows in ascending order, number 0.1 (n + 1) and number 0.9 (n + 1), linearly
/// between rows and never beyond the first and last. Of times: seconds.
struct LedgerError {
  std::size_t n_rows = 0;
  double low = 1.0;
  double high = 1.0;
};

/// Over rows that predict, without those whose own source calibrates. Computed once.
const LedgerError& ledger_error(ErrorOf what);

}  // namespace kvscope
