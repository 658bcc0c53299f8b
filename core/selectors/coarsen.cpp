#include "core/selectors/coarsen.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <iterator>
#include <limits>
#include <nlohmann/json.hpp>

#include "core/attention/topk.hpp"
#include "core/base/error.hpp"
#include "core/selectors/candidates.hpp"
#include "core/selectors/learned.hpp"
#include "core/selectors/list_owner.hpp"

namespace kvscope {

namespace {

constexpr double kNoCandidate = -std::numeric_limits<double>::infinity();

ListOwner coarser(ListOwner a, ListOwner b) {
  return static_cast<int>(a) > static_cast<int>(b) ? a : b;
}

/// Merged ascending lists without repeats.
void unite(std::vector<KeyPos>& all, std::span<const KeyPos> more) {
  if (all.empty()) {
    all.assign(more.begin(), more.end());
    return;
  }
  std::vector<KeyPos> both;
  std::set_union(all.begin(), all.end(), more.begin(), more.end(), std::back_inserter(both));
  all = std::move(both);
}

/// The n best blocks, best first; among equal ones the first or the last position comes first.
std::vector<Index> best_blocks(std::vector<double> scores, Index n, TieOrder ties) {
  if (ties == TieOrder::first) return top_k(scores, n);
  std::reverse(scores.begin(), scores.end());
  std::vector<Index> kept = top_k(scores, n);
  for (Index& block : kept) block = static_cast<Index>(scores.size()) - 1 - block;
  return kept;
}

class Coarsen final : public Selector {
 public:
  Coarsen(const CoarsenOptions& options, std::unique_ptr<Selector> method)
      : options_(options), method_(std::move(method)), own_(method_->caps()) {
    check();
  }

  std::string_view name() const override { return method_->name(); }
  SelectorCaps caps() const override {
    SelectorCaps caps = own_;
    caps.owner = owner_for(own_.owner);
    caps.page_size = page();
    if (page() > own_.page_size) {
      std::erase(caps.budgets, Budget::Kind::pages);  // of which size would not be said
    }
    return caps;
  }
  std::string why_no_scores() const override {
    return chooses_again() ? "" : method_->why_no_scores();
  }

  void calibrate(const TraceSource& text, std::span<const Index> layers,
                 ThreadPool& pool) override {
    method_->calibrate(text, layers, pool);
  }
  Learned learned() const override { return method_->learned(); }
  std::vector<ArtifactOrigin> artifacts() const override { return method_->artifacts(); }
  void reset(const AttentionShape& shape) override {
    AttentionShape seen = shape;
    if (is_mean()) seen.n_q = shape.n_kv;
    method_->reset(seen);
    fine_.clear();
  }
  void observe(const SelectCall& call, const ObservedProbs& probs) override {
    method_->observe(call, probs);
  }
  void evict(const SelectCall& call, AliveMask& alive) override { method_->evict(call, alive); }

  std::vector<Selection> do_select_budgets(SelectCall call,
                                           std::span<const Budget> budgets) override {
    if (is_mean()) make_mean_queries(call);
    SelectCall question = question_for(call);
    SelectionTrace trace;
    if (chooses_again()) question.trace = &trace;
    std::vector<Selection> selections = method_->select_budgets(question, budgets);
    fine_.clear();
    if (is_mean()) {
      for (Selection& selection : selections) speak_for_groups(selection, call);
    }
    if (!chooses_again()) return selections;
    std::optional<Ranking> ranking;
    for (std::size_t i = 0; i < selections.size(); ++i) {
      Selection& selection = selections[i];
      if (selection.is_dense) {
        selection.owner = owner_for(selection.owner);
        continue;
      }
      check_selection(selection, call);
      if (!ranking) ranking = rank(trace, selection.owner, call);
      // Also takes out of the ranking what does not compete.
      Selection coarse = choose_again(*ranking, selection, call);
      fine_.emplace_back(budgets[i], std::move(selection));
      selection = std::move(coarse);
    }
    if (call.trace != nullptr && ranking) {
      call.trace->scored = {ranking->first_page, ranking->first_page + ranking->n_pages};
      call.trace->scores = ranking->of_pages;
    }
    return selections;
  }

