#include "core/model/weights.hpp"

#include <algorithm>
#include <cmath>
#include <iterator>
#include <map>
#include <nlohmann/json.hpp>
#include <set>
#include <system_error>

#include "core/base/error.hpp"
#include "core/base/json_reader.hpp"
#include "core/base/mapped_file.hpp"
#include "core/model/gguf/gguf_checkpoint.hpp"
#include "core/model/gguf/gguf_weights.hpp"
#include "core/model/safetensors.hpp"

namespace kvscope {

namespace {

constexpr std::string_view kSingleFile = "model.safetensors";
constexpr std::string_view kIndexFile = "model.safetensors.index.json";

bool same_shape(const std::vector<Index>& found, const Shape& expected) {
  return static_cast<int>(found.size()) == expected.rank &&
         std::equal(found.begin(), found.end(), expected.dim.begin());
}

// A shard lies beside its index: no folder may be part of its name.
void check_shard_name(const std::string& name, const std::string& where) {
  const bool is_plain = !name.empty() && name != "." && name != ".." &&
                        name.find_first_of(std::string_view("/\\\0", 3)) == std::string::npos;
  if (!is_plain) {
    throw FormatError("weight_map ({}): expected names of files in the same folder, found {}",
                      where, quote(name));
  }
}

bool file_exists(const std::filesystem::path& path) {
  std::error_code error;
  const auto status = std::filesystem::status(path, error);
  if (status.type() == std::filesystem::file_type::not_found) return false;
  if (error) throw IoError("cannot examine {}: {}", path.string(), error.message());
  return true;
}

}  // namespace

struct WeightFiles::Impl {
  std::vector<MappedFile> files;
  std::optional<GgufCheckpoint> gguf;
  WeightEntries entries;
  mutable std::set<std::string, std::less<>> asked;  // what find() found

  // The tensor `name`, whose shape must be `expected`.
  const WeightEntry& find(std::string_view name, const Shape& expected) const {
    const auto it = entries.find(name);
    if (it == entries.end()) {
      throw FormatError("tensor {}: expected shape {}, found no such tensor among the {} of {}",
                        quote(name), to_string(expected), entries.size(),
                        entries.empty() ? std::string(kSingleFile) : entries.begin()->second.file);
    }
    if (!same_shape(it->second.shape, expected)) {
      throw FormatError("tensor {}: expected shape {}, found {} ({})", quote(name),
                        to_string(expected), shape_text(it->second.shape), it->second.file);
    }
    asked.insert(it->first);
    return it->second;
  }

  void add_file(const std::filesystem::path& path) {
    const std::string file = path.filename().string();
    files.emplace_back(path);
    for (TensorInFile& tensor : parse_safetensors(files.back().bytes(), path.string())) {
      const std::string name = tensor.name;
      const auto [it, is_new] = entries.try_emplace(name, WeightEntry{std::move(tensor), file});
      if (!is_new) {
        throw FormatError("tensor {} is in two shards, {} and {} ({})", quote(it->first),
                          it->second.file, file, path.parent_path().string());
      }
    }
  }

  // Gives tensors the name that `rename` says, unless another one has it.
  template <class Rename>
  void rename_all(const Rename& rename) {
    for (auto it = entries.begin(); it != entries.end();) {
      const auto next = std::next(it);
      std::string name = rename(it->first);
      if (name != it->first && !entries.contains(name)) {
        auto node = entries.extract(it);
        node.key() = std::move(name);
        entries.insert(std::move(node));
      }
      it = next;
    }
  }

  // Models of texts and pictures have the layers of text under another name.
  void name_text_part() {
    constexpr std::array<std::pair<std::string_view, std::string_view>, 8> kPrefixes = {
        {{"language_model.model.", "model."},
         {"language_model.lm_head.", "lm_head."},
         {"model.language_model.", "model."},
         // a model that was saved without its head
         {"embed_tokens.", "model.embed_tokens."},
         {"embed_tokens_per_layer.", "model.embed_tokens_per_layer."},
         {"per_layer_", "model.per_layer_"},
         {"layers.", "model.layers."},
         {"norm.", "model.norm."}}};
    rename_all([&](const std::string& name) {
      for (const auto& [from, to] : kPrefixes) {
        if (name.starts_with(from)) return std::string(to) + name.substr(from.size());
      }
      return name;
    });
  }

