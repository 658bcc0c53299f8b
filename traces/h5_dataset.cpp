// Datasets of h5.hpp: making, opening, reading and writing boxes, with every shape checked against
// the file.
#include <algorithm>
#include <type_traits>
#include <utility>

#include "core/base/enum_names.hpp"
#include "traces/h5_device.hpp"
#include "traces/h5_internal.hpp"

namespace kvscope::h5 {

namespace {

constexpr Index kMaxDeflateRatio = 1100;  // deflate cannot shrink by more than 1032

}  // namespace

std::optional<std::uint64_t> Dataset::file_offset() const {
  const Lock lock(where_.c_str());
  const haddr_t offset = H5Dget_offset(id_.get());
  H5Eclear2(H5E_DEFAULT);
  if (offset == HADDR_UNDEF) return std::nullopt;
  return offset;
}

namespace {

/// Memory and file spaces that select one box. Throws ShapeError if the box is not inside the
/// dataset.
std::pair<Id, Id> select_box(hid_t dataset, const std::string& where, const Dims& dims,
                             const Dims& offset, const Dims& size) {
  bool inside = offset.size() == dims.size() && size.size() == dims.size();
  for (std::size_t a = 0; inside && a < dims.size(); ++a) {
    inside =
        offset[a] >= 0 && size[a] >= 0 && offset[a] <= dims[a] && size[a] <= dims[a] - offset[a];
  }
  if (!inside) {
    throw ShapeError("{}: box at {} of size {} is outside the shape {}", where, to_string(offset),
                     to_string(size), to_string(dims));
  }
  Id file_space(H5Dget_space(dataset));
  const auto start = to_hsize(offset);
  const auto extent = to_hsize(size);
  const int rank = static_cast<int>(dims.size());
  if (rank > 0) {
    H5Sselect_hyperslab(file_space.get(), H5S_SELECT_SET, start.data(), nullptr, extent.data(),
                        nullptr);
  }
  Id memory_space(rank > 0 ? H5Screate_simple(rank, extent.data(), nullptr)
                           : H5Screate(H5S_SCALAR));
  return {std::move(memory_space), std::move(file_space)};
}

}  // namespace

void Dataset::read(const Dims& offset, const Dims& size, void* out) const {
  const Lock lock(where_.c_str());
  const auto [memory, file] = select_box(id_.get(), where_, dims_, offset, size);
  if (count(size) == 0) return;
  const Id type = file_type(type_);
  check_format(H5Dread(id_.get(), type.get(), memory.get(), file.get(), H5P_DEFAULT, out),
               fmt::format("{}: cannot read the data at {}", where_, to_string(offset)));
}

void Dataset::write(const Dims& offset, const Dims& size, const void* data) {
  const Lock lock(where_.c_str());
  const auto [memory, file] = select_box(id_.get(), where_, dims_, offset, size);
  if (count(size) == 0) return;
  const Id type = file_type(type_);
  check_io(H5Dwrite(id_.get(), type.get(), memory.get(), file.get(), H5P_DEFAULT, data),
           fmt::format("{}: cannot write the data at {}", where_, to_string(offset)));
  if (device_) device_->check();
}

void Dataset::check_fits_memory() const {
  constexpr Index kAlwaysFits = Index{64} << 20;
  const Index bytes = count(dims_) * static_cast<Index>(size_of(type_));
  if (storage_limit_ == 0 || bytes <= std::max(storage_limit_, kAlwaysFits)) return;
  throw FormatError("{}: shape {} takes {} bytes of memory, in a file of {} bytes", where_,
                    to_string(dims_), bytes, storage_limit_);
}

template <class T>
std::vector<T> Dataset::read_all() const {
  constexpr Type expected = std::is_same_v<T, std::uint8_t>    ? Type::u8
                            : std::is_same_v<T, std::int32_t>  ? Type::i32
                            : std::is_same_v<T, std::int64_t>  ? Type::i64
                            : std::is_same_v<T, std::uint64_t> ? Type::u64
                            : std::is_same_v<T, double>        ? Type::f64
                                                               : Type::f32;
  if (type_ != expected)
    throw FormatError("{}: type {}, expected {}", where_, enum_name(type_), enum_name(expected));
  check_fits_memory();
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
namespace {

void check_filters(hid_t creation, const std::string& where) {
  const int n = H5Pget_nfilters(creation);
  for (int i = 0; i < n; ++i) {
    unsigned flags = 0;
    unsigned config = 0;
    std::size_t n_values = 0;
    const H5Z_filter_t filter = H5Pget_filter2(creation, static_cast<unsigned>(i), &flags,
                                               &n_values, nullptr, 0, nullptr, &config);
    if (filter == H5Z_FILTER_DEFLATE || filter == H5Z_FILTER_SHUFFLE ||
        filter == H5Z_FILTER_FLETCHER32) {
      continue;
    }
    throw FormatError("{}: stored with HDF5's filter {}, expected gzip, shuffle or fletcher32",
                      where, static_cast<int>(filter));
  }
}

/// A chunk is unpacked as a whole for whatever is read of it: one that is much larger than its
/// dataset takes the memory and the time of a dataset that is not there.
void check_chunk(hid_t creation, int rank, Index dataset_bytes, Index element_bytes,
                 const std::string& where) {
  constexpr Index kAlwaysFits = Index{64} << 20;
  std::vector<hsize_t> chunk(static_cast<std::size_t>(rank));
  Index bytes = element_bytes;
  bool fits = H5Pget_chunk(creation, rank, chunk.data()) == rank;
  for (const hsize_t extent : chunk)
    fits = fits && !__builtin_mul_overflow(bytes, static_cast<Index>(extent), &bytes);
  if (fits && bytes <= std::max(kAlwaysFits, 2 * dataset_bytes)) return;
  throw FormatError(
      "{}: stored in chunks of shape {}, expected none larger than 64 MiB and twice "
      "the dataset's {} bytes",
      where, to_string(Dims(chunk.begin(), chunk.end())), dataset_bytes);
}

}  // namespace

Dataset File::create_dataset(const std::string& path, Type type, const Dims& dims,
                             const DatasetOptions& options) {
  const Lock lock(where_.c_str());
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
  const Id space(dims.empty()
                     ? H5Screate(H5S_SCALAR)
                     : H5Screate_simple(static_cast<int>(dims.size()), extent.data(), nullptr));
  const Id element = file_type(type);
  Dataset dataset;
  dataset.where_ = fmt::format("{}: {}", where_, path);
  dataset.path_ = path;
  dataset.type_ = type;
  dataset.dims_ = dims;
  dataset.device_ = device_;
  dataset.id_ =
      Id(check_io(H5Dcreate2(id_.get(), path.c_str(), element.get(), space.get(), links.get(),
                             creation.get(), access.get()),
                  fmt::format("{}: cannot create dataset {} {}", where_, path, to_string(dims))));
  return dataset;
}

Dataset File::open_dataset(const std::string& path, std::size_t chunk_cache_bytes) const {
  const Lock lock(where_.c_str());
  Dataset dataset;
  dataset.where_ = fmt::format("{}: {}", where_, path);
  const std::string& where = dataset.where_;
  if (!has(path)) throw FormatError("{}: dataset {} is missing", where_, path);
  Id access;
  if (chunk_cache_bytes > 0) {
    access = Id(H5Pcreate(H5P_DATASET_ACCESS));
    H5Pset_chunk_cache(access.get(), 521, chunk_cache_bytes, 1.0);
  }
  dataset.id_ = Id(check_format(H5Dopen2(parent_of(path), path.c_str() + path.rfind('/') + 1,
                                         access ? access.get() : H5P_DEFAULT),
                                fmt::format("{}: cannot be opened as a dataset", where)));
  const Id type(
      check_format(H5Dget_type(dataset.id_.get()), fmt::format("{}: has no type", where)));
  const auto known = identify(type.get());
  if (!known) {
    throw FormatError(
        "{}: element type is none of f32, f64, f16, bf16, u8, i32, i64, u64 (little endian)",
        where);
  }
  dataset.type_ = *known;

  // Before the shape, for which a virtual dataset would open its sources. What has a place
  // in the file is contiguous and neither filtered nor elsewhere; asking for more costs as
  // much as opening.
  const haddr_t place = H5Dget_offset(dataset.id_.get());
  H5Eclear2(H5E_DEFAULT);
  H5D_layout_t layout = H5D_CONTIGUOUS;
  Id creation;
  if (place == HADDR_UNDEF || has_user_block_) {
    creation = Id(check_format(H5Dget_create_plist(dataset.id_.get()),
                               fmt::format("{}: has no storage description", where)));
    layout = H5Pget_layout(creation.get());
    if (H5Pget_external_count(creation.get()) > 0 || layout == H5D_VIRTUAL)
      throw FormatError("{}: its data lie in other files, which is not supported", where);
    check_filters(creation.get(), where);
  }

  const Id space(
      check_format(H5Dget_space(dataset.id_.get()), fmt::format("{}: has no shape", where)));
  const int rank = H5Sget_simple_extent_ndims(space.get());
  if (rank < 0 || rank > Shape::kMaxRank)
    throw FormatError("{}: rank {}, expected 0 to {}", where, rank, Shape::kMaxRank);
  std::vector<hsize_t> extent(static_cast<std::size_t>(rank));
  if (rank > 0) H5Sget_simple_extent_dims(space.get(), extent.data(), nullptr);
  Index bytes = static_cast<Index>(size_of(*known));
  for (hsize_t d : extent) {
    if (d > (1ULL << 48) || __builtin_mul_overflow(bytes, static_cast<Index>(d), &bytes))
      throw FormatError("{}: the shape is absurdly large", where);
    dataset.dims_.push_back(static_cast<Index>(d));
  }
  if (layout == H5D_CHUNKED)
    check_chunk(creation.get(), rank, bytes, static_cast<Index>(size_of(*known)), where);

  const Index stored = static_cast<Index>(H5Dget_storage_size(dataset.id_.get()));
  const Index most = layout == H5D_CHUNKED ? std::min(stored, storage_limit_) : stored;
  const bool offset_ok = [&] {
    if (layout != H5D_CONTIGUOUS || bytes == 0) return true;
    return place != HADDR_UNDEF && static_cast<Index>(place) <= storage_limit_ &&
           bytes <= storage_limit_ - static_cast<Index>(place);
  }();
  H5Eclear2(H5E_DEFAULT);
  const bool size_ok = layout == H5D_CHUNKED ? bytes / kMaxDeflateRatio <= most : bytes <= most;
  if (!offset_ok || !size_ok) {
    require_readable();
    throw FormatError("{}: shape {} needs {} bytes, the file does not hold them", where,
                      to_string(dataset.dims_), bytes);
  }
  dataset.storage_limit_ = storage_limit_;
  return dataset;
}

}  // namespace kvscope::h5
