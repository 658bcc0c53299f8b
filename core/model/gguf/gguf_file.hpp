// The header of one GGUF file: its metadata, which tensors it holds and where their bytes lie.
//
// Layout (little endian): "GGUF", version, number of tensors, number of metadata fields; the fields
// (name, type, value); per tensor its name, extents (the last axis first), type and offset; then,
// from the next multiple of general.alignment on, the data.
#pragma once

#include <cstdint>
#include <nlohmann/json.hpp>
#include <span>
#include <string>
#include <vector>

#include "core/model/stored_type.hpp"
#include "core/tensor/tensor.hpp"

namespace kvscope {

class JsonObject;

/// The fields are numbers, truths, texts and lists of texts or of doubles (whole numbers up to 2^53
/// are exact there).
struct GgufFile {
  std::uint32_t version = 0;
  nlohmann::json metadata = nlohmann::json::object();
  std::vector<TensorInFile> tensors;  // in the order of the file; of 1 to 4 extents
};

/// "a list of 3 strings": a list of the metadata in a message's or a table's words.
std::string describe_gguf_list(const nlohmann::json& list);

/// The field, a list of `n` numbers. Throws FormatError if it is anything else.
std::vector<double> gguf_numbers(const JsonObject& metadata, const std::string& field,
                                 std::size_t n);

/// Lists of texts under tokenizer.*, which take longer than the rest of a header: those that are
/// skipped are checked, but stay empty.
enum class GgufTables { read, skipped };

/// The four bytes that a GGUF file begins with.
bool begins_as_gguf(std::span<const std::byte> bytes);

/// Checks the header against the file before anything is allocated in its name. `file` names it in
/// messages; the tensors refer to `bytes`. Throws FormatError.
GgufFile parse_gguf(std::span<const std::byte> bytes, const std::string& file,
                    GgufTables tables = GgufTables::read);

}  // namespace kvscope
