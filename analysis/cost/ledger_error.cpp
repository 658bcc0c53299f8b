#include "analysis/cost/ledger_error.hpp"

#include <algorithm>

#include "analysis/base/statistics.hpp"

namespace kvscope {

namespace {

ErrorOf error_of(const LedgerRow& row) {
  if (row.quantity == "attention_speedup") return ErrorOf::attention;
  return row.quantity == "model_speedup" ? ErrorOf::model : ErrorOf::time;
}

LedgerError measure_error(ErrorOf what) {
  std::vector<double> ratios;
  for (const LedgerRow& row : ledger_rows()) {
    if (row.role != "predicts" || row.group == "calibration" || error_of(row) != what) continue;
    const double predicted =
        predict_quantity(row.setting, row.quantity, find_hardware(row.hardware));
    const bool is_rate = what == ErrorOf::time && !row.quantity.ends_with("_ms");
    ratios.push_back(is_rate ? predicted / row.published : row.published / predicted);
  }
  const auto n = static_cast<double>(ratios.size());
  const auto at = [&](double chance) {  // row number chance (n + 1) of 1 to n
    return quantile(ratios, std::clamp((chance * (n + 1.0) - 1.0) / (n - 1.0), 0.0, 1.0));
  };
  return {ratios.size(), at(0.1), at(0.9)};
}

}  // namespace

const LedgerError& ledger_error(ErrorOf what) {
  static const std::array<LedgerError, 3> kErrors = {measure_error(ErrorOf::attention),
                                                     measure_error(ErrorOf::model),
                                                     measure_error(ErrorOf::time)};
  return kErrors[static_cast<std::size_t>(what)];
}

}  // namespace kvscope
