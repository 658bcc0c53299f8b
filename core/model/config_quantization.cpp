// quantization_config of config.json: what it says of stored weights, and which are computed.
#include <fmt/format.h>

#include <nlohmann/json.hpp>

#include "core/base/error.hpp"
#include "core/model/config_fields.hpp"

namespace kvscope {

namespace {

using Kind = QuantizationConfig::Kind;

constexpr Index kMaxBlock = 1 << 20;  // rows, columns or inputs that share a scale

// What makes plain weights of those that the runtime does not read.
std::string_view way_out(std::string_view method) {
  if (method == "bitsandbytes") {
    return "; in Python: AutoModelForCausalLM.from_pretrained(FOLDER).dequantize()"
           ".save_pretrained(OUT) writes plain weights";
  }
  if (method == "compressed-tensors") {
    return "; in Python: AutoModelForCausalLM.from_pretrained(FOLDER, quantization_config="
           "CompressedTensorsConfig(run_compressed=False)).save_pretrained(OUT) writes plain "
           "weights";
  }
  return "; the same model in safetensors without quantisation (the base model at the hub), or in "
         "GGUF, is computed";
}

void refuse_method(const JsonObject& fields, QuantizationConfig& config) {
  config.refusal = fmt::format(
      "{}: expected fp8 (mxfp4 in gpt_oss models) or weights in F32, F16 or BF16, found a "
      "checkpoint quantised by {}{}",
      fields.name_of("quant_method"),
      config.method == "unknown" ? "a method that it does not name" : quote(config.method),
      way_out(config.method));
}

void read_fp8(const JsonObject& fields, QuantizationConfig& config) {
  config.kind = Kind::fp8;
  const std::string format = fields.string_if("fmt").value_or("e4m3");
  if (format != "e4m3") {
    config.refusal = fmt::format("{}: expected \"e4m3\", found {}{}", fields.name_of("fmt"),
                                 quote(format), way_out(""));
  }
  if (fields.find("weight_block_size") == nullptr) return;
  const auto& block = fields.list("weight_block_size");
  const auto is_size = [](const nlohmann::json& n) {
    return n.is_number_unsigned() && n > 0 && n <= kMaxBlock;
  };
  if (block.size() != 2 || !is_size(block[0]) || !is_size(block[1])) {
    fields.refuse("weight_block_size", "rows and columns of a block, as in [128, 128]");
  }
  config.block_rows = block[0].get<Index>();
  config.block_cols = block[1].get<Index>();
}

}  // namespace

QuantizationConfig read_quantization(const JsonObject& json, ModelFamily family) {
  QuantizationConfig config;
  if (json.find("quantization_config") == nullptr) return config;
  const JsonObject fields = json.object("quantization_config");
  config.method = fields.string_if("quant_method").value_or("unknown");
  config.kind = Kind::other;
  if (config.method == "fp8" || config.method == "fbgemm_fp8") {
    read_fp8(fields, config);
  } else if (config.method == "mxfp4" && family == ModelFamily::gpt_oss) {
    config.kind = Kind::mxfp4;  // only where published gpt-oss checkpoints have it, in the experts
  } else {
    refuse_method(fields, config);
  }
  return config;
}

}  // namespace kvscope
