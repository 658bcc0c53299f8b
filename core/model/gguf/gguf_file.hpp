// The header of one GGUF file: its metadata, which tensors it holds and where their bytes lie.
//
// Layout (little endian): "GGUF", version, number of tensors, number of metadata fields; the fields
// (name, type, value); per tensor its name, extents (the last axis first), type and offset; then,
// from the next multiple of general.alignment on, the data.
#pragma once

#include <cstdint>
#include <functional>
#include <map>
#include <optional>
#include <set>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <variant>
#include <vector>

#include "core/model/stored_type.hpp"
#include "core/tensor/tensor.hpp"

namespace kvscope {

/// A list of metadata values of one type. Strings and numbers are kept apart.
struct GgufArray {
  std::vector<std::string_view> strings;
  std::vector<double> numbers;  // whole numbers up to 2^53 are exact
  bool holds_strings = false;

  std::size_t size() const { return holds_strings ? strings.size() : numbers.size(); }
};

/// One metadata value; strings refer to the file's bytes.
using GgufValue =
    std::variant<std::uint64_t, std::int64_t, double, bool, std::string_view, GgufArray>;

/// One tensor.
struct GgufTensor {
  std::string name;
  std::string type_name;           // "Q4_K", "IQ2_XXS", "type 99"
  std::optional<StoredType> type;  // empty if the runtime cannot read it
  std::vector<Index> shape;        // rows first, as the hub has it; 1 to 4 extents
  std::int64_t count = 0;
  std::span<const std::byte>
      bytes;  // from its offset to the end of the file if the type is unknown
};

/// A typed look at the metadata: every refusal names field and file.
class GgufMetadata {
 public:
  explicit GgufMetadata(std::string file) : file_(std::move(file)) {}

  /// Takes the value unless the name is taken already.
  bool add(std::string_view name, GgufValue value);

  const std::map<std::string, GgufValue, std::less<>>& values() const { return values_; }
  const std::string& file() const { return file_; }
  bool has(std::string_view name) const { return value(name) != nullptr; }
  /// The field as it stands, or null.
  const GgufValue* value(std::string_view name) const;
  /// Fields whose names begin with `prefix` and that nobody asked for.
  std::vector<std::string> unread(std::string_view prefix) const;

  /// The field, or empty if it is absent; throws FormatError if it is of another kind or outside of
  /// the range.
  std::optional<std::int64_t> integer(std::string_view name, std::int64_t low,
                                      std::int64_t high) const;
  std::optional<double> number(std::string_view name) const;
  std::optional<bool> boolean(std::string_view name) const;
  std::optional<std::string_view> string(std::string_view name) const;
  const std::vector<std::string_view>* strings(std::string_view name) const;
  const std::vector<double>* numbers(std::string_view name) const;

  /// Throws FormatError "<name> (<file>): expected <expected>, found <value>".
  [[noreturn]] void refuse(std::string_view name, std::string_view expected) const;

 private:
  template <class T>
  const T* find(std::string_view name, std::string_view expected) const;

  std::string file_;
  std::map<std::string, GgufValue, std::less<>> values_;
  mutable std::set<std::string, std::less<>> asked_;
};

/// A value in a message's or a table's words: numbers, "a string", "a list of 3".
std::string describe(const GgufValue& value);

struct GgufFile {
  std::uint32_t version = 0;
  GgufMetadata metadata;
  std::vector<GgufTensor> tensors;  // in the order of the file
};

/// The four bytes that a GGUF file begins with.
bool begins_as_gguf(std::span<const std::byte> bytes);

/// Checks the header against the file before anything is allocated in its name. `file` names it in
/// messages; the result refers to `bytes`. Throws FormatError.
GgufFile parse_gguf(std::span<const std::byte> bytes, const std::string& file);

}  // namespace kvscope
