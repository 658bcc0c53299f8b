#include "core/model/safetensors.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <limits>
#include <nlohmann/json.hpp>
#include <tuple>

#include "core/base/error.hpp"
#include "core/base/json_reader.hpp"

namespace kvscope {

namespace {

struct SafetensorsType {
  std::string_view name;
  std::int64_t size;  // bytes of one element
  std::optional<StoredType> type;
};

constexpr std::array<SafetensorsType, 15> kTypes = {{
    {"F32", 4, StoredType::f32},
    {"F16", 2, StoredType::f16},
    {"BF16", 2, StoredType::bf16},
    {"F64", 8, std::nullopt},
    {"I64", 8, std::nullopt},
    {"I32", 4, std::nullopt},
    {"I16", 2, std::nullopt},
    {"I8", 1, std::nullopt},
    {"U64", 8, std::nullopt},
    {"U32", 4, std::nullopt},
    {"U16", 2, std::nullopt},
    {"U8", 1, std::nullopt},
    {"BOOL", 1, std::nullopt},
    {"F8_E4M3", 1, std::nullopt},
    {"F8_E5M2", 1, std::nullopt},
}};

constexpr std::int64_t kMostElements = std::numeric_limits<std::int64_t>::max() / 8;

std::uint64_t header_length(std::span<const std::byte> bytes, const std::string& file) {
  if (bytes.size() < 8) {
    throw FormatError("{}: expected a safetensors file of at least 8 bytes, found {} bytes", file,
                      bytes.size());
  }
  std::uint64_t length = 0;
  for (std::size_t i = 0; i < 8; ++i) {
    length |= std::to_integer<std::uint64_t>(bytes[i]) << (8 * i);
  }
  const std::uint64_t most = std::min<std::uint64_t>(kMaxSafetensorsHeader, bytes.size() - 8);
  if (length > most) {
    throw FormatError(
        "{}: header length {}, expected at most {} (the file has {} bytes); the file is "
        "truncated or no safetensors file",
        file, length, most, bytes.size());
  }
  return length;
}

// Fills shape and count; the product is checked before it is formed.
void read_shape(const JsonObject& fields, TensorInFile& entry) {
  const auto& list = fields.list("shape");
  std::int64_t count = 1;
  for (const auto& extent : list) {
    if (!extent.is_number_unsigned() ||
        extent.get<std::uint64_t>() > static_cast<std::uint64_t>(kMostElements)) {
      throw FormatError("{}: expected extents from 0 to {}, found {}", fields.name_of("shape"),
                        kMostElements, describe(extent));
    }
    const auto n = extent.get<std::int64_t>();
    if (n > 0 && count > kMostElements / n) {
      throw FormatError("{}: expected at most {} elements, found more", fields.name_of("shape"),
                        kMostElements);
    }
    count *= n;
    entry.shape.push_back(n);
  }
  entry.count = count;
}

// The begin and end of the tensor's bytes in the data section of `n_data` bytes.
std::array<std::uint64_t, 2> read_offsets(const JsonObject& fields, std::uint64_t n_data) {
  const auto& list = fields.list("data_offsets");
  if (list.size() != 2) fields.refuse("data_offsets", "a list of 2");
  std::array<std::uint64_t, 2> offsets{};
  for (std::size_t i = 0; i < 2; ++i) {
    if (!list[i].is_number_unsigned() || list[i].get<std::uint64_t>() > n_data) {
      throw FormatError("{}: expected offsets from 0 to {} (the bytes after the header), found {}",
                        fields.name_of("data_offsets"), n_data, describe(list[i]));
    }
    offsets[i] = list[i].get<std::uint64_t>();
  }
  if (offsets[0] > offsets[1]) {
    throw FormatError("{}: expected begin <= end, found {} > {}", fields.name_of("data_offsets"),
                      offsets[0], offsets[1]);
  }
  return offsets;
}

TensorInFile read_entry(const std::string& name, const nlohmann::json& value,
                        std::span<const std::byte> data, const std::string& file) {
  const JsonObject fields(value, file, quote(name) + ".");
  TensorInFile entry;
  entry.name = name;
  entry.type_name = fields.string("dtype");
  read_shape(fields, entry);
  const auto [begin, end] = read_offsets(fields, data.size());
  const auto n_bytes = static_cast<std::int64_t>(end - begin);

  const auto type = std::find_if(kTypes.begin(), kTypes.end(), [&](const SafetensorsType& t) {
    return t.name == entry.type_name;
  });
  const bool known = type != kTypes.end();
  if (known) entry.type = type->type;
  // Types that we do not know have at least one bit per element.
  const bool fits =
      known ? entry.count <= kMostElements / type->size && entry.count * type->size == n_bytes
            : entry.count / 8 <= n_bytes;
  if (!fits) {
    throw FormatError(
        "{} ({}): {} elements of {} in shape {} do not fill the {} bytes of its data_offsets",
        quote(name), file, entry.count, quote(entry.type_name), shape_text(entry.shape), n_bytes);
  }
  entry.bytes = data.subspan(begin, end - begin);
  return entry;
}

void check_metadata(const nlohmann::json& value, const std::string& file) {
  const JsonObject metadata(value, file, "__metadata__");
  for (const auto& [key, text] : metadata.value().items()) {
    if (!text.is_string()) {
      throw FormatError("__metadata__.{} ({}): expected a string, found {}", quote(key), file,
                        describe(text));
    }
  }
}

}  // namespace

std::string shape_text(const std::vector<Index>& shape) {
  return fmt::format("[{}]", fmt::join(shape, ", "));
}

std::vector<TensorInFile> parse_safetensors(std::span<const std::byte> bytes,
                                            const std::string& file) {
  const std::uint64_t length = header_length(bytes, file);
  const auto data = bytes.subspan(8 + length);
  const std::string_view text(reinterpret_cast<const char*>(bytes.data()) + 8, length);
  const nlohmann::json header = parse_json(text, file);
  const JsonObject tensors(header, file);

  std::vector<TensorInFile> entries;
  for (const auto& [name, value] : header.items()) {
    if (name == "__metadata__") {
      check_metadata(value, file);
    } else {
      entries.push_back(read_entry(name, value, data, file));
    }
  }
  std::sort(entries.begin(), entries.end(), [](const auto& a, const auto& b) {
    return std::tuple(a.bytes.data(), a.bytes.size()) < std::tuple(b.bytes.data(), b.bytes.size());
  });

  // Every byte belongs to exactly one tensor.
  std::size_t position = 0;
  for (const TensorInFile& entry : entries) {
    const auto begin = static_cast<std::size_t>(entry.bytes.data() - data.data());
    if (begin != position) {
      throw FormatError("{} ({}): its bytes begin at {}, expected {}: tensors {}",
                        quote(entry.name), file, begin, position,
                        begin < position ? "overlap" : "leave a gap");
    }
    position += entry.bytes.size();
  }
  if (position != data.size()) {
    throw FormatError("{}: tensors fill {} bytes, expected all {} after the header", file, position,
                      data.size());
  }
  return entries;
}

}  // namespace kvscope