  /// The method's own work for the queries that it saw; beside it n_q n_tok d for mean queries, one
  /// addition per score that joins others of its owner, one comparison per score that joins a
  /// larger page.
  SelectCost cost(const SelectCall& call, const Selection& selection) const override {
    if (selection.is_dense) return {};
    const auto same = std::find_if(fine_.begin(), fine_.end(), [&](const auto& one) {
      return one.first.kind == call.budget.kind && one.first.value == call.budget.value;
    });
    const Selection& fine = same != fine_.end() ? same->second : selection;
    SelectCost cost = method_->cost(question_for(call), fine);
    if (is_mean())
      cost.score_flops += static_cast<double>(call.q.dim(0) * call.n_tok * call.q.dim(2));
    if (chooses_again()) cost.score_flops += joining_flops_;
    return cost;
  }

 private:
  /// What is ranked: pages of the list's size, by owner.
  struct Ranking {
    ListOwner owner;  // of the coarse lists
    Index n_owners = 0;
    Index page = 1;
    Index first_page = 0;
    Index n_pages = 0;
    TokenRange tokens;                          // that got scores
    Index heads_per_list = 1;                   // fine lists that become one
    std::vector<std::vector<double>> of_pages;  // [n_owners][n_pages]
  };

  bool is_mean() const { return options_.query == CoarseQuery::mean; }
  Index page() const { return std::max(options_.page, own_.page_size); }
  bool chooses_again() const {
    return owner_for(seen_owner()) != seen_owner() || page() > own_.page_size ||
           options_.scores != ScoreType::f64 || options_.ties != TieOrder::first;
  }
  /// Who owns the method's lists, as the model's heads are counted: one mean query asks for its
  /// group.
  ListOwner seen_owner() const {
    return is_mean() ? coarser(own_.owner, ListOwner::kv_head) : own_.owner;
  }
  ListOwner owner_for(ListOwner fine) const {
    if (is_mean()) fine = coarser(fine, ListOwner::kv_head);
    switch (options_.owner) {
      case CoarseOwner::own:
      case CoarseOwner::q_head:
        return fine;
      case CoarseOwner::kv_head:
        return coarser(fine, ListOwner::kv_head);
      case CoarseOwner::layer:
        break;
    }
    return ListOwner::layer;
  }

  void check() const {
    const auto refuse = [&](const std::string& why) {
      throw ConfigError("coarsen: {} {}", method_->name(), why);
    };
    const std::string owner_text(enum_name(options_.owner));
    const bool is_finer =
        (options_.owner == CoarseOwner::q_head && seen_owner() != ListOwner::q_head) ||
        (options_.owner == CoarseOwner::kv_head && seen_owner() == ListOwner::layer);
    if (is_finer) {
      refuse(fmt::format("has one list per {}{}, which owner={} cannot divide",
                         words_for(seen_owner()), is_mean() ? " for a mean query" : "",
                         owner_text));
    }
    if (options_.page > 1 && options_.page % own_.page_size != 0) {
      refuse(fmt::format("chooses in pages of {}: expected a page that is a multiple, found {}",
                         own_.page_size, options_.page));
    }
    if (is_mean() && (own_.needs_probs || own_.permanent)) {
      refuse("goes by attention weights that it has seen, which a mean query does not change");
    }
    if (is_mean() && own_.is_static)
      refuse("does not look at queries, which a mean query does not change");
    if (const std::string why = method_->why_no_scores(); chooses_again() && !why.empty())
      refuse(why);
  }

  void check_selection(const Selection& selection, const SelectCall& call) const {
    const auto refuse = [&](std::string_view what) {
      throw ConfigError("coarsen: {} answers with {} in {}, which cannot be made coarser",
                        method_->name(), what, enum_name(call.phase));
    };
    if (!selection.summaries.empty()) refuse("summaries beside its lists");
    if (!selection.log_weights().empty()) refuse("weighted keys");
    if (selection.n_row_blocks() != 1) refuse("a list for each query");
  }

