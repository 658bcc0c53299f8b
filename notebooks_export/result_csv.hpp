// The layers of a result's summary as tidy CSV.
#pragma once

#include <iosfwd>
#include <nlohmann/json_fwd.hpp>

namespace kvscope {

/// The summary's "layers": one line per layer, one column per key of the first one; null is empty.
/// Throws ConfigError if the summary has no layers, IoError if `out` fails.
void write_layers_csv(const nlohmann::ordered_json& summary, std::ostream& out);

}  // namespace kvscope
