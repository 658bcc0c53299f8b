// Selector specs ("quest:page-size=32") as the engines adjust them.
#pragma once

#include <optional>
#include <string>

#include "core/selectors/registry.hpp"

namespace kvscope {

/// The spec with its dense-layers option set, if the method has that option and the spec leaves it
/// open: methods look at their own option besides what the run was told. Stage by stage for a
/// stack.
std::string with_dense_layers(const SelectorRegistry& registry, const std::string& spec,
                              std::optional<Index> dense_layers);

}  // namespace kvscope
