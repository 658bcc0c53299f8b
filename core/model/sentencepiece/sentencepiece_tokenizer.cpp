// The tokenizer that a tokenizer.model file of SentencePiece holds.
#include <fmt/format.h>

#include <algorithm>
#include <bit>
#include <cmath>
#include <cstdint>
#include <nlohmann/json.hpp>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "core/base/error.hpp"
#include "core/base/number_text.hpp"
#include "core/base/utf8.hpp"
#include "core/model/gguf/derived_merges.hpp"
#include "core/model/tokenizer_json_parts.hpp"

namespace kvscope {

namespace {

/// A reader of protocol buffers' wire format: walks through the fields of one message.
///
/// A field is a key (its number and how its value is stored) and the value: a number in seven-bit
/// groups, four or eight bytes, or a length and so many bytes (strings, messages).
class ProtobufMessage {
 public:
  /// `where` names the file in messages; `bytes` must outlive this object.
  ProtobufMessage(std::string_view bytes, std::string where)
      : bytes_(bytes), where_(std::move(where)) {}

  /// Goes to the next field; false at the end. Throws FormatError for what is no such format.
  bool next() {
    if (at_ == bytes_.size()) return false;
    const std::uint64_t key = read_varint();
    if (key >> 3 == 0 || key >> 3 > 0x1fffffff) {
      fail(fmt::format("expected the number of a field, found {}", key >> 3));
    }
    field_ = static_cast<std::uint32_t>(key >> 3);
    kind_ = static_cast<Kind>(key & 7);
    switch (kind_) {
      case Kind::varint:
        value_ = read_varint();
        return true;
      case Kind::eight_bytes:
        value_ = read_fixed(8);
        return true;
      case Kind::four_bytes:
        value_ = read_fixed(4);
        return true;
      case Kind::bytes:
        text_ = take(read_varint());
        return true;
    }
    fail(fmt::format("expected a field that is stored as a number or as bytes, found kind {}",
                     key & 7));
  }

  std::uint32_t field() const { return field_; }

  /// The field's value. Throws FormatError if it is stored otherwise.
  std::string_view bytes() const {
    require(Kind::bytes, "bytes");
    return text_;
  }
  std::int64_t integer() const {
    require(Kind::varint, "a whole number");
    return static_cast<std::int64_t>(value_);
  }
  bool boolean() const { return integer() != 0; }
  float number() const {
    require(Kind::four_bytes, "a number of four bytes");
    return std::bit_cast<float>(static_cast<std::uint32_t>(value_));
  }
  ProtobufMessage message() const { return ProtobufMessage(bytes(), where_); }

 private:
  enum class Kind { varint = 0, eight_bytes = 1, bytes = 2, four_bytes = 5 };

  std::uint64_t read_varint() {
    std::uint64_t value = 0;
    for (unsigned shift = 0; shift < 64; shift += 7) {
      const auto byte = static_cast<unsigned char>(take(1).front());
      value |= std::uint64_t{byte & 127U} << shift;
      if (byte < 128) return value;
    }
    fail("expected a number of at most ten bytes, found a longer one");
  }

  std::uint64_t read_fixed(std::size_t n) {
    std::uint64_t value = 0;
    const std::string_view bytes = take(n);
    for (std::size_t i = 0; i < n; ++i) {
      value |= std::uint64_t{static_cast<unsigned char>(bytes[i])} << (8 * i);
    }
    return value;
  }

  std::string_view take(std::uint64_t n) {
    if (n > bytes_.size() - at_) {
      fail(fmt::format("expected {} more bytes, found {}; the file is truncated or none", n,
                       bytes_.size() - at_));
    }
    const std::string_view part = bytes_.substr(at_, n);
    at_ += n;
    return part;
  }

  void require(Kind kind, std::string_view expected) const {
    if (kind_ != kind) fail(fmt::format("field {}: expected {}", field_, expected));
  }
  [[noreturn]] void fail(const std::string& what) const {
    throw FormatError("{}: no protocol buffer: {}", where_, what);
  }

  std::string_view bytes_;
  std::string where_;
  std::size_t at_ = 0;
  std::uint32_t field_ = 0;
  Kind kind_ = Kind::varint;
  std::uint64_t value_ = 0;
  std::string_view text_;
};

/// One piece of the vocabulary; its id is its place.
struct Piece {
  /// As SentencePiece numbers them.
  enum class Kind { normal = 1, unknown = 2, control = 3, user_defined = 4, unused = 5, byte = 6 };
  std::string_view text;
  float score = 0.0f;
  Kind kind = Kind::normal;
};

/// What the file says; texts refer to its bytes.
struct PieceModel {
  enum class Kind { unigram = 1, bpe = 2 };
  Kind kind = Kind::unigram;
  std::vector<Piece> pieces;
  bool has_byte_fallback = false;
  std::int64_t unknown_id = 0;
  std::int64_t bos_id = 1;  // -1: none; likewise
  std::int64_t eos_id = 2;

