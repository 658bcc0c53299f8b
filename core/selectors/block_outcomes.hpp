// Which blocks of keys become a list: blocks that a rule keeps, blocks that win by score, and the
// keys that both hold.
//
// A block is `size` positions, aligned to position 0. Outcomes are those of consecutive blocks from
// number `first` on.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "core/selectors/candidates.hpp"

namespace kvscope {

enum class BlockOutcome : std::uint8_t { out, scored, forced };

/// The outcomes of the blocks that hold the positions of `keys`; all out.
struct BlockOutcomes {
  BlockOutcomes(Index block_size, TokenRange keys);

  Index size = 1;
  TokenRange keys;                     // positions that may be in the list
  TokenRange blocks;                   // their blocks, by number
  std::vector<BlockOutcome> of_block;  // [blocks.size()]

  BlockOutcome& of(Index block) { return of_block[static_cast<std::size_t>(block - blocks.begin)]; }
  BlockOutcome of(Index block) const {
    return of_block[static_cast<std::size_t>(block - blocks.begin)];
  }
  /// Forces those of `which` that there are.
  void force(TokenRange which);
  /// Makes a block scored that is out; nothing where there is none.
  void keep(Index block);
  /// Positions of a block that may be in the list.
  TokenRange keys_of(Index block) const;
  Index count(BlockOutcome outcome) const;

  /// The n best of the blocks that are out become scored: by falling score, equal scores by rising
  /// number. scores [blocks.size()], -infinity is no candidate.
  void keep_best(std::span<const double> scores, Index n);
  /// Blocks become scored by falling weight until those that are kept, the forced ones among them,
  /// hold a share of all weight; none of weight 0. weights [blocks.size()], >= 0.
  void keep_share(std::span<const double> weights, double share);

  /// The alive keys of the blocks that are not out.
  KeyList list(const SelectCall& call, Index kv_head) const;
};

/// Blocks that a budget of tokens buys: whole ones, at least 1; all where it covers the keys.
/// n_keys, n_blocks: of those that compete.
Index blocks_bought(Index budget, Index block_size, Index n_keys, Index n_blocks);

}  // namespace kvscope
