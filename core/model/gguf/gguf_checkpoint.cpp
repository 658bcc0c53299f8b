#include "core/model/gguf/gguf_checkpoint.hpp"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <system_error>

#include "core/base/error.hpp"
#include "core/base/number_text.hpp"
#include "core/base/whole_file.hpp"

namespace kvscope {

namespace fs = std::filesystem;

namespace {

constexpr Index kMostParts = 10'000;

// NAME-00002-of-00005.gguf
struct PartName {
  std::string stem;
  Index n_parts;
};

std::optional<PartName> part_name(const fs::path& file) {
  const std::string name = file.stem().string();
  constexpr std::size_t kTail = 15;  // "-00002-of-00005"
  if (name.size() <= kTail || name.substr(name.size() - 9, 4) != "-of-") return std::nullopt;
  const std::string_view tail = std::string_view(name).substr(name.size() - kTail);
  const auto number = number_from<Index>(tail.substr(1, 5));
  const auto n_parts = number_from<Index>(tail.substr(10));
  if (tail[0] != '-' || !number || !n_parts || *n_parts < 1 || *n_parts > kMostParts) {
    return std::nullopt;
  }
  return PartName{name.substr(0, name.size() - kTail), *n_parts};
}

bool has_safetensors(const fs::path& folder) {
  std::error_code ignored;
  return fs::exists(folder / "model.safetensors", ignored) ||
         fs::exists(folder / "model.safetensors.index.json", ignored);
}

// The GGUF files of a folder, of a split one the first part. A vision tower ("mmproj") that lies
// beside a model is none.
std::vector<fs::path> gguf_files_in(const fs::path& folder) {
  std::vector<fs::path> files;
  for (const fs::path& path : sorted_entries(folder)) {
    std::error_code ignored;
    if (path.extension() != ".gguf" || !fs::is_regular_file(path, ignored)) continue;
    if (path.filename().string().find("mmproj") != std::string::npos) continue;
    const auto part = part_name(path);
    const bool is_later_part = part && !path.stem().string().starts_with(part->stem + "-00001-");
    if (!is_later_part) files.push_back(path);
  }
  return files;
}

}  // namespace

std::optional<fs::path> gguf_file_of(const fs::path& model) {
  std::error_code ignored;
  if (fs::is_regular_file(model, ignored)) {
    const bool is_gguf = begins_as_gguf(MappedFile(model).bytes());
    return is_gguf || model.extension() == ".gguf" ? std::optional(model) : std::nullopt;
  }
  if (!fs::is_directory(model, ignored) || has_safetensors(model)) return std::nullopt;
  const std::vector<fs::path> files = gguf_files_in(model);
  if (files.empty()) return std::nullopt;
  if (files.size() > 1) {
    std::vector<std::string> names;
    for (const fs::path& file : files) names.push_back(file.filename().string());
    throw FormatError("{}: expected one GGUF file, found {}: {}; name one of them", model.string(),
                      files.size(), fmt::join(names, ", "));
  }
  return files.front();
}

GgufCheckpoint::Part GgufCheckpoint::open_part(const fs::path& path, GgufTables tables) {
  MappedFile mapped(path);
  GgufFile header = parse_gguf(mapped.bytes(), path.string(), tables);
  return {path, std::move(mapped), std::move(header)};
}

GgufCheckpoint::GgufCheckpoint(const fs::path& file, GgufTables tables) {
  const auto name = part_name(file);
  if (!name) {
    parts_.push_back(open_part(file, tables));
    const auto n_split = metadata().integer_or("split.count", 0, kMostParts, 0);
    if (n_split > 1) {
      throw FormatError(
          "{}: expected the name of a part, as in "
          "NAME-00001-of-{:05}.gguf (split.count says {} parts)",
          file.string(), n_split, n_split);
    }
    return;
  }
  for (Index i = 0; i < name->n_parts; ++i) {
    const fs::path part = file.parent_path() /
                          fmt::format("{}-{:05}-of-{:05}.gguf", name->stem, i + 1, name->n_parts);
    std::error_code ignored;
    if (!fs::exists(part, ignored)) {
      throw MissingFile("{} is missing: part {} of {} of {}", part.string(), i + 1, name->n_parts,
                        file.filename().string());
    }
    parts_.push_back(open_part(part, tables));
    const JsonObject split(parts_.back().header.metadata, part.string());
    if (split.integer_or("split.no", 0, kMostParts, i) != i) {
      split.refuse("split.no", fmt::format("{}, as the file's name says", i));
    }
    if (split.integer_or("split.count", 0, kMostParts, name->n_parts) != name->n_parts) {
      split.refuse("split.count", fmt::format("{}, as the file's name says", name->n_parts));
    }
  }
}

GgufCheckpoint::GgufCheckpoint(std::span<const std::byte> bytes, const std::string& name) {
  parts_.push_back({name, MappedFile(), parse_gguf(bytes, name)});
}

void GgufCheckpoint::drop_metadata() {
  for (Part& part : parts_) {
    part.header.metadata = nlohmann::json::object();
    const std::span<const std::byte> bytes = part.mapped.bytes();
    const std::byte* first = bytes.data() + bytes.size();  // of all tensors
    for (const TensorInFile& tensor : part.header.tensors) {
      first = std::min(first, tensor.bytes.data());
    }
    forget_pages({bytes.data(), first});
  }
}

void GgufCheckpoint::for_each_tensor(
    const std::function<void(const TensorInFile&, const std::string& file)>& visit) const {
  for (const Part& part : parts_) {
    const std::string file = part.path.filename().string();
    for (const TensorInFile& tensor : part.header.tensors) visit(tensor, file);
  }
}

const TensorInFile* GgufCheckpoint::find(std::string_view name) const {
  for (const Part& part : parts_) {
    for (const TensorInFile& tensor : part.header.tensors) {
      if (tensor.name == name) return &tensor;
    }
  }
  return nullptr;
}

}  // namespace kvscope
