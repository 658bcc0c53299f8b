// A model's chat template: the text in Jinja that says how a conversation is written for it.
//
// A GGUF file keeps it in its tables (tokenizer.chat_template), a folder of the hub in
// chat_template.jinja or under chat_template in tokenizer_config.json or chat_template.json. It is
// run as transformers runs it (the same variables, trim_blocks, lstrip_blocks), but for the date,
// which is always 26 July 2024, so that a command gives the same prompt tomorrow. It is somebody
// else's programme: its work is bounded (jinja_run.hpp).
#pragma once

#include <filesystem>

#include "core/base/vocabulary.hpp"
#include "core/model/chat/jinja_nodes.hpp"
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

  /// `model`: whose it is, for messages. Throws FormatError with the line for what is not Jinja
  /// or a part of Jinja that is not known here.
  ChatTemplate(std::string_view source, SpecialTokens special, std::string model);

  /// That of a model's folder or GGUF file; empty if it has none. Throws what the constructor
  /// throws, IoError, and FormatError for broken JSON.
  static std::optional<ChatTemplate> find(const std::filesystem::path& model,
                                          const Tokenizer& tokenizer);

  /// The conversation as the model reads it, up to where the assistant begins to answer. Throws
  /// FormatError if the template refuses it, fails or does not end.
  std::string render(std::span<const ChatMessage> messages) const;

  /// Of any messages that the caller has made (tools, parts of content); for tests.
  std::string render_values(jinja::Value messages, std::vector<jinja::Entry> more) const;

  const std::string& model() const { return model_; }
  /// "chat template of MODEL".
  std::string where() const { return "chat template of " + model_; }

 private:
  std::shared_ptr<const jinja::Body> body_;
  SpecialTokens special_;
  std::string model_;
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