  std::string_view characters_map;  // see CharacterMap; may be empty
  bool adds_prefix = true;          // a space in front of the text
  bool collapses_spaces = true;     // none at the ends, one between words
  bool escapes_spaces = true;       // as the word mark
};

// Numbers of fields, as SentencePiece's sentencepiece_model.proto has them.
namespace in_model {
constexpr std::uint32_t kPiece = 1, kTrainer = 2, kNormalizer = 3;
}
namespace in_piece {
constexpr std::uint32_t kText = 1, kScore = 2, kKind = 3;
}
namespace in_trainer {
constexpr std::uint32_t kKind = 3, kSpaceAsSuffix = 24, kByteFallback = 35, kUnknown = 40,
                        kBos = 41, kEos = 42;
}
namespace in_normalizer {
constexpr std::uint32_t kMap = 2, kAddsPrefix = 3, kCollapses = 4, kEscapes = 5;
}

constexpr std::size_t kMostPieces = std::size_t{1} << 24;

Piece read_piece(ProtobufMessage fields, std::size_t id, const std::string& where) {
  Piece piece;
  while (fields.next()) {
    switch (fields.field()) {
      case in_piece::kText:
        piece.text = fields.bytes();
        break;
      case in_piece::kScore:
        piece.score = fields.number();
        break;
      case in_piece::kKind: {
        const std::int64_t kind = fields.integer();
        if (kind < 1 || kind > 6) {
          throw FormatError("piece {} ({}): expected a kind from 1 to 6, found {}", id, where,
                            kind);
        }
        piece.kind = static_cast<Piece::Kind>(kind);
        break;
      }
      default:
        break;
    }
  }
  if (piece.text.empty() || first_invalid_utf8(piece.text) || !std::isfinite(piece.score)) {
    throw FormatError("piece {} ({}): expected text in UTF-8 and a finite score, found {} and {}",
                      id, where, quote(piece.text), piece.score);
  }
  return piece;
}

void read_trainer(ProtobufMessage fields, const std::string& where, PieceModel& model) {
  while (fields.next()) {
    switch (fields.field()) {
      case in_trainer::kKind: {
        const std::int64_t kind = fields.integer();
        if (kind != 1 && kind != 2) {
          throw ConfigError("model_type ({}): expected 1 (unigram) or 2 (BPE), found {}", where,
                            kind);
        }
        model.kind = static_cast<PieceModel::Kind>(kind);
        break;
      }
      case in_trainer::kSpaceAsSuffix:
        if (fields.boolean())
          throw ConfigError("treat_whitespace_as_suffix ({}): expected false, found true", where);
        break;
      case in_trainer::kByteFallback:
        model.has_byte_fallback = fields.boolean();
        break;
      case in_trainer::kUnknown:
        model.unknown_id = fields.integer();
        break;
      case in_trainer::kBos:
        model.bos_id = fields.integer();
        break;
      case in_trainer::kEos:
        model.eos_id = fields.integer();
        break;
      default:
        break;
    }
  }
}

void read_normalizer_spec(ProtobufMessage fields, PieceModel& model) {
  while (fields.next()) {
    switch (fields.field()) {
      case in_normalizer::kMap:
        model.characters_map = fields.bytes();
        break;
      case in_normalizer::kAddsPrefix:
        model.adds_prefix = fields.boolean();
        break;
      case in_normalizer::kCollapses:
        model.collapses_spaces = fields.boolean();
        break;
      case in_normalizer::kEscapes:
        model.escapes_spaces = fields.boolean();
        break;
      default:
        break;
    }
  }
}

/// Throws FormatError for what is no such file, ConfigError for a model of words or characters.
/// `where` names the file in messages.
PieceModel parse_piece_model(std::string_view bytes, const std::string& where) {
  PieceModel model;
  ProtobufMessage fields(bytes, where);
  while (fields.next()) {
    switch (fields.field()) {
      case in_model::kPiece:
        if (model.pieces.size() == kMostPieces)
          throw FormatError("{}: expected at most {} pieces", where, kMostPieces);
        model.pieces.push_back(read_piece(fields.message(), model.pieces.size(), where));
        break;
      case in_model::kTrainer:
        read_trainer(fields.message(), where, model);
        break;
      case in_model::kNormalizer:
        read_normalizer_spec(fields.message(), model);
        break;
      default:
        break;
    }
  }
  if (model.pieces.empty())
    throw FormatError("{}: expected a SentencePiece model, found no pieces", where);
  return model;
}

class SentencePieceReader {
 public:
  SentencePieceReader(std::string_view bytes, const std::string& where)
      : where_(where), model_(parse_piece_model(bytes, where)) {}

