// Uses the installed libraries as a stranger would: loads the embedded model's description, counts
// its layers, writes a table and reads it back.
#include <cstdio>
#include <fstream>
#include <nlohmann/json.hpp>

#include "analysis/base/json_rows.hpp"
#include "core/base/data_dir.hpp"
#include "core/model/config.hpp"
#include "notebooks_export/open_result.hpp"
#include "traces/hdf5_library.hpp"

int main() {
  const kvscope::ModelConfig config = kvscope::load_model_config(kvscope::embedded_verifier());
  std::ofstream csv("layers.csv");
  csv << kvscope::rows_csv(kvscope::Json::array({{{"layer", 0}}}));
  csv.close();
  const kvscope::Table table = kvscope::read_rows("layers.csv");
  std::printf("%d layers, HDF5 %s, %d row of %s\n", static_cast<int>(config.n_layers),
              kvscope::hdf5_version().c_str(), static_cast<int>(table.n_rows()),
              table.columns().front().name.c_str());
  return 0;
}
