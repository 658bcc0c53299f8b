// Compiled once per instruction set (foreach_target includes this file again); the best one that
// the machine has is chosen at run time. Integer arithmetic only where rounding matters, so that
// every target gives the same bits.
#include "core/tensor/dtype.hpp"

#include <array>
#include <cstdint>
#include <cstring>

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "core/tensor/dtype.cpp"
#include <hwy/foreach_target.h>
//
#include <hwy/highway.h>

HWY_BEFORE_NAMESPACE();
namespace kvscope {
namespace HWY_NAMESPACE {

namespace hn = hwy::HWY_NAMESPACE;

using F32 = hn::ScalableTag<float>;
using U32 = hn::RebindToUnsigned<F32>;
using I32 = hn::RebindToSigned<F32>;
using U16 = hn::Rebind<std::uint16_t, F32>;

// bf16 is the upper half of a float.
struct Bf16 {
  template <class V>
  static HWY_INLINE V widen(U32, V bits) {
    return hn::ShiftLeft<16>(bits);
  }

  template <class V>
  static HWY_INLINE V narrow(U32 d, V bits) {
    const auto magnitude = hn::And(bits, hn::Set(d, 0x7fffffffu));
    const auto is_nan =
        hn::RebindMask(d, hn::Gt(hn::BitCast(I32(), magnitude), hn::Set(I32(), 0x7f800000)));
    const auto odd = hn::And(hn::ShiftRight<16>(bits), hn::Set(d, 1u));
    const auto rounded = hn::ShiftRight<16>(hn::Add(hn::Add(bits, hn::Set(d, 0x7fffu)), odd));
    const auto quiet = hn::Or(hn::ShiftRight<16>(bits), hn::Set(d, 0x40u));
    return hn::IfThenElse(is_nan, quiet, rounded);
  }
};

// IEEE half: 1 sign, 5 exponent (bias 15), 10 mantissa bits.
struct F16 {
  template <class V>
  static HWY_INLINE V widen(U32 d, V bits) {
    const auto sign = hn::ShiftLeft<16>(hn::And(bits, hn::Set(d, 0x8000u)));
    const auto magnitude = hn::And(bits, hn::Set(d, 0x7fffu));
    const auto shifted = hn::ShiftLeft<13>(magnitude);
    const auto normal = hn::Add(shifted, hn::Set(d, (127u - 15u) << 23));
    const auto special = hn::Or(shifted, hn::Set(d, 0x7f800000u));
    // Subnormals are multiples of 2^-24, exact in float.
    const auto scaled =
        hn::Mul(hn::ConvertTo(F32(), hn::BitCast(I32(), magnitude)), hn::Set(F32(), 0x1p-24f));
    const auto is_special =
        hn::RebindMask(d, hn::Gt(hn::BitCast(I32(), magnitude), hn::Set(I32(), 0x7bff)));
    const auto is_subnormal =
        hn::RebindMask(d, hn::Lt(hn::BitCast(I32(), magnitude), hn::Set(I32(), 0x0400)));
    const auto finite = hn::IfThenElse(is_subnormal, hn::BitCast(d, scaled), normal);
    return hn::Or(sign, hn::IfThenElse(is_special, special, finite));
  }

