// The only door to the HDF5 library: files, datasets and attributes as move-only objects that throw
// sentences.
//
// All calls hold one global lock, so objects may be used from several threads. HDF5's own error
// printing is off.
#pragma once

#include <cstdint>
#include <filesystem>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "core/tensor/dtype.hpp"
#include "core/tensor/tensor.hpp"

namespace kvscope::h5 {

/// Element types that kvscope files hold; all little endian.
enum class Type { f32, f64, f16, bf16, u8, i32, i64, u64 };

std::size_t size_of(Type type);
Type type_of(DType dtype);
/// The storage type of a tensor; empty for f64 and the integers.
std::optional<DType> dtype_of(Type type);

using Dims = std::vector<Index>;
/// "[4, 100, 64]".
std::string to_string(const Dims& dims);
/// Product of the extents (1 for rank 0).
Index count(const Dims& dims);

/// HDF5's hid_t, spelled without its header.
using Handle = std::int64_t;

class Device;

/// Owns one HDF5 identifier of any kind.
class Id {
 public:
  Id() = default;
  explicit Id(Handle handle) : handle_(handle) {}
  Id(Id&& other) noexcept : handle_(other.release()) {}
  Id& operator=(Id&& other) noexcept;
  ~Id() { reset(); }
  Handle get() const { return handle_; }
  explicit operator bool() const { return handle_ >= 0; }
  Handle release();
  void reset();

 private:
  Handle handle_ = -1;
};

/// Anything that carries attributes. `where()` names it in messages: "run.h5: /layers/3/k".
class Node {
 public:
  const std::string& where() const { return where_; }

  bool has_attribute(const std::string& name) const;
  /// Fixed-length UTF-8. `capacity` bytes are reserved, so that set_text may rewrite it in place
  /// later.
  void set_text(const std::string& name, std::string_view value, std::size_t capacity = 0);
  void set_texts(const std::string& name, const std::vector<std::string>& values);
  void set_integer(const std::string& name, std::int64_t value);
  void set_real(const std::string& name, double value);

  /// These throw FormatError if the attribute is missing or of another kind.
  std::string text(const std::string& name) const;
  std::vector<std::string> texts(const std::string& name) const;
  std::int64_t integer(const std::string& name) const;
  double real(const std::string& name) const;

 protected:
  Node() = default;
  Node(Id id, std::string where) : id_(std::move(id)), where_(std::move(where)) {}
  Id id_;
  std::string where_;
};

class Dataset : public Node {
 public:
  Dataset() = default;
  Type type() const { return type_; }
  const Dims& dims() const { return dims_; }
  /// Byte offset of the data in the file; empty unless they lie there in one piece.
  std::optional<std::uint64_t> file_offset() const;
  /// Raw bytes of the elements in the box [offset, offset + size), in the file's type.
  void read(const Dims& offset, const Dims& size, void* out) const;
  /// Throws IoError as soon as the system refused a byte of this file (disk full, device error).
  void write(const Dims& offset, const Dims& size, const void* data);
  /// Throws FormatError if the whole array would take more memory than the file has bytes (64 MiB
  /// for small files): compressed zeros can claim a thousand times as much.
  void check_fits_memory() const;
  /// The whole array. Throws FormatError if its type is not T's, or as check_fits_memory does.
  template <class T>
  std::vector<T> read_all() const;

 private:
  friend class File;
  Type type_ = Type::u8;
  Dims dims_;
  std::string path_;  // of one that was created
  std::shared_ptr<Device> device_;
  Index storage_limit_ = 0;  // bytes of the file; 0 for one that is being written
};

class Group : public Node {
 public:
  Group() = default;

 private:
  friend class File;
  using Node::Node;
};

/// An array whose axes have names, one each.
struct NamedAxes {
  std::string path;
  std::vector<std::string> axes;
  Dims dims;
};

/// How a new dataset is stored.
struct DatasetOptions {
  Dims chunk;                     // empty = contiguous, allocated at once, not filled
  std::optional<int> gzip_level;  // with shuffle and fletcher32; needs chunk
  std::size_t chunk_cache_bytes = 0;
};

/// One open HDF5 file. As a Node it is the root group.
class File : public Node {
 public:
  enum class Access { read, write };

  File() = default;
  /// Makes a new file that any HDF5 since 1.8 reads, with equal bytes for equal contents. Throws
  /// IoError if it exists.
  static File create(const std::filesystem::path& path);
  /// Throws IoError (missing, unreadable, locked) or FormatError (not HDF5, truncated).
  static File open(const std::filesystem::path& path, Access access = Access::read);
  /// A read-only file whose bytes are in memory; `name` stands for it in messages.
  static File open_image(std::span<const std::byte> bytes, const std::string& name);

  /// The file's name for messages.
  const std::string& name() const { return where_; }
  std::uint64_t size_bytes() const;

  /// True for a group or dataset of this very file (links to other files do not count).
  bool has(const std::string& path) const;
  bool is_group(const std::string& path) const;
  /// Names in a group, sorted; empty if there is no such group.
  std::vector<std::string> list(const std::string& group) const;

  Group create_group(const std::string& path);
  Group open_group(const std::string& path) const;
  Dataset create_dataset(const std::string& path, Type type, const Dims& dims,
                         const DatasetOptions& options = {});
  /// Throws FormatError if it is missing, of a type not in Type, stored outside the file or with a
  /// filter other than gzip, shuffle and fletcher32, or if it declares more bytes than the file can
  /// hold.
  Dataset open_dataset(const std::string& path, std::size_t chunk_cache_bytes = 0) const;
  /// One string as a scalar dataset.
  void write_text(const std::string& path, std::string_view text);
  std::string read_text(const std::string& path) const;
  /// A second name for the object `target`.
  void link(const std::string& target, const std::string& path);

  /// Names the axes of an array that was created here; write_dimensions puts them into the file.
  void name_axes(const Dataset& dataset, std::vector<std::string> axes);
  /// Writes the named axes by HDF5's convention of dimension scales, from which xarray and netCDF
  /// have the names of dimensions: one scale in the root group for each name and length. An array
  /// [n] of the root that is called as its axis is the scale (coordinates), others have no values.
  void write_dimensions();
  /// True for a scale without values, which is no array of anybody's.
  bool is_dimension(const std::string& path) const;

  /// Number of the object in the file: equal for all names of one group or dataset.
  std::uint64_t object_number(const std::string& path) const;

  /// Closes every object and the file, waits for the device, and throws IoError if any step or any
  /// write since the file was opened failed. A file is published only after this.
  void close();

 private:
  friend class DimensionWriter;
  /// The group that holds `path`, opened; -1 if some part of the way is no group of this very file.
  Handle parent_of(const std::string& path) const;

  Index storage_limit_ = 0;  // bytes of the file
  /// Bytes before HDF5's own, by which it moves addresses; true if not known.
  bool has_user_block_ = true;
  std::shared_ptr<Device> device_;                       // none behind an image
  mutable std::vector<std::pair<std::string, Id>> way_;  // groups down to the parent asked for last
  std::vector<NamedAxes> named_axes_;                    // not written yet
  std::uint64_t n_failed_closes_ = 0;  // of all objects, when this file was opened
};

}  // namespace kvscope::h5
