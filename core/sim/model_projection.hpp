// The output projection of a loaded model, as methods ask about it.
#pragma once

#include <memory>

#include "core/attention/output_projection.hpp"
#include "core/model/transformer.hpp"

namespace kvscope {

/// The model must outlive it.
std::shared_ptr<const OutputProjection> projection_of(const Transformer& model);
/// Of a layer, whatever its number, with `group` query heads per KV head. out [d_model, n_q *
/// d_head]
std::shared_ptr<const OutputProjection> projection_of(Matrix out, Index group);

}  // namespace kvscope
