#include "analysis/simulate/row_units.hpp"

#include <algorithm>

#include "core/base/nan.hpp"

namespace kvscope {

void write_row_units(ResultWriter& output, const std::vector<std::vector<double>>& values,
                     std::string_view meaning) {
  std::size_t most = 0;
  for (const auto& row : values) most = std::max(most, row.size());
  if (most == 0) return;
  std::vector<double> all;
  for (const auto& row : values) {
    all.insert(all.end(), row.begin(), row.end());
    all.resize(all.size() + most - row.size(), kNan);
  }
  output.put<double>(std::string(kRowUnits), {std::ssize(values), static_cast<Index>(most)},
                     {"row", "unit"}, "", meaning, all);
}

}  // namespace kvscope
