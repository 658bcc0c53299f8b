// kvscope tokenize: text to token ids and back.
#include <fmt/format.h>

#include <filesystem>
#include <nlohmann/json.hpp>

#include "analysis/cli/frame/command.hpp"
#include "analysis/cli/frame/output.hpp"
#include "analysis/cli/models/chat_prompt.hpp"
#include "analysis/cli/models/model_source.hpp"
#include "analysis/cli/models/prompt.hpp"
#include "analysis/simulate/prompts.hpp"
#include "core/base/data_dir.hpp"
#include "core/base/json.hpp"
#include "core/base/whole_file.hpp"

namespace kvscope::cli {

namespace fs = std::filesystem;

namespace {

class TokenizeCommand final : public Command {
 public:
  CommandCard card() const override {
    return {
        "tokenize",
        "turn text into token ids, or ids into text",
        "",
        {{"kvscope tokenize --text essay.txt --json", "ids and pieces of a text as JSON"},
         {"printf 'hello' | kvscope tokenize --model ~/models/Qwen3-0.6B",
          "ids, blank separated, of standard input"},
         {"kvscope tokenize --prompt 'It was a bright day' --pieces", "each id with its text"},
         {"kvscope tokenize --model ~/models/Qwen3-0.6B --prompt 'Who wrote it?' --chat --pieces",
          "what the model's chat template makes of a question"},
         {"kvscope tokenize --decode '14 512 7'", "the text of ids"}}};
  }
  void declare(OptionSet& options) override {
    options.add(
        "text", "FILE",
        "UTF-8 text; - is standard input [which it is if that is a pipe or a file, else the "
        "embedded book]",
        text_);
    options.add("prompt", "TEXT", "the text itself instead of a file", prompt_);
    options.add("decode", "IDS",
                "ids to turn into text: numbers separated by blanks or commas, or a JSON array",
                decode_);
    options
        .add("model", "MODEL",
             "folder with a tokenizer (or its file), GGUF file, ORG/NAME in the hub's cache, "
             "ollama:NAME[:TAG], or verifier or draft (embedded)",
             model_)
        .kind = ValueKind::model;
    options.add("max-tokens", "N", "stop after the first N ids [all]", max_tokens_, at_least(1));
    options.flag("no-special-tokens", "do not add the tokenizer's special tokens (BOS)",
                 no_special_);
    options.flag("chat", "the text is what a user says: put it into the model's own chat template",
                 chat_);
    options.flag("pieces", "print one token a line: id, tab, its text as a JSON string", pieces_);
    options.flag("json", "print {\"n\", \"ids\", \"pieces\"} as JSON", json_);
    options.exclude({"text", "prompt", "decode"});
    options.exclude({"decode", "chat"});
    options.advise_argument("a text itself is --prompt TEXT, a file of it --text FILE");
  }

  int run(const OptionSet&, const std::string&) override {
    const fs::path dir = model_dir(model_);
    const Tokenizer tokenizer = load_tokenizer(dir);
    if (decode_) return decode(tokenizer);

    const bool is_piped = !text_ && !prompt_ && has_standard_input();
    const fs::path file = text_ ? *text_ : is_piped ? fs::path("-") : embedded_text();
    const std::string text = prompt_ ? *prompt_ : read_whole_file(file, kMaxTextBytes);
    if (is_piped && text.empty())
      throw UsageError(
          "standard input is empty: expected text there, or --text FILE or --prompt TEXT; the "
          "embedded book is read where standard input is neither a pipe nor a file (</dev/null)");
    std::vector<TokenId> ids;
    if (chat_) {
      const auto leading = no_special_ ? std::vector<TokenId>() : leading_special_tokens(tokenizer);
      ids = chat_ids(load_chat_template(dir, tokenizer), tokenizer, text, leading, max_tokens_);
    } else {
      ids = tokenizer.encode(text, /*add_special=*/!no_special_);
    }
    if (max_tokens_ && *max_tokens_ < static_cast<Index>(ids.size()))
      ids.resize(static_cast<std::size_t>(*max_tokens_));
    tell(tokenizer, ids);
    return kOk;
  }

 private:
  int decode(const Tokenizer& tokenizer) const {
    const std::vector<TokenId> ids = parse_token_ids(*decode_, "--decode");
    for (TokenId id : ids) {
      if (id >= tokenizer.n_ids()) {
        throw UsageError("--decode: id {} does not exist, the largest is {}", id,
                         tokenizer.n_ids() - 1);
      }
    }
    json_ ? print_json({{"n", ids.size()}, {"ids", ids}, {"text", tokenizer.decode(ids)}}, -1)
          : print_data(tokenizer.decode(ids) + "\n");
    return kOk;
  }

  void tell(const Tokenizer& tokenizer, const std::vector<TokenId>& ids) const {
    if (pieces_ && !json_) {
      std::string lines;
      for (TokenId id : ids) {
        // Bytes that are no whole characters show as U+FFFD.
        lines += fmt::format("{}\t{}\n", id, json_text(std::string(tokenizer.bytes_of(id))));
      }
      print(lines);
      return;
    }
    if (!json_) {
      cli::print("{}\n", fmt::join(ids, " "));
      return;
    }
    std::vector<std::string> pieces;
    pieces.reserve(ids.size());
    for (TokenId id : ids) pieces.emplace_back(tokenizer.bytes_of(id));
    print_json({{"n", ids.size()},
                {"model", model_},
                {"n_vocab", tokenizer.n_ids()},
                {"ids", ids},
                {"pieces", pieces}},
               -1);
  }

  std::optional<fs::path> text_;
  std::optional<std::string> prompt_;
  std::optional<std::string> decode_;
  std::string model_ = "verifier";
  std::optional<Index> max_tokens_;
  bool no_special_ = false;
  bool chat_ = false;
  bool pieces_ = false;
  bool json_ = false;
};

}  // namespace

KVSCOPE_COMMAND(160, TokenizeCommand)

}  // namespace kvscope::cli
