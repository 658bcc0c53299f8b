// Unfinished work goes on only with the weights that it was begun with.
#pragma once

#include <nlohmann/json_fwd.hpp>
#include <string>
#include <vector>

namespace kvscope {

/// The fields model_hash and draft_hash (core/model/model_hash.hpp) of a configuration, which are
/// null where no model is computed.
nlohmann::ordered_json weights_of(const nlohmann::ordered_json& config);

/// Throws ConfigError if both name weights and not the same. `items`: those of `then`, which lie in
/// `where`; `advice` ends the sentence.
void require_same_weights(const nlohmann::ordered_json& now, const nlohmann::ordered_json& then,
                          const std::string& where, const std::vector<std::size_t>& items,
                          const std::string& advice);

}  // namespace kvscope
