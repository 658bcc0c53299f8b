#include "core/model/gguf/gguf_file.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <bit>
#include <cstring>
#include <limits>
#include <unordered_set>
#include <utility>

#include "core/base/error.hpp"
#include "core/base/json_reader.hpp"

namespace kvscope {

namespace {

// The types of metadata values, by the format's numbers.
enum ValueType : std::uint32_t {
  kU8 = 0,
  kI8 = 1,
  kU16 = 2,
  kI16 = 3,
  kU32 = 4,
  kI32 = 5,
  kF32 = 6,
  kBool = 7,
  kString = 8,
  kArray = 9,
  kU64 = 10,
  kI64 = 11,
  kF64 = 12,
};

// Bytes of a value by its type; of a string at least its length.
constexpr std::array<std::uint64_t, 13> kLeastBytes = {1, 1, 2, 2, 4, 4, 4, 1, 8, 12, 8, 8, 8};

constexpr std::uint64_t kMostValues = 1 << 22;

/// A place in the bytes of a file that never leaves them. Every function throws FormatError where
/// the bytes end too early.
class GgufCursor {
 public:
  GgufCursor(std::span<const std::byte> bytes, std::string file)
      : bytes_(bytes), file_(std::move(file)) {}

  std::uint64_t position() const { return at_; }
  std::uint64_t n_left() const { return bytes_.size() - at_; }
  void skip(std::uint64_t n) {
    require(n);
    at_ += n;
  }

  /// A number in little endian, as it lies there.
  template <class T>
  T number() {
    require(sizeof(T));
    T value{};
    std::memcpy(&value, bytes_.data() + at_, sizeof(T));
    at_ += sizeof(T);
    return value;
  }

  /// A string of at most `most` bytes.
  std::string_view string(std::uint64_t most) {
    const auto length = number<std::uint64_t>();
    if (length > std::min(most, n_left())) {
      fail(
          fmt::format("a string of {} bytes at offset {}, expected at most {}: the file is "
                      "truncated or damaged",
                      length, at_, std::min(most, n_left())));
    }
    const std::string_view text(reinterpret_cast<const char*>(bytes_.data()) + at_, length);
    at_ += length;
    return text;
  }

  /// A number of things of at least `least_bytes` each, which the rest of the file can hold.
  std::uint64_t count(std::string_view what, std::uint64_t least_bytes) {
    const auto n = number<std::uint64_t>();
    if (n > n_left() / least_bytes) {
      fail(fmt::format(
          "{} {}, expected at most {} (the file has {} bytes): the file is truncated or "
          "damaged",
          n, what, n_left() / least_bytes, bytes_.size()));
    }
    return n;
  }

  /// The type of a metadata value and the value; lists of texts stay empty unless they are kept.
  nlohmann::json value(bool keeps_texts) {
    const auto type = number<std::uint32_t>();
    if (type >= kLeastBytes.size()) {
      fail(fmt::format("expected a metadata value of type 0 to {}, found type {}",
                       kLeastBytes.size() - 1, type));
    }
    if (type == kArray) return array(keeps_texts);
    return scalar(type);
  }

  [[noreturn]] void fail(const std::string& what) const {
    throw FormatError("{}: {}", file_, what);
  }

