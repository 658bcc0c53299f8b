// What a method learned from a calibration text.
#pragma once

#include <nlohmann/json.hpp>
#include <string>

namespace kvscope {

/// What Selector::learned() hands out: made by calibrate() or loaded from a file.
struct Learned {
  nlohmann::ordered_json values;   // the method's own
  nlohmann::ordered_json options;  // of the method, that decided the values
  std::string summary;             // one line for people
};

}  // namespace kvscope
