// What the sources of most figures include: choices, tables and arrays of results, panels, and the
// words of captions.
#pragma once

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <cmath>
#include <limits>
#include <map>
#include <nlohmann/json.hpp>
#include <set>

#include "analysis/base/mapped.hpp"
#include "analysis/base/statistics.hpp"
#include "analysis/figures/maps.hpp"
#include "analysis/figures/selection.hpp"
#include "analysis/figures/spec.hpp"
#include "analysis/figures/summary_rows.hpp"
#include "analysis/plot/rich_text.hpp"
#include "analysis/plot/scale.hpp"
#include "core/base/error.hpp"
#include "core/base/nan.hpp"
#include "core/trace/result.hpp"

namespace kvscope {

using Json = nlohmann::ordered_json;

}  // namespace kvscope