  /// The mean over each group's heads, row by row, as the queries of one head per KV head.
  void make_mean_queries(const SelectCall& call) {
    const Index n_kv = call.k.dim(0);
    const Index group = call.q.dim(0) / n_kv;
    mean_q_ = Tensor<float>({n_kv, call.n_tok, call.q.dim(2)});
    std::vector<double> sum(static_cast<std::size_t>(call.q.dim(2)));
    for (Index kv_head = 0; kv_head < n_kv; ++kv_head) {
      for (Index row = 0; row < call.n_tok; ++row) {
        std::fill(sum.begin(), sum.end(), 0.0);
        for (Index head = kv_head * group; head < (kv_head + 1) * group; ++head) {
          const auto q = call.q.sub(head).row(row);
          for (std::size_t c = 0; c < sum.size(); ++c) sum[c] += static_cast<double>(q[c]);
        }
        const auto out = mean_q_.view().sub(kv_head).row(row);
        for (std::size_t c = 0; c < sum.size(); ++c)
          out[c] = static_cast<float>(sum[c] / static_cast<double>(group));
      }
    }
    mean_sinks_.clear();
    for (Index kv_head = 0; kv_head < n_kv && !call.sink_logits.empty(); ++kv_head) {
      float logit = 0.0f;
      for (Index h = 0; h < group; ++h)
        logit += call.sink_logits[static_cast<std::size_t>(kv_head * group + h)];
      mean_sinks_.push_back(logit / static_cast<float>(group));
    }
  }

  SelectCall question_for(const SelectCall& call) const {
    SelectCall question = call;
    if (!is_mean()) return question;
    question.q = mean_q_.view();
    question.sink_logits = mean_sinks_;
    return question;
  }

  /// A selection for mean queries, whose heads are the KV heads, in the model's terms.
  static void speak_for_groups(Selection& selection, const SelectCall& call) {
    selection.owner = coarser(selection.owner, ListOwner::kv_head);
    if (!selection.summaries.has_stated_share()) return;
    const Tensor<float> of_groups = std::move(selection.summaries.list_share);
    selection.summaries.list_share = Tensor<float>({call.q.dim(0), call.n_tok});
    for (Index head = 0; head < call.q.dim(0); ++head) {
      for (Index row = 0; row < call.n_tok; ++row)
        selection.summaries.list_share(head, row) =
            of_groups(head * call.k.dim(0) / call.q.dim(0), row);
    }
  }

  /// The method's scores, rounded, joined and rounded again.
  Ranking rank(SelectionTrace& trace, ListOwner fine, const SelectCall& call) {
    Ranking ranking;
    ranking.owner = owner_for(fine);
    ranking.n_owners = n_owners(ranking.owner, call.q.dim(0), call.k.dim(0));
    ranking.heads_per_list = n_owners(fine, call.q.dim(0), call.k.dim(0)) / ranking.n_owners;
    ranking.page = page();
    const Index own = own_.page_size;
    const TokenRange seen = call_range(call);
    ranking.tokens = {std::max(trace.scored.begin * own, seen.begin),
                      std::min(trace.scored.end * own, seen.end)};
    ranking.first_page = ranking.tokens.begin / ranking.page;
    ranking.n_pages = ranking.tokens.size() > 0
                          ? (ranking.tokens.end - 1) / ranking.page + 1 - ranking.first_page
                          : 0;
    const auto n_blocks = static_cast<std::size_t>(std::max<Index>(trace.scored.size(), 0));
    joining_flops_ = 0.0;
    for (Index owner = 0; owner < ranking.n_owners; ++owner) {
      std::vector<double> sums(n_blocks, kNoCandidate);
      for (Index i = 0; i < ranking.heads_per_list; ++i) {
        std::vector<double>& scores =
            trace.scores[static_cast<std::size_t>(owner * ranking.heads_per_list + i)];
        round_scores(scores, options_.scores);
        for (std::size_t u = 0; u < n_blocks; ++u) {
          if (scores[u] == kNoCandidate) continue;
          joining_flops_ += sums[u] == kNoCandidate ? 0.0 : 1.0;
          sums[u] = sums[u] == kNoCandidate ? scores[u] : sums[u] + scores[u];
        }
      }
      std::vector<double> pages(static_cast<std::size_t>(std::max<Index>(ranking.n_pages, 0)),
                                kNoCandidate);
      for (std::size_t u = 0; u < n_blocks; ++u) {
        const Index page =
            (trace.scored.begin + static_cast<Index>(u)) * own / ranking.page - ranking.first_page;
        double& best = pages[static_cast<std::size_t>(page)];
        if (ranking.page > own) joining_flops_ += sums[u] == kNoCandidate ? 0.0 : 1.0;
        best = std::max(best, sums[u]);
      }
      round_scores(pages, options_.scores);
      ranking.of_pages.push_back(std::move(pages));
    }
    return ranking;
  }

