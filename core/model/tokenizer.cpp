#include "core/model/tokenizer.hpp"

#include <algorithm>
#include <deque>
#include <limits>
#include <unordered_map>

#include "core/base/error.hpp"
#include "core/base/json_reader.hpp"
#include "core/base/mapped_file.hpp"
#include "core/base/utf8.hpp"
#include "core/model/added_tokens.hpp"
#include "core/model/bpe.hpp"
#include "core/model/gguf/gguf_checkpoint.hpp"
#include "core/model/normalizer.hpp"
#include "core/model/pre_tokenizer.hpp"
#include "core/model/tokenizer_json.hpp"

namespace kvscope {

namespace {

constexpr std::size_t kMaxFileBytes = std::size_t{512} << 20;
constexpr std::size_t kMaxSettingsBytes = std::size_t{64} << 20;

constexpr const char* kHubFile = "tokenizer.json";
constexpr const char* kTekkenFile = "tekken.json";
constexpr const char* kPieceFile = "tokenizer.model";

// Encodes the pieces of one text. Most pieces of a long text have occurred in it before.
class PieceEncoder {
 public:
  /// unigram: in place of bpe, or null.
  PieceEncoder(const Bpe& bpe, const Unigram* unigram) : bpe_(bpe), unigram_(unigram) {}

  // `piece` must stay valid as long as this object.
  void encode(std::string_view piece, std::vector<TokenId>& out) {
    if (piece.size() > kMaxCachedBytes) {
      encode_anew(piece, out);
      return;
    }
    if (const auto it = known_.find(piece); it != known_.end()) {
      const auto begin = ids_.begin() + it->second.begin;
      out.insert(out.end(), begin, begin + it->second.count);
      return;
    }
    const auto begin = static_cast<std::ptrdiff_t>(out.size());
    encode_anew(piece, out);
    if (known_.size() >= kMaxCached) return;
    const Place place{static_cast<std::ptrdiff_t>(ids_.size()),
                      static_cast<std::ptrdiff_t>(out.size()) - begin};
    ids_.insert(ids_.end(), out.begin() + begin, out.end());
    known_.emplace(piece, place);
  }

 private:
  void encode_anew(std::string_view piece, std::vector<TokenId>& out) {
    if (unigram_ != nullptr) return unigram_->encode(piece, out);
    bpe_.encode(piece, scratch_, out);
  }

  static constexpr std::size_t kMaxCachedBytes = 128;
  static constexpr std::size_t kMaxCached = 1 << 16;
  struct Place {
    std::ptrdiff_t begin;
    std::ptrdiff_t count;
  };

  const Bpe& bpe_;
  const Unigram* unigram_;
  Bpe::Scratch scratch_;
  std::unordered_map<std::string_view, Place> known_;
  std::vector<TokenId> ids_;
};

AddedTokenSet tokens_in_raw_text(const TokenizerParts& parts) {
  std::vector<AddedToken> selected;
  for (const AddedToken& token : parts.added_tokens) {
    if (!token.normalized) selected.push_back(token);
  }
  return AddedTokenSet(std::move(selected));
}

AddedTokenSet tokens_in_normalized_text(const TokenizerParts& parts) {
  std::vector<AddedToken> selected;
  for (AddedToken token : parts.added_tokens) {
    if (!token.normalized) continue;
    if (!parts.added_are_normal) {
      auto changed = normalize(parts.normalizer, token.content, /*begins_text=*/true);
      if (changed) token.content = *changed;
    }
    selected.push_back(std::move(token));
  }
  return AddedTokenSet(std::move(selected));
}

}  // namespace

struct Tokenizer::Impl {
  Bpe bpe;
  std::optional<Unigram> unigram;
  std::vector<PreTokenizerStep> pre_tokenizer;
  std::vector<NormalizerStep> normalizer;
  Decoding decoding;
  AddedTokenSet added_raw;         // looked for in the text as it is
  AddedTokenSet added_normalized;  // looked for in what is left, once it is normalized
  StringMap<TokenId> id_from_added;
  std::unordered_map<TokenId, TokenInfo> tokens;
  std::vector<TokenId> prefix, suffix;
  TokenId n_ids;
  std::vector<std::string> not_followed;
  std::string chat_template;

  explicit Impl(TokenizerParts parts)
      : bpe(std::move(parts.bpe)),
        unigram(parts.unigram ? std::optional<Unigram>(std::move(*parts.unigram)) : std::nullopt),
        pre_tokenizer(std::move(parts.pre_tokenizer)),
        normalizer(parts.normalizer),
        decoding(parts.decoding),
        added_raw(tokens_in_raw_text(parts)),
        added_normalized(tokens_in_normalized_text(parts)),
        tokens(std::move(parts.tokens)),
        prefix(std::move(parts.prefix)),
        suffix(std::move(parts.suffix)),
        n_ids(parts.n_ids),
        not_followed(std::move(parts.not_followed)),
        chat_template(std::move(parts.chat_template)) {
    for (const AddedToken& token : parts.added_tokens)
      id_from_added.emplace(token.content, token.id);
  }

  const TokenInfo& info(TokenId id) const {
    const auto it = tokens.find(id);
    if (it == tokens.end()) {
      throw ConfigError("token id {}: expected an id of the tokenizer (0 to {}), found none", id,
                        n_ids - 1);
    }
    return it->second;
  }

