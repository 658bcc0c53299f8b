// The JSON files of analysis/cost/data as they were built in: hardware profiles.
#pragma once

#include <span>
#include <string_view>

namespace kvscope {

struct CostData {
  std::string_view name;  // of the file, without its ending
  std::string_view text;
};

/// By name. Written by analysis/cost/embed.cmake.
std::span<const CostData> cost_data();

}  // namespace kvscope
