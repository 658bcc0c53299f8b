// The parts of reading a config.json that have files of their own; used by config.cpp only.
#pragma once

#include <cstdint>
#include <optional>
#include <string>

#include "core/base/json_reader.hpp"
#include "core/model/config.hpp"

namespace kvscope {

/// What a family's config class in Hugging Face transformers assumes for fields that config.json
/// leaves out, since a config.json leaves out what its writer's version took for granted.
struct FamilyDefaults {
  std::optional<Index> n_kv;    // empty: as many as query heads
  std::optional<Index> d_head;  // empty: d_model / n_q
  std::optional<Index> window;  // sliding_window
  Index max_positions = 0;
  std::optional<std::int32_t> bos_id;
  std::optional<std::int32_t> eos_id;
  double rope_theta = 10000.0;
  double rms_eps = 1e-6;
  bool tied_embeddings = false;
};

/// Far above any model that exists; the number of parameters that they allow fits 64 bits:
/// n_layers * 4 * d_model * (d_ff of all experts) < 2^57.
inline constexpr Index kMaxLayers = 1 << 11;
inline constexpr Index kMaxHeads = 1 << 12;
inline constexpr Index kMaxHeadDim = 1 << 12;
inline constexpr Index kMaxWidth = 1 << 20;  // d_model, n_q * d_head
inline constexpr Index kMaxFfWidth = 1 << 22;
inline constexpr Index kMaxExperts = 1 << 12;
inline constexpr Index kMaxExpertsWidth = 1 << 24;  // n_experts * d_ff of one
inline constexpr Index kMaxVocab = 1 << 24;
inline constexpr Index kMaxPositions = Index{1} << 30;

/// A positive count. What is no count at all is broken (FormatError); what is beyond `most` is not
/// computed (ConfigError).
Index read_count(const JsonObject& json, const std::string& field, Index most);

/// Same. Absent: `absent`. JSON null: `null_value`. These differ in the config classes.
Index read_count_or(const JsonObject& json, const std::string& field, Index most, Index absent,
                    Index null_value);

/// Rotary embedding in both styles (rope_theta + rope_scaling; rope_parameters).
RopeConfig read_rope(const JsonObject& json, ModelFamily family, const FamilyDefaults& defaults,
                     Index max_positions);

/// Fills config.has_rope: which layers rotate q and k (SmolLM3 leaves some out). Needs n_layers.
void read_rope_layers(const JsonObject& json, ModelConfig& config);

/// Fills config.moe and config.has_experts. Needs n_layers and d_ff.
void read_moe(const JsonObject& json, ModelConfig& config);

}  // namespace kvscope
