// The models of core/model on a GPU: a backend behind core/model/backend.hpp.
//
// Products: in f32 by one chain of multiply-adds per element, or in bf16 (rounded inputs, f32 sums)
// by cuBLASLt. Attention: the kernels of attend.hpp where the layer is plain and d_head is 64 or
// 128, the one of attend_any.hpp for everything else. Methods with a ListPlan choose on the
// device; other methods on the host, which gets copies of queries and keys.
//
// Bits: with products and keys in f32 a token's numbers have the same bits whatever the division of
// the tokens into calls. With keys in bf16 they have not: the kernels for tensor cores divide the
// keys among blocks by the shape of the call, and sums are joined in that order. Products in bf16
// take one algorithm per matrix; README.md says what the tests find.
#pragma once

#include <string>

#include "core/model/backend.hpp"

namespace kvscope::gpu {

struct BackendOptions {
  int device = 0;
  bool has_bf16_products = false;
  DType kv_dtype = DType::f32;  // of keys, values and the queries that meet them: f32 or bf16
};

/// Whether the device may choose by this plan at all: QuoKA of up to 16 queries; Quest with pages
/// of a power of two, at most 4096 keys; budgets of up to 2^20. In calls and layers that the
/// kernels do not compute (see README.md) the host still chooses.
bool takes_plan(const ListPlan& plan);

/// Throws DeviceError if the device does not do (none, another architecture, an old driver, no
/// cuBLASLt for bf16), DeviceMemoryError for too little memory, ConfigError for a model that this
/// backend does not compute.
BackendFactory cuda_backend(const BackendOptions& options);

}  // namespace kvscope::gpu
