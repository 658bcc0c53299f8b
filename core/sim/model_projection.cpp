#include "core/sim/model_projection.hpp"

#include <algorithm>
#include <cmath>
#include <functional>
#include <utility>

#include "core/attention/score_kernels.hpp"

namespace kvscope {

namespace {

constexpr Index kRows = 64;     // of the projection, widened at a time
constexpr Index kValues = 256;  // that meet them at a time

class ModelProjection final : public OutputProjection {
 public:
  using MatrixOfLayer = std::function<const Matrix&(Index layer)>;
  ModelProjection(MatrixOfLayer matrix_of, Index group)
      : matrix_of_(std::move(matrix_of)), group_(group) {}

  std::vector<double> lengths(Index layer, Index kv_head,
                              TensorView<const float> v) const override {
    const Index d = v.dim(1);
    const Matrix& out = matrix_of_(layer);
    std::vector<double> sums(static_cast<std::size_t>(v.dim(0)), 0.0);
    std::vector<float> memory(static_cast<std::size_t>(kRows * (out.n_cols() + 16)));
    std::vector<float> part(static_cast<std::size_t>(kRows * d));  // the columns of a head
    std::vector<float> scratch;
    std::vector<double> products(static_cast<std::size_t>(kRows * kValues));
    for (Index begin = 0; begin < out.n_rows(); begin += kRows) {
      const Index n = std::min(kRows, out.n_rows() - begin);
      Index stride = 0;
      const float* const rows = out.rows(begin, begin + n, memory.data(), stride);
      for (Index head = kv_head * group_; head < (kv_head + 1) * group_; ++head) {
        for (Index row = 0; row < n; ++row)
          std::copy_n(rows + row * stride + head * d, d, part.begin() + row * d);
        for (Index first = 0; first < v.dim(0); first += kValues) {
          const Index n_values = std::min(kValues, v.dim(0) - first);
          key_dots_f32(std::span(part).first(static_cast<std::size_t>(n * d)), n,
                       v.range(0, first, first + n_values), scratch, products.data(), kValues);
          for (Index row = 0; row < n; ++row) {
            const double* const of_row = products.data() + row * kValues;
            double* const to = sums.data() + first;
            for (Index i = 0; i < n_values; ++i) to[i] += std::abs(of_row[i]);
          }
        }
      }
    }
    for (double& sum : sums) sum /= static_cast<double>(group_);
    return sums;
  }

 private:
  MatrixOfLayer matrix_of_;
  Index group_;
};

}  // namespace

std::shared_ptr<const OutputProjection> projection_of(const Transformer& model) {
  return std::make_shared<ModelProjection>(
      [&model](Index layer) -> const Matrix& { return model.output_matrix(layer); },
      model.config().group());
}

std::shared_ptr<const OutputProjection> projection_of(Matrix out, Index group) {
  return std::make_shared<ModelProjection>(
      [matrix = std::make_shared<const Matrix>(std::move(out))](Index) -> const Matrix& {
        return *matrix;
      },
      group);
}

}  // namespace kvscope
