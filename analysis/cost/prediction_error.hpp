// How far published speeds lie from what the model predicts for their settings: the interval around
// every prediction of a shape. The numbers are those that `bench_ledger tests/bench/ledger.json`
// prints; they change when a profile or the formula does.
#pragma once

#include <array>
#include <cstddef>

namespace kvscope {

/// What is predicted: errors of ratios say nothing of times. attention: speedup of attention alone;
/// model: of a whole call or prompt; time: seconds of either, tokens per second.
enum class ErrorOf : std::size_t { attention, model, time };

/// Between low and high times the predicted value a further published one lies with a chance of
/// eight in ten: of n rows in ascending order, number 0.1 (n + 1) and number 0.9 (n + 1), linearly
/// between rows and never beyond the first and last. Of times: seconds. Rows whose own source
/// calibrates a profile are not among them.
struct PredictionError {
  std::size_t n_rows = 0;
  double low = 1.0;
  double high = 1.0;
};

inline constexpr std::array<PredictionError, 3> kPredictionErrors = {
    {{9, 0.6954099128338469, 2.0086418066905414},
     {12, 0.7818311485852741, 1.3779796166170373},
     {17, 0.8538855598885905, 2.0411056617264425}}};

constexpr const PredictionError& prediction_error(ErrorOf what) {
  return kPredictionErrors[static_cast<std::size_t>(what)];
}

}  // namespace kvscope
