// Selectors on top of each other: evict, then select, then prune to a share of the attention.
//
// A stack is written with plus signs: "keydiff@tokens=2048+quest@tokens=512+oracle-topp". Every
// stage but the last carries its own budget after "@" (unless it takes none); the last stage takes
// the budget of the comparison. A stage sees as candidates what the stages before it left of a KV
// head: keys that were evicted are dead for all, keys that an earlier stage did not select in this
// call are hidden from the later ones. Where an earlier stage gave each query head or row a list of
// its own, the later stage chooses among the union of a KV head's lists and its selection is cut
// with the earlier list of that head and row afterwards. A stage rests in phases that it is not
// defined for and in its own dense layers. Shares (p=0.9) are of the attention that the earlier
// stages left, as in Twilight.
#pragma once

#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "core/selectors/selector.hpp"

namespace kvscope {

struct StackStage {
  std::unique_ptr<Selector> selector;
  SelectorCaps caps;
  std::optional<Budget> budget;  // empty: the last stage, or one that takes none
};

/// Caps of `upper` on top of one more stage below it.
SelectorCaps stacked_caps(const SelectorCaps& lower, SelectorCaps upper);

/// The stack of two stages or more that fit (MethodSpec::parse sees to that). caps: of all of them.
std::unique_ptr<Selector> make_stack(std::string name, SelectorCaps caps,
                                     std::vector<StackStage> stages);

}  // namespace kvscope
