// What the sources of most analyses include: arrays by layer, columns and totals, numbers and how
// they are written.
#pragma once

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <limits>
#include <nlohmann/json.hpp>
#include <numeric>

#include "analysis/base/analysis.hpp"
#include "analysis/base/columns.hpp"
#include "analysis/base/mapped.hpp"
#include "analysis/base/measure_layers.hpp"
#include "analysis/base/statistics.hpp"
#include "core/base/error.hpp"
#include "core/base/fields_json.hpp"
#include "core/base/nan.hpp"
#include "core/trace/result.hpp"

namespace kvscope {

using Json = nlohmann::ordered_json;

}  // namespace kvscope
