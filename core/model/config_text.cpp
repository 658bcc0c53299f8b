// The model of text inside a model of texts and pictures.
#include <nlohmann/json.hpp>

#include "core/model/config_fields.hpp"

namespace kvscope {

namespace {

using nlohmann::json;

struct PictureModel {
  std::string_view model_type;
  std::string_view text_type;
  json defaults;                   // of transformers' config class, where its files leave them out
  std::string_view not_read = {};  // a setting of the texts' family that this class has not
};

// Sizes of Gemma 3 that its files leave out where they are those of transformers' config class.
json gemma3_defaults() {
  return {{"vocab_size", 262208},    {"hidden_size", 2304},      {"intermediate_size", 9216},
          {"num_hidden_layers", 26}, {"num_attention_heads", 8}, {"num_key_value_heads", 4}};
}

json gemma4_defaults() {
  return {{"vocab_size", 262144},    {"hidden_size", 2304},      {"intermediate_size", 9216},
          {"num_hidden_layers", 30}, {"num_attention_heads", 8}, {"num_key_value_heads", 4}};
}

json qwen2_vl_defaults() {
  return {{"vocab_size", 152064},    {"hidden_size", 8192},       {"intermediate_size", 29568},
          {"num_hidden_layers", 80}, {"num_attention_heads", 64}, {"num_key_value_heads", 8},
          {"rms_norm_eps", 1e-5},    {"rope_theta", 1e6},         {"max_window_layers", 80},
          {"bos_token_id", 151643u}, {"eos_token_id", 151645u}};
}

json qwen3_vl_defaults() {
  return {{"vocab_size", 151936},       {"hidden_size", 4096},
          {"intermediate_size", 22016}, {"num_hidden_layers", 32},
          {"num_attention_heads", 32},  {"num_key_value_heads", 32},
          {"rope_theta", 5e5},          {"max_position_embeddings", 128000}};
}

// Their layers of text see pictures as rows among the others, so that texts alone need nothing
// more.
const std::array<PictureModel, 6>& picture_models() {
  static const std::array<PictureModel, 6> models = {
      {{"gemma3", "gemma3_text", gemma3_defaults(), "final_logit_softcapping"},
       {"gemma4", "gemma4_text", gemma4_defaults()},
       {"mistral3", "mistral", json::object()},
       {"qwen2_vl", "qwen2", qwen2_vl_defaults()},
       {"qwen2_5_vl", "qwen2", qwen2_vl_defaults()},
       {"qwen3_vl", "qwen3", qwen3_vl_defaults(), "use_sliding_window"}}};
  return models;
}

// Rotary embedding with a position for time, height and width ("mrope"), which are equal for text.
void use_one_position(json& text) {
  for (const char* group : {"rope_scaling", "rope_parameters"}) {
    if (!text.contains(group) || !text[group].is_object()) continue;
    for (const char* field : {"mrope_section", "mrope_interleaved"}) text[group].erase(field);
    for (const char* field : {"type", "rope_type"}) {
      const auto it = text[group].find(field);
      if (it != text[group].end() && *it == "mrope") *it = "default";
    }
  }
}

// What the whole model's configuration says of the part of text.
void add_from_root(const json& root, json& text) {
  for (const char* field : {"bos_token_id", "eos_token_id", "quantization_config"}) {
    if (!text.contains(field) && root.contains(field)) text[field] = root[field];
  }
  // The head belongs to the whole model, so that its configuration says whether it is tied, which
  // all but Qwen's are by default; Qwen's older files have it in the part.
  const bool is_qwen = root.at("model_type").get_ref<const std::string&>().starts_with("qwen");
  const bool is_tied_there =
      text.contains("tie_word_embeddings") && text["tie_word_embeddings"] == true;
  if (!is_qwen || (root.contains("tie_word_embeddings") && !is_tied_there))
    text["tie_word_embeddings"] = root.value("tie_word_embeddings", json(true));
}

}  // namespace

nlohmann::json text_part(nlohmann::json root) {
  if (!root.is_object()) return root;
  const auto type = root.find("model_type");
  if (type == root.end() || !type->is_string()) return root;
  for (const PictureModel& model : picture_models()) {
    if (type->get_ref<const std::string&>() != model.model_type) continue;
    const bool has_part = root.contains("text_config") && root["text_config"].is_object();
    const bool is_qwen = model.model_type.starts_with("qwen");
    if (!has_part && !is_qwen) return root;
    json text = has_part ? root["text_config"] : root;  // Qwen's older files are flat
    if (is_qwen || !text.contains("model_type")) text["model_type"] = model.text_type;
    if (has_part) add_from_root(root, text);
    for (const auto& [field, value] : model.defaults.items()) {
      if (!text.contains(field)) text[field] = value;
    }
    if (const auto field = text.find(model.not_read); field != text.end()) {
      text["text_config." + std::string(model.not_read)] = *field;  // told as unread
      text.erase(field);
    }
    use_one_position(text);
    return text;
  }
  return root;
}

}  // namespace kvscope
