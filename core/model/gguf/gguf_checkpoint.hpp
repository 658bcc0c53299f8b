// A model in GGUF: one file, or the parts NAME-00001-of-0000N.gguf of a split one, memory-mapped.
#pragma once

#include <cstdint>
#include <filesystem>
#include <functional>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "core/base/json_reader.hpp"
#include "core/base/mapped_file.hpp"
#include "core/model/gguf/gguf_file.hpp"

namespace kvscope {

/// The GGUF file that `model` means: the file itself, or the only one (all parts of a split one
/// count as one) in a folder without safetensors. A file is one if it begins as such or its name
/// says so. Empty for a checkpoint folder of the hub and for what does not exist. Throws
/// FormatError for a folder with several (the message names them).
std::optional<std::filesystem::path> gguf_file_of(const std::filesystem::path& model);

/// The open files of one model.
class GgufCheckpoint {
 public:
  /// Opens `file` and, if it is a part, the others beside it. Throws IoError (a part is missing) or
  /// FormatError.
  explicit GgufCheckpoint(const std::filesystem::path& file, GgufTables tables = GgufTables::read);

  /// One file that lies in memory, which must outlive this object. Throws FormatError.
  GgufCheckpoint(std::span<const std::byte> bytes, const std::string& name);

  /// Of the first file, which has all of the model's.
  JsonObject metadata() const { return {parts_.front().header.metadata, file()}; }
  std::uint32_t version() const { return parts_.front().header.version; }
  std::size_t n_files() const { return parts_.size(); }
  std::string file() const { return parts_.front().path.string(); }

  /// Lets go of the metadata, most of which is a tokenizer: what remains are tensors.
  void drop_metadata();

  /// Calls visit(tensor, name of its file) for all tensors.
  void for_each_tensor(
      const std::function<void(const TensorInFile&, const std::string& file)>& visit) const;
  /// The tensor of that name, or null.
  const TensorInFile* find(std::string_view name) const;

 private:
  struct Part {
    std::filesystem::path path;
    MappedFile mapped;
    GgufFile header;
  };
  static Part open_part(const std::filesystem::path& path, GgufTables tables);

  std::vector<Part> parts_;
};

}  // namespace kvscope