  TokenizerParts read(const TokenizerCompanions& beside, const std::string& settings_where) {
    const nlohmann::json settings = beside.config.empty()
                                        ? nlohmann::json::object()
                                        : parse_json(beside.config, settings_where);
    parts_.bpe.symbols = BpeSymbols::characters;
    for (std::size_t i = 0; i < model_.pieces.size(); ++i) {
      add_model_token(where_, std::string(model_.pieces[i].text), static_cast<TokenId>(i),
                      vocabulary_, parts_);
    }
    if (vocabulary_.id_from_content.size() != model_.pieces.size()) {
      throw FormatError("{}: expected each piece once, found {} among {}", where_,
                        vocabulary_.id_from_content.size(), model_.pieces.size());
    }
    find_byte_tokens(vocabulary_, model_.has_byte_fallback, parts_.bpe);
    parts_.bpe.unknown_id = id_of(model_.unknown_id);
    parts_.bpe.fuse_unknown = true;
    if (model_.kind == PieceModel::Kind::unigram) {
      add_unigram();
    } else {
      add_merges();
    }
    read_settings(settings, settings_where);
    add_symbols();
    add_others(beside, settings);
    add_normalizer();
    spell_tokens();
    return std::move(parts_);
  }

 private:
  std::optional<TokenId> id_of(std::int64_t id) const {
    const auto n = static_cast<std::int64_t>(model_.pieces.size());
    return id < 0 || id >= n ? std::nullopt : std::optional(static_cast<TokenId>(id));
  }

  void add_unigram() {
    UnigramTables tables;
    if (!parts_.bpe.unknown_id) {
      throw FormatError("unk_id ({}): expected the number of a piece, found {}", where_,
                        model_.unknown_id);
    }
    tables.unknown_id = *parts_.bpe.unknown_id;
    for (std::size_t i = 0; i < model_.pieces.size(); ++i) {
      const Piece& piece = model_.pieces[i];
      const bool is_user_defined = piece.kind == Piece::Kind::user_defined;
      if (!is_user_defined && piece.kind != Piece::Kind::normal) continue;
      tables.pieces.push_back(
          {std::string(piece.text), piece.score, static_cast<TokenId>(i), is_user_defined});
    }
    if (model_.has_byte_fallback) {
      for (const auto& id : parts_.bpe.id_from_byte) {
        if (!id) throw FormatError("{}: expected pieces for all 256 bytes", where_);
        tables.byte_ids.push_back(*id);
      }
    }
    parts_.unigram = std::move(tables);
  }

  // Any two neighbours whose texts make a piece are joined, best score first.
  void add_merges() {
    std::vector<std::string> texts;
    std::vector<double> scores;
    StringMap<TokenId> ids;
    for (std::size_t i = 0; i < model_.pieces.size(); ++i) {
      const Piece& piece = model_.pieces[i];
      if (piece.kind == Piece::Kind::unused) {
        throw ConfigError(
            "piece {} ({}): expected none that is unused (5) in a BPE model, found {}", i, where_,
            quote(piece.text));
      }
      const bool is_normal = piece.kind == Piece::Kind::normal;
      texts.emplace_back(is_normal ? piece.text : std::string_view());
      scores.push_back(double{piece.score});
      if (is_normal) ids.emplace(piece.text, static_cast<TokenId>(i));
    }
    parts_.bpe.merges = merges_from_scores(texts, scores, ids);
    std::uint32_t rank = 0;
    TokenId before = -1;
    for (const BpeTables::Merge& merge : parts_.bpe.merges) {
      const auto score = [&](TokenId id) { return scores[static_cast<std::size_t>(id)]; };
      if (before >= 0 && score(before) != score(merge.merged)) ++rank;
      before = merge.merged;
      parts_.bpe.ranks.push_back(rank);
    }
  }

  // Control symbols, which are looked for in the text as it is, and user-defined ones, which are
  // looked for where spaces are marked already; the lattice of a unigram model finds those itself.
  void add_symbols() {
    std::vector<AddedToken> verbatim;
    for (std::size_t i = 0; i < model_.pieces.size(); ++i) {
      const Piece& piece = model_.pieces[i];
      const bool is_user_defined = piece.kind == Piece::Kind::user_defined;
      const bool is_special =
          piece.kind == Piece::Kind::control || piece.kind == Piece::Kind::unknown;
      if ((!is_user_defined && !is_special) || piece.text.size() > kMaxAddedToken) continue;
      AddedToken token;
      token.content = piece.text;
      token.id = static_cast<TokenId>(i);
      token.special = is_special;
      token.normalized = is_user_defined;
      if (is_user_defined) verbatim.push_back(token);
      if (is_user_defined && parts_.unigram) continue;
      if (!is_added(token.content)) add_added_token(std::move(token), vocabulary_, where_, parts_);
    }
    verbatim_ = std::make_shared<const AddedTokenSet>(std::move(verbatim));
  }

