// What every selector must obey, whatever it selects: run over the whole registry and its presets,
// driven by caps, so that a new method is covered without an edit.
#include <map>
#include <set>

#include "core/base/parallel.hpp"
#include "core/selectors/method_spec.hpp"
#include "core/selectors/registry.hpp"
#include "core/sim/attended.hpp"
#include "tests/core/selectors/sequence.hpp"
#include "tests/support/planted_trace.hpp"
#include "tests/support/test.hpp"

namespace kvscope::test::conformance_test {

struct Method {
  std::string spec;  // name or preset
  std::string name;
  SelectorCaps caps;
  bool takes(Budget::Kind kind) const {
    return std::ranges::find(caps.budgets, kind) != caps.budgets.end();
  }
};

std::vector<Method> methods() {
  std::vector<Method> all;
  for (const SelectorEntry& entry : selector_registry().entries()) {
    std::vector<std::string> specs = {entry.name};
    for (const auto& [preset, assignments] : entry.presets) specs.push_back(preset);
    for (const std::string& spec : specs)
      if (!selector_registry()
               .make(spec)
               ->caps()
               .needs_side)  // random sequences have no indexer: indexer_test.cpp
        all.push_back({spec, entry.preset_wrappers.contains(spec) ? spec : entry.name,
                       selector_registry().make(spec)->caps()});
  }
  for (const std::string spec :
       {"quest:page-size=4+coarsen:owner=layer,page=8",
        "quoka+coarsen:owner=layer,page=4,scores=bf16", "loki+every=2",
        "oracle-pages:page-size=4+coarsen:owner=kv_head,ties=last+every=3",
        "loki+coarsen:query=mean,scores=fp8", "sparq+every=4", "streamingllm+every=3"}) {
    all.push_back({spec, spec, MethodSpec(spec).caps()});  // of the wrappers
  }
  return all;
}

/// A budget of about `n_tokens` that the method understands.
Budget budget_for(const Method& method, Index n_tokens) {
  const auto value = static_cast<double>(n_tokens);
  if (method.caps.budgets.empty() || method.takes(Budget::Kind::tokens))
    return {Budget::Kind::tokens, value};
  if (method.takes(Budget::Kind::mass)) return {Budget::Kind::mass, 0.8};
  if (method.takes(Budget::Kind::ratio)) return {Budget::Kind::ratio, 0.3};
  const double page = static_cast<double>(method.caps.page_size);
  return {Budget::Kind::pages, std::ceil(value / page)};
}

constexpr std::uint64_t kSeeds = 10;

/// The selection of one layer to the call of positions `call`, which has begun; the run checks that
/// its lists are sorted, unique and inside the context.
const Selection& ask(SelectorRun& run, const Sequence& sequence, Index layer, TokenRange call) {
  const auto at = static_cast<std::size_t>(layer);
  return run.layer_call({.layer = layer,
                         .q = sequence.q[at].view().range(1, call.begin, call.end),
                         .k = sequence.k[at].view().range(1, 0, call.end),
                         .v = sequence.v[at].view().range(1, 0, call.end),
                         .window = std::nullopt})[0];
}

/// Keys that may be paid for: pages are not split, and page methods may have a minimum of three.
Index largest_list(const Method& method, Index n_tokens) {
  const Index page = method.caps.page_size;
  if (page == 1) return n_tokens;
  return std::max((n_tokens + page - 1) / page, Index{3}) * page;
}

/// No list selected for the call of positions `call` has more keys than the budget pays for.
/// The call's own tokens, and the page that they share with the past, come on top of some budgets.
/// Returns whether that says anything: false for dense selections and phases where the method
/// rests.
bool check_paid(const Method& method, const Selection& selection, Phase phase, Index layer,
                TokenRange call, Index n_budget) {
  if (selection.is_dense || layer < method.caps.dense_layers ||
      !(phase == Phase::prefill ? method.caps.prefill : method.caps.decode))
    return false;
  const Index page = method.caps.page_size;
  const Index past_end = method.caps.is_static ? call.end : call.begin / page * page;
  for (Index i = 0; i < selection.n_lists(); ++i) {
    const ListView list = selection.at(i);
    const auto n_past = [&](const std::vector<KeyPos>& keys) {
      return std::ranges::lower_bound(keys, past_end) - keys.begin();
    };
    const Index paid =
        n_past(list.scored()) + (method.caps.forced_inside_budget ? n_past(list.forced()) : 0);
    CHECK(paid <= largest_list(method, n_budget));
  }
  return true;
}

TEST_CASE("lists are sorted, unique, alive, within the budget; costs are numbers") {
  for (const Method& method : methods()) {
    for (std::uint64_t seed = 1; seed <= kSeeds; ++seed) {
      INFO(method.spec << ", seed " << seed);
      const Sequence sequence = random_shape_sequence(seed);
      const Index n_budget = 1 + static_cast<Index>(CounterRng({seed}).bits(9) % 24);
      const Budget budget = budget_for(method, n_budget);
      SelectorRun run(make_selector(method.spec, sequence), sequence.shape, {budget});
      const bool counts_tokens =
          budget.kind == Budget::Kind::tokens && !method.caps.budgets.empty();
      for (const auto& [phase, n_tok] : sequence.calls) {
        const Index begin = run.n_keys();
        const auto drafts = drafts_for(run, sequence, phase, n_tok);
        run.begin_call(phase, n_tok, drafts);
        for (Index layer = 0; layer < sequence.shape.n_layers; ++layer) {
          AliveMask before = run.alive(layer);
          before.append(n_tok);
          const Selection& selection = ask(run, sequence, layer, {begin, begin + n_tok});
          bool all_alive = true;
          for (Index q_head = 0; q_head < sequence.shape.n_q; ++q_head) {
            for (Index row = 0; row < n_tok; ++row) {
              for (const KeyPos pos : attended_keys(selection, sequence.shape.group(), q_head,
                                                    begin, row, std::nullopt)) {
                all_alive = all_alive && pos <= begin + row &&
                            before.is_alive(q_head / sequence.shape.group(), pos);
              }
            }
          }
          CHECK(all_alive);
          const SelectCost cost = run.selector().cost(run.last_call(), selection);
          CHECK((std::isfinite(cost.score_flops) && cost.score_flops >= 0.0));
          CHECK((std::isfinite(cost.score_bytes) && cost.score_bytes >= 0.0));
          CHECK((std::isfinite(cost.metadata_bytes) && cost.metadata_bytes >= 0.0));
          if (!counts_tokens) continue;
          if (method.caps.permanent) {
            const bool shrinks = phase == Phase::prefill &&
                                 method.caps.owner != ListOwner::q_head &&
                                 !method.caps.keeps_by_option;
            Index n_left = 0;
            for (Index kv_head = 0; shrinks && kv_head < sequence.shape.n_kv; ++kv_head) {
              n_left += run.alive(layer).n_alive(kv_head);
              if (!method.caps.divides_budget) CHECK(run.alive(layer).n_alive(kv_head) <= n_budget);
            }
            if (shrinks) CHECK(n_left <= n_budget * sequence.shape.n_kv);
          } else {
            check_paid(method, selection, phase, layer, {begin, begin + n_tok}, n_budget);
          }
        }
      }
    }
  }
}

TEST_CASE("a budget of the whole context is dense attention") {
  // Quest's published rule counts min(tokens, budget) / page whole pages: the last, unfinished page
  // must compete.
  const std::set<std::string> published_otherwise = {"quest-paper"};
  for (const Method& method : methods()) {
    if (!method.takes(Budget::Kind::tokens) || published_otherwise.contains(method.spec)) continue;
    for (std::uint64_t seed = 1; seed <= kSeeds; ++seed) {
      INFO(method.spec << ", seed " << seed);
      const Sequence sequence = random_shape_sequence(seed);
      SelectorRun run(make_selector(method.spec, sequence), sequence.shape,
                      {budget_for(method, sequence.n_tokens() + 200)});
      bool is_all = true;
      for (const auto& [phase, n_tok] : sequence.calls) {
        const Index begin = run.n_keys();
        const auto drafts = drafts_for(run, sequence, phase, n_tok);
        run.begin_call(phase, n_tok, drafts);
        for (Index layer = 0; layer < sequence.shape.n_layers; ++layer) {
          const Selection& selection = ask(run, sequence, layer, {begin, begin + n_tok});
          for (Index q_head = 0; q_head < sequence.shape.n_q; ++q_head) {
            for (Index row = 0; row < n_tok; ++row) {
              const auto keys = attended_keys(selection, sequence.shape.group(), q_head, begin, row,
                                              std::nullopt);
              is_all = is_all && static_cast<Index>(keys.size()) == begin + row + 1;
            }
          }
        }
      }
      CHECK(is_all);
    }
  }
}

TEST_CASE("the same question has the same answer, from any number of threads") {
  const std::vector<Method> all = methods();
  const auto run_with = [&](int n_threads) {
    std::vector<std::vector<PlainSelection>> selections(all.size() * kSeeds);
    ThreadPool pool(n_threads);
    pool.parallel_for(static_cast<std::int64_t>(selections.size()), [&](std::int64_t i, int) {
      const Method& method = all[static_cast<std::size_t>(i) / kSeeds];
      const Sequence sequence = random_shape_sequence(static_cast<std::uint64_t>(i) % kSeeds + 1);
      selections[i] = run_all(method.spec, sequence, budget_for(method, 7));
    });
    return selections;
  };
  const auto one = run_with(1);
  const auto three = run_with(3);
  for (std::size_t i = 0; i < one.size(); ++i) {
    INFO(all[i / kSeeds].spec);
    CHECK(one[i] == three[i]);
  }
}

TEST_CASE("several budgets in one run are the same as one run each") {
  for (const Method& method : methods()) {
    if (!can_share_scoring(method.caps) || !method.takes(Budget::Kind::tokens)) continue;
    INFO(method.spec);
    const Sequence sequence = random_shape_sequence(4);
    const std::vector<Budget> budgets = {budget_for(method, 3), budget_for(method, 20),
                                         budget_for(method, 9)};
    SelectorRun run(make_selector(method.spec, sequence), sequence.shape, budgets);
    std::vector<std::vector<PlainSelection>> together(budgets.size());
    for (const auto& [phase, n_tok] : sequence.calls) {
      for (const auto& layer : run_call(run, sequence, phase, n_tok)) {
        for (std::size_t i = 0; i < budgets.size(); ++i) together[i].push_back(layer[i]);
      }
    }
    for (std::size_t i = 0; i < budgets.size(); ++i)
      CHECK(together[i] == run_all(method.spec, sequence, budgets[i]));
  }
}

TEST_CASE("rejected drafts leave no trace") {
  for (const Method& method : methods()) {
    for (std::uint64_t seed = 1; seed <= 4; ++seed) {
      INFO(method.spec << ", seed " << seed);
      SequenceOptions options{.n_tokens = 60, .n_decode = 12, .seed = seed};
      const Sequence sequence = random_sequence(options);
      const Budget budget = budget_for(method, 11);
      SelectorRun plain(make_selector(method.spec, sequence), sequence.shape, {budget});
      SelectorRun drafting(make_selector(method.spec, sequence), sequence.shape, {budget});
      for (std::size_t i = 0; i + 5 < sequence.calls.size(); ++i) {
        const auto& [phase, n_tok] = sequence.calls[i];
        const auto expected = run_call(plain, sequence, phase, n_tok);
        CHECK(run_call(drafting, sequence, phase, n_tok) == expected);
        // Other tokens than those that come: the rejected ones must not be seen again.
        Sequence drafted = random_sequence(options);
        const Index n_drafted = 1 + static_cast<Index>((seed + i) % 4);
        const Index begin = drafting.n_keys();
        for (auto* tensors : {&drafted.q, &drafted.k, &drafted.v}) {
          for (Tensor<float>& tensor : *tensors) {
            for (Index h = 0; h < tensor.dim(0); ++h) {
              for (float& x : tensor.view().sub(h).range(0, begin, begin + n_drafted).row(0))
                x = 2.5f * x + 1.0f;
            }
          }
        }
        run_call(drafting, drafted, Phase::verify, n_drafted);
        drafting.rollback(begin);
      }
    }
  }
}

TEST_CASE("the order of heads inside a group does not matter to shared lists") {
  SequenceOptions options{.group = 4, .d_head = 16, .has_ties = false};
  Sequence sequence = random_sequence(options);
  Sequence permuted = random_sequence(options);
  constexpr Index kOrder[] = {2, 0, 3, 1};
  for (std::size_t layer = 0; layer < sequence.q.size(); ++layer) {
    for (Index h = 0; h < sequence.shape.n_q; ++h) {
      const Index from = h / options.group * options.group + kOrder[h % options.group];
      const auto source = sequence.q[layer].sub(from);
      std::copy_n(source.data(), source.shape().count(), permuted.q[layer].sub(h).data());
    }
  }
  for (const Method& method : methods()) {
    if (method.caps.owner == ListOwner::q_head || method.caps.cross_layer) continue;
    INFO(method.spec);
    const Budget budget = budget_for(method, 9);
    CHECK(run_all(method.spec, sequence, budget) == run_all(method.spec, permuted, budget));
  }
}

/// Holds that every method gives the same answers to both sequences, those aside that are named
/// with the reason why they need not: a method that is new is asked without an edit here. A method
/// named that gives the same answers after all, or is none, is an error too.
void check_invariant(const Sequence& sequence, const Sequence& changed,
                     const std::map<std::string, std::string>& exceptions) {
  std::set<std::string> differ;
  std::set<std::string> known;
  for (const Method& method : methods()) {
    const Budget budget = budget_for(method, 9);
    const bool same =
        run_all(method.spec, sequence, budget) == run_all(method.spec, changed, budget);
    known.insert({method.spec, method.name});
    if (!same) differ.insert({method.spec, method.name});
    INFO(method.spec);
    CHECK((same || exceptions.contains(method.name) || exceptions.contains(method.spec)));
  }
  for (const auto& [name, reason] : exceptions) {
    INFO(name << ": " << reason);
    CHECK(known.contains(name));
    CHECK(differ.contains(name));
  }
}

TEST_CASE("the scale of the keys moves no list, except where weights or nonlinear scores choose") {
  SequenceOptions options{.d_head = 16};
  const Sequence sequence = random_sequence(options);
  Sequence scaled = random_sequence(options);
  for (Tensor<float>& k : scaled.k) {
    for (float& x : k.flat()) x *= 4.0f;
  }
  const std::string weights = "chooses by softmax weights, which the scale makes flat or steep";
  check_invariant(sequence, scaled,
                  {{"h2o", weights},
                   {"tova", weights},
                   {"rocket2", weights},
                   {"rocketkv", weights},
                   {"sampleattention", weights},
                   {"kascade", weights},
                   {"twilight", weights},
                   {"expected-attention", weights},
                   {"ceiling", weights},
                   {"oracle-topp", weights},
                   {"oracle-topk", "a group and a chunk rank by sums of softmax weights"},
                   {"oracle-pages:page-size=4+coarsen:owner=kv_head,ties=last+every=3",
                    "a group ranks by sums of softmax weights"},
                   {"indexer", "adds up the softmax weights of its heads"}});
}

TEST_CASE(
    "a vector added to all keys moves no list, except where keys are looked at by themselves") {
  SequenceOptions options{.d_head = 16, .has_ties = false};
  const Sequence sequence = random_sequence(options);
  Sequence shifted = random_sequence(options);
  for (Tensor<float>& k : shifted.k) {
    for (Index h = 0; h < k.dim(0); ++h) {
      for (Index t = 0; t < k.dim(1); ++t) {
        for (Index c = 0; c < k.dim(2); ++c) k(h, t, c) += static_cast<float>(c % 5) * 0.5f - 1.0f;
      }
    }
  }
  check_invariant(
      sequence, shifted,
      {{"keydiff", "compares keys with their mean direction"},
       {"knorm", "ranks keys by their length"},
       {"expected-attention", "expects weights that are quadratic in a key"},
       {"quoka", "scores unit keys"},
       {"quoka+coarsen:owner=layer,page=4,scores=bf16", "as quoka"},
       {"twilight", "estimates weights by keys rounded between their own extremes"},
       {"loki+coarsen:query=mean,scores=fp8", "rounds scores, which the vector moves"}});
}

TEST_CASE("in a context of 3000 tokens a budget of 100 is kept, by every list") {
  SequenceOptions options{.n_layers = 1, .n_kv = 1, .n_tokens = 3000, .chunk = 1000, .n_decode = 1};
  const Sequence sequence = random_sequence(options);
  constexpr Index kBudget = 100;
  Index n_said = 0;
  for (const Method& method : methods()) {
    INFO(method.spec);
    const Budget budget = budget_for(method, kBudget);
    SelectorRun run(make_selector(method.spec, sequence), sequence.shape, {budget});
    for (const auto& [phase, n_tok] : sequence.calls) {
      const Index begin = run.n_keys();
      const auto drafts = drafts_for(run, sequence, phase, n_tok);
      run.begin_call(phase, n_tok, drafts);
      const Selection& selection = ask(run, sequence, /*layer=*/0, {begin, begin + n_tok});
      if (budget.kind == Budget::Kind::tokens && !method.caps.budgets.empty() &&
          !method.caps.permanent &&
          check_paid(method, selection, phase, /*layer=*/0, {begin, begin + n_tok}, kBudget))
        ++n_said;
      if (method.caps.permanent && !method.caps.divides_budget && phase == Phase::prefill &&
          method.caps.owner != ListOwner::q_head && !method.caps.keeps_by_option)
        CHECK(run.alive(0).n_alive(0) <= kBudget);
    }
    CHECK(run.n_keys() == sequence.n_tokens());
  }
  CHECK(n_said > 100);
}

}  // namespace kvscope::test::conformance_test
