// Models that other programs keep on this machine: the cache of the Hugging Face hub and Ollama's
// store. Both are folders; nothing is fetched.
#pragma once

#include <filesystem>
#include <string>
#include <string_view>
#include <vector>

namespace kvscope {

/// A model as the option --model names it, and where it lies.
struct StoredModel {
  std::string word;            // "org/name", "ollama:name:tag"
  std::filesystem::path path;  // a folder, or a GGUF file
};

/// Where the model lies that `word` names: a path that exists, "ollama:NAME[:TAG]", or
/// "ORG/NAME[@REVISION]" in the hub's cache. Throws IoError for what is not there, with the command
/// that fetches it.
std::filesystem::path find_model(const std::string& word);

/// True for words that begin as a name in Ollama's store does.
bool is_ollama_name(std::string_view word);

/// The hub's cache: HF_HUB_CACHE, HF_HOME/hub, XDG_CACHE_HOME/huggingface/hub, or
/// ~/.cache/huggingface/hub.
std::filesystem::path hub_cache();

/// True for "org/name" or "org/name@revision", whether it is there or not.
bool is_hub_name(const std::string& word);

/// True if the cache has a folder for that name.
bool is_in_hub_cache(const std::string& word);

/// What the cache holds, by name.
std::vector<StoredModel> hub_models();

/// Ollama's store: OLLAMA_MODELS, ~/.ollama/models, or that of its service.
std::filesystem::path ollama_store();

std::vector<StoredModel> ollama_models();

}  // namespace kvscope
