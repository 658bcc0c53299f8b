// A model's chat template: the text in Jinja that says how a conversation is written for it.
//
// A GGUF file keeps it in its tables (tokenizer.chat_template), a folder of the hub in
// chat_template.jinja or under chat_template in tokenizer_config.json or chat_template.json. It is
// run as transformers runs it (template_renderer.hpp), but for the date, which is always 26 July
// 2024, so that a command gives the same prompt tomorrow.
#pragma once

#include <filesystem>
#include <memory>
#include <nlohmann/json_fwd.hpp>
#include <optional>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "core/model/chat/template_renderer.hpp"
#include "core/model/tokenizer.hpp"

namespace kvscope {

struct ChatMessage {
  std::string role;  // "system", "user", "assistant"
  std::string content;
};

class ChatTemplate {
 public:
  /// Special tokens by the names that templates know them by: bos_token, eos_token, ...
  using SpecialTokens = std::vector<std::pair<std::string, std::string>>;

  /// `model` and `file`: whose it is and where it stands, for messages. Throws FormatError for one
  /// of more than 4 MiB.
  ChatTemplate(std::string source, SpecialTokens special, std::string model, std::string file);

  /// That of a model's folder or GGUF file; empty if it has none. Throws IoError, and FormatError
  /// for a file that is too long and for broken JSON.
  static std::optional<ChatTemplate> find(const std::filesystem::path& model,
                                          const Tokenizer& tokenizer);

  /// The conversation as the model reads it, up to where the assistant begins to answer. Throws
  /// what TemplateRenderer::render throws; all copies share one process.
  std::string render(std::span<const ChatMessage> messages) const;
  /// The same of a template's variables: {"messages", "tools", ...}.
  std::string render_values(nlohmann::ordered_json values) const;

  const std::string& model() const { return model_; }
  /// "chat template of MODEL (FILE)".
  std::string where() const { return "chat template of " + model_ + " (" + file_ + ")"; }

 private:
  std::string source_;
  SpecialTokens special_;
  std::string model_;
  std::string file_;
  std::shared_ptr<TemplateRenderer> renderer_ = std::make_shared<TemplateRenderer>();
};

/// What a template writes around the words of a user, so that a prompt can be put together from
/// tokens: before question after; the answer; between question after; ...
struct ChatFrame {
  std::string before;
  std::string after;    // up to where the assistant begins to answer
  std::string between;  // behind an answer, up to the next question
};

/// Throws FormatError if the template does not hand the words on as they are.
ChatFrame chat_frame(const ChatTemplate& chat);

}  // namespace kvscope
