#include "core/sim/model_projection.hpp"

#include <Eigen/Dense>
#include <algorithm>

namespace kvscope {

namespace {

using RowMajor = Eigen::Matrix<float, Eigen::Dynamic, Eigen::Dynamic, Eigen::RowMajor>;

constexpr Index kRows = 64;  // of the projection, widened at a time

class ModelProjection final : public OutputProjection {
 public:
  explicit ModelProjection(const Transformer& model) : model_(model) {}

  std::vector<double> lengths(Index layer, Index kv_head,
                              TensorView<const float> v) const override {
    const Index group = model_.config().group();
    const Index d = v.dim(1);
    const Matrix& out = model_.output_matrix(layer);
    const Eigen::Map<const RowMajor, 0, Eigen::OuterStride<>> values(
        v.data(), v.dim(0), d, Eigen::OuterStride<>(v.stride(0)));
    Eigen::VectorXd sums = Eigen::VectorXd::Zero(v.dim(0));
    std::vector<float> scratch(static_cast<std::size_t>(kRows * (out.n_cols() + 16)));
    for (Index begin = 0; begin < out.n_rows(); begin += kRows) {
      const Index n = std::min(kRows, out.n_rows() - begin);
      Index stride = 0;
      const float* const rows = out.rows(begin, begin + n, scratch.data(), stride);
      for (Index head = kv_head * group; head < (kv_head + 1) * group; ++head) {
        const Eigen::Map<const RowMajor, 0, Eigen::OuterStride<>> part(
            rows + head * d, n, d, Eigen::OuterStride<>(stride));
        const RowMajor products = values * part.transpose();
        sums += products.cast<double>().cwiseAbs().rowwise().sum();
      }
    }
    sums /= static_cast<double>(group);
    return {sums.data(), sums.data() + sums.size()};
  }

 private:
  const Transformer& model_;
};

}  // namespace

std::shared_ptr<const OutputProjection> projection_of(const Transformer& model) {
  return std::make_shared<ModelProjection>(model);
}

}  // namespace kvscope
