// Compiled alone: Highway code for each instruction set.
#include "core/attention/vote_kernels.hpp"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "core/attention/vote_kernels.cpp"
#include <hwy/foreach_target.h>
// must follow foreach_target.h
#include <hwy/highway.h>

#include "core/tensor/lane_tile-inl.hpp"

HWY_BEFORE_NAMESPACE();
namespace kvscope {
namespace HWY_NAMESPACE {

void ExpOfBlock(float* scores, Index n_keys, Index lanes, const std::int32_t* begin,
                const std::int32_t* end, float* max, float* sum) {
  const D d;
  const DI di;
  const auto step = static_cast<Index>(hn::Lanes(d));
  const V nothing = hn::Set(d, -std::numeric_limits<float>::infinity());
  for (Index j = 0; j < lanes; j += step) {
    V largest = nothing;
    if (begin != nullptr) {
      const auto first = hn::LoadU(di, begin + j);
      const auto last = hn::LoadU(di, end + j);
      for (Index t = 0; t < n_keys; ++t) {
        const auto key = hn::Set(di, static_cast<std::int32_t>(t));
        const auto hidden =
            hn::RebindMask(d, hn::Or(hn::Lt(key, first), hn::Not(hn::Lt(key, last))));
        const V score = hn::IfThenElse(hidden, nothing, hn::LoadU(d, scores + t * lanes + j));
        hn::StoreU(score, d, scores + t * lanes + j);
        largest = hn::Max(largest, score);
      }
    } else {
      for (Index t = 0; t < n_keys; ++t)
        largest = hn::Max(largest, hn::LoadU(d, scores + t * lanes + j));
    }
    const V shift = hn::IfThenElse(hn::Eq(largest, nothing), hn::Zero(d), largest);
    V total = hn::Zero(d);
    for (Index t = 0; t < n_keys; ++t) {
      float* score = scores + t * lanes + j;
      const V e = ExpOfNegative(hn::Sub(hn::LoadU(d, score), shift));
      hn::StoreU(e, d, score);
      total = hn::Add(total, e);
    }
    hn::StoreU(largest, d, max + j);
    hn::StoreU(total, d, sum + j);
  }
}

void JoinMaxima(const float* max, const float* sum, Index n_blocks, Index lanes,
                const float* sink_logits, float* max_of_all, float* scale) {
  const D d;
  const auto step = static_cast<Index>(hn::Lanes(d));
  for (Index j = 0; j < lanes; j += step) {
    V largest = hn::Set(d, -std::numeric_limits<float>::infinity());
    if (sink_logits != nullptr) largest = hn::LoadU(d, sink_logits + j);
    for (Index b = 0; b < n_blocks; ++b)
      largest = hn::Max(largest, hn::LoadU(d, max + b * lanes + j));
    V total = hn::Zero(d);
    if (sink_logits != nullptr)
      total = ExpOfNegative(hn::Sub(hn::LoadU(d, sink_logits + j), largest));
    for (Index b = 0; b < n_blocks; ++b) {
      const V e = ExpOfNegative(hn::Sub(hn::LoadU(d, max + b * lanes + j), largest));
      total = hn::MulAdd(hn::LoadU(d, sum + b * lanes + j), e, total);
    }
    hn::StoreU(largest, d, max_of_all + j);
    const auto is_some = hn::Gt(total, hn::Zero(d));
    const V inverse = hn::Div(hn::Set(d, 1.0f), hn::IfThenElse(is_some, total, hn::Set(d, 1.0f)));
    hn::StoreU(hn::IfThenElseZero(is_some, inverse), d, scale + j);
  }
}

void BlockFactors(const float* max, const float* max_of_all, const float* scale, Index lanes,
                  float* out) {
  const D d;
  const auto step = static_cast<Index>(hn::Lanes(d));
  for (Index j = 0; j < lanes; j += step) {
    const V e = ExpOfNegative(hn::Sub(hn::LoadU(d, max + j), hn::LoadU(d, max_of_all + j)));
    hn::StoreU(hn::Mul(hn::LoadU(d, scale + j), e), d, out + j);
  }
}

void AddWeightsOfLanes(const float* exponentials, Index n_keys, Index lanes, const float* factors,
                       float* sums) {
  const D d;
  const auto step = static_cast<Index>(hn::Lanes(d));
  for (Index t = 0; t < n_keys; ++t) {
    V total = hn::Zero(d);
    for (Index j = 0; j < lanes; j += step) {
      total =
          hn::MulAdd(hn::LoadU(d, exponentials + t * lanes + j), hn::LoadU(d, factors + j), total);
    }
    sums[t] += hn::GetLane(hn::SumOfLanes(d, total));
  }
}

}  // namespace HWY_NAMESPACE
}  // namespace kvscope
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace kvscope {

HWY_EXPORT(ExpOfBlock);
HWY_EXPORT(JoinMaxima);
HWY_EXPORT(BlockFactors);
HWY_EXPORT(AddWeightsOfLanes);

void exp_of_block(float* scores, Index n_keys, Index lanes, const std::int32_t* begin,
                  const std::int32_t* end, float* max, float* sum) {
  HWY_DYNAMIC_DISPATCH(ExpOfBlock)(scores, n_keys, lanes, begin, end, max, sum);
}

void join_maxima(const float* max, const float* sum, Index n_blocks, Index lanes,
                 const float* sink_logits, float* max_of_all, float* scale) {
  HWY_DYNAMIC_DISPATCH(JoinMaxima)(max, sum, n_blocks, lanes, sink_logits, max_of_all, scale);
}

void block_factors(const float* max, const float* max_of_all, const float* scale, Index lanes,
                   float* out) {
  HWY_DYNAMIC_DISPATCH(BlockFactors)(max, max_of_all, scale, lanes, out);
}

void add_weights_of_lanes(const float* exponentials, Index n_keys, Index lanes,
                          const float* factors, float* sums) {
  HWY_DYNAMIC_DISPATCH(AddWeightsOfLanes)(exponentials, n_keys, lanes, factors, sums);
}

}  // namespace kvscope
#endif  // HWY_ONCE
