#include "analysis/base/columns.hpp"

#include <cmath>
#include <nlohmann/json.hpp>
#include <stdexcept>

namespace kvscope {

Totals::Totals(const LayerColumns& columns) : columns_(columns), running_(columns.counted.size()) {}

void Totals::add(std::span<const std::int64_t> available) {
  for (std::size_t i = 0; i < running_.size(); ++i) {
    const LayerColumns::Counted& column = columns_.counted[i];
    Running& now = running_[i];
    for (std::size_t at = 0; at < column.n; ++at) {
      const double x = column.at(at);
      switch (column.total.how) {
        case Total::mean:
          now.mean.add(x);
          break;
        case Total::zeros:
          now.mean.add(x == 0.0 ? 1.0 : 0.0);
          break;
        case Total::count:
          now.sum += std::isnan(x) ? 0 : 1;
          break;
        case Total::saved:
          now.available += available[at % column.n_last];
          [[fallthrough]];
        case Total::sum:
          now.sum += static_cast<std::int64_t>(x);
          break;
      }
    }
  }
}

nlohmann::ordered_json Totals::to_json() const {
  nlohmann::ordered_json json;
  for (std::size_t i = 0; i < running_.size(); ++i) {
    const Total& total = columns_.counted[i].total;
    const Running& now = running_[i];
    const bool is_whole = total.how == Total::count || total.how == Total::sum;
    if (is_whole) {
      json[total.key] = now.sum;
    } else if (total.how == Total::saved) {
      json[total.key] =
          json_number(1.0 - static_cast<double>(now.sum) / static_cast<double>(now.available));
    } else {
      json[total.key] = json_number(now.mean.value());
    }
  }
  return json;
}

std::size_t Totals::find(std::string_view key) const {
  for (std::size_t i = 0; i < running_.size(); ++i) {
    if (columns_.counted[i].total.key == key) return i;
  }
  throw std::out_of_range("no total " + std::string(key));
}

}  // namespace kvscope
