// Types, errors and the lock of h5_internal.hpp, and how HDF5 is prepared once.
#include <array>
#include <utility>

#include "core/base/enum_names.hpp"
#include "traces/h5_internal.hpp"

namespace kvscope::h5 {

namespace {

herr_t keep_innermost(unsigned /*n*/, const H5E_error2_t* error, void* out) {
  if (error->desc != nullptr && *error->desc != '\0') {
    *static_cast<std::string*>(out) = error->desc;
  }
  return 0;
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

/// Settings that have to come before anything else that HDF5 does.
bool prepare_library() {
  H5dont_atexit();           // what it does at the end of the process, it does to broken files too
  H5PLset_loading_state(0);  // no code from folders that the environment names
  return true;
}

std::recursive_mutex& lock_of_hdf5() {
  static std::recursive_mutex instance;
  return instance;
}

bool is_alone = false;
thread_local const char* current_file = nullptr;

}  // namespace

Lock::Lock(const char* file) : outer_file_(current_file) {
  if (!is_alone) guard_ = std::unique_lock(lock_of_hdf5());
  [[maybe_unused]] static const bool is_prepared = prepare_library();
  H5Eset_auto2(H5E_DEFAULT, nullptr, nullptr);
  if (file != nullptr) {
    current_file = file;
  } else if (current_file == nullptr) {
    current_file = "";
  }
}

Lock::~Lock() {
  current_file = outer_file_;
}

const char* file_in_use() {
  return current_file;
}

void Lock::stay_alone() {
  is_alone = true;
}

std::uint64_t& n_failed_closes() {
  static std::uint64_t count = 0;
  return count;
}

std::string innermost_error() {
  std::string text;
  H5Ewalk2(H5E_DEFAULT, H5E_WALK_DOWNWARD, keep_innermost, &text);
  H5Eclear2(H5E_DEFAULT);
  return text.empty() ? "no further reason given" : text;
}
std::string& read_failure() {
  static thread_local std::string sentence;
  return sentence;
}

void require_readable() {
  if (read_failure().empty()) return;
  H5Eclear2(H5E_DEFAULT);
  throw IoError(std::exchange(read_failure(), {}));
}

[[noreturn]] void fail_format(const std::string& sentence) {
  require_readable();
  throw FormatError("{} (HDF5: {})", sentence, innermost_error());
}

[[noreturn]] void fail_io(const std::string& sentence) {
  throw IoError("{} (HDF5: {})", sentence, innermost_error());
}

constexpr std::array<std::size_t, 8> kSizes = {4, 8, 2, 2, 1, 4, 8, 8};  // in the order of Type

Id file_type(Type type) {
  if (type == Type::f16) return make_half(5, 15);
  if (type == Type::bf16) return make_half(8, 127);
  // in the order of Type
  const std::array<hid_t, 8> standard = {
      H5T_IEEE_F32LE, H5T_IEEE_F64LE, 0, 0, H5T_STD_U8LE, H5T_STD_I32LE,
      H5T_STD_I64LE,  H5T_STD_U64LE};
  return Id(H5Tcopy(standard[static_cast<std::size_t>(type)]));
}

std::optional<Type> identify(hid_t type) {
  // Made once and never closed: every array of a file is compared with them when it is opened.
  static const std::array<hid_t, kSizes.size()> known = [] {
    std::array<hid_t, kSizes.size()> types{};
    for (std::size_t i = 0; i < types.size(); ++i)
      types[i] = file_type(static_cast<Type>(i)).release();
    return types;
  }();
  const std::size_t size = H5Tget_size(type);
  for (std::size_t i = 0; i < kSizes.size(); ++i) {
    if (size == kSizes[i] && H5Tequal(type, known[i]) > 0) return static_cast<Type>(i);
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

std::size_t size_of(Type type) {
  return kSizes[static_cast<std::size_t>(type)];
}

Type type_of(DType dtype) {
  return *enum_from_name<Type>(enum_name(dtype));
}

std::optional<DType> dtype_of(Type type) {
  return enum_from_name<DType>(enum_name(type));
}

std::string to_string(const Dims& dims) {
  return fmt::format("[{}]", fmt::join(dims, ", "));
}

Index count(const Dims& dims) {
  Index n = 1;
  for (Index d : dims) n *= d;
  return n;
}

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
  // These two write, and are gone even if that fails.
  const H5I_type_t kind = H5Iget_type(handle_);
  // Its file, closed before it, closed it as well and said how that went: nothing is left to write.
  const herr_t status = kind == H5I_BADID     ? 0
                        : kind == H5I_FILE    ? H5Fclose(handle_)
                        : kind == H5I_DATASET ? H5Dclose(handle_)
                                              : H5Idec_ref(handle_);
  if (status < 0) ++n_failed_closes();
  H5Eclear2(H5E_DEFAULT);
  handle_ = -1;
}

}  // namespace kvscope::h5
