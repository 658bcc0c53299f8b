#include "tests/support/gguf_builder.hpp"

namespace kvscope::testing {

namespace {

constexpr std::size_t kAlignment = 32;

void pad(std::string& bytes) {
  bytes.resize((bytes.size() + kAlignment - 1) / kAlignment * kAlignment, '\0');
}

}  // namespace

std::string gguf_string(std::string_view text) {
  return raw(std::uint64_t{text.size()}) + std::string(text);
}

GgufBuilder& GgufBuilder::field(std::string_view name, std::uint32_t type, std::string_view value) {
  ++n_fields_;
  fields_ += gguf_string(name) + raw(type) + std::string(value);
  return *this;
}

GgufBuilder& GgufBuilder::u32(std::string_view name, std::uint32_t value) {
  return field(name, 4, raw(value));
}

GgufBuilder& GgufBuilder::f32(std::string_view name, float value) {
  return field(name, 6, raw(value));
}

GgufBuilder& GgufBuilder::boolean(std::string_view name, bool value) {
  return field(name, 7, raw(std::uint8_t{value}));
}

GgufBuilder& GgufBuilder::string(std::string_view name, std::string_view value) {
  return field(name, 8, gguf_string(value));
}

GgufBuilder& GgufBuilder::strings(std::string_view name, const std::vector<std::string>& values) {
  std::string list = raw(std::uint32_t{8}) + raw(std::uint64_t{values.size()});
  for (const std::string& value : values) list += gguf_string(value);
  return field(name, 9, list);
}

GgufBuilder& GgufBuilder::numbers(std::string_view name, std::span<const float> values) {
  std::string list = raw(std::uint32_t{6}) + raw(std::uint64_t{values.size()});
  for (const float value : values) list += raw(value);
  return field(name, 9, list);
}

GgufBuilder& GgufBuilder::raw_tensor(std::string_view name, std::uint32_t type,
                                     const std::vector<Index>& shape, std::string_view bytes) {
  ++n_tensors_;
  tensors_ += gguf_string(name) + raw(static_cast<std::uint32_t>(shape.size()));
  for (auto it = shape.rbegin(); it != shape.rend(); ++it)
    tensors_ += raw(static_cast<std::uint64_t>(*it));
  pad(data_);
  tensors_ += raw(type) + raw(std::uint64_t{data_.size()});
  data_ += bytes;
  return *this;
}

GgufBuilder& GgufBuilder::tensor(std::string_view name, const std::vector<Index>& shape,
                                 std::span<const float> values) {
  return raw_tensor(name, 0, shape,
                    {reinterpret_cast<const char*>(values.data()), values.size_bytes()});
}

std::string GgufBuilder::bytes(std::uint32_t version) const {
  std::string file = "GGUF" + raw(version) + raw(n_tensors_) + raw(n_fields_) + fields_ + tensors_;
  pad(file);
  return file + data_;
}

}  // namespace kvscope::testing
