#include "analysis/fit/draft_fit.hpp"

#include <Eigen/Cholesky>
#include <Eigen/Core>
#include <algorithm>
#include <cmath>

#include "analysis/base/analysis.hpp"
#include "analysis/base/measure_layers.hpp"
#include "core/base/error.hpp"
#include "core/model/layer_weights.hpp"

namespace kvscope {

namespace {

using Matrix64 = Eigen::MatrixXd;
using Rows = Eigen::Matrix<float, Eigen::Dynamic, Eigen::Dynamic, Eigen::RowMajor>;

constexpr Index kHeldOutEvery = 5;
constexpr double kRidges[] = {1e-4, 1e-3, 1e-2, 1e-1, 1.0};
constexpr Index kHeadRows = 4096;  // of the head at a time

Tensor<float> identity_matrix(Index n) {
  Tensor<float> matrix(Shape{n, n});
  for (Index i = 0; i < n; ++i) matrix.view()(i, i) = 1.0f;
  return matrix;
}

enum class FinalNorm { weighted, plain };

/// A model whose "logits" are the states that its head would see: the head is the identity.
class StateModel {
 public:
  StateModel(const std::filesystem::path& model, const ModelConfig& config, FinalNorm norm)
      : files_(WeightFiles::open(model)), weights_(collect_weights(config, files_)) {
    weights_.lm_head = Matrix(identity_matrix(config.d_model));
    if (norm == FinalNorm::plain) {
      for (float& x : weights_.final_norm.flat()) x = 1.0f;
      for (float& x : weights_.final_norm_bias.flat()) x = 0.0f;
    }
    shape_ = config;
    shape_.n_vocab = config.d_model;
    shape_.plan.logit_softcap = 0.0;
    model_ = std::make_unique<Transformer>(config, WeightFiles::open(model),
                                           [this](const ModelConfig&, const ModelWeights&) {
                                             return make_lane_backend(shape_, weights_);
                                           });
  }

  /// [n_tok, d_model], from position 0.
  Tensor<float> states(std::span<const TokenId> tokens, ThreadPool& pool) const {
    const auto store = model_->make_store(static_cast<Index>(tokens.size()));
    ForwardOptions options{.logits = Logits::all};
    return model_->forward(tokens, *store, pool, options);
  }

 private:
  WeightFiles files_;
  ModelWeights weights_;
  ModelConfig shape_;
  std::unique_ptr<Transformer> model_;
};

Eigen::Map<const Rows> state_rows(const Tensor<float>& states) {
  return {states.data(), states.dim(0), states.dim(1)};
}

/// Sums behind the linear system.
struct NormalSums {
  Matrix64 uu, ux;  // [d, d]
  Index n = 0;

