// Files of h5.hpp: opening, closing, groups, links and texts.
#include <cstdlib>
#include <cstring>
#include <string_view>
#include <utility>

#include "core/base/shell_word.hpp"
#include "traces/h5_device.hpp"
#include "traces/h5_internal.hpp"

namespace kvscope::h5 {

namespace {

constexpr const char* kLockedAdvice =
    "; another program has the file open, or the file system has no locks: on NFS or Lustre set "
    "the environment variable HDF5_USE_FILE_LOCKING=FALSE";

[[noreturn]] void fail_open(const std::string& name, Index size, const Device* device) {
  const std::string reason = innermost_error();
  if (device != nullptr && device->lock_error() != 0)
    throw IoError("cannot open {}{} (HDF5: {})", name, kLockedAdvice, reason);
  require_readable();
  constexpr std::string_view kWhole = "stored_eof = ";
  const std::size_t at = reason.find(kWhole);
  if (reason.find("truncated file") != std::string::npos && at != std::string::npos) {
    // HDF5 says how long the file was when it was written
    const double whole = std::strtod(reason.c_str() + at + kWhole.size(), nullptr);
    throw FormatError(
        "{} is truncated: {:.1f} of {:.1f} MB are here; copy it again (if it was still "
        "being recorded, kvscope recover makes a whole file of its .part)",
        name, 1e-6 * static_cast<double>(size), 1e-6 * whole);
  }
  throw FormatError(
      "{}: not a whole HDF5 file ({} bytes; HDF5: {}); kvscope {} says what it is and what takes "
      "it",
      name, size, reason, shell_word(name));
}

}  // namespace

File File::create(const std::filesystem::path& path) {
  const Lock lock(path.c_str());
  File file;
  file.where_ = path.string();
  file.device_ = std::make_shared<Device>(path, Device::Mode::create);
  const AccessOnce access(file.device_);
  const Id creation(H5Pcreate(H5P_FILE_CREATE));
  H5Pset_obj_track_times(creation.get(), false);
  file.n_failed_closes_ = n_failed_closes();
  const hid_t made = H5Fcreate(path.c_str(), H5F_ACC_TRUNC, creation.get(), access.get());
  const bool is_unlocked = made < 0 && file.device_->lock_error() != 0;
  file.id_ = Id(check_io(
      made, fmt::format("cannot create {}{}", path.string(), is_unlocked ? kLockedAdvice : "")));
  return file;
}

File File::open(const std::filesystem::path& path, Access access) {
  const Lock lock(path.c_str());
  File file;
  file.where_ = path.string();
  const bool writes = access == Access::write;
  file.device_ = std::make_shared<Device>(path, writes ? Device::Mode::write : Device::Mode::read);
  file.storage_limit_ = static_cast<Index>(file.device_->size_bytes());
  const AccessOnce list(file.device_);
  file.n_failed_closes_ = n_failed_closes();
  file.id_ = Id(H5Fopen(path.c_str(), writes ? H5F_ACC_RDWR : H5F_ACC_RDONLY, list.get()));
  if (!file.id_) fail_open(path.string(), file.storage_limit_, file.device_.get());
  const Id creation(H5Fget_create_plist(file.id_.get()));
  hsize_t user_block = 1;
  H5Pget_userblock(creation.get(), &user_block);
  file.has_user_block_ = user_block != 0;
  return file;
}

File File::open_image(std::span<const std::byte> bytes, const std::string& name) {
  const Lock lock;
  File file;
  file.where_ = name;
  file.storage_limit_ = static_cast<Index>(bytes.size());
  const Id list(H5Pcreate(H5P_FILE_ACCESS));
  H5Pset_fclose_degree(list.get(), H5F_CLOSE_STRONG);
  H5Pset_fapl_core(list.get(), 1 << 16, false);
  // HDF5 copies the image, so that a const pointer is safe here.
  H5Pset_file_image(list.get(), const_cast<std::byte*>(bytes.data()), bytes.size());
  file.id_ = Id(H5Fopen(name.c_str(), H5F_ACC_RDONLY, list.get()));
  if (!file.id_) fail_open(name, file.storage_limit_, nullptr);
  return file;
}

std::uint64_t File::size_bytes() const {
  const Lock lock(where_.c_str());
  hsize_t size = 0;
  check_io(H5Fget_filesize(id_.get(), &size), fmt::format("{}: cannot tell its size", where_));
  return size;
}

namespace {

bool has_hard_link(hid_t group, const char* name) {
  H5L_info_t info{};
  const bool found =
      H5Lget_info(group, name, &info, H5P_DEFAULT) >= 0 && info.type == H5L_TYPE_HARD;
  if (!found) H5Eclear2(H5E_DEFAULT);
  return found;
}

}  // namespace

Handle File::parent_of(const std::string& path) const {
  // Every step of the path has to exist before HDF5 may be asked for the next one. The arrays of a
  // layer share their way, which is walked once: walking it costs as much as opening a dataset.
  Handle group = id_.get();
  std::size_t depth = 0;
  for (std::size_t end = path.find('/', 1); end != std::string::npos;
       end = path.find('/', end + 1)) {
    const std::string part = path.substr(0, end);
    if (depth >= way_.size() || way_[depth].first != part) {
      way_.erase(way_.begin() + static_cast<std::ptrdiff_t>(depth), way_.end());
      const std::string name = part.substr(part.rfind('/') + 1);
      if (!has_hard_link(group, name.c_str())) return -1;
      Id opened(H5Gopen2(group, name.c_str(), H5P_DEFAULT));
      H5Eclear2(H5E_DEFAULT);
      if (!opened) return -1;
      way_.emplace_back(part, std::move(opened));
    }
    group = way_[depth++].second.get();
  }
  return group;
}

bool File::has(const std::string& path) const {
  const Lock lock(where_.c_str());
  if (path.size() <= 1) return true;
  const Handle parent = parent_of(path);
  const bool found = parent >= 0 && has_hard_link(parent, path.c_str() + path.rfind('/') + 1);
  if (!found) require_readable();
  return found;
}

bool File::is_group(const std::string& path) const {
  const Lock lock(where_.c_str());
  if (!has(path)) return false;
  const Id group(H5Gopen2(id_.get(), path.c_str(), H5P_DEFAULT));
  H5Eclear2(H5E_DEFAULT);
  if (!group) require_readable();
  return static_cast<bool>(group);
}

std::vector<std::string> File::list(const std::string& group) const {
  const Lock lock(where_.c_str());
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
  const Lock lock(where_.c_str());
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
  const Lock lock(where_.c_str());
  if (!has(path)) throw FormatError("{}: group {} is missing", where_, path);
  return Group(Id(check_format(H5Gopen2(id_.get(), path.c_str(), H5P_DEFAULT),
                               fmt::format("{}: {} cannot be opened as a group", where_, path))),
               fmt::format("{}: {}", where_, path));
}

void File::write_text(const std::string& path, std::string_view text) {
  const Lock lock(where_.c_str());
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
  const Lock lock(where_.c_str());
  const std::string what = fmt::format("{}: {} cannot be read as text", where_, path);
  if (!has(path)) throw FormatError("{}: dataset {} is missing", where_, path);
  const Id dataset(check_format(H5Dopen2(id_.get(), path.c_str(), H5P_DEFAULT), what));
  const Id type(check_format(H5Dget_type(dataset.get()), what));
  const Id space(check_format(H5Dget_space(dataset.get()), what));
  const bool fixed = H5Tget_class(type.get()) == H5T_STRING && H5Tis_variable_str(type.get()) == 0;
  const std::size_t size = H5Tget_size(type.get());
  if (!fixed || H5Sget_simple_extent_npoints(space.get()) != 1 ||
      size > static_cast<std::size_t>(storage_limit_)) {
    throw FormatError("{}: {} is not one text of fixed length", where_, path);
  }
  std::string text(size, '\0');
  check_format(H5Dread(dataset.get(), type.get(), H5S_ALL, H5S_ALL, H5P_DEFAULT, text.data()),
               what);
  text.resize(strnlen(text.data(), size));
  return text;
}

void File::link(const std::string& target, const std::string& path) {
  const Lock lock(where_.c_str());
  const Id links(H5Pcreate(H5P_LINK_CREATE));
  H5Pset_create_intermediate_group(links.get(), 1);
  check_io(
      H5Lcreate_hard(id_.get(), target.c_str(), id_.get(), path.c_str(), links.get(), H5P_DEFAULT),
      fmt::format("{}: cannot link {} to {}", where_, path, target));
}

std::uint64_t File::object_number(const std::string& path) const {
  const Lock lock(where_.c_str());
#if H5_VERSION_GE(1, 12, 0)
  H5O_info1_t info{};  // H5O_info_t has tokens in place of addresses there
#else
  H5O_info_t info{};
#endif
  check_format(H5Oget_info_by_name2(id_.get(), path.c_str(), &info, H5O_INFO_BASIC, H5P_DEFAULT),
               fmt::format("{}: {} cannot be looked at", where_, path));
  return info.addr;
}

void File::close() {
  const Lock lock(where_.c_str());
  if (!id_) return;
  // Each step is tried whatever the one before said: nothing stays open behind an exception.
  way_.clear();
  const Handle handle = id_.release();
  const bool flushed = H5Fflush(handle, H5F_SCOPE_GLOBAL) >= 0;
  const bool closed = H5Fclose(handle) >= 0 && n_failed_closes() == n_failed_closes_;
  const std::string reason = flushed && closed ? std::string() : innermost_error();
  if (device_) std::exchange(device_, nullptr)->finish();
  if (!flushed || !closed)
    throw WriteRefused("cannot write {} to its end (HDF5: {})", where_, reason);
}

}  // namespace kvscope::h5
