#include "support/golden.hpp"

#include <hdf5.h>

#include <algorithm>
#include <cmath>
#include <stdexcept>
#include <string>
#include <vector>

#include "support/places.hpp"

namespace kvscope::test {

std::filesystem::path golden_dir() {
  return testing::source_dir() / "tests" / "golden";
}

Tensor<float> read_golden(const std::filesystem::path& h5_file, const std::string& dataset) {
  const hid_t file = H5Fopen(h5_file.c_str(), H5F_ACC_RDONLY, H5P_DEFAULT);
  if (file < 0) throw std::runtime_error("cannot open " + h5_file.string());
  const hid_t set = H5Dopen2(file, dataset.c_str(), H5P_DEFAULT);
  if (set < 0) throw std::runtime_error("no dataset " + dataset);
  const hid_t space = H5Dget_space(set);
  hsize_t dims[Shape::kMaxRank] = {};
  Shape shape;
  shape.rank = H5Sget_simple_extent_dims(space, dims, nullptr);
  for (int a = 0; a < shape.rank; ++a) shape.dim[a] = static_cast<Index>(dims[a]);
  Tensor<float> out(shape);
  H5Dread(set, H5T_NATIVE_FLOAT, H5S_ALL, H5S_ALL, H5P_DEFAULT, out.data());
  H5Sclose(space);
  H5Dclose(set);
  H5Fclose(file);
  return out;
}

std::vector<TokenId> read_golden_tokens(const std::filesystem::path& h5_file) {
  const Tensor<float> tokens = read_golden(h5_file, "/tokens");
  std::vector<TokenId> ids;
  for (const float id : tokens.flat()) ids.push_back(static_cast<TokenId>(id));
  return ids;
}

double max_abs_difference(TensorView<const float> a, TensorView<const float> b) {
  if (!(a.shape() == b.shape()))
    throw std::runtime_error("shapes " + to_string(a.shape()) + " and " + to_string(b.shape()));
  double worst = 0.0;
  if (a.rank() == 1) {
    for (Index i = 0; i < a.dim(0); ++i) {
      const double difference = std::abs(static_cast<double>(a(i)) - static_cast<double>(b(i)));
      worst = std::isnan(difference) ? INFINITY : std::max(worst, difference);
    }
    return worst;
  }
  for (Index i = 0; i < a.dim(0); ++i)
    worst = std::max(worst, max_abs_difference(a.sub(i), b.sub(i)));
  return worst;
}

}  // namespace kvscope::test
