#include "analysis/cli/unit_list.hpp"

#include <unistd.h>

#include <cmath>
#include <fstream>
#include <utility>

#include "analysis/cli/text_table.hpp"
#include "core/base/json.hpp"
#include "core/base/number_text.hpp"
#include "core/base/version.hpp"

namespace kvscope::cli {

double memory_of_process() {
  double address_space = 0.0;
  double resident = 0.0;
  std::ifstream("/proc/self/statm") >> address_space >> resident;
  return resident * static_cast<double>(::sysconf(_SC_PAGESIZE));
}

Json unit_list_json(const UnitWork& work, const UnitClock& clock, double process) {
  Json units = Json::array();
  for (std::size_t u = 0; u < work.n_units; ++u) {
    const UnitCost cost = work.cost(u);
    const double seconds = clock.seconds(cost);
    units.push_back({{"id", unit_id(work.hash, u)},
                     {"inputs", cost.inputs},
                     {"bytes_to_read", cost.bytes_to_read},
                     {"predicted_seconds", std::isnan(seconds) ? Json(nullptr) : Json(seconds)},
                     {"predicted_memory", process + cost.predicted_memory}});
  }
  return {{"kind", "units"},          {"command", work.command}, {"words", work.words},
          {"version", writer_name()}, {"work", work.hash},       {"n_units", work.n_units},
          {"units", std::move(units)}};
}

std::string unit_list_text(const UnitWork& work, const UnitClock& clock, double process) {
  TextTable table({"unit", "reads", "bytes", "seconds", "memory"});
  table.begin_with_words();  // ids: hashes, which may begin with a digit
  for (std::size_t u = 0; u < work.n_units; ++u) {
    const UnitCost cost = work.cost(u);
    const double seconds = clock.seconds(cost);
    table.add_row({unit_id(work.hash, u), cost.inputs.empty() ? "" : cost.inputs.front(),
                   bytes_text(cost.bytes_to_read),
                   std::isnan(seconds) ? "unknown" : number_text(seconds, 3),
                   bytes_text(process + cost.predicted_memory)});
  }
  return table.text();
}

}  // namespace kvscope::cli
