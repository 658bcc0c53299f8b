#include "analysis/cli/models/chat_prompt.hpp"

#include <fmt/format.h>

#include <algorithm>

#include "analysis/cli/models/model_source.hpp"
#include "core/base/error.hpp"
#include "core/base/json.hpp"
#include "core/base/json_reader.hpp"
#include "core/base/utf8.hpp"
#include "core/base/whole_file.hpp"

namespace kvscope::cli {

namespace {

std::vector<TokenId> ids_of(const ChatTemplate& chat, const Tokenizer& tokenizer,
                            const std::string& text, const std::vector<TokenId>& leading) {
  const ChatMessage message{"user", text};
  std::vector<TokenId> ids = tokenizer.encode(chat.render({&message, 1}));
  const bool has_leading =
      ids.size() >= leading.size() && std::equal(leading.begin(), leading.end(), ids.begin());
  if (!has_leading) ids.insert(ids.begin(), leading.begin(), leading.end());
  return ids;
}

/// generation_config.json; an empty object if it is not there, or no object.
Json generation_config(const std::filesystem::path& model) {
  constexpr std::size_t kMostBytes = 1 << 20;
  const std::filesystem::path file = model / "generation_config.json";
  std::error_code error;
  if (!std::filesystem::is_regular_file(file, error)) return Json::object();
  Json json = parse_ordered_json(read_regular_file(file, kMostBytes), file.string());
  return json.is_object() ? json : Json::object();
}

/// The ids at which it ends a text.
std::vector<TokenId> generation_eos_ids(const std::filesystem::path& model) {
  const Json eos = generation_config(model).value("eos_token_id", Json());
  std::vector<TokenId> ids;
  for (const Json& id : eos.is_array() ? eos : Json::array({eos})) {
    if (id.is_number_integer()) ids.push_back(id.get<TokenId>());
  }
  return ids;
}

}  // namespace

ChatTemplate load_chat_template(const std::filesystem::path& model, const Tokenizer& tokenizer) {
  std::optional<ChatTemplate> chat = ChatTemplate::find(model, tokenizer);
  if (!chat) {
    throw FormatError(
        "{} has no chat template (chat_template.jinja, chat_template in tokenizer_config.json, or "
        "tokenizer.chat_template of a GGUF file); without --chat the text is taken as it is",
        model_name(model));
  }
  return *std::move(chat);
}

std::string chat_words(const ChatTemplate& chat) {
  return fmt::format("template of {}", chat.model());
}

std::vector<TokenId> chat_ids(const ChatTemplate& chat, const Tokenizer& tokenizer,
                              const std::string& text, const std::vector<TokenId>& leading,
                              std::optional<Index> most) {
  std::vector<TokenId> ids = ids_of(chat, tokenizer, text, leading);
  if (!most || static_cast<Index>(ids.size()) <= *most) return ids;
  const std::vector<TokenId> words = tokenizer.encode(text);
  const Index n_around = static_cast<Index>(ids_of(chat, tokenizer, "", leading).size());
  // Words that are cut anew may take an id more or less: fewer, until they fit.
  for (Index n = std::min(*most - n_around, static_cast<Index>(words.size())); n > 0; --n) {
    std::string cut = tokenizer.decode(std::span(words).first(static_cast<std::size_t>(n)));
    cut.resize(first_invalid_utf8(cut).value_or(cut.size()));
    ids = ids_of(chat, tokenizer, cut, leading);
    if (static_cast<Index>(ids.size()) <= *most) return ids;
  }
  throw FormatError(
      "the {} alone takes {} tokens: expected --max-tokens of more than that, found {}",
      chat.where(), n_around, *most);
}

std::string unapplied_generation(const std::filesystem::path& model) {
  constexpr std::string_view kSettings =
      " repetition_penalty no_repeat_ngram_size num_beams min_length min_new_tokens guidance_scale "
      "suppress_tokens begin_suppress_tokens bad_words_ids sequence_bias forced_bos_token_id "
      "forced_eos_token_id exponential_decay_length_penalty ";
  std::vector<std::string> names;
  const Json settings = generation_config(model);
  for (const auto& [name, value] : settings.items()) {
    const bool says_nothing = value.empty() || value == 0 || value == 1;
    if (!says_nothing && kSettings.find(fmt::format(" {} ", name)) != kSettings.npos)
      names.push_back(fmt::format("{} = {}", name, value.dump()));
  }
  return fmt::format("{}", fmt::join(names, ", "));
}

std::vector<TokenId> end_of_turn_ids(const std::filesystem::path& model, const ModelConfig& config,
                                     const Tokenizer& tokenizer) {
  std::vector<TokenId> ids(config.eos_ids.begin(), config.eos_ids.end());
  const std::vector<TokenId> generated = generation_eos_ids(model);
  ids.insert(ids.end(), generated.begin(), generated.end());
  const ChatMessage answered[] = {{"user", "a"}, {"assistant", "b"}};
  const std::vector<TokenId> turn =
      tokenizer.encode(load_chat_template(model, tokenizer).render(answered));
  const std::vector<TokenId> answer = tokenizer.encode("b");
  const auto behind = std::find_end(turn.begin(), turn.end(), answer.begin(), answer.end());
  const auto next = behind == turn.end() ? behind : behind + static_cast<Index>(answer.size());
  // Words are no end: only what decoding may leave out is.
  if (next != turn.end() && tokenizer.decode({&*next, 1}, /*skip_special=*/true).empty())
    ids.push_back(*next);
  return ids;
}

}  // namespace kvscope::cli
