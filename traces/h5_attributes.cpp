// Attributes of h5.hpp: texts, numbers and lists of texts on files, groups and datasets.
#include <algorithm>
#include <cstring>

#include "traces/h5_internal.hpp"

namespace kvscope::h5 {

namespace {

// An attribute has to fit into an object header message (64 KiB).
constexpr std::size_t kMaxText = 60000;
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
    require_readable();
    H5Eclear2(H5E_DEFAULT);
    throw FormatError("{}: attribute '{}' is missing", where, name);
  }
  const std::string what = fmt::format("{}: attribute '{}' cannot be read", where, name);
  OpenAttribute out;
  out.attribute = Id(check_format(H5Aopen(node, name.c_str(), H5P_DEFAULT), what));
  out.type = Id(check_format(H5Aget_type(out.attribute.get()), what));
  const Id space(check_format(H5Aget_space(out.attribute.get()), what));
  if (!fits_attribute(space) || H5Tget_size(out.type.get()) > kMaxText)
    throw FormatError("{}: attribute '{}' is too large", where, name);
  out.n = H5Sget_simple_extent_npoints(space.get());
  if (H5Tget_class(out.type.get()) != kind)
    throw FormatError("{}: attribute '{}' is not {}", where, name, kind_name);
  return out;
}

/// A number, which the attribute has to be.
template <class T>
T number_of(hid_t node, const std::string& where, const std::string& name, H5T_class_t kind,
            std::string_view kind_name, hid_t type) {
  const OpenAttribute open = open_attribute(node, where, name, kind, kind_name);
  if (open.n != 1) throw FormatError("{}: attribute '{}' is not a single number", where, name);
  T value = 0;
  check_format(H5Aread(open.attribute.get(), type, &value),
               fmt::format("{}: attribute '{}' cannot be read", where, name));
  return value;
}

std::string trim_padding(const char* text, std::size_t size) {
  return std::string(text, strnlen(text, size));
}

}  // namespace

void put_attribute(hid_t node, const char* name, AttributeType type, std::optional<std::size_t> n,
                   const void* data, const std::string& what) {
  const hsize_t extent = n.value_or(0);
  const Id space(n ? H5Screate_simple(1, &extent, nullptr) : H5Screate(H5S_SCALAR));
  const Id attribute(
      check_io(H5Acreate2(node, name, type.in_file, space.get(), H5P_DEFAULT, H5P_DEFAULT), what));
  check_io(H5Awrite(attribute.get(), type.in_memory, data), what);
}

bool Node::has_attribute(const std::string& name) const {
  const Lock lock(where_.c_str());
  const bool found = H5Aexists(id_.get(), name.c_str()) > 0;
  H5Eclear2(H5E_DEFAULT);
  if (!found) require_readable();
  return found;
}

void Node::set_text(const std::string& name, std::string_view value, std::size_t capacity) {
  const Lock lock(where_.c_str());
  const std::string what = fmt::format("{}: cannot write attribute '{}'", where_, name);
  if (value.size() > kMaxText) throw IoError(what + ": the text is too long");
  if (H5Aexists(id_.get(), name.c_str()) > 0) {
    const Id attribute(check_io(H5Aopen(id_.get(), name.c_str(), H5P_DEFAULT), what));
    const Id type(check_io(H5Aget_type(attribute.get()), what));
    std::string padded(value);
    if (H5Tis_variable_str(type.get()) != 0 || padded.size() > H5Tget_size(type.get()))
      throw IoError(what + ": no room was reserved for it");
    padded.resize(H5Tget_size(type.get()), '\0');
    check_io(H5Awrite(attribute.get(), type.get(), padded.data()), what);
    return;
  }
  std::string padded(value);
  padded.resize(std::max<std::size_t>({value.size(), capacity, 1}), '\0');
  const Id type = text_type(padded.size());
  put_attribute(id_.get(), name.c_str(), {type.get(), type.get()}, {}, padded.data(), what);
}

void Node::set_texts(const std::string& name, const std::vector<std::string>& values) {
  const Lock lock(where_.c_str());
  const std::string what = fmt::format("{}: cannot write attribute '{}'", where_, name);
  std::size_t width = 1;
  for (const auto& value : values) width = std::max(width, value.size());
  if (width * values.size() > kMaxText) throw IoError(what + ": the text is too long");
  std::string block;
  for (const auto& value : values) block += value + std::string(width - value.size(), '\0');
  const Id type = text_type(width);
  put_attribute(id_.get(), name.c_str(), {type.get(), type.get()}, values.size(), block.data(),
                what);
}

void Node::set_integer(const std::string& name, std::int64_t value) {
  const Lock lock(where_.c_str());
  put_attribute(id_.get(), name.c_str(), {H5T_STD_I64LE, H5T_NATIVE_INT64}, {}, &value,
                fmt::format("{}: cannot write attribute '{}'", where_, name));
}

void Node::set_real(const std::string& name, double value) {
  const Lock lock(where_.c_str());
  put_attribute(id_.get(), name.c_str(), {H5T_IEEE_F64LE, H5T_NATIVE_DOUBLE}, {}, &value,
                fmt::format("{}: cannot write attribute '{}'", where_, name));
}

std::vector<std::string> Node::texts(const std::string& name) const {
  const Lock lock(where_.c_str());
  const OpenAttribute open = open_attribute(id_.get(), where_, name, H5T_STRING, "a text");
  const std::string what = fmt::format("{}: attribute '{}' cannot be read", where_, name);
  std::vector<std::string> values;
  if (H5Tis_variable_str(open.type.get()) > 0) {
    // Each may be as long as the file, and all may be the same bytes of it.
    constexpr Index kMostTexts = 4096;
    if (open.n > kMostTexts) throw FormatError(what + ": too many texts");
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
    throw FormatError("{}: attribute '{}' holds {} texts, expected one", where_, name,
                      values.size());
  }
  return std::move(values.front());
}

std::int64_t Node::integer(const std::string& name) const {
  const Lock lock(where_.c_str());
  return number_of<std::int64_t>(id_.get(), where_, name, H5T_INTEGER, "an integer",
                                 H5T_NATIVE_INT64);
}

double Node::real(const std::string& name) const {
  const Lock lock(where_.c_str());
  return number_of<double>(id_.get(), where_, name, H5T_FLOAT, "a real number", H5T_NATIVE_DOUBLE);
}

}  // namespace kvscope::h5
