#include "core/attention/code_kernels.hpp"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "core/attention/code_kernels.cpp"
#include <hwy/foreach_target.h>
// must follow foreach_target.h
#include <hwy/highway.h>

HWY_BEFORE_NAMESPACE();
namespace kvscope::HWY_NAMESPACE {

namespace hn = hwy::HWY_NAMESPACE;

/// kKeys keys side by side, along the channels.
template <int kKeys>
HWY_INLINE void DotsOfCodes(const float* q, const std::uint8_t* codes, const std::int32_t* keys,
                            Index d_head, double* out) {
  const hn::ScalableTag<float> d;
  const hn::RebindToSigned<decltype(d)> whole;
  const hn::Rebind<std::uint8_t, decltype(d)> narrow;
  const auto lanes = static_cast<Index>(hn::Lanes(d));
  hn::Vec<decltype(d)> sum[kKeys];
  for (int i = 0; i < kKeys; ++i) sum[i] = hn::Zero(d);
  Index c = 0;
  for (; c + lanes <= d_head; c += lanes) {
    const auto x = hn::LoadU(d, q + c);
    for (int i = 0; i < kKeys; ++i) {
      const auto code = hn::PromoteTo(whole, hn::LoadU(narrow, codes + keys[i] * d_head + c));
      sum[i] = hn::MulAdd(x, hn::ConvertTo(d, code), sum[i]);
    }
  }
  for (int i = 0; i < kKeys; ++i) {
    float total = hn::GetLane(hn::SumOfLanes(d, sum[i]));
    for (Index rest = c; rest < d_head; ++rest)
      total += q[rest] * static_cast<float>(codes[keys[i] * d_head + rest]);
    out[i] = static_cast<double>(total);
  }
}

void CodeDots(const float* q, const std::uint8_t* codes, const std::int32_t* keys, Index n_keys,
              Index d_head, double* out) {
  Index t = 0;
  for (; t + 4 <= n_keys; t += 4) DotsOfCodes<4>(q, codes, keys + t, d_head, out + t);
  for (; t < n_keys; ++t) DotsOfCodes<1>(q, codes, keys + t, d_head, out + t);
}

FloatRange RangeOf(const float* x, std::size_t n) {
  const hn::ScalableTag<float> d;
  const std::size_t lanes = hn::Lanes(d);
  FloatRange range{x[0], x[0]};
  std::size_t i = 0;
  if (n >= lanes) {
    auto low = hn::LoadU(d, x);
    auto high = low;
    for (; i + lanes <= n; i += lanes) {
      const auto v = hn::LoadU(d, x + i);
      low = hn::Min(low, v);
      high = hn::Max(high, v);
    }
    range = {hn::GetLane(hn::MinOfLanes(d, low)), hn::GetLane(hn::MaxOfLanes(d, high))};
  }
  for (; i < n; ++i)
    range = {x[i] < range.low ? x[i] : range.low, x[i] > range.high ? x[i] : range.high};
  return range;
}

void RoundToCodes(const float* x, std::size_t n, double low, double inverse_step,
                  std::uint8_t* codes) {
  const hn::CappedTag<double, 8> d;
  const hn::Rebind<float, decltype(d)> narrow;
  const hn::Rebind<std::int32_t, decltype(d)> whole;
  const std::size_t lanes = hn::Lanes(d);
  HWY_ALIGN std::int32_t buffer[8];
  std::size_t i = 0;
  for (; i + lanes <= n; i += lanes) {
    const auto place = hn::Mul(hn::Sub(hn::PromoteTo(d, hn::LoadU(narrow, x + i)), hn::Set(d, low)),
                               hn::Set(d, inverse_step));
    hn::Store(hn::DemoteTo(whole, hn::Add(place, hn::Set(d, 0.5))), whole, buffer);
    for (std::size_t j = 0; j < lanes; ++j) codes[i + j] = static_cast<std::uint8_t>(buffer[j]);
  }
  for (; i < n; ++i)
    codes[i] = static_cast<std::uint8_t>((static_cast<double>(x[i]) - low) * inverse_step + 0.5);
}

}  // namespace kvscope::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace kvscope {

HWY_EXPORT(CodeDots);
HWY_EXPORT(RangeOf);
HWY_EXPORT(RoundToCodes);

FloatRange range_of(std::span<const float> x) {
  return HWY_DYNAMIC_DISPATCH(RangeOf)(x.data(), x.size());
}

void round_to_codes(std::span<const float> x, double low, double inverse_step,
                    std::uint8_t* codes) {
  HWY_DYNAMIC_DISPATCH(RoundToCodes)(x.data(), x.size(), low, inverse_step, codes);
}

void code_dots(std::span<const float> q, const std::uint8_t* codes,
               std::span<const std::int32_t> keys, std::span<double> out) {
  HWY_DYNAMIC_DISPATCH(CodeDots)
  (q.data(), codes, keys.data(), static_cast<Index>(keys.size()), static_cast<Index>(q.size()),
   out.data());
}

}  // namespace kvscope
#endif  // HWY_ONCE
