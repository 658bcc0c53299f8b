#include "analysis/cli/models/model_advice.hpp"

#include <nlohmann/json.hpp>
#include <system_error>

#include "core/base/error.hpp"
#include "core/base/json_reader.hpp"
#include "core/base/whole_file.hpp"
#include "core/model/gguf/gguf_checkpoint.hpp"
#include "core/model/tokenizer.hpp"

namespace kvscope::cli {

namespace fs = std::filesystem;

namespace {

bool is_there(const fs::path& path) {
  std::error_code ignored;
  return fs::exists(path, ignored);
}

void check_file(const fs::path& file) {
  if (gguf_file_of(file)) return;
  if (file.extension() == ".safetensors") {
    throw FormatError(
        "{} is one file of a checkpoint, expected the folder that it lies in, with config.json",
        file.string());
  }
  for (const char* extension : {".bin", ".pt", ".pth", ".ckpt"}) {
    if (file.extension() != extension) continue;
    throw FormatError(
        "{} is a PyTorch file, expected safetensors or GGUF; in Python: "
        "AutoModelForCausalLM.from_pretrained(FOLDER).save_pretrained(OUT) writes safetensors",
        file.string());
  }
  throw FormatError(
      "{} is a file that does not begin as GGUF does, expected a GGUF file or a "
      "checkpoint folder (config.json, model.safetensors)",
      file.string());
}

/// Half of a tokenizer as GPT-2 had it.
constexpr const char* kVocabulary = "vocab.json";

/// Files that other formats have, and what makes a checkpoint of them.
struct ForeignFile {
  const char* name;
  const char* kind;
  const char* way_out;
};

constexpr std::array<ForeignFile, 7> kForeign = {{
    {"adapter_config.json", "an adapter (LoRA) without its model",
     "in Python: AutoPeftModelForCausalLM.from_pretrained(FOLDER).merge_and_unload()"
     ".save_pretrained(OUT) writes the whole model"},
    {"pytorch_model.bin", "PyTorch files",
     "in Python: AutoModelForCausalLM.from_pretrained(FOLDER).save_pretrained(OUT)"},
    {"pytorch_model.bin.index.json", "PyTorch files",
     "in Python: AutoModelForCausalLM.from_pretrained(FOLDER).save_pretrained(OUT)"},
    {"consolidated.safetensors", "weights in their maker's own layout",
     "the hub's layout of the same model has config.json and model.safetensors"},
    {"consolidated.00.pth", "weights in their maker's own layout",
     "transformers' convert_llama_weights_to_hf.py makes the hub's layout"},
    {"tf_model.h5", "TensorFlow weights",
     "in Python: AutoModelForCausalLM.from_pretrained(FOLDER, from_tf=True).save_pretrained(OUT)"},
    {"model.onnx", "an ONNX graph", "the hub's safetensors of the same model do"},
}};

}  // namespace

void check_has_weights(const fs::path& path) {
  std::error_code ignored;
  if (fs::is_regular_file(path, ignored)) return check_file(path);
  if (!fs::is_directory(path, ignored) || gguf_file_of(path)) return;
  if (is_there(path / "model.safetensors") || is_there(path / "model.safetensors.index.json"))
    return;
  for (const ForeignFile& foreign : kForeign) {
    if (!is_there(path / foreign.name)) continue;
    throw FormatError("{}: expected safetensors or GGUF, found {} ({}); {}", path.string(),
                      foreign.kind, foreign.name, foreign.way_out);
  }
}

bool has_tokenizer(const fs::path& path) {
  return tokenizer_file(path) || is_there(path / kVocabulary);
}

void check_has_tokenizer(const fs::path& path) {
  if (tokenizer_file(path) || !is_there(path / kVocabulary)) return;
  throw FormatError(
      "{0}: expected tokenizer.json, tokenizer.model or tekken.json, found {1}; in "
      "Python: AutoTokenizer.from_pretrained(\"{0}\").save_pretrained(\"{0}\") "
      "writes tokenizer.json (with --tokens no tokenizer is needed)",
      path.string(), kVocabulary);
}

std::string config_advice(const fs::path& path) {
  const fs::path file = path / "config.json";
  if (!is_there(file)) return {};
  nlohmann::json config;
  try {
    config = parse_json(read_regular_file(file, std::size_t{16} << 20), file.string());
  } catch (const Error&) {
    return {};  // what is wrong with it is told already
  }
  if (!config.is_object()) return {};
  if (config.contains("text_config")) {
    return "; it is a model of texts and pictures, of which the layers of text are computed of "
           "gemma3, mistral3, qwen2_vl, qwen2_5_vl and qwen3_vl only";
  }
  if (config.contains("auto_map")) {
    return "; its layers are Python code of its own: kvscope's Python recorder records what "
           "transformers runs (traces/python)";
  }
  return "; kvscope's Python recorder records any model that transformers runs (traces/python)";
}

}  // namespace kvscope::cli