  Selection choose_again(Ranking& ranking, const Selection& fine, const SelectCall& call) const {
    Selection coarse(ranking.owner, call.n_tok, call.n_tok);
    const Index kv_heads_per_list = ranking.owner == ListOwner::layer ? call.k.dim(0) : 1;
    const Index lists_per_kv_head = std::max<Index>(1, ranking.n_owners / call.k.dim(0));
    for (Index owner = 0; owner < ranking.n_owners; ++owner) {
      KeyList list;
      bool is_whole = true;   // the method left nothing out
      Index most_blocks = 0;  // of its own, earned by score
      Index most_keys = 0;
      for (Index i = 0; i < ranking.heads_per_list; ++i) {
        const ListView one = fine.at(owner * ranking.heads_per_list + i);
        unite(list.forced, one.forced());
        const std::vector<KeyPos> scored = one.scored();
        most_blocks = std::max(most_blocks, count_blocks(scored));
        most_keys = std::max(most_keys, static_cast<Index>(scored.size()));
        const Index kv_head = (owner * ranking.heads_per_list + i) * call.k.dim(0) / fine.n_lists();
        is_whole = is_whole && one.size() == count_candidates(call, kv_head, call_range(call));
      }
      const Index first_kv_head = owner / lists_per_kv_head;
      const auto keys_of = [&](Index page) {
        const Index begin = (ranking.first_page + page) * ranking.page;
        const TokenRange range{std::max(begin, ranking.tokens.begin),
                               std::min(begin + ranking.page, ranking.tokens.end)};
        std::vector<KeyPos> keys;
        for (Index h = first_kv_head; h < first_kv_head + kv_heads_per_list; ++h) {
          unite(keys, candidates(call, h, range));
          if (all_alive(call, h)) break;
        }
        std::erase_if(keys,
                      [&](KeyPos pos) { return std::ranges::binary_search(list.forced, pos); });
        return keys;
      };
      std::vector<double>& scores = ranking.of_pages[static_cast<std::size_t>(owner)];
      bool loses_keys = false;
      for (Index h = first_kv_head; h < first_kv_head + kv_heads_per_list; ++h)
        loses_keys |= !all_alive(call, h);
      const auto has_forced = [&](Index page) {
        const auto next = std::ranges::lower_bound(
            list.forced, static_cast<KeyPos>((ranking.first_page + page) * ranking.page));
        return next != list.forced.end() && *next < (ranking.first_page + page + 1) * ranking.page;
      };
      for (Index page = 0; page < ranking.n_pages; ++page) {
        if (!loses_keys && !has_forced(page)) continue;
        // Forced or lost.
        if (keys_of(page).empty()) scores[static_cast<std::size_t>(page)] = kNoCandidate;
      }
      // Own blocks are as many as the method earned; of larger pages those best ones whose keys
      // fit, at least one.
      const bool is_own = ranking.page == own_.page_size;
      const Index most_pages = is_own ? most_blocks : most_keys;
      Index n_keys = 0;
      for (const Index page :
           best_blocks(scores, is_whole ? ranking.n_pages : most_pages, options_.ties)) {
        const std::vector<KeyPos> keys = keys_of(page);
        n_keys += static_cast<Index>(keys.size());
        if (!is_own && !is_whole && n_keys > most_keys && !list.scored.empty()) break;
        list.scored.insert(list.scored.end(), keys.begin(), keys.end());
      }
      std::sort(list.scored.begin(), list.scored.end());
      coarse.add(list);
    }
    return without_dead_keys(std::move(coarse), call);
  }

  /// How many of the method's own pages (or keys) a list holds.
  Index count_blocks(const std::vector<KeyPos>& keys) const {
    if (own_.page_size == 1) return static_cast<Index>(keys.size());
    Index n = 0;
    Index last = -1;
    for (const KeyPos pos : keys) {
      n += pos / own_.page_size != last;
      last = pos / own_.page_size;
    }
    return n;
  }

  CoarsenOptions options_;
  std::unique_ptr<Selector> method_;
  SelectorCaps own_;      // the method's
  Tensor<float> mean_q_;  // [n_kv, n_tok, d_head] of the last call
  std::vector<float> mean_sinks_;
  std::vector<std::pair<Budget, Selection>>
      fine_;                    // the method's selections in the last call, for its cost
  double joining_flops_ = 0.0;  // of the last call
};

}  // namespace

std::unique_ptr<Selector> make_coarsen(const CoarsenOptions& options,
                                       std::unique_ptr<Selector> method) {
  return std::make_unique<Coarsen>(options, std::move(method));
}

}  // namespace kvscope
