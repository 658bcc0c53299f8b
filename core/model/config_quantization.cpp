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
  return "; the same model in safetensors without quantisation, or in GGUF, is computed";
}

void refuse_method(const JsonObject& fields, QuantizationConfig& config) {
  config.refusal = fmt::format(
      "{}: expected fp8, gptq or awq of 4 bits (mxfp4 in gpt_oss models) or weights in F32, F16 or "
      "BF16, found a checkpoint quantised by {}{}",
      fields.name_of("quant_method"), quote(config.method), way_out(config.method));
}

// Refuses a field whose value the runtime does not compute.
void refuse_value(const JsonObject& fields, const std::string& field, std::string_view expected,
                  QuantizationConfig& config) {
  if (!config.refusal.empty()) return;
  config.refusal = fmt::format(
      "{}: expected {}, found {}; the same model in safetensors without quantisation, "
      "or in GGUF, is computed",
      fields.name_of(field), expected, describe(*fields.find(field)));
}

void read_fp8(const JsonObject& fields, QuantizationConfig& config) {
  config.kind = Kind::fp8;
  if (fields.string_if("fmt").value_or("e4m3") != "e4m3") {
    refuse_value(fields, "fmt", "\"e4m3\"", config);
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

// GPTQ and AWQ: a word of 32 bits holds eight values.
void read_int4(const JsonObject& fields, QuantizationConfig& config) {
  const std::string bits = fields.find("bits") == nullptr ? "w_bit" : "bits";
  if (fields.integer_or(bits, 1, 64, 4) != 4) refuse_value(fields, bits, "4", config);
  const std::string group = fields.find("group_size") == nullptr ? "q_group_size" : "group_size";
  const Index size = fields.integer_or(group, -1, kMaxBlock, 128);
  if (size == 0) fields.refuse(group, "a number of inputs, or -1");
  config.group_size = size < 0 ? 0 : size;
}

void read_gptq(const JsonObject& fields, QuantizationConfig& config) {
  config.kind = Kind::gptq;
  read_int4(fields, config);
  const std::string format = fields.string_if("checkpoint_format").value_or("gptq");
  if (format != "gptq" && format != "gptq_v2") {
    refuse_value(fields, "checkpoint_format", "\"gptq\" or \"gptq_v2\"", config);
  }
  if (fields.boolean_or("is_marlin_format", false)) {
    refuse_value(fields, "is_marlin_format", "false", config);
  }
  config.zeros_less_one = format == "gptq";
}

void read_awq(const JsonObject& fields, QuantizationConfig& config) {
  config.kind = Kind::awq;
  read_int4(fields, config);
  const std::string version = fields.string_if("version").value_or("gemm");
  if (version != "gemm" && version != "GEMM") {
    refuse_value(fields, "version", "\"gemm\"", config);
  }
  if (!fields.boolean_or("zero_point", true)) refuse_value(fields, "zero_point", "true", config);
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
  } else if (config.method == "gptq") {
    read_gptq(fields, config);
  } else if (config.method == "awq") {
    read_awq(fields, config);
  } else if (config.method == "mxfp4" && family == ModelFamily::gpt_oss) {
    config.kind = Kind::mxfp4;  // only where published gpt-oss checkpoints have it, in the experts
  } else {
    refuse_method(fields, config);
  }
  return config;
}

}  // namespace kvscope