 private:
  void require(std::uint64_t n) const {
    if (n <= n_left()) return;
    fail(
        fmt::format("the header needs {} more bytes at offset {}, found {}: the file is truncated "
                    "or damaged",
                    n, at_, n_left()));
  }
  nlohmann::json scalar(std::uint32_t type) {
    switch (type) {
      case kU8:
        return std::uint64_t{number<std::uint8_t>()};
      case kI8:
        return std::int64_t{number<std::int8_t>()};
      case kU16:
        return std::uint64_t{number<std::uint16_t>()};
      case kI16:
        return std::int64_t{number<std::int16_t>()};
      case kU32:
        return std::uint64_t{number<std::uint32_t>()};
      case kI32:
        return std::int64_t{number<std::int32_t>()};
      case kF32:
        return double{number<float>()};
      case kBool:
        return number<std::uint8_t>() != 0;
      case kU64:
        return number<std::uint64_t>();
      case kI64:
        return number<std::int64_t>();
      case kF64:
        return number<double>();
      default:
        return std::string(string(n_left()));
    }
  }
  nlohmann::json array(bool keeps_texts) {
    const auto type = number<std::uint32_t>();
    if (type >= kLeastBytes.size() || type == kArray) {
      fail(fmt::format("expected a list of numbers or strings, found a list of values of type {}",
                       type));
    }
    const std::uint64_t n = count("values of a list", kLeastBytes[type]);
    // Values take more room in memory than in the file; no vocabulary is as long.
    if (n > kMostValues)
      fail(fmt::format("a list of {} values, expected at most {}", n, kMostValues));
    nlohmann::json::array_t list;
    list.reserve(type == kString && !keeps_texts ? 0 : n);
    for (std::uint64_t i = 0; i < n; ++i) {
      if (type == kString) {
        const std::string_view text = string(n_left());
        if (keeps_texts) list.emplace_back(std::string(text));
        continue;
      }
      const nlohmann::json one = scalar(type);
      list.emplace_back(one.is_number() ? one.get<double>() : one == true ? 1.0 : 0.0);
    }
    return nlohmann::json(std::move(list));
  }

