#include "analysis/cli/models/prompt.hpp"

#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <limits>
#include <nlohmann/json.hpp>

#include "analysis/cli/frame/host.hpp"
#include "analysis/cli/models/chat_prompt.hpp"
#include "analysis/simulate/prompts.hpp"
#include "core/base/data_dir.hpp"
#include "core/base/error.hpp"
#include "core/base/json_reader.hpp"
#include "core/base/number_text.hpp"
#include "core/base/whole_file.hpp"
#include "traces/reader.hpp"

namespace kvscope::cli {

namespace {

constexpr std::string_view kHdf5Magic = "\x89HDF\r\n\x1a\n";

std::vector<TokenId> ids_from_json(std::string_view text, const std::string& where) {
  const nlohmann::json json = parse_json(text, where);
  const bool has_ids = json.is_object() && json.contains("ids");
  const auto& list = has_ids ? json.at("ids") : json;
  if (!list.is_array())
    throw FormatError("{}: expected an array of token ids, or an object with \"ids\"", where);
  std::vector<TokenId> ids;
  ids.reserve(list.size());
  for (const auto& item : list) {
    if (!item.is_number_integer() || item < 0 || item > std::numeric_limits<TokenId>::max()) {
      throw FormatError("{}: ids[{}] is {}, expected a token id", where, ids.size(),
                        kvscope::describe(item));
    }
    ids.push_back(item.get<TokenId>());
  }
  return ids;
}

std::vector<TokenId> ids_of_file(const std::filesystem::path& file) {
  const std::string name = file == "-" ? "standard input" : file.string();
  if (file.extension() == ".h5") {
    const TraceFile trace = TraceFile::open(file, {});
    const auto ids = trace.tokens();
    return {ids.begin(), ids.end()};
  }
  const std::string text = read_whole_file(file, kMaxTextBytes);
  if (std::string_view(text).starts_with(kHdf5Magic)) {
    throw FormatError(
        "{} is an HDF5 file; give it a name that ends in .h5 to take the tokens of a trace", name);
  }
  return parse_token_ids(text, name);
}

/// "--tokens 1024": whoever gives a number means the prompt's length.
void refuse_number_of_tokens(const std::optional<std::filesystem::path>& tokens) {
  const std::string text = tokens ? tokens->string() : "";
  if (text.empty() || text.find_first_not_of("0123456789") != std::string::npos) return;
  std::error_code unknown;
  if (std::filesystem::exists(*tokens, unknown)) return;
  throw UsageError(
      "--tokens: expected a file of token ids, found the number {} and no file of "
      "that name; a prompt is cut to its first tokens by --max-tokens {}",
      text, text);
}

}  // namespace

std::vector<TokenId> parse_token_ids(std::string_view text, const std::string& where) {
  constexpr std::string_view kBlank = " \t\r\n,";
  const std::size_t first = text.find_first_not_of(" \t\r\n");
  if (first == std::string_view::npos) return {};
  if (text[first] == '[' || text[first] == '{') return ids_from_json(text, where);
  std::vector<TokenId> ids;
  for (std::size_t at = text.find_first_not_of(kBlank); at != std::string_view::npos;) {
    const std::size_t end = std::min(text.find_first_of(kBlank, at), text.size());
    const std::string_view word = text.substr(at, end - at);
    const auto id = number_from<TokenId>(word);
    if (!id || *id < 0) {
      throw FormatError("{}: entry {} is {}, expected a token id", where, ids.size(),
                        quote(word, 40));
    }
    ids.push_back(*id);
    at = text.find_first_not_of(kBlank, end);
  }
  return ids;
}

void PromptOptions::declare(OptionSet& options) {
  options.add("text", "FILE", "UTF-8 text to run the model on; - is standard input [embedded book]",
              text);
  options.add(
      "tokens", "FILE",
      "token ids instead of text: JSON array, {\"ids\": [...]}, plain numbers, or a trace (.h5)",
      tokens);
  options.add("prompt", "TEXT", "the text itself instead of a file", prompt);
  options.add("max-tokens", "N",
              fmt::format("cut the prompt to its first N tokens [{} of the embedded book]",
                          kEmbeddedTextTokens),
              max_tokens, at_least(1));
  options.flag("no-special-tokens", "do not add the tokenizer's special tokens (BOS)", no_special);
  options.flag("chat", "the text is what a user says: put it into the model's own chat template",
               chat);
  options.then([this](const OptionSet&) { refuse_number_of_tokens(tokens); });
  options.exclude({"text", "tokens", "prompt"});
  options.exclude({"chat", "tokens"},
                  ": --chat puts a text into the chat template, --tokens gives ids");
}

Prompt PromptOptions::load(const Tokenizer* tokenizer, const std::filesystem::path& model) const {
  refuse_number_of_tokens(tokens);
  Prompt result;
  if (tokens) {
    result.ids = ids_of_file(*tokens);
    result.source = *tokens == "-" ? "standard input" : tokens->filename().string();
  } else {
    std::string characters;
    if (prompt) {
      characters = *prompt;
      result.source = "command line";
    } else {
      result.embedded = !text;
      const std::filesystem::path file = text ? *text : embedded_text();
      characters = read_whole_file(file, kMaxTextBytes);
      result.source = file == "-" ? "standard input" : file.filename().string();
      if (characters.starts_with(kHdf5Magic))
        throw FormatError("{} is an HDF5 file; --tokens takes the tokens of a trace",
                          file.string());
    }
    if (characters.empty()) throw UsageError("the prompt is empty ({})", result.source);
    if (chat) {
      const ChatTemplate chat_template = load_chat_template(model, *tokenizer);
      const Index most =
          max_tokens.value_or(result.embedded ? kEmbeddedTextTokens : Index{1} << 40);
      const auto leading = no_special ? std::vector<TokenId>() : leading_special_tokens(*tokenizer);
      result.ids = chat_ids(chat_template, *tokenizer, characters, leading, most);
      result.source += fmt::format(" (chat: {})", chat_words(chat_template));
    } else {
      result.ids = tokenizer->encode(characters, /*add_special=*/!no_special);
    }
  }
  if (result.ids.empty()) throw UsageError("the prompt is empty ({})", result.source);
  result.n_available = static_cast<Index>(result.ids.size());
  const Index limit =
      max_tokens.value_or(result.embedded ? kEmbeddedTextTokens : result.n_available);
  if (limit < result.n_available) result.ids.resize(static_cast<std::size_t>(limit));
  return result;
}

bool has_standard_input() {
  struct stat status {};
  return host() == nullptr && ::fstat(STDIN_FILENO, &status) == 0 &&
         (S_ISFIFO(status.st_mode) || S_ISREG(status.st_mode));
}

}  // namespace kvscope::cli
