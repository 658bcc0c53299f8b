#include "core/model/chat/chat_template.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <nlohmann/json.hpp>

#include "core/base/error.hpp"
#include "core/base/json_reader.hpp"
#include "core/base/whole_file.hpp"
#include "core/model/chat/jinja_run.hpp"
#include "core/model/gguf/gguf_checkpoint.hpp"

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

/// The tokens that tokenizer_config.json names by fields like bos_token: texts, or objects with
/// their content.
ChatTemplate::SpecialTokens special_in(const JsonObject& config) {
  ChatTemplate::SpecialTokens special;
  for (const char* name : {"bos_token", "eos_token", "unk_token", "pad_token"}) {
    const nlohmann::json* value = config.find(name);
    if (value == nullptr) continue;
    special.emplace_back(
        name, value->is_object() ? config.object(name).string("content") : config.string(name));
  }
  return special;
}

ChatTemplate::SpecialTokens special_in(const GgufMetadata& metadata, const Tokenizer& tokenizer) {
  ChatTemplate::SpecialTokens special;
  const std::pair<const char*, const char*> kNames[] = {{"bos_token", "bos"},
                                                        {"eos_token", "eos"},
                                                        {"unk_token", "unknown"},
                                                        {"pad_token", "padding"}};
  for (const auto& [name, field] : kNames) {
    const auto id = metadata.integer(fmt::format("tokenizer.ggml.{}_token_id", field), 0,
                                     tokenizer.n_ids() - 1);
    if (id) special.emplace_back(name, tokenizer.bytes_of(static_cast<TokenId>(*id)));
  }
  return special;
}

}  // namespace

ChatTemplate::ChatTemplate(std::string_view source, SpecialTokens special, std::string model)
    : special_(std::move(special)), model_(std::move(model)) {
  if (source.size() > kMostTemplateBytes)
    throw FormatError("{}: expected at most {} bytes, found {}", where(), kMostTemplateBytes,
                      source.size());
  try {
    body_ = std::make_shared<const jinja::Body>(jinja::parse_template(source));
  } catch (const FormatError& error) {
    throw FormatError("{}: {}", where(), error.what());
  }
}

std::optional<ChatTemplate> ChatTemplate::find(const fs::path& model, const Tokenizer& tokenizer) {
  if (const auto file = gguf_file_of(model)) {
    if (tokenizer.chat_template().empty()) return std::nullopt;
    const GgufCheckpoint checkpoint(*file);
    return ChatTemplate(tokenizer.chat_template(), special_in(checkpoint.metadata(), tokenizer),
                        file->filename().string());
  }
  const std::string name = fs::absolute(model).lexically_normal().filename().string();
  std::optional<std::string> source;
  SpecialTokens special;
  std::error_code error;
  const fs::path config_file = model / "tokenizer_config.json";
  if (fs::exists(config_file, error)) {
    const nlohmann::json json =
        parse_json(read_regular_file(config_file, kMostConfigBytes), config_file.string());
    const JsonObject config(json, config_file.string());
    special = special_in(config);
    source = template_in(config);
  }
  const fs::path processor_file = model / "chat_template.json";
  if (!source && fs::exists(processor_file, error)) {
    const nlohmann::json json =
        parse_json(read_regular_file(processor_file, kMostConfigBytes), processor_file.string());
    source = template_in(JsonObject(json, processor_file.string()));
  }
  const fs::path own_file = model / "chat_template.jinja";
  if (fs::exists(own_file, error)) source = read_regular_file(own_file, kMostTemplateBytes);
  if (!source) return std::nullopt;
  return ChatTemplate(*source, std::move(special), name);
}

std::string ChatTemplate::render(std::span<const ChatMessage> messages) const {
  std::vector<jinja::Value> list;
  for (const ChatMessage& message : messages) {
    list.push_back(jinja::Value::mapping({{"role", jinja::Value::text(message.role)},
                                          {"content", jinja::Value::text(message.content)}}));
  }
  return render_values(jinja::Value::list(std::move(list)), {});
}

std::string ChatTemplate::render_values(jinja::Value messages,
                                        std::vector<jinja::Entry> more) const {
  // Every copy of the conversation's text is work: strip, split and ~ make some.
  constexpr std::int64_t kCopies = 64;
  const std::int64_t more_work = kCopies * messages.weight();
  std::vector<jinja::Entry> globals = {{"messages", std::move(messages)},
                                       {"tools", jinja::Value::none()},
                                       {"documents", jinja::Value::none()},
                                       {"add_generation_prompt", jinja::Value::truth(true)}};
  for (const auto& [name, text] : special_) globals.emplace_back(name, jinja::Value::text(text));
  for (jinja::Entry& entry : more) globals.push_back(std::move(entry));
  try {
    return jinja::Run(*body_, std::move(globals), more_work).write();
  } catch (const FormatError& error) {
    throw FormatError("{}: {}", where(), error.what());
  }
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
