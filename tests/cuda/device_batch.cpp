#include "tests/cuda/device_batch.hpp"

namespace kvscope::test {

namespace {

std::vector<std::byte> bytes_of(const std::vector<float>& values, DType dtype) {
  std::vector<std::byte> bytes(values.size() * size_of(dtype));
  if (dtype == DType::f32) {
    std::memcpy(bytes.data(), values.data(), bytes.size());
  } else {
    for (std::size_t i = 0; i < values.size(); ++i) {
      const std::uint16_t half = bf16_from(values[i]);
      std::memcpy(bytes.data() + 2 * i, &half, 2);
    }
  }
  return bytes;
}

gpu::DeviceBuffer uploaded(const std::vector<float>& values, DType dtype) {
  const std::vector<std::byte> bytes = bytes_of(values, dtype);
  gpu::DeviceBuffer buffer(bytes.size(), "a test's rows");
  buffer.upload(bytes.data(), bytes.size());
  return buffer;
}

}  // namespace

DeviceBatch::DeviceBatch(const BatchShape& of) : n_tok(of.n_tok) {
  int capacity = of.capacity;
  for (const int past : of.n_past) capacity = std::max(capacity, past + of.n_tok);
  const bool is_bf16 = of.dtype == DType::bf16;
  std::vector<float> all_q, all_k, all_v;
  // places behind a sequence's keys hold NaN: reading one shows
  const auto n_rows = static_cast<std::size_t>(of.n_past.size()) * of.n_kv * capacity * of.d;
  all_k.assign(n_rows, std::numeric_limits<float>::quiet_NaN());
  all_v.assign(n_rows, std::numeric_limits<float>::quiet_NaN());
  for (std::size_t b = 0; b < of.n_past.size(); ++b) {
    sequences.push_back(random_sequence(of.n_q, of.n_kv, of.d, of.n_past[b], of.n_tok,
                                        of.seed + static_cast<unsigned>(b), of.draw, is_bf16));
    const Sequence1& s = sequences.back();
    all_q.insert(all_q.end(), s.q.begin(), s.q.end());
    for (int head = 0; head < of.n_kv; ++head) {
      const std::size_t at = (b * of.n_kv + head) * capacity * of.d;
      std::copy_n(s.k_row(head, 0), s.n_ctx() * s.d,
                  all_k.begin() + static_cast<std::ptrdiff_t>(at));
      std::copy_n(s.v_row(head, 0), s.n_ctx() * s.d,
                  all_v.begin() + static_cast<std::ptrdiff_t>(at));
    }
  }
  shape.n_batch = n_batch();
  shape.n_q = of.n_q;
  shape.n_kv = of.n_kv;
  shape.d_head = of.d;
  shape.capacity = capacity;
  shape.dtype = of.dtype;
  shape.score_scale = static_cast<float>(sequences[0].scale);
  q = uploaded(all_q, of.dtype);
  k = uploaded(all_k, of.dtype);
  v = uploaded(all_v, of.dtype);
  n_past = gpu::DeviceBuffer(4 * of.n_past.size(), "a test's positions");
  n_past.upload(of.n_past.data(), 4 * of.n_past.size());
  out_rows = gpu::DeviceBuffer(q.size(), "a test's outputs");
  lse_rows = gpu::DeviceBuffer(4 * all_q.size() / of.d, "a test's outputs");
  poison();
}

void DeviceBatch::poison() {
  const std::vector<unsigned char> nan(std::max(out_rows.size(), lse_rows.size()), 0xff);
  out_rows.upload(nan.data(), out_rows.size());
  lse_rows.upload(nan.data(), lse_rows.size());
}

gpu::DeviceRows DeviceBatch::rows() const {
  return {q.data(), k.data(), v.data(), reinterpret_cast<const std::int32_t*>(n_past.data()),
          n_tok};
}

void DeviceBatch::attend(const gpu::DeviceLists& lists, const gpu::AttendOptions& options) {
  gpu::attend(shape, rows(), lists, out_rows.data(), reinterpret_cast<float*>(lse_rows.data()),
              options, stream);
}

std::vector<float> DeviceBatch::out() const {
  const std::size_t n = out_rows.size() / size_of(shape.dtype);
  if (shape.dtype == DType::f32)
    return gpu::read_device(reinterpret_cast<const float*>(out_rows.data()), n);
  std::vector<float> values;
  for (const std::uint16_t half :
       gpu::read_device(reinterpret_cast<const std::uint16_t*>(out_rows.data()), n))
    values.push_back(float_from(half));
  return values;
}

std::vector<float> DeviceBatch::lse() const {
  return gpu::read_device(reinterpret_cast<const float*>(lse_rows.data()), lse_rows.size() / 4);
}

std::vector<int> list_of(const gpu::DeviceLists& lists, int batch, int owner) {
  const std::size_t list = static_cast<std::size_t>(batch) * lists.n_owners + owner;
  const int count = gpu::read_device<std::int32_t>(lists.counts + list, 1)[0];
  return gpu::read_device<std::int32_t>(
      lists.items + list * lists.stride,
      static_cast<std::size_t>(std::clamp(count, 0, lists.stride)));
}

ListDifference compare_list(const std::vector<int>& found, const std::vector<double>& scores,
                            int n_kept, double rounding) {
  const std::vector<int> expected = best_of(scores, n_kept);
  ListDifference difference{.is_right = found.size() == expected.size()};
  for (std::size_t i = 1; i < found.size(); ++i)
    difference.is_right = difference.is_right && found[i] > found[i - 1];
  for (const int key : found)
    difference.is_right = difference.is_right && key >= 0 && key < static_cast<int>(scores.size());
  if (!difference.is_right || expected.empty()) return difference;
  double cut = std::numeric_limits<double>::infinity();
  for (const int key : expected) cut = std::min(cut, scores[key]);
  std::vector<int> swapped;
  std::set_symmetric_difference(found.begin(), found.end(), expected.begin(), expected.end(),
                                std::back_inserter(swapped));
  difference.n_swapped = static_cast<int>(swapped.size());
  for (const int key : swapped)
    difference.farthest = std::max(difference.farthest, std::abs(scores[key] - cut));
  difference.is_right = difference.farthest <= rounding;
  return difference;
}

}  // namespace kvscope::test