  template <class V>
  static HWY_INLINE V narrow(U32 d, V bits) {
    const auto sign = hn::ShiftRight<16>(hn::And(bits, hn::Set(d, 0x80000000u)));
    const auto magnitude = hn::And(bits, hn::Set(d, 0x7fffffffu));
    const auto ordered = hn::BitCast(I32(), magnitude);
    // Normal results: drop 13 mantissa bits to nearest even, then change the exponent's bias.
    const auto odd = hn::And(hn::ShiftRight<13>(magnitude), hn::Set(d, 1u));
    const auto rounded = hn::Add(hn::Add(magnitude, hn::Set(d, 0xfffu)), odd);
    const auto normal = hn::ShiftRight<13>(hn::Sub(rounded, hn::Set(d, (127u - 15u) << 23)));
    // Subnormal results: adding 0.5 leaves a float whose last place is 2^-24, rounded by the adder.
    const auto half = hn::Set(F32(), 0.5f);
    const auto sum = hn::Add(hn::BitCast(F32(), magnitude), half);
    const auto subnormal = hn::Sub(hn::BitCast(d, sum), hn::BitCast(d, half));
    const auto quiet =
        hn::Or(hn::And(hn::ShiftRight<13>(magnitude), hn::Set(d, 0x3ffu)), hn::Set(d, 0x7e00u));
    // 65520 = 0x477ff000 is the first float that rounds to infinity; 2^-14 = 0x38800000.
    const auto is_nan = hn::RebindMask(d, hn::Gt(ordered, hn::Set(I32(), 0x7f800000)));
    const auto is_large = hn::RebindMask(d, hn::Gt(ordered, hn::Set(I32(), 0x477fefff)));
    const auto is_small = hn::RebindMask(d, hn::Lt(ordered, hn::Set(I32(), 0x38800000)));
    auto result = hn::IfThenElse(is_small, subnormal, normal);
    result = hn::IfThenElse(is_large, hn::Set(d, 0x7c00u), result);
    result = hn::IfThenElse(is_nan, quiet, result);
    return hn::Or(sign, result);
  }
};

constexpr std::size_t kMaxLanes = HWY_MAX_BYTES / sizeof(float);

// Whole vectors first, then one zero-padded vector for what is left.
template <class Format>
void widen_all(const void* src, float* dst, std::size_t n) {
  const F32 d_float;
  const U32 d;
  const U16 d_stored;
  const std::size_t lanes = hn::Lanes(d);
  const auto* from = static_cast<const unsigned char*>(src);
  HWY_ALIGN std::array<std::uint16_t, kMaxLanes> stored{};
  const auto widen = [&] {
    const auto bits = hn::PromoteTo(d, hn::Load(d_stored, stored.data()));
    return hn::BitCast(d_float, Format::widen(d, bits));
  };
  std::size_t i = 0;
  for (; i + lanes <= n; i += lanes) {
    std::memcpy(stored.data(), from + 2 * i, 2 * lanes);  // src may be unaligned
    hn::StoreU(widen(), d_float, dst + i);
  }
  if (i == n) return;
  HWY_ALIGN std::array<float, kMaxLanes> wide{};
  std::memcpy(stored.data(), from + 2 * i, 2 * (n - i));
  hn::Store(widen(), d_float, wide.data());
  std::memcpy(dst + i, wide.data(), sizeof(float) * (n - i));
}

template <class Format>
void narrow_all(const float* src, void* dst, std::size_t n) {
  const F32 d_float;
  const U32 d;
  const U16 d_stored;
  const std::size_t lanes = hn::Lanes(d);
  auto* to = static_cast<unsigned char*>(dst);
  HWY_ALIGN std::array<std::uint16_t, kMaxLanes> stored{};
  const auto narrow = [&](const float* from) {
    const auto bits = Format::narrow(d, hn::BitCast(d, hn::LoadU(d_float, from)));
    hn::Store(hn::DemoteTo(d_stored, hn::BitCast(I32(), bits)), d_stored, stored.data());
  };
  std::size_t i = 0;
  for (; i + lanes <= n; i += lanes) {
    narrow(src + i);
    std::memcpy(to + 2 * i, stored.data(), 2 * lanes);
  }
  if (i == n) return;
  HWY_ALIGN std::array<float, kMaxLanes> wide{};
  std::memcpy(wide.data(), src + i, sizeof(float) * (n - i));
  narrow(wide.data());
  std::memcpy(to + 2 * i, stored.data(), 2 * (n - i));
}

void widen_bf16(const void* src, float* dst, std::size_t n) {
  widen_all<Bf16>(src, dst, n);
}
void widen_f16(const void* src, float* dst, std::size_t n) {
  widen_all<F16>(src, dst, n);
}
void narrow_bf16(const float* src, void* dst, std::size_t n) {
  narrow_all<Bf16>(src, dst, n);
}
void narrow_f16(const float* src, void* dst, std::size_t n) {
  narrow_all<F16>(src, dst, n);
}

}  // namespace HWY_NAMESPACE
}  // namespace kvscope
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace kvscope {

namespace {

HWY_EXPORT(widen_bf16);
HWY_EXPORT(widen_f16);
HWY_EXPORT(narrow_bf16);
HWY_EXPORT(narrow_f16);

}  // namespace

void to_float(DType dtype, const void* src, float* dst, std::size_t n) {
  if (n == 0) return;
  switch (dtype) {
    case DType::f32:
      std::memcpy(dst, src, sizeof(float) * n);
      return;
    case DType::f16:
      HWY_DYNAMIC_DISPATCH(widen_f16)(src, dst, n);
      return;
    case DType::bf16:
      HWY_DYNAMIC_DISPATCH(widen_bf16)(src, dst, n);
      return;
  }
}

void from_float(const float* src, DType dtype, void* dst, std::size_t n) {
  if (n == 0) return;
  switch (dtype) {
    case DType::f32:
      std::memcpy(dst, src, sizeof(float) * n);
      return;
    case DType::f16:
      HWY_DYNAMIC_DISPATCH(narrow_f16)(src, dst, n);
      return;
    case DType::bf16:
      HWY_DYNAMIC_DISPATCH(narrow_bf16)(src, dst, n);
      return;
  }
}

}  // namespace kvscope
#endif  // HWY_ONCE
