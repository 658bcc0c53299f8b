// One list per owner, made owner by owner on all threads: the loop that every method with lists
// per head shares.
#pragma once

#include <functional>
#include <span>
#include <type_traits>
#include <vector>

#include "core/selectors/score_engine.hpp"
#include "core/selectors/selector.hpp"

namespace kvscope {

/// The heads that share a list: one query head, or the group of one KV head.
struct ListHeads {
  Index index = 0;  // of the owner
  TokenRange q_heads;
  Index kv_head = 0;
};

/// Adds the lists of one owner, all blocks of rows in order, to each selection.
using AddLists = std::function<void(const ListHeads& heads, ScoreWorker& worker,
                                    std::span<Selection> selections)>;

/// Selections, `n_selections` of them, of lists per `owner` (q_head or kv_head). rows_per_list:
/// queries of the call that share a list. Each call of add_lists adds the lists of one `task`: an
/// owner, or all query heads of a KV head in order, where these share what is costly to make.
std::vector<Selection> select_by_owner(const SelectCall& call, ListOwner owner, Index rows_per_list,
                                       std::size_t n_selections, const AddLists& add_lists,
                                       ListOwner task);
inline std::vector<Selection> select_by_owner(const SelectCall& call, ListOwner owner,
                                              Index rows_per_list, std::size_t n_selections,
                                              const AddLists& add_lists) {
  return select_by_owner(call, owner, rows_per_list, n_selections, add_lists, owner);
}

/// One selection with a list per query head and query.
using MakeList = std::function<KeyList(const ListHeads& heads, Index row, ScoreWorker& worker)>;
Selection select_by_query(const SelectCall& call, const MakeList& make_list);

/// The same for one selection whose query heads share what is made per KV head.
Selection select_by_kv_head(const SelectCall& call, Index rows_per_list,
                            const std::function<void(const ListHeads& group, ScoreWorker& worker,
                                                     Selection& selection)>& add_lists);

/// The call's engine; a stand-in of this thread that keeps nothing where the call has none.
ScoreEngine& engine_of(const SelectCall& call);

/// What make(kv_head, worker) gives for every KV head, on all threads.
template <class Make>
auto of_kv_heads(const SelectCall& call, const Make& make) {
  std::vector<std::invoke_result_t<Make, Index, ScoreWorker&>> all(
      static_cast<std::size_t>(call.k.dim(0)));
  engine_of(call).run(call.k.dim(0), [&](Index kv_head, ScoreWorker& worker) {
    all[static_cast<std::size_t>(kv_head)] = make(kv_head, worker);
  });
  return all;
}

}  // namespace kvscope
