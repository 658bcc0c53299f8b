// --chat: a text as what a user says to the model, in the model's own chat template.
#pragma once

#include <filesystem>
#include <optional>
#include <string>
#include <vector>

#include "core/model/chat/chat_template.hpp"
#include "core/model/config.hpp"
#include "core/model/tokenizer.hpp"

namespace kvscope::cli {

/// The template of a model's folder or GGUF file. Throws FormatError if it has none or a broken
/// one.
ChatTemplate load_chat_template(const std::filesystem::path& model, const Tokenizer& tokenizer);

/// "template of MODEL": what results say.
std::string chat_words(const ChatTemplate& chat);

/// Ids of the conversation in which a user says `text` and the model is about to answer.
/// `leading`: the tokenizer's special tokens (BOS), put in front unless the template did. With
/// `most`, the text loses its end, so that the whole takes at most that many ids. Throws
/// FormatError if the template refuses the text, or if its own words alone take more.
std::vector<TokenId> chat_ids(const ChatTemplate& chat, const Tokenizer& tokenizer,
                              const std::string& text, const std::vector<TokenId>& leading,
                              std::optional<Index> most);

/// Settings of generation_config.json that change the tokens of greedy decoding and are not applied
/// here, "repetition_penalty = 1.1"; empty if there are none.
std::string unapplied_generation(const std::filesystem::path& model);

/// What ends an answer: the ids at which the model's config.json and generation_config.json end a
/// text, and the token that the template writes behind an answer.
std::vector<TokenId> end_of_turn_ids(const std::filesystem::path& model, const ModelConfig& config,
                                     const Tokenizer& tokenizer);

}  // namespace kvscope::cli
