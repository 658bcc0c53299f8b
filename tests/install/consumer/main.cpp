// Uses the installed libraries as a stranger would: loads the embedded model's description and
// counts its layers.
#include <cstdio>

#include "core/base/data_dir.hpp"
#include "core/model/config.hpp"
#include "notebooks_export/csv.hpp"

int main() {
  const kvscope::ModelConfig config = kvscope::load_model_config(kvscope::embedded_verifier());
  std::printf("%d layers %s\n", static_cast<int>(config.n_layers),
              kvscope::csv_field("ok").c_str());
  return 0;
}
