// Any text as config.json: either a config that keeps its promises, or an Error.
#include <cmath>
#include <cstdint>
#include <cstdlib>
#include <string_view>

#include "core/base/error.hpp"
#include "core/model/config.hpp"

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  try {
    const std::string_view text(reinterpret_cast<const char*>(data), size);
    const kvscope::ModelConfig config = kvscope::parse_model_config(text, "fuzz");
    const bool holds = config.n_layers > 0 && config.n_kv > 0 && config.n_q % config.n_kv == 0 &&
                       config.d_head > 0 && config.d_head % 2 == 0 && config.n_parameters() > 0 &&
                       config.max_positions > 0 && config.score_scale() > 0.0f &&
                       config.window.size() == static_cast<std::size_t>(config.n_layers) &&
                       config.has_rope.size() == config.window.size() &&
                       config.has_experts.size() == config.window.size() &&
                       config.moe.n_picked <= config.moe.n_experts &&
                       config.n_active_parameters() > 0 &&
                       config.n_active_parameters() <= config.n_parameters() &&
                       std::isfinite(config.rope.amplitude);
    if (!holds) std::abort();
  } catch (const kvscope::Error&) {  // the expected outcome
  }
  return 0;
}
