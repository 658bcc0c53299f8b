// Results as tidy CSV: one line per element of an array, or per layer of a summary.
#pragma once

#include <iosfwd>
#include <string_view>

#include "core/trace/result.hpp"

namespace kvscope {

/// One column per axis, then the value under the array's name. An axis shows its coordinate array
/// where a plot of this array names one (or where an array is called like the axis), else the index
/// from 0. NaN and infinities are empty. Throws ConfigError if there is no such array, IoError if
/// `out` fails.
void write_array_csv(const MemoryResult& result, std::string_view name, std::ostream& out);

/// The summary's "layers": one line per layer, one column per key of the first one; null is empty.
/// Throws ConfigError if the summary has no layers, IoError if `out` fails.
void write_layers_csv(const nlohmann::ordered_json& summary, std::ostream& out);

}  // namespace kvscope
