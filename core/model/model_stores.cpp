#include "core/model/model_stores.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <cstdlib>
#include <nlohmann/json.hpp>
#include <system_error>

#include "core/base/error.hpp"
#include "core/base/json_reader.hpp"
#include "core/base/lists.hpp"
#include "core/base/suggest.hpp"
#include "core/base/whole_file.hpp"

namespace kvscope {

namespace fs = std::filesystem;

namespace {

constexpr std::size_t kMaxManifest = 1 << 20;
constexpr std::string_view kOllama = "ollama:";
constexpr std::string_view kOllamaHost = "registry.ollama.ai";

std::optional<fs::path> from_environment(const char* name) {
  const char* value = std::getenv(name);
  if (value == nullptr || *value == '\0') return std::nullopt;
  return fs::path(value);
}

fs::path home_folder() {
  return from_environment("HOME").value_or("/");
}

bool is_on_disk(const fs::path& path) {
  std::error_code ignored;
  return fs::exists(path, ignored);
}

/// A name that is one step of a path and stays where it is put.
bool is_plain_name(std::string_view name) {
  const auto is_plain = [](unsigned char c) {
    return std::isalnum(c) != 0 || c == '.' || c == '_' || c == '-';
  };
  return !name.empty() && name != "." && name != ".." &&
         std::all_of(name.begin(), name.end(), is_plain);
}

// ---- the hub's cache

struct HubName {
  std::string org, name, revision;
};

std::optional<HubName> hub_name(const std::string& word) {
  const std::size_t slash = word.find('/');
  if (slash == std::string::npos) return std::nullopt;
  const std::size_t at = word.find('@', slash);
  HubName result{word.substr(0, slash), word.substr(slash + 1, at - slash - 1), "main"};
  if (at != std::string::npos) result.revision = word.substr(at + 1);
  const bool is_name =
      is_plain_name(result.org) && is_plain_name(result.name) && is_plain_name(result.revision);
  return is_name ? std::optional(result) : std::nullopt;
}

fs::path hub_folder(const HubName& name) {
  return hub_cache() / fmt::format("models--{}--{}", name.org, name.name);
}

/// refs/REVISION holds a commit; a revision may be a commit itself.
std::optional<fs::path> snapshot_of(const fs::path& folder, const std::string& revision) {
  std::string commit = revision;
  if (is_on_disk(folder / "refs" / revision)) {
    commit = read_regular_file(folder / "refs" / revision, /*max_bytes=*/256);
    commit.erase(std::find_if(commit.begin(), commit.end(), [](char c) { return c <= ' '; }),
                 commit.end());
  }
  if (!is_plain_name(commit) || !is_on_disk(folder / "snapshots" / commit)) return std::nullopt;
  return folder / "snapshots" / commit;
}

// ---- Ollama's store

struct OllamaName {
  fs::path manifest;  // below manifests/
  std::string word;   // as its commands take it
};

std::optional<OllamaName> ollama_name(const std::string& name) {
  const std::size_t slash = name.rfind('/');
  const std::size_t colon = name.find(':', slash == std::string::npos ? 0 : slash);
  const std::string tag = colon == std::string::npos ? "latest" : name.substr(colon + 1);
  const std::string path = name.substr(0, colon);
  std::vector<std::string> steps = split_words(path, '/');
  if (steps.size() == 1) steps.insert(steps.begin(), "library");
  if (steps.size() == 2) steps.insert(steps.begin(), std::string(kOllamaHost));
  steps.push_back(tag);
  fs::path manifest;
  for (const std::string& step : steps) {
    if (!is_plain_name(step)) return std::nullopt;
    manifest /= step;
  }
  return OllamaName{manifest, fmt::format("{}:{}", path, tag)};
}

/// "sha256:<64 digits>" names the file sha256-<64 digits>.
fs::path blob_of(const std::string& digest, const std::string& manifest) {
  constexpr std::string_view kKind = "sha256:";
  const bool is_digest = digest.starts_with(kKind) && digest.size() == kKind.size() + 64 &&
                         std::all_of(digest.begin() + kKind.size(), digest.end(),
                                     [](unsigned char c) { return std::isxdigit(c) != 0; });
  if (!is_digest) {
    throw FormatError("digest ({}): expected sha256: and 64 digits, found {}", manifest,
                      quote(digest));
  }
  return ollama_store() / "blobs" / ("sha256-" + digest.substr(kKind.size()));
}

fs::path model_of_manifest(const fs::path& file, const std::string& word) {
  const std::string where = file.string();
  const nlohmann::json manifest = parse_json(read_regular_file(file, kMaxManifest), where);
  const JsonObject root(manifest, where);
  std::optional<fs::path> model;
  for (const nlohmann::json& value : root.list("layers")) {
    const JsonObject layer(value, where, "layers.");
    const std::string& type = layer.string("mediaType");
    if (type.ends_with("image.adapter"))
      throw FormatError("{}: expected a whole model, found an adapter above another one", where);
    if (!type.ends_with("image.model")) continue;
    if (model) throw FormatError("{}: expected one file of weights, found more", where);
    model = blob_of(layer.string("digest"), where);
  }
  if (!model) throw FormatError("{}: expected a file of weights, found none", where);
  if (!is_on_disk(*model)) {
    throw IoError("{} is missing, which {} lists; fetch it again: ollama pull {}", model->string(),
                  where, word);
  }
  return *model;
}

/// The snapshot of `word` that its branch main (or the revision) names. Throws IoError with the
/// command that fetches it if there is none.
fs::path find_in_hub_cache(const std::string& word) {
  const auto name = hub_name(word);
  if (name) {
    if (const auto snapshot = snapshot_of(hub_folder(*name), name->revision)) return *snapshot;
  }
  const std::string revision =
      name && name->revision != "main" ? " --revision " + name->revision : "";
  const std::string model = name ? name->org + "/" + name->name : word;
  std::vector<std::string> known;
  for (const StoredModel& stored : hub_models()) known.push_back(stored.word);
  throw IoError("{} is neither a folder nor in the hub's cache {}; fetch it: hf download {}{}{}",
                word, hub_cache().string(), model, revision, did_you_mean(model, known));
}

/// The GGUF file of "name", "name:tag" or "host/user/name:tag" (without "ollama:"). Throws IoError
/// with the command that fetches it if there is none, FormatError for a manifest that is broken.
fs::path find_in_ollama(const std::string& name) {
  const auto found = ollama_name(name);
  const fs::path file = found ? ollama_store() / "manifests" / found->manifest : fs::path();
  if (!found || !is_on_disk(file)) {
    throw IoError("ollama:{} is not in Ollama's store {}; fetch it: ollama pull {}", name,
                  ollama_store().string(), name);
  }
  return model_of_manifest(file, found->word);
}

}  // namespace

bool is_ollama_name(std::string_view word) {
  return word.starts_with(kOllama);
}

fs::path find_model(const std::string& word) {
  if (is_ollama_name(word)) return find_in_ollama(word.substr(kOllama.size()));
  if (is_on_disk(word)) return word;
  if (is_hub_name(word)) return find_in_hub_cache(word);
  throw IoError("no model folder {}", word);
}

fs::path hub_cache() {
  if (const auto folder = from_environment("HF_HUB_CACHE")) return *folder;
  if (const auto folder = from_environment("HF_HOME")) return *folder / "hub";
  if (const auto folder = from_environment("XDG_CACHE_HOME")) return *folder / "huggingface/hub";
  return home_folder() / ".cache/huggingface/hub";
}

bool is_hub_name(const std::string& word) {
  return hub_name(word).has_value();
}

bool is_in_hub_cache(const std::string& word) {
  const auto name = hub_name(word);
  return name && is_on_disk(hub_folder(*name));
}

std::vector<StoredModel> hub_models() {
  std::vector<StoredModel> models;
  for (const fs::path& folder : sorted_entries(hub_cache())) {
    std::string name = folder.filename().string();
    constexpr std::string_view kPrefix = "models--";
    if (!name.starts_with(kPrefix)) continue;
    name.erase(0, kPrefix.size());
    if (const std::size_t dashes = name.find("--"); dashes != std::string::npos) {
      name.replace(dashes, 2, "/");
    }
    if (!is_hub_name(name)) continue;
    if (const auto snapshot = snapshot_of(folder, "main")) models.push_back({name, *snapshot});
  }
  return models;
}

fs::path ollama_store() {
  if (const auto folder = from_environment("OLLAMA_MODELS")) return *folder;
  const fs::path own = home_folder() / ".ollama/models";
  const fs::path of_service = "/usr/share/ollama/.ollama/models";
  return !is_on_disk(own) && is_on_disk(of_service) ? of_service : own;
}

std::vector<StoredModel> ollama_models() {
  std::vector<StoredModel> models;
  const fs::path manifests = ollama_store() / "manifests";
  for (const fs::path& host : sorted_entries(manifests)) {
    for (const fs::path& user : sorted_entries(host)) {
      for (const fs::path& name : sorted_entries(user)) {
        for (const fs::path& tag : sorted_entries(name)) {
          std::string path = name.filename().string();
          const bool is_own = host.filename() == kOllamaHost;
          if (!is_own || user.filename() != "library") path = user.filename() / path;
          if (!is_own) path = host.filename() / path;
          const std::string word = fmt::format("{}:{}", path, tag.filename().string());
          try {
            models.push_back({"ollama:" + word, model_of_manifest(tag, word)});
          } catch (const Error&) {
            models.push_back({"ollama:" + word, {}});  // what is wrong is told when it is used
          }
        }
      }
    }
  }
  return models;
}

}  // namespace kvscope
