#include "core/selectors/owners.hpp"

namespace kvscope {

ScoreEngine& engine_of(const SelectCall& call) {
  thread_local ScoreEngine stand_in(ScorePrecision::f64, /*pool=*/nullptr, /*keeps_keys=*/false);
  return call.engine != nullptr ? *call.engine : stand_in;
}

std::vector<Selection> select_by_owner(const SelectCall& call, ListOwner owner, Index rows_per_list,
                                       std::size_t n_selections, const AddLists& add_lists,
                                       ListOwner task) {
  const Index n_q = call.q.dim(0);
  const Index group = n_q / call.k.dim(0);
  const Index heads_per_task = task == ListOwner::q_head ? 1 : group;
  const Index n_tasks = n_q / heads_per_task;
  const auto heads_of = [&](Index index) {
    const Index first = index * heads_per_task;
    return ListHeads{index, {first, first + heads_per_task}, first / group};
  };
  const auto empty = [&] {
    std::vector<Selection> selections(n_selections);
    for (Selection& one : selections) one = Selection(owner, call.n_tok, rows_per_list);
    return selections;
  };
  std::vector<Selection> selections = empty();
  ScoreEngine& engine = engine_of(call);
  if (engine.n_workers() == 1) {
    engine.run(n_tasks, [&](Index index, ScoreWorker& worker) {
      add_lists(heads_of(index), worker, selections);
    });
    return selections;
  }
  std::vector<std::vector<Selection>> parts(static_cast<std::size_t>(n_tasks));
  engine.run(n_tasks, [&](Index index, ScoreWorker& worker) {
    auto& part = parts[static_cast<std::size_t>(index)];
    part = empty();
    add_lists(heads_of(index), worker, part);
  });
  for (std::size_t i = 0; i < n_selections; ++i) {
    std::vector<const Selection*> of_selection;
    for (const auto& part : parts) of_selection.push_back(&part[i]);
    selections[i].append(of_selection, [&](Index n, const std::function<void(Index)>& copy) {
      engine.run(n, [&](Index part, ScoreWorker&) { copy(part); });
    });
    for (auto& part : parts) part[i] = Selection();  // lists of long contexts are large
  }
  return selections;
}

Selection select_by_query(const SelectCall& call, const MakeList& make_list) {
  const auto add = [&](const ListHeads& heads, ScoreWorker& worker,
                       std::span<Selection> selections) {
    for (Index row = 0; row < call.n_tok; ++row)
      selections.front().add(make_list(heads, row, worker));
  };
  return std::move(
      select_by_owner(call, ListOwner::q_head, /*rows_per_list=*/1, /*n_selections=*/1, add)
          .front());
}

Selection select_by_kv_head(
    const SelectCall& call, Index rows_per_list,
    const std::function<void(const ListHeads&, ScoreWorker&, Selection&)>& add_lists) {
  const auto add = [&](const ListHeads& group, ScoreWorker& worker,
                       std::span<Selection> selections) {
    add_lists(group, worker, selections.front());
  };
  return std::move(select_by_owner(call, ListOwner::q_head, rows_per_list, /*n_selections=*/1, add,
                                   ListOwner::kv_head)
                       .front());
}

}  // namespace kvscope