  explicit NormalSums(Index d) : uu(Matrix64::Zero(d, d)), ux(Matrix64::Zero(d, d)) {}
  void add(const Tensor<float>& u, const Tensor<float>& x) {
    const Matrix64 rows = state_rows(u).cast<double>();
    uu += rows.transpose() * rows;
    ux += rows.transpose() * state_rows(x).cast<double>();
    n += u.dim(0);
  }
};

/// W^T [d, d] for a ridge relative to the mean square of a channel.
Matrix64 solved(const NormalSums& sums, const Eigen::VectorXd& norm_weight, double ridge) {
  const Index d = sums.uu.rows();
  const double lambda = ridge * sums.uu.trace() / static_cast<double>(d);
  Matrix64 left = sums.uu;
  left.diagonal().array() += lambda;
  Matrix64 right = sums.ux;
  right.diagonal() += lambda * norm_weight;
  return left.ldlt().solve(right);
}

using HeldOut = std::vector<std::pair<Tensor<float>, Tensor<float>>>;  // u, x by window

double relative_error(const HeldOut& held_out, const Matrix64& map) {
  double error = 0.0;
  double size = 0.0;
  for (const auto& [u, x] : held_out) {
    const Matrix64 wanted = state_rows(x).cast<double>();
    error += (state_rows(u).cast<double>() * map - wanted).squaredNorm();
    size += wanted.squaredNorm();
  }
  return error / size;
}

/// head * W, a block of rows at a time.
Tensor<float> mapped_head(const Matrix& head, const Matrix64& map, ThreadPool& pool) {
  const Index n = head.n_rows();
  const Index d = head.n_cols();
  const Rows w = map.transpose().cast<float>();  // W [d, d]
  auto out = Tensor<float>::uninitialized({n, d});
  const Index n_blocks = (n + kHeadRows - 1) / kHeadRows;
  pool.parallel_for(n_blocks, [&](std::int64_t block, int) {
    const Index begin = block * kHeadRows;
    const Index end = std::min(n, begin + kHeadRows);
    std::vector<float> scratch(static_cast<std::size_t>((end - begin) * (d + 16)));
    Index stride = 0;
    const float* rows = head.rows(begin, end, scratch.data(), stride);
    const Eigen::Map<const Rows, 0, Eigen::OuterStride<>> of_head(rows, end - begin, d,
                                                                  Eigen::OuterStride<>(stride));
    Eigen::Map<Rows>(out.data() + begin * d, end - begin, d).noalias() = of_head * w;
  });
  return out;
}

void softmax(std::vector<double>& values, std::span<const float> logits) {
  values.resize(logits.size());
  const double top = *std::ranges::max_element(logits);
  double sum = 0.0;
  for (std::size_t i = 0; i < logits.size(); ++i)
    sum += values[i] = std::exp(static_cast<double>(logits[i]) - top);
  for (double& x : values) x /= sum;
}

}  // namespace

ModelConfig first_layers(ModelConfig config, Index n_layers) {
  if (!config.layer_shapes.empty())
    throw ConfigError("a {} model: its first layers alone are no model (later ones differ)",
                      enum_name(config.family));
  if (n_layers < 1 || n_layers >= config.n_layers) {
    throw ConfigError(
        "a draft of the first layers: expected 1 to {} of the model's {} layers, found {}",
        config.n_layers - 1, config.n_layers, n_layers);
  }
  const auto n = static_cast<std::size_t>(n_layers);
  config.n_layers = n_layers;
  config.window.resize(n);
  config.has_rope.resize(n);
  config.has_experts.resize(n);
  return config;
}

DraftFit fit_draft(const std::filesystem::path& model, std::span<const TokenId> tokens,
                   const DraftFitOptions& options, ThreadPool& pool, const ProgressFn& progress,
                   const std::stop_token& stop) {
  const ModelConfig config = load_model_config(model);
  const Index window = std::min(options.window, config.max_positions);
  const Index n_windows = static_cast<Index>(tokens.size()) / window;
  if (n_windows < kHeldOutEvery) {
    throw ConfigError(
        "a draft's head: expected a text of at least {} tokens ({} windows of {}; --window makes "
        "them shorter), found {}",
        kHeldOutEvery * window, kHeldOutEvery, window, tokens.size());
  }
  const StateModel early(model, first_layers(config, options.n_layers), FinalNorm::plain);
  const StateModel whole(model, config, FinalNorm::weighted);
  NormalSums sums(config.d_model);
  HeldOut held_out;
  for (Index w = 0; w < n_windows; ++w) {
    check_stop(stop, "fit draft");
    const auto part =
        tokens.subspan(static_cast<std::size_t>(w * window), static_cast<std::size_t>(window));
    Tensor<float> u = early.states(part, pool);
    Tensor<float> x = whole.states(part, pool);
    if (w % kHeldOutEvery == kHeldOutEvery - 1)
      held_out.emplace_back(std::move(u), std::move(x));
    else
      sums.add(u, x);
    if (progress) progress({"reading", w + 1, n_windows, "windows"});
  }

  const WeightFiles files = WeightFiles::open(model);
  const ModelWeights weights = collect_weights(config, files);
  const Eigen::VectorXd norm_weight =
      Eigen::Map<const Eigen::VectorXf>(weights.final_norm.data(), config.d_model).cast<double>();
  DraftFit fit;
  fit.n_tokens = n_windows * window;
  fit.plain_error = relative_error(held_out, norm_weight.asDiagonal().toDenseMatrix());
  fit.fitted_error = INFINITY;
  for (const double ridge : kRidges) {
    check_stop(stop, "fit draft");
    const double error = relative_error(held_out, solved(sums, norm_weight, ridge));
    if (error < fit.fitted_error) {
      fit.fitted_error = error;
      fit.ridge = ridge;
    }
  }
  for (const auto& [u, x] : held_out) sums.add(u, x);
  const Matrix& head = weights.lm_head.n_rows() == 0 ? weights.embedding : weights.lm_head;
  fit.head = mapped_head(head, solved(sums, norm_weight, fit.ridge), pool);
  return fit;
}

DraftAcceptance measure_acceptance(const Transformer& verifier, const Transformer& draft,
                                   std::span<const TokenId> tokens, Index window, ThreadPool& pool,
                                   const std::stop_token& stop) {
  if (verifier.config().n_vocab != draft.config().n_vocab) {
    throw ConfigError("a draft's acceptance: expected vocabularies of one size, found {} and {}",
                      verifier.config().n_vocab, draft.config().n_vocab);
  }
  constexpr Index kCall = 64;  // logits of so many tokens lie in memory at a time, twice
  window = std::min({window, verifier.config().max_positions, draft.config().max_positions});
  DraftAcceptance found;
  ForwardOptions options{.logits = Logits::all};
  for (std::size_t begin = 0; begin < tokens.size(); begin += static_cast<std::size_t>(window)) {
    const auto part =
        tokens.subspan(begin, std::min(static_cast<std::size_t>(window), tokens.size() - begin));
    const auto n = static_cast<Index>(part.size());
    const auto of_verifier = verifier.make_store(n);
    const auto of_draft = draft.make_store(n);
    for (Index at = 0; at < n; at += kCall) {
      check_stop(stop, "acceptance");
      const auto call = part.subspan(static_cast<std::size_t>(at),
                                     static_cast<std::size_t>(std::min(kCall, n - at)));
      const Tensor<float> p = verifier.forward(call, *of_verifier, pool, options);
      const Tensor<float> q = draft.forward(call, *of_draft, pool, options);
      const Index n_rows = p.dim(0);
      std::vector<double> shared(static_cast<std::size_t>(n_rows));
      std::vector<int> same(static_cast<std::size_t>(n_rows));
      pool.parallel_for(n_rows, [&](std::int64_t row, int) {
        std::vector<double> of_p;
        std::vector<double> of_q;
        softmax(of_p, p.view().row(row));
        softmax(of_q, q.view().row(row));
        double sum = 0.0;
        for (std::size_t t = 0; t < of_p.size(); ++t) sum += std::min(of_p[t], of_q[t]);
        shared[static_cast<std::size_t>(row)] = sum;
        same[static_cast<std::size_t>(row)] =
            argmax(p.view().row(row)) == argmax(q.view().row(row));
      });
      for (Index row = at == 0 ? 1 : 0; row < n_rows; ++row) {
        found.sampled += shared[static_cast<std::size_t>(row)];
        found.greedy += same[static_cast<std::size_t>(row)];
        ++found.n_tokens;
      }
    }
  }
  if (found.n_tokens == 0)
    throw ConfigError("a draft's acceptance: expected a text of at least two tokens");
  found.greedy /= static_cast<double>(found.n_tokens);
  found.sampled /= static_cast<double>(found.n_tokens);
  return found;
}

}  // namespace kvscope
