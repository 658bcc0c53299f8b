// Choosing at each n-th step only: between, the last list serves, with the tokens that have come
// since.
//
// A step is a call of decode or verification. One that begins at a position p chooses if no choice
// was made since n * floor(p / n): at positions that n divides, and at the first step. The rule
// looks at positions alone, so that a replay of some steps chooses where a replay of all does.
// Prefill always chooses, and its lists are not kept. A rollback forgets choices that the dropped
// tokens took part in, and the earlier one serves again. Written "quest+every=4"
// (core/selectors/wrappers.hpp).
#pragma once

#include <memory>

#include "core/selectors/selector.hpp"

namespace kvscope {

/// n >= 1. Throws ConfigError for methods that must see every step: those that evict or count
/// votes.
std::unique_ptr<Selector> make_every(Index n, std::unique_ptr<Selector> method);

}  // namespace kvscope
