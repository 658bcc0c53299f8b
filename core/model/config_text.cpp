// The model of text inside a model of texts and pictures.
#include <array>
#include <nlohmann/json.hpp>
#include <string_view>
#include <utility>

#include "core/model/config_fields.hpp"

namespace kvscope {

namespace {

struct PictureModel {
  std::string_view model_type;
  std::string_view text_type;
};

// Their layers of text see pictures as rows among the others, so that texts alone need nothing
// more.
constexpr std::array<PictureModel, 2> kPictureModels = {
    {{"gemma3", "gemma3_text"}, {"mistral3", "mistral"}}};

// Sizes of Gemma 3 that its files leave out where they are those of transformers' config class.
constexpr std::array<std::pair<const char*, int>, 6> kGemma3Sizes = {{{"vocab_size", 262208},
                                                                      {"hidden_size", 2304},
                                                                      {"intermediate_size", 9216},
                                                                      {"num_hidden_layers", 26},
                                                                      {"num_attention_heads", 8},
                                                                      {"num_key_value_heads", 4}}};

}  // namespace

nlohmann::json text_part(nlohmann::json root) {
  if (!root.is_object() || !root.contains("text_config") || !root["text_config"].is_object()) {
    return root;
  }
  const auto type = root.find("model_type");
  if (type == root.end() || !type->is_string()) return root;
  for (const PictureModel& model : kPictureModels) {
    if (type->get_ref<const std::string&>() != model.model_type) continue;
    nlohmann::json text = root["text_config"];
    if (!text.contains("model_type")) text["model_type"] = model.text_type;
    for (const char* field : {"bos_token_id", "eos_token_id", "quantization_config"}) {
      if (!text.contains(field) && root.contains(field)) text[field] = root[field];
    }
    // The head belongs to the whole model, so that its configuration says whether it is tied.
    if (root.contains("tie_word_embeddings")) {
      text["tie_word_embeddings"] = root["tie_word_embeddings"];
    }
    if (model.model_type == "gemma3") {
      for (const auto& [field, value] : kGemma3Sizes) {
        if (!text.contains(field)) text[field] = value;
      }
    }
    return text;
  }
  return root;
}

}  // namespace kvscope
