#include "traces/h5.hpp"

#include <fmt/format.h>
#include <hdf5.h>
#include <sys/stat.h>

#include <array>
#include <cerrno>
#include <cstring>
#include <mutex>

#include "core/base/error.hpp"

namespace kvscope::h5 {

namespace {

constexpr std::size_t kMaxText = 60000;      // an attribute has to fit into an object header message (64 KiB)
constexpr Index kMaxDeflateRatio = 1100;     // deflate cannot shrink by more than 1032

static_assert(sizeof(Handle) == sizeof(hid_t));

/// Holds the global lock and keeps this thread's HDF5 from printing.
class Lock {
 public:
  Lock() : guard_(mutex()) { H5Eset_auto2(H5E_DEFAULT, nullptr, nullptr); }

 private:
  static std::recursive_mutex& mutex() {
    static std::recursive_mutex instance;
    return instance;
  }
  std::lock_guard<std::recursive_mutex> guard_;
};

herr_t keep_innermost(unsigned /*n*/, const H5E_error2_t* error, void* out) {
  if (error->desc != nullptr && *error->desc != '\0') {
    *static_cast<std::string*>(out) = error->desc;
  }
  return 0;
}

/// The description at the bottom of HDF5's error stack: what really went wrong.
std::string innermost_error() {
  std::string text;
  H5Ewalk2(H5E_DEFAULT, H5E_WALK_DOWNWARD, keep_innermost, &text);
  H5Eclear2(H5E_DEFAULT);
  return text.empty() ? "no further reason given" : text;
}

[[noreturn]] void fail_format(const std::string& sentence) {
  throw FormatError(fmt::format("{} (HDF5: {})", sentence, innermost_error()));
}

[[noreturn]] void fail_io(const std::string& sentence) {
  throw IoError(fmt::format("{} (HDF5: {})", sentence, innermost_error()));
}

template <class Status>
Status check_format(Status status, const std::string& sentence) {
  if (status < 0) fail_format(sentence);
  return status;
}

template <class Status>
Status check_io(Status status, const std::string& sentence) {
  if (status < 0) fail_io(sentence);
  return status;
}

/// A 16-bit float: sign at bit 15, then the exponent, then the mantissa from bit 0.
Id make_half(std::size_t exponent_bits, std::size_t bias) {
  const std::size_t mantissa_bits = 15 - exponent_bits;
  Id type(H5Tcopy(H5T_IEEE_F32LE));
  H5Tset_fields(type.get(), 15, mantissa_bits, exponent_bits, 0, mantissa_bits);
  H5Tset_precision(type.get(), 16);
  H5Tset_ebias(type.get(), bias);
  H5Tset_size(type.get(), 2);
  return type;
}

Id file_type(Type type) {
  switch (type) {
    case Type::f32: return Id(H5Tcopy(H5T_IEEE_F32LE));
    case Type::f64: return Id(H5Tcopy(H5T_IEEE_F64LE));
    case Type::f16: return make_half(5, 15);
    case Type::bf16: return make_half(8, 127);
    case Type::u8: return Id(H5Tcopy(H5T_STD_U8LE));
    case Type::i32: return Id(H5Tcopy(H5T_STD_I32LE));
    case Type::i64: return Id(H5Tcopy(H5T_STD_I64LE));
    case Type::u64: return Id(H5Tcopy(H5T_STD_U64LE));
  }
  return Id();
}

constexpr std::array kTypes = {Type::f32, Type::f64, Type::f16, Type::bf16,
                               Type::u8,  Type::i32, Type::i64, Type::u64};

std::optional<Type> identify(hid_t type) {
  for (Type candidate : kTypes) {
    const Id known = file_type(candidate);
    if (H5Tequal(type, known.get()) > 0) return candidate;
  }
  return std::nullopt;
}

Id text_type(std::size_t size) {
  Id type(H5Tcopy(H5T_C_S1));
  H5Tset_size(type.get(), size == 0 ? 1 : size);
  H5Tset_cset(type.get(), H5T_CSET_UTF8);
  H5Tset_strpad(type.get(), H5T_STR_NULLPAD);
  return type;
}

std::vector<hsize_t> to_hsize(const Dims& dims) { return {dims.begin(), dims.end()}; }

Id access_list() {
  Id list(H5Pcreate(H5P_FILE_ACCESS));
  H5Pset_fclose_degree(list.get(), H5F_CLOSE_STRONG);
  return list;
}

bool fits_attribute(const Id& space) {
  const hssize_t n = H5Sget_simple_extent_npoints(space.get());
  return n >= 0 && static_cast<std::size_t>(n) <= kMaxText;
}

struct OpenAttribute {
  Id attribute;
  Id type;
  Index n = 0;
};

OpenAttribute open_attribute(hid_t node, const std::string& where, const std::string& name,
                             H5T_class_t kind, std::string_view kind_name) {
  if (H5Aexists(node, name.c_str()) <= 0) {
    H5Eclear2(H5E_DEFAULT);
    throw FormatError(fmt::format("{}: attribute '{}' is missing", where, name));
  }
  const std::string what = fmt::format("{}: attribute '{}' cannot be read", where, name);
  OpenAttribute out;
  out.attribute = Id(check_format(H5Aopen(node, name.c_str(), H5P_DEFAULT), what));
  out.type = Id(check_format(H5Aget_type(out.attribute.get()), what));
  const Id space(check_format(H5Aget_space(out.attribute.get()), what));
  if (!fits_attribute(space) || H5Tget_size(out.type.get()) > kMaxText) {
    throw FormatError(fmt::format("{}: attribute '{}' is too large", where, name));
  }
  out.n = H5Sget_simple_extent_npoints(space.get());
  if (H5Tget_class(out.type.get()) != kind) {
    throw FormatError(fmt::format("{}: attribute '{}' is not {}", where, name, kind_name));
  }
  return out;
}

std::string trim_padding(const char* text, std::size_t size) {
  return std::string(text, strnlen(text, size));
}

std::string locked_advice(const std::string& reason) {
  if (reason.find("lock") == std::string::npos) return "";
  return "; another program has the file open, or the file system has no locks: on NFS or Lustre set the "
         "environment variable HDF5_USE_FILE_LOCKING=FALSE";
}

/// Refuses what is not a readable regular file before HDF5 sees it; returns its size.
Index check_regular_file(const std::filesystem::path& path) {
  struct stat status {};
  if (stat(path.c_str(), &status) != 0) {
    throw IoError(fmt::format("cannot open {}: {}", path.string(), std::strerror(errno)));
  }
  if (!S_ISREG(status.st_mode)) {
    throw IoError(fmt::format("cannot open {}: it is not a regular file", path.string()));
  }
  return status.st_size;
}

[[noreturn]] void fail_open(const std::string& name, Index size) {
  const std::string reason = innermost_error();
  if (reason.find("lock") != std::string::npos || reason.find("unable to open file") == 0) {
    throw IoError(fmt::format("cannot open {}{} (HDF5: {})", name, locked_advice(reason), reason));
  }
  throw FormatError(fmt::format("{}: not a whole HDF5 file ({} bytes; HDF5: {})", name, size, reason));
}

}  // namespace

// ---- types -----------------------------------------------------------------------------------

std::size_t size_of(Type type) {
  switch (type) {
    case Type::u8: return 1;
    case Type::f16:
    case Type::bf16: return 2;
    case Type::f32:
    case Type::i32: return 4;
    case Type::f64:
    case Type::i64:
    case Type::u64: return 8;
  }
  return 0;
}

std::string_view name_of(Type type) {
  constexpr std::array<std::string_view, 8> names = {"f32", "f64", "f16", "bf16",
                                                     "u8",  "i32", "i64", "u64"};
  return names[static_cast<std::size_t>(type)];
}

Type type_of(DType dtype) {
  switch (dtype) {
    case DType::f16: return Type::f16;
    case DType::bf16: return Type::bf16;
    case DType::f32: break;
  }
  return Type::f32;
}

std::optional<DType> dtype_of(Type type) {
  switch (type) {
    case Type::f32: return DType::f32;
    case Type::f16: return DType::f16;
    case Type::bf16: return DType::bf16;
    default: return std::nullopt;
  }
}

std::string to_string(const Dims& dims) { return fmt::format("[{}]", fmt::join(dims, ", ")); }

Index count(const Dims& dims) {
  Index n = 1;
  for (Index d : dims) n *= d;
  return n;
}

// ---- Id --------------------------------------------------------------------------------------

Id& Id::operator=(Id&& other) noexcept {
  if (this != &other) {
    reset();
    handle_ = other.release();
  }
  return *this;
}

Handle Id::release() {
  const Handle handle = handle_;
  handle_ = -1;
  return handle;
}

void Id::reset() {
  if (handle_ < 0) return;
  const Lock lock;
  switch (H5Iget_type(handle_)) {
    case H5I_FILE: H5Fclose(handle_); break;
    case H5I_GROUP: H5Gclose(handle_); break;
    case H5I_DATASET: H5Dclose(handle_); break;
    case H5I_DATASPACE: H5Sclose(handle_); break;
    case H5I_DATATYPE: H5Tclose(handle_); break;
    case H5I_ATTR: H5Aclose(handle_); break;
    case H5I_GENPROP_LST: H5Pclose(handle_); break;
    default: break;
  }
  H5Eclear2(H5E_DEFAULT);
  handle_ = -1;
}

// ---- attributes ------------------------------------------------------------------------------

bool Node::has_attribute(const std::string& name) const {
  const Lock lock;
  const bool found = H5Aexists(id_.get(), name.c_str()) > 0;
  H5Eclear2(H5E_DEFAULT);
  return found;
}

void Node::set_text(const std::string& name, std::string_view value, std::size_t capacity) {
  const Lock lock;
  const std::string what = fmt::format("{}: cannot write attribute '{}'", where_, name);
  if (value.size() > kMaxText) throw IoError(what + ": the text is too long");
  if (H5Aexists(id_.get(), name.c_str()) > 0) {
    const Id attribute(check_io(H5Aopen(id_.get(), name.c_str(), H5P_DEFAULT), what));
    const Id type(check_io(H5Aget_type(attribute.get()), what));
    std::string padded(value);
    if (H5Tis_variable_str(type.get()) != 0 || padded.size() > H5Tget_size(type.get())) {
      throw IoError(what + ": no room was reserved for it");
    }
    padded.resize(H5Tget_size(type.get()), '\0');
    check_io(H5Awrite(attribute.get(), type.get(), padded.data()), what);
    return;
  }
  std::string padded(value);
  padded.resize(std::max<std::size_t>({value.size(), capacity, 1}), '\0');
  const Id type = text_type(padded.size());
  const Id space(H5Screate(H5S_SCALAR));
  const Id attribute(check_io(
      H5Acreate2(id_.get(), name.c_str(), type.get(), space.get(), H5P_DEFAULT, H5P_DEFAULT), what));
  check_io(H5Awrite(attribute.get(), type.get(), padded.data()), what);
}

void Node::set_texts(const std::string& name, const std::vector<std::string>& values) {
  const Lock lock;
  const std::string what = fmt::format("{}: cannot write attribute '{}'", where_, name);
  std::size_t width = 1;
  for (const auto& value : values) width = std::max(width, value.size());
  if (width * values.size() > kMaxText) throw IoError(what + ": the text is too long");
  std::string block;
  for (const auto& value : values) block += value + std::string(width - value.size(), '\0');
  const Id type = text_type(width);
  const hsize_t n = values.size();
  const Id space(H5Screate_simple(1, &n, nullptr));
  const Id attribute(check_io(
      H5Acreate2(id_.get(), name.c_str(), type.get(), space.get(), H5P_DEFAULT, H5P_DEFAULT), what));
  check_io(H5Awrite(attribute.get(), type.get(), block.data()), what);
}

void Node::set_integer(const std::string& name, std::int64_t value) {
  const Lock lock;
  const std::string what = fmt::format("{}: cannot write attribute '{}'", where_, name);
  const Id space(H5Screate(H5S_SCALAR));
  const Id attribute(check_io(
      H5Acreate2(id_.get(), name.c_str(), H5T_STD_I64LE, space.get(), H5P_DEFAULT, H5P_DEFAULT), what));
  check_io(H5Awrite(attribute.get(), H5T_NATIVE_INT64, &value), what);
}

void Node::set_real(const std::string& name, double value) {
  const Lock lock;
  const std::string what = fmt::format("{}: cannot write attribute '{}'", where_, name);
  const Id space(H5Screate(H5S_SCALAR));
  const Id attribute(check_io(
      H5Acreate2(id_.get(), name.c_str(), H5T_IEEE_F64LE, space.get(), H5P_DEFAULT, H5P_DEFAULT), what));
  check_io(H5Awrite(attribute.get(), H5T_NATIVE_DOUBLE, &value), what);
}

std::vector<std::string> Node::texts(const std::string& name) const {
  const Lock lock;
  const OpenAttribute open = open_attribute(id_.get(), where_, name, H5T_STRING, "a text");
  const std::string what = fmt::format("{}: attribute '{}' cannot be read", where_, name);
  std::vector<std::string> values;
  if (H5Tis_variable_str(open.type.get()) > 0) {
    // Python writes strings of variable length: HDF5 allocates each one, we copy and hand it back.
    std::vector<char*> pointers(static_cast<std::size_t>(open.n), nullptr);
    check_format(H5Aread(open.attribute.get(), open.type.get(), pointers.data()), what);
    for (char* text : pointers) values.emplace_back(text == nullptr ? "" : text);
    const Id space(H5Aget_space(open.attribute.get()));
    H5Dvlen_reclaim(open.type.get(), space.get(), H5P_DEFAULT, pointers.data());
    return values;
  }
  const std::size_t width = H5Tget_size(open.type.get());
  if (width * static_cast<std::size_t>(open.n) > kMaxText) throw FormatError(what + ": too large");
  std::vector<char> block(width * static_cast<std::size_t>(open.n));
  check_format(H5Aread(open.attribute.get(), open.type.get(), block.data()), what);
  for (Index i = 0; i < open.n; ++i) {
    values.push_back(trim_padding(block.data() + static_cast<std::size_t>(i) * width, width));
  }
  return values;
}

std::string Node::text(const std::string& name) const {
  auto values = texts(name);
  if (values.size() != 1) {
    throw FormatError(fmt::format("{}: attribute '{}' holds {} texts, expected one", where_, name,
                                  values.size()));
  }
  return std::move(values.front());
}

std::int64_t Node::integer(const std::string& name) const {
  const Lock lock;
  const OpenAttribute open = open_attribute(id_.get(), where_, name, H5T_INTEGER, "an integer");
  if (open.n != 1) {
    throw FormatError(fmt::format("{}: attribute '{}' is not a single number", where_, name));
  }
  std::int64_t value = 0;
  check_format(H5Aread(open.attribute.get(), H5T_NATIVE_INT64, &value),
               fmt::format("{}: attribute '{}' cannot be read", where_, name));
  return value;
}

double Node::real(const std::string& name) const {
  const Lock lock;
  const OpenAttribute open = open_attribute(id_.get(), where_, name, H5T_FLOAT, "a real number");
  if (open.n != 1) {
    throw FormatError(fmt::format("{}: attribute '{}' is not a single number", where_, name));
  }
  double value = 0;
  check_format(H5Aread(open.attribute.get(), H5T_NATIVE_DOUBLE, &value),
               fmt::format("{}: attribute '{}' cannot be read", where_, name));
  return value;
}

// ---- datasets --------------------------------------------------------------------------------

std::optional<std::uint64_t> Dataset::file_offset() const {
  const Lock lock;
  const haddr_t offset = H5Dget_offset(id_.get());
  H5Eclear2(H5E_DEFAULT);
  if (offset == HADDR_UNDEF) return std::nullopt;
  return offset;
}

namespace {

/// Memory and file spaces that select one box. Throws ShapeError if the box is not inside the dataset.
std::pair<Id, Id> select_box(hid_t dataset, const std::string& where, const Dims& dims,
                             const Dims& offset, const Dims& size) {
  bool inside = offset.size() == dims.size() && size.size() == dims.size();
  for (std::size_t a = 0; inside && a < dims.size(); ++a) {
    inside = offset[a] >= 0 && size[a] >= 0 && offset[a] <= dims[a] && size[a] <= dims[a] - offset[a];
  }
  if (!inside) {
    throw ShapeError(fmt::format("{}: box at {} of size {} is outside the shape {}", where,
                                 to_string(offset), to_string(size), to_string(dims)));
  }
  Id file_space(H5Dget_space(dataset));
  const auto start = to_hsize(offset);
  const auto extent = to_hsize(size);
  const int rank = static_cast<int>(dims.size());
  if (rank > 0) {
    H5Sselect_hyperslab(file_space.get(), H5S_SELECT_SET, start.data(), nullptr, extent.data(), nullptr);
  }
  Id memory_space(rank > 0 ? H5Screate_simple(rank, extent.data(), nullptr) : H5Screate(H5S_SCALAR));
  return {std::move(memory_space), std::move(file_space)};
}

}  // namespace

void Dataset::read(const Dims& offset, const Dims& size, void* out) const {
  const Lock lock;
  const auto [memory, file] = select_box(id_.get(), where_, dims_, offset, size);
  if (count(size) == 0) return;
  const Id type = file_type(type_);
  check_format(H5Dread(id_.get(), type.get(), memory.get(), file.get(), H5P_DEFAULT, out),
               fmt::format("{}: cannot read the data at {}", where_, to_string(offset)));
}

void Dataset::write(const Dims& offset, const Dims& size, const void* data) {
  const Lock lock;
  const auto [memory, file] = select_box(id_.get(), where_, dims_, offset, size);
  if (count(size) == 0) return;
  const Id type = file_type(type_);
  check_io(H5Dwrite(id_.get(), type.get(), memory.get(), file.get(), H5P_DEFAULT, data),
           fmt::format("{}: cannot write the data at {}", where_, to_string(offset)));
}

template <class T>
std::vector<T> Dataset::read_all() const {
  constexpr Type expected = std::is_same_v<T, std::uint8_t>    ? Type::u8
                            : std::is_same_v<T, std::int32_t>  ? Type::i32
                            : std::is_same_v<T, std::int64_t>  ? Type::i64
                            : std::is_same_v<T, std::uint64_t> ? Type::u64
                            : std::is_same_v<T, double>        ? Type::f64
                                                               : Type::f32;
  if (type_ != expected) {
    throw FormatError(fmt::format("{}: type {}, expected {}", where_, name_of(type_), name_of(expected)));
  }
  std::vector<T> values(static_cast<std::size_t>(count(dims_)));
  read(Dims(dims_.size(), 0), dims_, values.data());
  return values;
}

template std::vector<std::uint8_t> Dataset::read_all() const;
template std::vector<std::int32_t> Dataset::read_all() const;
template std::vector<std::int64_t> Dataset::read_all() const;
template std::vector<std::uint64_t> Dataset::read_all() const;
template std::vector<float> Dataset::read_all() const;
template std::vector<double> Dataset::read_all() const;

// ---- files -----------------------------------------------------------------------------------

File File::create(const std::filesystem::path& path) {
  const Lock lock;
  const Id access = access_list();
  const Id creation(H5Pcreate(H5P_FILE_CREATE));
  H5Pset_obj_track_times(creation.get(), false);
  File file;
  file.where_ = path.string();
  file.id_ = Id(check_io(H5Fcreate(path.c_str(), H5F_ACC_EXCL, creation.get(), access.get()),
                         fmt::format("cannot create {}", path.string())));
  return file;
}

File File::open(const std::filesystem::path& path, Access access) {
  const Lock lock;
  File file;
  file.where_ = path.string();
  file.storage_limit_ = check_regular_file(path);
  const Id list = access_list();
  file.id_ = Id(H5Fopen(path.c_str(), access == Access::read ? H5F_ACC_RDONLY : H5F_ACC_RDWR, list.get()));
  if (!file.id_) fail_open(path.string(), file.storage_limit_);
  return file;
}

File File::open_image(std::span<const std::byte> bytes, const std::string& name) {
  const Lock lock;
  File file;
  file.where_ = name;
  file.storage_limit_ = static_cast<Index>(bytes.size());
  const Id list = access_list();
  H5Pset_fapl_core(list.get(), 1 << 16, false);
  // HDF5 copies the image, so that a const pointer is safe here.
  H5Pset_file_image(list.get(), const_cast<std::byte*>(bytes.data()), bytes.size());
  file.id_ = Id(H5Fopen(name.c_str(), H5F_ACC_RDONLY, list.get()));
  if (!file.id_) fail_open(name, file.storage_limit_);
  return file;
}

std::uint64_t File::size_bytes() const {
  const Lock lock;
  hsize_t size = 0;
  check_io(H5Fget_filesize(id_.get(), &size), fmt::format("{}: cannot tell its size", where_));
  return size;
}

bool File::has(const std::string& path) const {
  const Lock lock;
  // Every step of the path has to exist before HDF5 may be asked for the next one.
  for (std::size_t end = path.find('/', 1);; end = path.find('/', end + 1)) {
    const std::string part = path.substr(0, end);
    if (part.size() > 1) {
      H5L_info_t info{};
      const bool found = H5Lexists(id_.get(), part.c_str(), H5P_DEFAULT) > 0 &&
                         H5Lget_info(id_.get(), part.c_str(), &info, H5P_DEFAULT) >= 0 &&
                         info.type == H5L_TYPE_HARD;
      H5Eclear2(H5E_DEFAULT);
      if (!found) return false;
    }
    if (end == std::string::npos) return true;
  }
}

bool File::is_group(const std::string& path) const {
  const Lock lock;
  if (!has(path)) return false;
  const Id group(H5Gopen2(id_.get(), path.c_str(), H5P_DEFAULT));
  H5Eclear2(H5E_DEFAULT);
  return static_cast<bool>(group);
}

std::vector<std::string> File::list(const std::string& group) const {
  const Lock lock;
  std::vector<std::string> names;
  if (!is_group(group)) return names;
  const Group opened = open_group(group);
  const auto collect = [](hid_t, const char* name, const H5L_info_t*, void* out) -> herr_t {
    static_cast<std::vector<std::string>*>(out)->emplace_back(name);
    return 0;
  };
  check_format(H5Literate(opened.id_.get(), H5_INDEX_NAME, H5_ITER_INC, nullptr, collect, &names),
               fmt::format("{}: group {} cannot be listed", where_, group));
  return names;
}

Group File::create_group(const std::string& path) {
  const Lock lock;
  const Id links(H5Pcreate(H5P_LINK_CREATE));
  H5Pset_create_intermediate_group(links.get(), 1);
  const Id creation(H5Pcreate(H5P_GROUP_CREATE));
  H5Pset_obj_track_times(creation.get(), false);
  return Group(Id(check_io(H5Gcreate2(id_.get(), path.c_str(), links.get(), creation.get(), H5P_DEFAULT),
                           fmt::format("{}: cannot create group {}", where_, path))),
               fmt::format("{}: {}", where_, path));
}

Group File::open_group(const std::string& path) const {
  const Lock lock;
  if (!has(path)) throw FormatError(fmt::format("{}: group {} is missing", where_, path));
  return Group(Id(check_format(H5Gopen2(id_.get(), path.c_str(), H5P_DEFAULT),
                               fmt::format("{}: {} cannot be opened as a group", where_, path))),
               fmt::format("{}: {}", where_, path));
}

Dataset File::create_dataset(const std::string& path, Type type, const Dims& dims,
                             const DatasetOptions& options) {
  const Lock lock;
  const Id links(H5Pcreate(H5P_LINK_CREATE));
  H5Pset_create_intermediate_group(links.get(), 1);
  const Id creation(H5Pcreate(H5P_DATASET_CREATE));
  H5Pset_obj_track_times(creation.get(), false);
  H5Pset_fill_time(creation.get(), H5D_FILL_TIME_NEVER);
  const Id access(H5Pcreate(H5P_DATASET_ACCESS));
  if (options.chunk.empty()) {
    H5Pset_layout(creation.get(), H5D_CONTIGUOUS);
    H5Pset_alloc_time(creation.get(), H5D_ALLOC_TIME_EARLY);
  } else {
    const auto chunk = to_hsize(options.chunk);
    H5Pset_chunk(creation.get(), static_cast<int>(chunk.size()), chunk.data());
    if (options.gzip_level) {
      H5Pset_shuffle(creation.get());
      H5Pset_deflate(creation.get(), static_cast<unsigned>(*options.gzip_level));
      H5Pset_fletcher32(creation.get());
    }
    if (options.chunk_cache_bytes > 0) {
      H5Pset_chunk_cache(access.get(), 521, options.chunk_cache_bytes, 1.0);
    }
  }
  const auto extent = to_hsize(dims);
  const Id space(dims.empty() ? H5Screate(H5S_SCALAR)
                              : H5Screate_simple(static_cast<int>(dims.size()), extent.data(), nullptr));
  const Id element = file_type(type);
  Dataset dataset;
  dataset.where_ = fmt::format("{}: {}", where_, path);
  dataset.type_ = type;
  dataset.dims_ = dims;
  dataset.id_ = Id(check_io(H5Dcreate2(id_.get(), path.c_str(), element.get(), space.get(), links.get(),
                                       creation.get(), access.get()),
                            fmt::format("{}: cannot create dataset {} {}", where_, path, to_string(dims))));
  return dataset;
}

Dataset File::open_dataset(const std::string& path, std::size_t chunk_cache_bytes) const {
  const Lock lock;
  Dataset dataset;
  dataset.where_ = fmt::format("{}: {}", where_, path);
  const std::string& where = dataset.where_;
  if (!has(path)) throw FormatError(fmt::format("{}: dataset {} is missing", where_, path));
  const Id access(H5Pcreate(H5P_DATASET_ACCESS));
  if (chunk_cache_bytes > 0) H5Pset_chunk_cache(access.get(), 521, chunk_cache_bytes, 1.0);
  dataset.id_ = Id(check_format(H5Dopen2(id_.get(), path.c_str(), access.get()),
                                fmt::format("{}: cannot be opened as a dataset", where)));
  const Id type(check_format(H5Dget_type(dataset.id_.get()), fmt::format("{}: has no type", where)));
  const auto known = identify(type.get());
  if (!known) {
    throw FormatError(fmt::format("{}: element type is none of f32, f64, f16, bf16, u8, i32, i64, u64 "
                                  "(little endian)", where));
  }
  dataset.type_ = *known;

  const Id space(check_format(H5Dget_space(dataset.id_.get()), fmt::format("{}: has no shape", where)));
  const int rank = H5Sget_simple_extent_ndims(space.get());
  if (rank < 0 || rank > Shape::kMaxRank) {
    throw FormatError(fmt::format("{}: rank {}, expected 0 to {}", where, rank, Shape::kMaxRank));
  }
  std::vector<hsize_t> extent(static_cast<std::size_t>(rank));
  if (rank > 0) H5Sget_simple_extent_dims(space.get(), extent.data(), nullptr);
  Index bytes = static_cast<Index>(size_of(*known));
  for (hsize_t d : extent) {
    if (d > (1ULL << 48) || __builtin_mul_overflow(bytes, static_cast<Index>(d), &bytes)) {
      throw FormatError(fmt::format("{}: the shape is absurdly large", where));
    }
    dataset.dims_.push_back(static_cast<Index>(d));
  }

  const Id creation(check_format(H5Dget_create_plist(dataset.id_.get()),
                                 fmt::format("{}: has no storage description", where)));
  const H5D_layout_t layout = H5Pget_layout(creation.get());
  if (H5Pget_external_count(creation.get()) > 0 || layout == H5D_VIRTUAL) {
    throw FormatError(fmt::format("{}: its data lie in other files, which is not supported", where));
  }
  const Index stored = static_cast<Index>(H5Dget_storage_size(dataset.id_.get()));
  const Index most = layout == H5D_CHUNKED ? std::min(stored, storage_limit_) : stored;
  const bool offset_ok = [&] {
    if (layout != H5D_CONTIGUOUS || bytes == 0) return true;
    const haddr_t offset = H5Dget_offset(dataset.id_.get());
    return offset != HADDR_UNDEF && static_cast<Index>(offset) <= storage_limit_ &&
           bytes <= storage_limit_ - static_cast<Index>(offset);
  }();
  H5Eclear2(H5E_DEFAULT);
  const bool size_ok = layout == H5D_CHUNKED ? bytes / kMaxDeflateRatio <= most : bytes <= most;
  if (!offset_ok || !size_ok) {
    throw FormatError(fmt::format("{}: shape {} needs {} bytes, the file does not hold them", where,
                                  to_string(dataset.dims_), bytes));
  }
  return dataset;
}

void File::write_text(const std::string& path, std::string_view text) {
  const Lock lock;
  const std::string what = fmt::format("{}: cannot write {}", where_, path);
  const Id links(H5Pcreate(H5P_LINK_CREATE));
  H5Pset_create_intermediate_group(links.get(), 1);
  const Id creation(H5Pcreate(H5P_DATASET_CREATE));
  H5Pset_obj_track_times(creation.get(), false);
  const Id type = text_type(text.size());
  const Id space(H5Screate(H5S_SCALAR));
  const Id dataset(check_io(H5Dcreate2(id_.get(), path.c_str(), type.get(), space.get(), links.get(),
                                       creation.get(), H5P_DEFAULT), what));
  const std::string padded = text.empty() ? std::string(1, '\0') : std::string(text);
  check_io(H5Dwrite(dataset.get(), type.get(), H5S_ALL, H5S_ALL, H5P_DEFAULT, padded.data()), what);
}

std::string File::read_text(const std::string& path) const {
  const Lock lock;
  const std::string what = fmt::format("{}: {} cannot be read as text", where_, path);
  if (!has(path)) throw FormatError(fmt::format("{}: dataset {} is missing", where_, path));
  const Id dataset(check_format(H5Dopen2(id_.get(), path.c_str(), H5P_DEFAULT), what));
  const Id type(check_format(H5Dget_type(dataset.get()), what));
  const Id space(check_format(H5Dget_space(dataset.get()), what));
  const bool fixed = H5Tget_class(type.get()) == H5T_STRING && H5Tis_variable_str(type.get()) == 0;
  const std::size_t size = H5Tget_size(type.get());
  if (!fixed || H5Sget_simple_extent_npoints(space.get()) != 1 ||
      size > static_cast<std::size_t>(storage_limit_)) {
    throw FormatError(fmt::format("{}: {} is not one text of fixed length", where_, path));
  }
  std::string text(size, '\0');
  check_format(H5Dread(dataset.get(), type.get(), H5S_ALL, H5S_ALL, H5P_DEFAULT, text.data()), what);
  text.resize(strnlen(text.data(), size));
  return text;
}

void File::link(const std::string& target, const std::string& path) {
  const Lock lock;
  const Id links(H5Pcreate(H5P_LINK_CREATE));
  H5Pset_create_intermediate_group(links.get(), 1);
  check_io(H5Lcreate_hard(id_.get(), target.c_str(), id_.get(), path.c_str(), links.get(), H5P_DEFAULT),
           fmt::format("{}: cannot link {} to {}", where_, path, target));
}

void File::flush() {
  const Lock lock;
  check_io(H5Fflush(id_.get(), H5F_SCOPE_GLOBAL), fmt::format("cannot write {}", where_));
}

void File::close() {
  const Lock lock;
  const Handle handle = id_.release();
  if (handle >= 0) check_io(H5Fclose(handle), fmt::format("cannot write {} to its end", where_));
}

}  // namespace kvscope::h5
