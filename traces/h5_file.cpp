#include <sys/stat.h>

#include <cerrno>
#include <cstring>

#include "traces/h5_internal.hpp"

namespace kvscope::h5 {

namespace {

Id access_list() {
  Id list(H5Pcreate(H5P_FILE_ACCESS));
  H5Pset_fclose_degree(list.get(), H5F_CLOSE_STRONG);
  return list;
}
std::string locked_advice(const std::string& reason) {
  if (reason.find("lock") == std::string::npos) return "";
  return "; another program has the file open, or the file system has no locks: on NFS or Lustre "
         "set the "
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
  throw FormatError(
      fmt::format("{}: not a whole HDF5 file ({} bytes; HDF5: {})", name, size, reason));
}

}  // namespace

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
  file.id_ =
      Id(H5Fopen(path.c_str(), access == Access::read ? H5F_ACC_RDONLY : H5F_ACC_RDWR, list.get()));
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
  return Group(
      Id(check_io(H5Gcreate2(id_.get(), path.c_str(), links.get(), creation.get(), H5P_DEFAULT),
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

void File::write_text(const std::string& path, std::string_view text) {
  const Lock lock;
  const std::string what = fmt::format("{}: cannot write {}", where_, path);
  const Id links(H5Pcreate(H5P_LINK_CREATE));
  H5Pset_create_intermediate_group(links.get(), 1);
  const Id creation(H5Pcreate(H5P_DATASET_CREATE));
  H5Pset_obj_track_times(creation.get(), false);
  const Id type = text_type(text.size());
  const Id space(H5Screate(H5S_SCALAR));
  const Id dataset(check_io(H5Dcreate2(id_.get(), path.c_str(), type.get(), space.get(),
                                       links.get(), creation.get(), H5P_DEFAULT),
                            what));
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
  check_format(H5Dread(dataset.get(), type.get(), H5S_ALL, H5S_ALL, H5P_DEFAULT, text.data()),
               what);
  text.resize(strnlen(text.data(), size));
  return text;
}

void File::link(const std::string& target, const std::string& path) {
  const Lock lock;
  const Id links(H5Pcreate(H5P_LINK_CREATE));
  H5Pset_create_intermediate_group(links.get(), 1);
  check_io(
      H5Lcreate_hard(id_.get(), target.c_str(), id_.get(), path.c_str(), links.get(), H5P_DEFAULT),
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
