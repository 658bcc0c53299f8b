#include "core/model/sentencepiece/piece_model.hpp"

#include <cmath>

#include "core/base/error.hpp"
#include "core/base/json_reader.hpp"
#include "core/base/utf8.hpp"
#include "core/model/sentencepiece/protobuf.hpp"

namespace kvscope {

namespace {

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

}  // namespace

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

}  // namespace kvscope
