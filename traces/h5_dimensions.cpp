// Names of axes of h5.hpp: dimension scales as netCDF and xarray read them.
#include <algorithm>
#include <cstring>
#include <map>
#include <utility>

#include "traces/h5_internal.hpp"

namespace kvscope::h5 {

namespace {

// What netCDF calls a scale that has a name and a length but no values; the length follows in ten
// columns.
constexpr std::string_view kNoVariable = "This is a netCDF dimension but not a netCDF variable.";
constexpr std::size_t kMostBackReferences = 3500;  // an attribute holds 64 KiB

/// One entry of REFERENCE_LIST, as HDF5's own library lays it out.
struct BackReference {
  hobj_ref_t dataset;
  int dimension;
};

/// Text as the convention wants it: ASCII that ends with a zero byte.
void put_text(hid_t node, const char* name, const std::string& value, const std::string& what) {
  const Id type(H5Tcopy(H5T_C_S1));
  H5Tset_size(type.get(), value.size() + 1);
  put_attribute(node, name, {type.get(), type.get()}, {}, value.c_str(), what);
}

std::string last_part(const std::string& path) {
  return path.substr(path.rfind('/') + 1);
}

/// Each axis under a name that its array has once: [head, head] becomes [head, head_2].
std::string distinct_axis(const std::vector<std::string>& axes, std::size_t a) {
  for (std::size_t before = 0; before < a; ++before) {
    if (axes[before] == axes[a]) return fmt::format("{}_{}", axes[a], a + 1);
  }
  return axes[a];
}

}  // namespace

/// Makes the scales of one file while its arrays come.
class DimensionWriter {
 public:
  explicit DimensionWriter(File& file) : file_(file) {}

  /// An array [n] of the root that is called as its axis is that axis' scale, with values.
  void add_coordinate(const NamedAxes& array) {
    if (!is_coordinate(array)) return;
    Scale& scale = scales_[{array.axes[0], array.dims[0]}];
    scale.path = array.path;
    mark(scale, last_part(array.path));
  }

  void attach(const NamedAxes& array) {
    if (is_coordinate(array) || array.dims.empty()) return;
    const std::string what =
        fmt::format("{}: cannot name the axes of {}", file_.where_, array.path);
    const Id node(check_io(H5Dopen2(file_.id_.get(), array.path.c_str(), H5P_DEFAULT), what));
    const hobj_ref_t self = reference_to(array.path);
    std::vector<hobj_ref_t> references(array.dims.size());
    std::vector<hvl_t> list(array.dims.size());
    for (std::size_t a = 0; a < array.dims.size(); ++a) {
      Scale& scale = scale_of(array, distinct_axis(array.axes, a), array.dims[a]);
      references[a] = scale.reference;
      list[a] = {1, &references[a]};
      BackReference& back = scale.users.emplace_back();
      std::memset(&back, 0, sizeof back);  // its padding goes into the file
      back.dataset = self;
      back.dimension = static_cast<int>(a);
    }
    const Id type(H5Tvlen_create(H5T_STD_REF_OBJ));
    put_attribute(node.get(), "DIMENSION_LIST", {type.get(), type.get()}, list.size(), list.data(),
                  what);
  }

  void finish() {
    const Id type(H5Tcreate(H5T_COMPOUND, sizeof(BackReference)));
    H5Tinsert(type.get(), "dataset", HOFFSET(BackReference, dataset), H5T_STD_REF_OBJ);
    H5Tinsert(type.get(), "dimension", HOFFSET(BackReference, dimension), H5T_STD_I32LE);
    for (const auto& [axis, scale] : scales_) {
      if (scale.users.empty() || scale.users.size() > kMostBackReferences) continue;
      const std::string what =
          fmt::format("{}: cannot write the dimension {}", file_.where_, scale.path);
      const Id node(check_io(H5Dopen2(file_.id_.get(), scale.path.c_str(), H5P_DEFAULT), what));
      put_attribute(node.get(), "REFERENCE_LIST", {type.get(), type.get()}, scale.users.size(),
                    scale.users.data(), what);
    }
  }

 private:
  struct Scale {
    std::string path;
    hobj_ref_t reference = 0;
    std::vector<BackReference> users;
  };

  static bool is_coordinate(const NamedAxes& array) {
    return array.dims.size() == 1 && array.path == "/" + array.axes[0];
  }

