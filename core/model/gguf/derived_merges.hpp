// The merges of a SentencePiece vocabulary that a file lists without them.
#pragma once

#include <span>
#include <string>
#include <vector>

#include "core/model/bpe.hpp"

namespace kvscope {

/// Every way to put a token together from two others: those of the best score first, among them
/// the longer left part first, then the longer right part (in characters).
std::vector<BpeTables::Merge> merges_from_scores(std::span<const std::string> tokens,
                                                 std::span<const double> scores,
                                                 const StringMap<TokenId>& id_from_content);

}  // namespace kvscope
