#include "core/model/chat/chat_template.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <nlohmann/json.hpp>

#include "core/base/error.hpp"
#include "core/base/json_reader.hpp"
#include "core/base/whole_file.hpp"
#include "core/model/gguf/gguf_checkpoint.hpp"
#include "core/model/tokenizer_json.hpp"

namespace kvscope {

namespace fs = std::filesystem;

namespace {

constexpr std::size_t kMostTemplateBytes = std::size_t{4} << 20;
constexpr std::size_t kMostConfigBytes = std::size_t{64} << 20;

/// The template under chat_template: a text, or a list of named ones, of which "default" counts.
std::optional<std::string> template_in(const JsonObject& config) {
  const nlohmann::json* value = config.find("chat_template");
  if (value == nullptr) return std::nullopt;
  if (value->is_string()) return value->get<std::string>();
  if (!value->is_array()) config.refuse("chat_template", "a text or a list of named templates");
  for (const nlohmann::json& one : *value) {
    const JsonObject named(one, config.where(), "chat_template.");
    if (named.string("name") == "default" || value->size() == 1) return named.string("template");
  }
  config.refuse("chat_template", "one template of the name \"default\"");
}

ChatTemplate::SpecialTokens special_in(const JsonObject& metadata, const Tokenizer& tokenizer) {
  ChatTemplate::SpecialTokens special;
  const std::pair<const char*, const char*> kNames[] = {{"bos_token", "bos"},
                                                        {"eos_token", "eos"},
                                                        {"unk_token", "unknown"},
                                                        {"pad_token", "padding"}};
  for (const auto& [name, field] : kNames) {
    const auto id = metadata.integer_if(fmt::format("tokenizer.ggml.{}_token_id", field), 0,
                                        tokenizer.n_ids() - 1);
    if (id) special.emplace_back(name, tokenizer.bytes_of(static_cast<TokenId>(*id)));
  }
  return special;
}

}  // namespace

ChatTemplate::ChatTemplate(std::string source, SpecialTokens special, std::string model,
                           std::string file)
    : source_(std::move(source)),
      special_(std::move(special)),
      model_(std::move(model)),
      file_(std::move(file)) {
  if (source_.size() > kMostTemplateBytes)
    throw FormatError("{}: expected at most {} bytes, found {}", where(), kMostTemplateBytes,
                      source_.size());
}

std::optional<ChatTemplate> ChatTemplate::find(const fs::path& model, const Tokenizer& tokenizer) {
  if (const auto file = gguf_file_of(model)) {
    if (tokenizer.chat_template().empty()) return std::nullopt;
    const GgufCheckpoint checkpoint(*file, GgufTables::skipped);
    return ChatTemplate(tokenizer.chat_template(), special_in(checkpoint.metadata(), tokenizer),
                        file->filename().string(), "tokenizer.chat_template");
  }
  const std::string name = fs::absolute(model).lexically_normal().filename().string();
  std::optional<std::string> source;
  const char* file = "tokenizer_config.json";
  const TokenizerCompanions beside = TokenizerCompanions::read(model);
  std::error_code error;
  if (!beside.config.empty()) {
    const std::string where = (model / file).string();
    const nlohmann::json json = parse_json(beside.config, where);
    source = template_in(JsonObject(json, where));
  }
  if (!source && fs::exists(model / "chat_template.json", error)) {
    file = "chat_template.json";
    const std::string where = (model / file).string();
    const nlohmann::json json =
        parse_json(read_regular_file(model / file, kMostConfigBytes), where);
    source = template_in(JsonObject(json, where));
  }
  if (fs::exists(model / "chat_template.jinja", error)) {
    file = "chat_template.jinja";
    source = read_regular_file(model / file, kMostTemplateBytes);
  }
  if (!source) return std::nullopt;
  return ChatTemplate(*std::move(source), beside.named_tokens(), name, file);
}

std::string ChatTemplate::render(std::span<const ChatMessage> messages) const {
  nlohmann::ordered_json list = nlohmann::ordered_json::array();
  for (const ChatMessage& message : messages)
    list.push_back({{"role", message.role}, {"content", message.content}});
  return render_values({{"messages", std::move(list)}});
}

std::string ChatTemplate::render_values(nlohmann::ordered_json values) const {
  nlohmann::ordered_json all = {
      {"tools", nullptr}, {"documents", nullptr}, {"add_generation_prompt", true}};
  for (const auto& [name, text] : special_) all[name] = text;
  all.update(values);
  return renderer_->render({{"template", source_}, {"values", std::move(all)}}, where());
}

ChatFrame chat_frame(const ChatTemplate& chat) {
  // Words that no template has; letters and digits alone, which nothing strips or escapes.
  const std::string words[3] = {"Kvscope1question", "Kvscope2answer", "Kvscope3question"};
  const auto place = [&](const std::string& text, const std::string& word) {
    const std::size_t at = text.find(word);
    if (at == std::string::npos || text.find(word, at + 1) != std::string::npos)
      throw FormatError("{}: expected a user's words in it once and as they are, found them {}",
                        chat.where(), at == std::string::npos ? "gone or changed" : "twice");
    return at;
  };
  ChatFrame frame;
  const ChatMessage first{"user", words[0]};
  const std::string one = chat.render({&first, 1});
  const std::size_t at = place(one, words[0]);
  frame.before = one.substr(0, at);
  frame.after = one.substr(at + words[0].size());
  const ChatMessage turns[] = {first, {"assistant", words[1]}, {"user", words[2]}};
  const std::string two = chat.render(turns);
  const std::size_t behind = place(two, words[1]) + words[1].size();
  frame.between = two.substr(behind, place(two, words[2]) - behind);
  return frame;
}

}  // namespace kvscope
