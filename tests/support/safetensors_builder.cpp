#include "tests/support/safetensors_builder.hpp"

#include <fmt/format.h>

#include <stdexcept>

namespace kvscope::testing {

std::string little_endian_u64(std::uint64_t value) {
  std::string out;
  for (int i = 0; i < 8; ++i) out += static_cast<char>(value >> (8 * i));
  return out;
}

std::string safetensors_bytes(std::string_view header, std::string_view data) {
  return little_endian_u64(header.size()) + std::string(header) + std::string(data);
}

SafetensorsBuilder& SafetensorsBuilder::add(std::string_view name, DType dtype,
                                            const std::vector<Index>& shape,
                                            std::span<const float> values) {
  Index count = 1;
  for (Index n : shape) count *= n;
  if (static_cast<std::size_t>(count) != values.size())
    throw std::logic_error("as many values as the shape says");
  std::string bytes(values.size() * size_of(dtype), '\0');
  from_float(values.data(), dtype, bytes.data(), values.size());
  const std::string_view names[] = {"F32", "F16", "BF16"};
  return add_raw(name, names[static_cast<std::size_t>(dtype)], shape, bytes);
}

SafetensorsBuilder& SafetensorsBuilder::add_raw(std::string_view name, std::string_view dtype_name,
                                                const std::vector<Index>& shape,
                                                std::string_view bytes) {
  header_ += fmt::format(R"({}"{}":{{"dtype":"{}","shape":[{}],"data_offsets":[{},{}]}})",
                         header_.empty() ? "" : ",", name, dtype_name, fmt::join(shape, ","),
                         data_.size(), data_.size() + bytes.size());
  data_ += bytes;
  return *this;
}

SafetensorsBuilder& SafetensorsBuilder::metadata(std::string_view json) {
  header_ += fmt::format(R"({}"__metadata__":{})", header_.empty() ? "" : ",", json);
  return *this;
}

std::string SafetensorsBuilder::bytes() const {
  return safetensors_bytes("{" + header_ + "}", data_);
}

}  // namespace kvscope::testing