  hobj_ref_t reference_to(const std::string& path) const {
    hobj_ref_t reference = 0;
    check_io(H5Rcreate(&reference, file_.id_.get(), path.c_str(), H5R_OBJECT, -1),
             fmt::format("{}: cannot refer to {}", file_.where_, path));
    return reference;
  }

  void mark(Scale& scale, const std::string& name) const {
    const std::string what =
        fmt::format("{}: cannot write the dimension {}", file_.where_, scale.path);
    const Id node(check_io(H5Dopen2(file_.id_.get(), scale.path.c_str(), H5P_DEFAULT), what));
    put_text(node.get(), "CLASS", "DIMENSION_SCALE", what);
    put_text(node.get(), "NAME", name, what);
    scale.reference = reference_to(scale.path);
  }

  /// The scale of an axis, made when it is first asked for. Where its name is taken, by an array or
  /// by an axis of another length, the scale is named after the array that asks.
  Scale& scale_of(const NamedAxes& array, const std::string& axis, Index length) {
    const auto [found, is_new] = scales_.try_emplace({axis, length});
    Scale& scale = found->second;
    if (!is_new) return scale;
    const bool has_other_length = std::any_of(scales_.begin(), scales_.end(), [&](const auto& one) {
      return one.first.first == axis && one.first.second != length;
    });
    std::string name =
        has_other_length ? fmt::format("{}_of_{}", axis, last_part(array.path)) : axis;
    if (file_.has("/" + name)) name += "_axis";
    for (int i = 2; file_.has("/" + name); ++i) name = fmt::format("{}_axis_{}", axis, i);
    scale.path = "/" + name;
    create(scale.path, length);
    mark(scale, fmt::format("{}{:10}", kNoVariable, length));
    return scale;
  }

  /// An array without values, which take no room.
  void create(const std::string& path, Index length) const {
    const Id creation(H5Pcreate(H5P_DATASET_CREATE));
    H5Pset_obj_track_times(creation.get(), false);
    H5Pset_alloc_time(creation.get(), H5D_ALLOC_TIME_LATE);
    const hsize_t extent = static_cast<hsize_t>(length);
    const Id space(H5Screate_simple(1, &extent, nullptr));
    const Id dataset(
        check_io(H5Dcreate2(file_.id_.get(), path.c_str(), H5T_STD_U8LE, space.get(), H5P_DEFAULT,
                            creation.get(), H5P_DEFAULT),
                 fmt::format("{}: cannot create the dimension {}", file_.where_, path)));
  }

  File& file_;
  std::map<std::pair<std::string, Index>, Scale> scales_;  // by axis and length
};

void File::name_axes(const Dataset& dataset, std::vector<std::string> axes) {
  if (axes.size() != dataset.dims().size()) {
    throw ShapeError("{}: {} names of axes for shape {}", dataset.where(), axes.size(),
                     to_string(dataset.dims()));
  }
  named_axes_.push_back({dataset.path_, std::move(axes), dataset.dims()});
}

void File::write_dimensions() {
  const Lock lock(where_.c_str());
  DimensionWriter writer(*this);
  for (const NamedAxes& array : named_axes_) writer.add_coordinate(array);
  for (const NamedAxes& array : named_axes_) writer.attach(array);
  writer.finish();
  named_axes_.clear();
}

bool File::is_dimension(const std::string& path) const {
  const Lock lock(where_.c_str());
  if (!has(path)) return false;
  const char* const name = path.c_str() + path.rfind('/') + 1;
  const Id dataset(H5Dopen2(parent_of(path), name, H5P_DEFAULT));
  H5Eclear2(H5E_DEFAULT);
  if (!dataset) return false;
  const Id attribute(H5Aopen(dataset.get(), "NAME", H5P_DEFAULT));
  H5Eclear2(H5E_DEFAULT);
  if (!attribute) return false;
  const Id type(H5Aget_type(attribute.get()));
  const Id space(H5Aget_space(attribute.get()));
  const std::size_t size = H5Tget_size(type.get());
  if (H5Tget_class(type.get()) != H5T_STRING || H5Tis_variable_str(type.get()) != 0 ||
      H5Sget_simple_extent_npoints(space.get()) != 1 || size < kNoVariable.size() || size > 4096) {
    return false;
  }
  std::string text(size, '\0');
  if (H5Aread(attribute.get(), type.get(), text.data()) < 0) text.clear();
  H5Eclear2(H5E_DEFAULT);
  return text.starts_with(kNoVariable);
}

}  // namespace kvscope::h5