  bool is_added(const std::string& content) const {
    for (const AddedToken& token : parts_.added_tokens) {
      if (token.content == content) return true;
    }
    return false;
  }

  // What the files beside it name and no piece is.
  void add_others(TokenizerCompanions beside, nlohmann::json settings) {
    if (settings.erase("added_tokens_decoder") > 0) beside = {settings.dump(), "", ""};
    const std::size_t n_known = parts_.added_tokens.size();
    add_companions(beside, vocabulary_, parts_);
    const auto added = parts_.added_tokens.begin() + static_cast<std::ptrdiff_t>(n_known);
    std::for_each(added, parts_.added_tokens.end(), [](AddedToken& t) { t.normalized = false; });
    parts_.added_tokens.erase(
        std::remove_if(added, parts_.added_tokens.end(),
                       [&](const AddedToken& token) {
                         const auto n = static_cast<TokenId>(model_.pieces.size());
                         return token.id < n &&
                                model_.pieces[static_cast<std::size_t>(token.id)].kind ==
                                    Piece::Kind::user_defined;
                       }),
        parts_.added_tokens.end());
  }

  void add_normalizer() {
    SentencePieceStep step;
    step.characters = std::make_shared<const CharacterMap>(model_.characters_map, where_);
    step.verbatim = verbatim_;
    step.adds_prefix = model_.adds_prefix;
    step.collapses_spaces = model_.collapses_spaces;
    step.space = model_.escapes_spaces ? kWordMark : " ";
    parts_.normalizer.emplace_back(std::move(step));
    parts_.added_are_normal = true;
    parts_.decoding.n_stripped = model_.adds_prefix ? 1 : 0;
  }

  // add_bos_token, add_eos_token and added_tokens_decoder: {"32000": {"content": ...}, ...}.
  void read_settings(const nlohmann::json& object, const std::string& settings_where) {
    const JsonObject settings(object, settings_where);
    const auto bos = id_of(model_.bos_id);
    const auto eos = id_of(model_.eos_id);
    if (bos && settings.boolean_or("add_bos_token", true)) parts_.prefix.push_back(*bos);
    if (eos && settings.boolean_or("add_eos_token", false)) parts_.suffix.push_back(*eos);
    if (settings.find("added_tokens_decoder") == nullptr) return;
    const JsonObject added = settings.object("added_tokens_decoder");
    for (const auto& [key, value] : added.value().items()) {
      const auto id = number_from<TokenId>(key);
      if (!id || *id < 0 || *id > kMaxTokenId) added.refuse(key, "ids of tokens as names");
      add_from_settings(added.object(key), *id);
    }
  }

  void add_from_settings(const JsonObject& fields, TokenId id) {
    AddedToken token = read_added_token(fields, id);
    const auto known = id_of(id);
    // The file says itself what its user-defined pieces are.
    if (known && model_.pieces[static_cast<std::size_t>(id)].kind == Piece::Kind::user_defined) {
      return;
    }
    if (known && model_.pieces[static_cast<std::size_t>(id)].text != token.content) {
      fields.refuse("content",
                    fmt::format("{}, as tokenizer.model has it",
                                quote(model_.pieces[static_cast<std::size_t>(id)].text)));
    }
    token.normalized = false;
    add_added_token(std::move(token), vocabulary_, fields.name_of("content"), parts_);
  }

  // Pieces are text with marked spaces, or single bytes.
  void spell_tokens() {
    for (std::size_t i = 0; i < model_.pieces.size(); ++i) {
      const Piece& piece = model_.pieces[i];
      std::string& bytes = parts_.tokens.at(static_cast<TokenId>(i)).bytes;
      if (piece.kind == Piece::Kind::byte) {
        spell_byte(bytes);
      } else if (piece.kind != Piece::Kind::control && model_.escapes_spaces) {
        bytes = replace_all(bytes, kWordMark, " ");
      }
    }
  }

  const std::string& where_;
  PieceModel model_;
  Vocabulary vocabulary_;
  TokenizerParts parts_;
  std::shared_ptr<const AddedTokenSet> verbatim_;
};

}  // namespace

TokenizerParts sentencepiece_tokenizer(std::string_view bytes, const std::string& where,
                                       const TokenizerCompanions& beside,
                                       const std::string& settings_where) {
  return SentencePieceReader(bytes, where).read(beside, settings_where);
}

}  // namespace kvscope
