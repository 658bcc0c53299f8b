// What methods ask about a layer whose queries and keys stay on the device.
#include <algorithm>
#include <cstring>
#include <functional>
#include <mutex>
#include <vector>

#include "core/base/error.hpp"
#include "core/cuda/backend.hpp"
#include "core/cuda/backend_call.hpp"

namespace kvscope::gpu {

const RemoteRows* CudaCall::remote_rows(Index layer) {
  if (!is_plain(layer)) return nullptr;
  remote_layer_ = layer;
  return this;
}

int CudaCall::longest_of(std::span<const std::span<const KeyPos>> lists) const {
  if (lists.empty()) return static_cast<int>(pos_begin_) + n_tok_;
  std::size_t longest = 0;
  for (const auto list : lists) {
    if (!ends_with_own(list))
      throw ShapeError(
          "a question about keys on the GPU: expected lists that end with the call's own keys, and "
          "found one that does not");
    longest = std::max(longest, list.size());
  }
  return static_cast<int>(longest);
}

template <class T>
std::vector<std::vector<double>> CudaCall::fetch_by_list(
    const T* values, std::int64_t stride, std::span<const std::span<const KeyPos>> lists) const {
  const auto n_kv = static_cast<std::size_t>(config_.n_kv);
  const auto width = static_cast<std::size_t>(stride);
  const T* const copied = work_.fetch(work_.host_votes, values, n_kv * width);
  std::vector<std::vector<double>> rows(n_kv);
  for (std::size_t kv_head = 0; kv_head < n_kv; ++kv_head) {
    const T* const row = copied + kv_head * width;
    const auto n = lists.empty() ? static_cast<std::ptrdiff_t>(pos_begin_ + n_tok_)
                                 : std::ssize(lists[kv_head]);
    rows[kv_head].assign(row, row + n);
  }
  return rows;
}

void CudaCall::scores(Index q_head, Index first_row, Index end_row, std::span<double> out) const {
  // into the second half of `out`; other threads ask while this one widens them from there
  auto* const narrow = reinterpret_cast<std::byte*>(out.data()) + out.size() * sizeof(float);
  {
    const std::lock_guard lock(remote_mutex_);
    use_device(work_.device);
    const float* const on_device = work_.votes.scores(
        store_.call_shape(), rows_of(remote_layer_), static_cast<int>(pos_begin_),
        {static_cast<int>(q_head), static_cast<int>(first_row), static_cast<int>(end_row)},
        work_.stream);
    copy_to_host(narrow, on_device, out.size() * sizeof(float), work_.stream);
    work_.wait_and_check();
  }
  for (std::size_t i = 0; i < out.size(); ++i) {
    float score = 0.0f;
    std::memcpy(&score, narrow + i * sizeof(float), sizeof score);
    out[i] = static_cast<double>(score);  // never over one that is still to be read
  }
}

std::vector<std::vector<double>> CudaCall::softmax_votes(
    std::span<const std::span<const KeyPos>> lists, Index first_row, Index end_row) const {
  VoteCall call;
  call.rows = rows_of(remote_layer_);
  call.most_keys = longest_of(lists);
  call.first_row = static_cast<int>(first_row);
  call.end_row = static_cast<int>(end_row);
  if (!lists.empty()) call.lists = upload_past(lists);
  const float* const votes = work_.votes.sum(store_.call_shape(), call, work_.stream);
  return fetch_by_list(votes, work_.votes.stride(), lists);
}

Tensor<float> CudaCall::mean_attention(Index first_row, Index end_row) const {
  const int n_context = static_cast<int>(pos_begin_) + n_tok_;
  VoteCall call{rows_of(remote_layer_), DeviceLists{}, n_context, static_cast<int>(first_row),
                static_cast<int>(end_row)};
  call.of = VoteCall::Of::rows;
  const float* const votes = work_.votes.sum(store_.call_shape(), call, work_.stream);
  const Index stride = work_.votes.stride();
  const Index n_rows = end_row - first_row;
  const float* const copied =
      work_.fetch(work_.host_votes, votes, static_cast<std::size_t>(n_rows * stride));
  auto rows = Tensor<float>::uninitialized({n_rows, Index{n_context}});
  const float share = 1.0f / static_cast<float>(config_.n_q);
  for (Index row = 0; row < n_rows; ++row) {
    std::transform(copied + row * stride, copied + row * stride + n_context,
                   rows.view().row(row).begin(), [&](float x) { return x * share; });
  }
  return rows;
}

CosineCall CudaCall::cosine_call(std::span<const std::span<const KeyPos>> lists, double eps) const {
  CosineCall call;
  call.rows = rows_of(remote_layer_);
  call.most_keys = longest_of(lists);
  call.eps = eps;
  if (!lists.empty()) call.lists = upload_past(lists);
  return call;
}

std::vector<std::vector<double>> CudaCall::mean_cosines(
    std::span<const std::span<const KeyPos>> lists, bool takes_unit, double eps) const {
  CosineCall call = cosine_call(lists, eps);
  call.takes_unit = takes_unit;
  const double* const cosines = work_.keys.cosines(store_.call_shape(), call, work_.stream);
  return fetch_by_list(cosines, work_.keys.stride(), lists);
}

std::vector<std::vector<double>> CudaCall::inverse_norms(
    std::span<const std::span<const KeyPos>> lists, double eps) const {
  const double* const norms =
      work_.keys.inverse_norms(store_.call_shape(), cosine_call(lists, eps), work_.stream);
  return fetch_by_list(norms, work_.keys.stride(), lists);
}

void CudaCall::products(
    std::span<const double> vectors, TokenRange keys,
    const std::function<void(std::size_t, std::size_t, std::span<const float>)>& take) const {
  const std::lock_guard lock(remote_mutex_);
  const CallShape shape = store_.call_shape();
  const auto n_kv = static_cast<std::size_t>(shape.n_kv);
  const std::size_t n_rows = vectors.size() / n_kv / static_cast<std::size_t>(shape.d_head);
  const std::vector<float> narrow(vectors.begin(), vectors.end());
  for (std::size_t first = 0; first < n_rows; first += KeyQuestions::kMostVectors) {
    const std::size_t n = std::min<std::size_t>(KeyQuestions::kMostVectors, n_rows - first);
    const float* const on_device =
        work_.keys.products(shape, rows_of(remote_layer_), static_cast<int>(pos_begin_),
                            {narrow, n_rows, first, n}, work_.stream);
    const auto stride = static_cast<std::size_t>(work_.keys.stride());
    const float* const copied = work_.fetch(work_.host_votes, on_device, n_kv * n * stride);
    for (std::size_t i = 0; i < n_kv * n; ++i)
      take(i / n, first + i % n,
           std::span(copied + i * stride + keys.begin, static_cast<std::size_t>(keys.size())));
  }
}

void CudaCall::linear_scores(std::span<const double> vectors, TokenRange keys,
                             std::span<const std::span<double>> out) const {
  const std::size_t per_head = out.size() / static_cast<std::size_t>(config_.n_kv);
  products(vectors, keys,
           [&](std::size_t kv_head, std::size_t i, std::span<const float> products_of_row) {
             std::ranges::copy(products_of_row, out[kv_head * per_head + i].begin());
           });
}

void CudaCall::largest_scores(std::span<const double> vectors, TokenRange keys,
                              std::span<const std::span<double>> out) const {
  products(vectors, keys,
           [&](std::size_t kv_head, std::size_t i, std::span<const float> products_of_row) {
             const std::span<double> best = out[kv_head];
             for (std::size_t t = 0; t < best.size(); ++t) {
               const auto product = static_cast<double>(products_of_row[t]);
               best[t] = i == 0 ? product : std::max(best[t], product);
             }
           });
}

std::vector<std::vector<double>> CudaCall::value_sums(TokenRange keys) const {
  const CallShape shape = store_.call_shape();
  const double* const on_device =
      work_.keys.value_sums(shape, rows_of(remote_layer_), static_cast<int>(keys.begin),
                            static_cast<int>(keys.end), work_.stream);
  const auto n_kv = static_cast<std::size_t>(shape.n_kv);
  const auto d = static_cast<std::size_t>(shape.d_head);
  const double* const copied = work_.fetch(work_.host_votes, on_device, n_kv * d);
  std::vector<std::vector<double>> sums;
  for (std::size_t kv_head = 0; kv_head < n_kv; ++kv_head)
    sums.emplace_back(copied + kv_head * d, copied + (kv_head + 1) * d);
  return sums;
}

}  // namespace kvscope::gpu
