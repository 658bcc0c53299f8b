// Uses the installed libraries as a stranger would: loads the embedded model's description and
// counts its layers.
#include <cstdio>
#include <sstream>

#include "core/base/data_dir.hpp"
#include "core/model/config.hpp"
#include "notebooks_export/result_csv.hpp"
#include "traces/hdf5_library.hpp"

int main() {
  const kvscope::ModelConfig config = kvscope::load_model_config(kvscope::embedded_verifier());
  std::ostringstream csv;
  kvscope::write_layers_csv({{"layers", {{{"layer", 0}}}}}, csv);
  std::printf("%d layers, HDF5 %s\n%s", static_cast<int>(config.n_layers),
              kvscope::hdf5_version().c_str(), csv.str().c_str());
  return 0;
}
