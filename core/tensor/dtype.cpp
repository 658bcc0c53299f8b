#include "core/tensor/dtype.hpp"

#include <array>
#include <cstring>

namespace kvscope {

namespace {
constexpr std::array<std::string_view, 3> kNames = {"f32", "f16", "bf16"};
}

std::string_view name_of(DType dtype) { return kNames[static_cast<std::size_t>(dtype)]; }

std::optional<DType> dtype_from_name(std::string_view name) {
  for (std::size_t i = 0; i < kNames.size(); ++i) {
    if (kNames[i] == name) return static_cast<DType>(i);
  }
  return std::nullopt;
}

}  // namespace kvscope