  std::span<const std::byte> bytes_;
  std::string file_;
  std::uint64_t at_ = 0;
};

constexpr std::string_view kGgufMagic = "GGUF";
constexpr std::uint64_t kMaxGgufName = 1 << 16;
constexpr std::int64_t kMostGgufElements = std::numeric_limits<std::int64_t>::max() / 8;

struct TypeNumber {
  std::uint32_t number;
  std::string_view name;
  StoredBlock block;
  std::optional<StoredType> type;
};

constexpr TypeNumber readable(std::uint32_t number, StoredType type) {
  return {number, {}, {}, type};
}

// The format's numbers. Types that the runtime does not read are known by name and size, so that a
// file is checked whatever it holds.
constexpr std::array<TypeNumber, 32> kGgufTypes = {{
    readable(0, StoredType::f32),     readable(1, StoredType::f16),
    readable(2, StoredType::q4_0),    readable(3, StoredType::q4_1),
    readable(6, StoredType::q5_0),    readable(7, StoredType::q5_1),
    readable(8, StoredType::q8_0),    {9, "Q8_1", {32, 40}, {}},
    readable(10, StoredType::q2_k),   readable(11, StoredType::q3_k),
    readable(12, StoredType::q4_k),   readable(13, StoredType::q5_k),
    readable(14, StoredType::q6_k),   {15, "Q8_K", {256, 292}, {}},
    {16, "IQ2_XXS", {256, 66}, {}},   {17, "IQ2_XS", {256, 74}, {}},
    {18, "IQ3_XXS", {256, 98}, {}},   {19, "IQ1_S", {256, 50}, {}},
    readable(20, StoredType::iq4_nl), {21, "IQ3_S", {256, 110}, {}},
    {22, "IQ2_S", {256, 82}, {}},     readable(23, StoredType::iq4_xs),
    {24, "I8", {1, 1}, {}},           {25, "I16", {1, 2}, {}},
    {26, "I32", {1, 4}, {}},          {27, "I64", {1, 8}, {}},
    {28, "F64", {1, 8}, {}},          {29, "IQ1_M", {256, 56}, {}},
    readable(30, StoredType::bf16),   {34, "TQ1_0", {256, 54}, {}},
    {35, "TQ2_0", {256, 66}, {}},     readable(39, StoredType::mxfp4),
}};

std::vector<Index> read_gguf_extents(GgufCursor& cursor, const std::string& name) {
  const auto n_dims = cursor.number<std::uint32_t>();
  if (n_dims < 1 || n_dims > 4) {
    cursor.fail(fmt::format("tensor {}: expected 1 to 4 extents, found {}", quote(name), n_dims));
  }
  std::vector<Index> shape;
  std::int64_t count = 1;
  for (std::uint32_t i = 0; i < n_dims; ++i) {
    const auto extent = cursor.number<std::uint64_t>();
    if (extent < 1 || extent > static_cast<std::uint64_t>(kMostGgufElements / count)) {
      cursor.fail(
          fmt::format("tensor {}: expected extents of at least 1 and at most {} elements "
                      "in all, found an extent of {}",
                      quote(name), kMostGgufElements, extent));
    }
    count *= static_cast<std::int64_t>(extent);
    shape.insert(shape.begin(), static_cast<Index>(extent));
  }
  return shape;
}

struct PlacedTensor {
  TensorInFile tensor;
  std::uint64_t offset;
  StoredBlock block;  // no values: the type is unknown
};

PlacedTensor read_gguf_tensor(GgufCursor& cursor) {
  PlacedTensor placed{};
  TensorInFile& tensor = placed.tensor;
  tensor.name = cursor.string(kMaxGgufName);
  tensor.shape = read_gguf_extents(cursor, tensor.name);
  tensor.count = 1;
  for (Index extent : tensor.shape) tensor.count *= extent;
  const auto number = cursor.number<std::uint32_t>();
  placed.offset = cursor.number<std::uint64_t>();
  const auto type = std::find_if(kGgufTypes.begin(), kGgufTypes.end(),
                                 [&](const TypeNumber& t) { return t.number == number; });
  if (type == kGgufTypes.end()) {
    tensor.type_name = fmt::format("type {}", number);
    placed.block = {0, 0};
    return placed;
  }
  tensor.type = type->type;
  tensor.type_name = type->type ? name_of(*type->type) : type->name;
  placed.block = type->type ? block_of(*type->type) : type->block;
  if (tensor.shape.back() % placed.block.n_values != 0) {
    cursor.fail(fmt::format("tensor {}: expected rows of a multiple of {} values ({}), found {}",
                            quote(tensor.name), placed.block.n_values, tensor.type_name,
                            tensor.shape.back()));
  }
  return placed;
}

// Finds each tensor's bytes, which must lie inside the data, apart from each other.
void place_gguf_tensors(std::vector<PlacedTensor>& tensors, std::span<const std::byte> data,
                        std::uint64_t alignment, const std::string& file) {
  const auto fail = [&](const PlacedTensor& t, const std::string& what) {
    throw FormatError("tensor {} ({}): {}", quote(t.tensor.name), file, what);
  };
  std::vector<PlacedTensor*> order;
  for (PlacedTensor& t : tensors) {
    if (t.offset % alignment != 0) {
      fail(t, fmt::format("expected an offset that is a multiple of {}, found {}", alignment,
                          t.offset));
    }
    const std::int64_t n_blocks = t.block.n_values > 0 ? t.tensor.count / t.block.n_values : 0;
    const bool fits = t.offset <= data.size() &&
                      (t.block.n_bytes == 0 ||
                       static_cast<std::uint64_t>(n_blocks) <=
                           (data.size() - t.offset) / static_cast<std::uint64_t>(t.block.n_bytes));
    if (!fits) {
      fail(t,
           fmt::format("{} of shape [{}] at offset {} do not fit into the {} bytes of data; the "
                       "file is truncated",
                       t.tensor.type_name, fmt::join(t.tensor.shape, ", "), t.offset, data.size()));
    }
    t.tensor.bytes = data.subspan(t.offset);
    if (n_blocks > 0) {
      t.tensor.bytes = t.tensor.bytes.first(static_cast<std::size_t>(n_blocks * t.block.n_bytes));
      order.push_back(&t);
    }
  }
  std::sort(order.begin(), order.end(),
            [](const auto* a, const auto* b) { return a->offset < b->offset; });
  for (std::size_t i = 1; i < order.size(); ++i) {
    const std::uint64_t end = order[i - 1]->offset + order[i - 1]->tensor.bytes.size();
    if (order[i]->offset < end) {
      fail(*order[i], fmt::format("its bytes begin at {}, inside of tensor {}", order[i]->offset,
                                  quote(order[i - 1]->tensor.name)));
    }
  }
}

std::uint64_t read_gguf_alignment(const JsonObject& metadata) {
  const auto value = metadata.integer_or("general.alignment", 8, 1 << 20, 32);
  if (!std::has_single_bit(static_cast<std::uint64_t>(value))) {
    metadata.refuse("general.alignment", "a power of two");
  }
  return static_cast<std::uint64_t>(value);
}

std::uint32_t read_gguf_version(GgufCursor& cursor) {
  const auto version = cursor.number<std::uint32_t>();
  if (version == 2 || version == 3) return version;
  if ((version & 0xffffu) == 0) {
    cursor.fail("expected a little-endian GGUF file, found a big-endian one");
  }
  cursor.fail(fmt::format("expected version 2 or 3 of GGUF, found version {}", version));
}

}  // namespace

bool begins_as_gguf(std::span<const std::byte> bytes) {
  return bytes.size() >= kGgufMagic.size() &&
         std::string_view(reinterpret_cast<const char*>(bytes.data()), kGgufMagic.size()) ==
             kGgufMagic;
}

std::string describe_gguf_list(const nlohmann::json& list) {
  const bool holds_strings = !list.empty() && list.front().is_string();
  return fmt::format("a list of {} {}", list.size(), holds_strings ? "strings" : "numbers");
}

std::vector<double> gguf_numbers(const JsonObject& metadata, const std::string& field,
                                 std::size_t n) {
  const nlohmann::json* list = metadata.find(field);
  const bool fits = list != nullptr && list->is_array() && list->size() == n;
  if (!fits || (n > 0 && !list->front().is_number()))
    metadata.refuse(field, fmt::format("a list of {} numbers", n));
  return list->get<std::vector<double>>();
}

GgufFile parse_gguf(std::span<const std::byte> bytes, const std::string& file, GgufTables tables) {
  if (!begins_as_gguf(bytes)) {
    throw FormatError("{}: expected a GGUF file, which begins with \"GGUF\", found other bytes",
                      file);
  }
  GgufCursor cursor(bytes, file);
  cursor.skip(kGgufMagic.size());
  GgufFile result;
  result.version = read_gguf_version(cursor);
  // The shortest tensor takes 33 bytes of the header, the shortest field 14.
  const std::uint64_t n_tensors = cursor.count("tensors", 33);
  const std::uint64_t n_fields = cursor.count("metadata fields", 14);
  for (std::uint64_t i = 0; i < n_fields; ++i) {
    const std::string name(cursor.string(kMaxGgufName));
    const bool keeps_texts = tables == GgufTables::read || !name.starts_with("tokenizer.");
    if (!result.metadata.emplace(name, cursor.value(keeps_texts)).second) {
      cursor.fail(fmt::format("metadata field {} is given twice", quote(name)));
    }
  }
  const std::uint64_t alignment = read_gguf_alignment(JsonObject(result.metadata, file));

  std::vector<PlacedTensor> placed;
  std::unordered_set<std::string> seen;
  for (std::uint64_t i = 0; i < n_tensors; ++i) {
    placed.push_back(read_gguf_tensor(cursor));
    if (!seen.insert(placed.back().tensor.name).second) {
      cursor.fail(fmt::format("tensor {} is given twice", quote(placed.back().tensor.name)));
    }
  }
  const std::uint64_t begin = (cursor.position() + alignment - 1) / alignment * alignment;
  const auto data = begin < bytes.size() ? bytes.subspan(begin) : std::span<const std::byte>();
  place_gguf_tensors(placed, data, alignment, file);
  for (PlacedTensor& t : placed) result.tensors.push_back(std::move(t.tensor));
  return result;
}

}  // namespace kvscope
