// quest: query-aware pages of keys by an upper bound of their scores (arXiv 2406.10774, ICML 2024;
// official code).
//
// Idea: every page of consecutive keys stores its channel-wise largest and smallest key. sum_c
// max(q_c max_c, q_c min_c) is at least q.k for every key of the page; keep the pages of largest
// bound and attend to all their tokens.
//
// Cost per decode step and layer: 4 n_q d ceil(T / P) FLOPs for the bounds; reads 2 n_kv d ceil(T /
// P) elements of metadata (1 / P of the cache), which is also what it stores. By the sum over a
// group, and in chunks over their queries: 2 n_q n_tok d + 4 n_kv d ceil(T / P) FLOPs.
//
// Fails when one outlier channel dominates every bound, when pages are long, and when the wanted
// key shares its page with nothing else (the bound of a page of opposites is high).
//
// Switches, where the published programs differ:
//   quest-paper: accuracy tables: per query head, max(3, k / P) pages, the current page must
//     compete, layers 0-1 dense
//   quest-kernel: speed figures: k / P pages including the current one, which is always kept
//   quest-frontier: sparse-frontier: per KV head by the sum of its heads' bounds, current page on
//     top, no dense layers
//   quest-hub: sparse-attention-hub: pages of 128, rounded up, bounds of low precision, no dense
//     layers
//   quest-sglang: what SGLang executes: the mean query of each KV head's group, its bounds summed
//     over all KV heads, one list for all heads (the wrapper coarsen); the kernel rule, no dense
//     layers. SGLang keeps four recent pages beside a share of the others; here the last page is
//     kept, and the budget says how many in all
//   lserve: LServe's decode attention: boxes of 16 keys, the largest of a physical page of 64 ranks
//     it (the wrapper coarsen), a choice serves four steps (the wrapper every); its budget is 4096
//     tokens. A list per KV head by the largest bound of its group is ours: the launch script that
//     names the sizes does not say
//
// Without a preset: the kernel rule per query head. A group's pages are ranked by the sum or the
// largest of its heads' bounds; a bound of their mean query is none for each of them, which
// quest-sglang accepts.
//
// Decided where the sources are silent: the paper is dense in prefill; chunked prefill and
// verification here rank pages before the call by the sum of bounds over its queries and the group,
// one list per KV head, and force the call's own pages. A page seen in part (window, dead keys) has
// the box of the keys that count. Layers are counted from 0 (the evaluator counts down from 32).
// Whole pages are kept, so a budget of k tokens may attend to fewer or more.
#include "core/base/rng.hpp"
#include "core/selectors/cost_units.hpp"
#include "core/selectors/page_lists.hpp"
#include "core/selectors/registry.hpp"

namespace kvscope {

namespace {

enum class PageChoice { bound, random };

class Quest final : public PageSelector {
 public:
  Quest() : PageSelector(/*n_dense=*/2) {}
  PageChoice choice_ = option(choice_, "choice", PageChoice::bound,
                              "largest bound, or drawn at random for each list and call (control)");
  int bound_bits_ = option(bound_bits_, "bound-bits", 16,
                           "precision of the stored boxes; 16 keeps them exact", in(1, 16));

  std::optional<ListPlan> plan(const Budget& budget, Phase phase) const override {
    if (bound_bits_ != 16 || choice_ != PageChoice::bound || budget.kind != Budget::Kind::tokens)
      return std::nullopt;
    return ListPlan{.by = ListPlan::By::page_bounds,
                    .budget = static_cast<Index>(budget.value),
                    .owner = phase == Phase::decode ? owner_ : PageOwner::group_sum,
                    // a call of one token may also be the end of a prompt
                    .forces_own = phase != Phase::decode,
                    .page_size = page_size_,
                    .pages = rule_};
  }

  SelectCost cost(const SelectCall& call, const Selection& selection) const override {
    if (selection.is_dense) return {};
    // a sum of bounds needs one bound of summed queries: linear in (max(q, 0), min(q, 0))
    const bool sums = call.n_tok > 1 || owner_ == PageOwner::group_sum;
    return page_scores_cost(call, scored_range(call), page_size_, sums ? call.n_tok : 0,
                            kBytesPerElement * static_cast<double>(bound_bits_) / 16.0);
  }

 protected:
  bool scores_pages_apart() const override { return true; }

  void page_scores(const SelectCall& call, const ListHeads& heads, TokenRange pages,
                   ScoreWorker& worker, std::span<const std::span<double>> rows) override {
    if (choice_ == PageChoice::random) return drawn_scores(call, heads, pages, rows);
    const PageTable& table = engine_of(call).pages(
        call.layer, heads.kv_head, call.k.sub(heads.kv_head), page_size_, PageBox(bound_bits_));
    score_by_rows(call, heads, table, pages, call.n_tok, &PageBox::add_doubled, worker.dots, rows);
  }

 private:
  /// A number for each page, named by layer, first position of the call, list and page.
  static void drawn_scores(const SelectCall& call, const ListHeads& heads, TokenRange pages,
                           std::span<const std::span<double>> rows) {
    for (std::size_t i = 0; i < rows.size(); ++i) {
      const CounterRng rng(call.layer, call.pos_begin,
                           static_cast<std::size_t>(heads.q_heads.begin) + i);
      for (std::size_t p = 0; p < rows[i].size(); ++p)
        rows[i][p] = rng.uniform(static_cast<std::uint64_t>(pages.begin) + p);
    }
  }
};

}  // namespace

void register_quest(SelectorRegistry& registry) {
  SelectorEntry& entry =
      registry.add<Quest>("quest", "Quest: query-aware pages", "arXiv 2406.10774",
                          "keeps the pages of keys whose bounding box promises the largest score");
  entry.presets["quest-paper"] = {{"pages", "eval"}, {"owner", "q_head"}, {"dense-layers", "2"}};
  entry.presets["quest-kernel"] = {{"pages", "kernel"}, {"owner", "q_head"}, {"dense-layers", "2"}};
  entry.presets["quest-frontier"] = {
      {"pages", "frontier"}, {"owner", "group_sum"}, {"dense-layers", "0"}};
  entry.presets["quest-sglang"] = {{"pages", "kernel"}, {"owner", "q_head"}, {"dense-layers", "0"}};
  entry.preset_wrappers["quest-sglang"] = "coarsen:owner=layer,query=mean";
  entry.presets["lserve"] = {{"pages", "kernel"}, {"owner", "group_max"}, {"dense-layers", "0"}};
  entry.preset_wrappers["lserve"] = "coarsen:page=64+every=4";
  registry.say_lacking("lserve",
                       "its streaming heads (duoattention has them), its KV cache of 4 or 8 bits");
  entry.presets["quest-hub"] = {{"pages", "hub"},
                                {"owner", "q_head"},
                                {"page-size", "128"},
                                {"bound-bits", "4"},
                                {"dense-layers", "0"}};
}

}  // namespace kvscope
