// A method's selection with keys put back into it: a layer's, a query head's, or one key of a head.
#pragma once

#include <string>

#include "core/attention/selection.hpp"
#include "core/selectors/selector.hpp"

namespace kvscope {

/// -1: every one. Of heads and keys the layer is named too.
struct PutBack {
  Index layer = -1;
  Index q_head = -1;
  Index key = -1;
  bool is_in(Index of_layer) const { return layer < 0 || layer == of_layer; }
  /// "5", "5:6", "5:6:150" or "all", as parse() takes it.
  std::string text() const;
  /// "layer 5, head 6, key 150".
  std::string words() const;
  /// Throws ConfigError.
  static PutBack parse(const std::string& text);
};

/// True if one head's keys can be put back: summaries stand for the keys of a KV head, and no head
/// of its group can do without them alone.
bool has_lists_of_heads(const Selection& selection);

/// The selection for the call with all keys, or one, in the lists of a layer or of one of its query
/// heads. A key after the call changes nothing.
Selection with_put_back(Selection selection, const SelectCall& call, const PutBack& what);

/// Of what a method lost (nats), the share that something put back brings back: "97 %"; beyond all
/// of it, where the token is likelier than under full attention and a share would mislead, "more
/// than all"; "-" for NaN.
std::string recovered_text(double share);

}  // namespace kvscope