  void encode(std::string_view text, std::vector<TokenId>& out) const {
    std::deque<std::string> normalized;  // keeps what the encoder remembers alive
    PreTokenizer cutter(pre_tokenizer, text.size());
    PieceEncoder encoder(bpe, unigram ? &*unigram : nullptr);
    for (const auto& outer : added_raw.split(text)) {
      if (outer.token != nullptr) {
        out.push_back(outer.token->id);
        continue;
      }
      std::string_view plain = outer.text;
      const bool begins_text = outer.text.data() == text.data();
      if (auto changed = normalize(normalizer, plain, begins_text)) {
        plain = normalized.emplace_back(std::move(*changed));
      }
      for (const auto& inner : added_normalized.split(plain)) {
        if (inner.token != nullptr) {
          out.push_back(inner.token->id);
          continue;
        }
        const bool begins = begins_text && inner.text.data() == plain.data();
        for (std::string_view piece : cutter.split(inner.text, begins)) encoder.encode(piece, out);
      }
    }
  }
};

Tokenizer::Tokenizer(std::unique_ptr<const Impl> impl) : impl_(std::move(impl)) {}
Tokenizer::Tokenizer(Tokenizer&&) noexcept = default;
Tokenizer& Tokenizer::operator=(Tokenizer&&) noexcept = default;
Tokenizer::~Tokenizer() = default;

std::optional<std::filesystem::path> tokenizer_file(const std::filesystem::path& model) {
  if (const auto gguf = gguf_file_of(model)) return gguf;
  std::error_code ignored;  // a path that cannot be examined is refused when it is opened
  if (!std::filesystem::is_directory(model, ignored)) return model;
  for (const char* name : {kHubFile, kTekkenFile, kPieceFile, "spiece.model"}) {
    if (std::filesystem::exists(model / name, ignored)) return model / name;
  }
  return std::nullopt;
}

Tokenizer Tokenizer::load(const std::filesystem::path& model) {
  const std::filesystem::path path = tokenizer_file(model).value_or(model / kHubFile);
  if (gguf_file_of(path)) {
    return Tokenizer(std::make_unique<const Impl>(gguf_tokenizer(GgufCheckpoint(path).metadata())));
  }
  const MappedFile mapped(path);
  if (mapped.size() > kMaxFileBytes) {
    throw FormatError("{}: expected a tokenizer of at most {} bytes, found {}", path.string(),
                      kMaxFileBytes, mapped.size());
  }
  if (path.filename() == kTekkenFile) return parse_tekken(mapped.text(), path.string());
  if (path.extension() != ".model") {
    return Tokenizer(std::make_unique<const Impl>(parse_tokenizer_json(
        mapped.text(), path.string(), TokenizerCompanions::read(path.parent_path()))));
  }
  const std::filesystem::path folder = path.parent_path();
  return Tokenizer(std::make_unique<const Impl>(
      sentencepiece_tokenizer(mapped.text(), path.string(), TokenizerCompanions::read(folder),
                              (folder / "tokenizer_config.json").string())));
}

Tokenizer Tokenizer::parse_tekken(std::string_view json_text, const std::string& where) {
  return Tokenizer(std::make_unique<const Impl>(tekken_tokenizer(json_text, where)));
}

Tokenizer Tokenizer::parse_pieces(std::string_view bytes, const std::string& where,
                                  std::string_view settings_text,
                                  const std::string& settings_where) {
  return Tokenizer(std::make_unique<const Impl>(
      sentencepiece_tokenizer(bytes, where, {std::string(settings_text), "", ""}, settings_where)));
}

Tokenizer Tokenizer::parse(std::string_view json_text, const std::string& where) {
  return Tokenizer(std::make_unique<const Impl>(parse_tokenizer_json(json_text, where)));
}

std::vector<TokenId> Tokenizer::encode(std::string_view text, bool add_special) const {
  if (text.size() > static_cast<std::size_t>(std::numeric_limits<std::int32_t>::max()))
    throw ConfigError("text: expected fewer than 2^31 bytes, found {}", text.size());
  if (const auto offset = first_invalid_utf8(text)) {
    throw FormatError("text: expected UTF-8, found byte 0x{:02x} at offset {}",
                      static_cast<unsigned char>(text[*offset]), *offset);
  }
  std::vector<TokenId> ids;
  if (add_special) ids = impl_->prefix;
  impl_->encode(text, ids);
  if (add_special) ids.insert(ids.end(), impl_->suffix.begin(), impl_->suffix.end());
  return ids;
}

std::string Tokenizer::decode(std::span<const TokenId> ids, bool skip_special) const {
  const Decoding& decoding = impl_->decoding;
  std::string bytes;
  bool is_first = true;
  for (TokenId id : ids) {
    const TokenInfo& info = impl_->info(id);
    if (skip_special && info.special) continue;
    bytes += info.bytes;
    if (is_first && decoding.first_token_has_no_space) std::erase(bytes, ' ');
    is_first = false;
  }
  const std::size_t n_spaces = std::min(bytes.find_first_not_of(' '), bytes.size());
  bytes.erase(0, std::min(n_spaces, static_cast<std::size_t>(decoding.n_stripped)));
  return bytes;
}

std::string_view Tokenizer::bytes_of(TokenId id) const {
  return impl_->info(id).bytes;
}

std::optional<TokenId> Tokenizer::id_of(std::string_view content) const {
  const auto it = impl_->id_from_added.find(content);
  if (it != impl_->id_from_added.end()) return it->second;
  return impl_->bpe.find(content);
}

TokenId Tokenizer::n_ids() const {
  return impl_->n_ids;
}

const std::vector<std::string>& Tokenizer::not_followed() const {
  return impl_->not_followed;
}

const std::string& Tokenizer::chat_template() const {
  return impl_->chat_template;
}

}  // namespace kvscope
