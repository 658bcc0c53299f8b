// The result format, version 1: names that its writer and its reader share.
#pragma once

#include <string>
#include <string_view>

#include "core/base/enum_names.hpp"
#include "core/trace/result_writer.hpp"
#include "traces/h5.hpp"

namespace kvscope::result_schema {

inline constexpr const char* kFormat = "kvscope-result";
inline constexpr int kMajor = 1;
inline constexpr const char* kVersion = "1.0";
inline constexpr const char* kConfig = "/config";    // text: JSON of the options
inline constexpr const char* kSummary = "/summary";  // text: JSON of the few numbers to read first
inline constexpr const char* kPlots = "/plots";      // one NXdata group per plot

/// Both call their types by the same names.
inline h5::Type file_type(ResultType type) {
  return *enum_from_name<h5::Type>(enum_name(type));
}

inline h5::Dims to_dims(const Shape& shape) {
  return {shape.dim.begin(), shape.dim.begin() + shape.rank};
}

/// The name of an array inside a plot's group, where groups cannot nest: "bounds/printed" is
/// "bounds_printed".
inline std::string flat_name(std::string name) {
  for (char& c : name) c = c == '/' ? '_' : c;
  return name;
}

}  // namespace kvscope::result_schema
