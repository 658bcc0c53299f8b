// Mixture-of-experts fields of config.json.

#include <algorithm>
#include <limits>
#include <nlohmann/json.hpp>

#include "core/base/error.hpp"
#include "core/model/config_fields.hpp"

namespace kvscope {

namespace {

// Both names are in use: num_experts in published files, num_local_experts as transformers writes.
Index read_n_experts(const JsonObject& json) {
  const bool has_short = json.find("num_experts") != nullptr;
  const bool has_long = json.find("num_local_experts") != nullptr;
  const std::string field = has_short || !has_long ? "num_experts" : "num_local_experts";
  const Index n = read_count(json, field, kMaxExperts);
  if (has_short && has_long && read_count(json, "num_local_experts", kMaxExperts) != n) {
    throw ConfigError("{}: expected num_experts = {}, found {}", json.name_of("num_local_experts"),
                      n, describe(*json.find("num_local_experts")));
  }
  return n;
}

void read_counts(const JsonObject& json, MoeConfig& moe) {
  moe.n_experts = read_n_experts(json);
  moe.n_picked = read_count(json, "num_experts_per_tok", kMaxExperts);
  if (moe.n_picked > moe.n_experts) {
    throw ConfigError("{}: expected at most the {} experts there are, found {}",
                      json.name_of("num_experts_per_tok"), moe.n_experts, moe.n_picked);
  }
  if (moe.n_experts * moe.d_ff > kMaxExpertsWidth) {
    throw ConfigError("{}: expected at most {} over all experts, found {} of {}",
                      json.name_of("moe_intermediate_size"), kMaxExpertsWidth, moe.n_experts,
                      moe.d_ff);
  }
}

// Layers in mlp_only_layers are dense, and so are those whose number (from 1) is no multiple of
// decoder_sparse_step.
std::vector<bool> read_sparse_layers(const JsonObject& json, Index n_layers) {
  const Index step = read_count_or(json, "decoder_sparse_step", kMaxLayers, /*absent=*/1,
                                   /*null_value=*/1);
  std::vector<bool> has_experts;
  for (Index layer = 0; layer < n_layers; ++layer) has_experts.push_back((layer + 1) % step == 0);
  if (json.find("mlp_only_layers") == nullptr) return has_experts;
  for (const auto& value : json.list("mlp_only_layers")) {
    if (!value.is_number_unsigned() ||
        value.get<std::uint64_t>() >= static_cast<std::uint64_t>(n_layers)) {
      throw FormatError("{}: expected layers from 0 to {}, found {}",
                        json.name_of("mlp_only_layers"), n_layers - 1, describe(value));
    }
    has_experts[value.get<std::size_t>()] = false;
  }
  return has_experts;
}

}  // namespace

void read_moe(const JsonObject& json, const FamilyTraits& traits, ModelConfig& config) {
  const auto n_layers = static_cast<std::size_t>(config.n_layers);
  config.has_experts.assign(n_layers, false);
  MoeConfig& moe = config.moe;
  if (traits.experts == FamilyTraits::Experts::some_layers) {
    moe.d_ff = read_count(json, "moe_intermediate_size", kMaxFfWidth);
    read_counts(json, moe);
    moe.weights = json.boolean_or("norm_topk_prob", false) ? MoeConfig::Weights::softmax_of_picked
                                                           : MoeConfig::Weights::softmax_of_all;
    config.has_experts = read_sparse_layers(json, config.n_layers);
  }
  if (traits.experts == FamilyTraits::Experts::clamped) {
    moe.d_ff = config.d_ff;
    read_counts(json, moe);
    moe.weights = MoeConfig::Weights::softmax_of_picked;
    moe.is_clamped = true;
    moe.swiglu_alpha = json.number_or("swiglu_alpha", 1e-3, 1e3, moe.swiglu_alpha);
    moe.swiglu_limit = json.number_or("swiglu_limit", 1e-3, 1e6, moe.swiglu_limit);
    config.has_experts.assign(n_layers, true);
  }
}

}  // namespace kvscope