  void add_shards(const std::filesystem::path& folder) {
    const std::filesystem::path index_path = folder / kIndexFile;
    const std::string where = index_path.string();
    const MappedFile index_file(index_path);
    const nlohmann::json index = parse_json(index_file.text(), where);
    const JsonObject weight_map = JsonObject(index, where).object("weight_map");

    std::map<std::string, std::vector<std::string>> names_by_shard;
    for (const auto& [name, shard] : weight_map.value().items()) {
      if (!shard.is_string()) weight_map.refuse(name, "the name of a file");
      check_shard_name(shard.get_ref<const std::string&>(), where);
      names_by_shard[shard.get_ref<const std::string&>()].push_back(name);
    }
    if (names_by_shard.empty())
      throw FormatError("weight_map ({}): expected tensors, found none", where);
    for (const auto& [shard, names] : names_by_shard) {
      if (!file_exists(folder / shard)) {
        throw MissingFile("shard {} is missing: {} lists {} tensors in it",
                          (folder / shard).string(), where, names.size());
      }
      add_file(folder / shard);
      for (const std::string& name : names) {
        const auto it = entries.find(name);
        if (it == entries.end() || it->second.file != shard) {
          throw FormatError("tensor {}: expected in {} as {} says, found {}", quote(name),
                            quote(shard), where,
                            it == entries.end() ? "nowhere" : "in " + it->second.file);
        }
      }
    }
  }
};

WeightFiles::WeightFiles(std::unique_ptr<Impl> impl) : impl_(std::move(impl)) {}
WeightFiles::WeightFiles(WeightFiles&&) noexcept = default;
WeightFiles& WeightFiles::operator=(WeightFiles&&) noexcept = default;
WeightFiles::~WeightFiles() = default;

WeightFiles WeightFiles::open(const std::filesystem::path& model) {
  auto impl = std::make_unique<Impl>();
  if (const auto file = gguf_file_of(model)) {
    impl->gguf.emplace(*file, GgufTables::skipped);
    impl->entries = hub_weights(*impl->gguf);
    impl->gguf->drop_metadata();
  } else if (file_exists(model / kSingleFile)) {
    impl->add_file(model / kSingleFile);
  } else if (file_exists(model / kIndexFile)) {
    impl->add_shards(model);
  } else {
    throw MissingFile("{}: expected {} or {}, found neither", model.string(), kSingleFile,
                      kIndexFile);
  }
  if (!impl->gguf) impl->name_text_part();
  return WeightFiles(std::move(impl));
}

const WeightEntry* WeightFiles::find(std::string_view name) const {
  const auto it = impl_->entries.find(name);
  return it == impl_->entries.end() ? nullptr : &it->second;
}

const WeightEntries& WeightFiles::entries() const {
  return impl_->entries;
}

StoredTensor WeightFiles::get(std::string_view name, const Shape& expected) const {
  const WeightEntry& entry = impl_->find(name, expected);
  if (!entry.type) {
    throw FormatError("tensor {}: expected {}, found {} ({})", quote(name),
                      impl_->gguf ? "a type of " + readable_gguf_types() : "dtype F32, F16 or BF16",
                      quote(entry.type_name), entry.file);
  }
  return {*entry.type, expected, entry.bytes.data(), entry.file, entry.order, entry.added};
}

const WeightEntry& WeightFiles::get_packed(std::string_view name, std::string_view dtype,
                                           const Shape& expected) const {
  const WeightEntry& entry = impl_->find(name, expected);
  if (entry.type_name != dtype) {
    throw FormatError("tensor {}: expected dtype {} (packed weights), found {} ({})", quote(name),
                      dtype, quote(entry.type_name), entry.file);
  }
  return entry;
}

void require_finite(std::span<const float> values, std::string_view name, const std::string& file,
                    Index first) {
  for (std::size_t i = 0; i < values.size(); ++i) {
    if (!std::isfinite(values[i])) {
      throw FormatError("tensor {}: expected finite values, found {} at element {} ({})",
                        quote(name), values[i], first + static_cast<Index>(i), file);
    }
  }
}

Tensor<float> WeightFiles::get_float(std::string_view name, const Shape& expected) const {
  const StoredTensor stored = get(name, expected);
  auto out = Tensor<float>::uninitialized(expected);
  if (stored.order.is_same()) {
    widen(stored.type, stored.data, out.data(), out.count());
  } else {
    const Index n = out.count() / expected[0];
    for (Index row = 0; row < expected[0]; ++row) {
      widen(stored.type, stored.data + stored_bytes(stored.type, stored.order.stored(row) * n),
            out.data() + row * n, n);
    }
  }
  if (stored.added != 0.0f) {
    for (float& x : out.flat()) x -= stored.added;
  }
  require_finite(out.flat(), name, stored.file);
  return out;
}

void WeightFiles::pass_over(std::string_view name) const {
  if (contains(name)) impl_->asked.emplace(name);
}

std::vector<std::string> WeightFiles::unread() const {
  std::vector<std::string> names;
  for (const auto& [name, entry] : impl_->entries) {
    if (!impl_->asked.contains(name)) names.push_back(name);
  }
  return names;
}

std::map<std::string, std::int64_t> WeightFiles::bytes_by_type() const {
  std::map<std::string, std::int64_t> sums;
  for (const auto& [name, entry] : impl_->entries) {
    sums[entry.type_name] += static_cast<std::int64_t>(entry.bytes.size());
  }
  return sums;
}

std::int64_t WeightFiles::n_parameters() const {
  std::int64_t n = 0;
  for (const auto& [name, entry] : impl_->entries) n += entry.count;
  return n;
}

std::int64_t WeightFiles::n_bytes() const {
  std::int64_t n = 0;
  for (const auto& [name, entry] : impl_->entries) {
    n += static_cast<std::int64_t>(entry.bytes.size());
  }
  return n;
}

}  // namespace kvscope
