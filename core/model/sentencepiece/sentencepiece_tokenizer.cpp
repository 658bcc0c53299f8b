// The tokenizer that a tokenizer.model file of SentencePiece holds.
#include <fmt/format.h>

#include <algorithm>
#include <nlohmann/json.hpp>

#include "core/base/error.hpp"
#include "core/base/number_text.hpp"
#include "core/model/gguf/derived_merges.hpp"
#include "core/model/sentencepiece/piece_model.hpp"
#include "core/model/tokenizer_json_parts.hpp"

namespace kvscope {

namespace {

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
