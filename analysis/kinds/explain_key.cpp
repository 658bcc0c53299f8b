#include "analysis/kinds/explain_key.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <limits>
#include <numeric>

#include "analysis/base/analysis.hpp"
#include "analysis/base/measure_layers.hpp"
#include "core/attention/exact_rows.hpp"
#include "core/attention/quoka_scores.hpp"
#include "core/attention/topk.hpp"
#include "core/attention/visible.hpp"
#include "core/base/error.hpp"
#include "core/base/nan.hpp"
#include "core/base/number_text.hpp"
#include "core/selectors/candidates.hpp"
#include "core/sim/draft_rows.hpp"
#include "core/sim/replay_run.hpp"
#include "core/trace/part.hpp"

namespace kvscope {

namespace {

constexpr double kNoCandidate = -std::numeric_limits<double>::infinity();
constexpr Index kBudgetsAtOnce = 16;

Phase asked_phase(const TraceInfo& info, const KeyQuestion& question) {
  const bool is_step = question.as_step || question.query >= info.n_prompt;
  return is_step ? Phase::decode : Phase::prefill;
}

/// The positions that are asked about together with the query.
TokenRange asked_call(const TraceInfo& info, const KeyQuestion& question) {
  if (asked_phase(info, question) == Phase::decode) return {question.query, question.query + 1};
  const Index begin = question.query / question.chunk * question.chunk;
  return {begin, std::min(begin + question.chunk, info.n_prompt)};
}

void check_question(const KeySources& sources, const KeyQuestion& question) {
  const TraceInfo& info = sources.trace.info();
  require_full_qkv(sources.trace, "explain");
  info.layer_slot(question.layer);
  info.q_slot(question.q_head);
  if (question.query < info.rows.begin || question.query >= info.rows.end) {
    throw ConfigError(
        "{}: the query at position {} was not recorded, expected {} to {}; choose one of those",
        sources.trace.where(), question.query, info.rows.begin, info.rows.end - 1);
  }
  if (question.chunk < 1)
    throw ConfigError("explain: expected a chunk of at least 1, found {}", question.chunk);
  if (question.selector.empty()) throw ConfigError("explain: no method is named");
  const SelectorCaps& caps = question.selector.caps();
  if (question.budget) check_budget_kind(question.selector.text(), caps, *question.budget);
  if (!question.budget && !caps.budgets.empty())
    throw ConfigError("explain: {} needs a budget, as tokens=256", question.selector.text());
  if (caps.needs_draft && sources.draft == nullptr) {
    throw ConfigError("explain: {} needs the draft model's trace over the same tokens",
                      question.selector.text());
  }
  if (caps.needs_draft) require_same_tokens(sources.trace, *sources.draft);
}

/// The layers that a method must go through to answer in the last one.
std::vector<ReplayLayer> layers_for(const KeySources& sources, const KeyQuestion& question,
                                    Index n_keys) {
  std::vector<ReplayLayer> data;
  for (const Index layer : sources.trace.info().layers) {
    const bool is_needed =
        layer == question.layer || (question.selector.caps().cross_layer && layer < question.layer);
    if (is_needed) data.push_back(read_layer(sources.trace, layer, n_keys));
  }
  return data;
}

/// The sources as far as their layers are shaped as the asked one.
struct LikeLayers {
  LikeLayers(const KeySources& all, const KeyQuestion& question)
      : trace(layers_like(all.trace, question.layer)), sources{trace, all.draft} {
    require_like_layers(all.trace, {question.layer}, question.selector);
    if (all.calibration != nullptr)
      sources.calibration = &text.emplace(layers_like(*all.calibration, question.layer));
  }
  TracePart trace;
  std::optional<TracePart> text;
  KeySources sources;
};

using TakeSelection = std::function<void(std::size_t budget, const Selection&)>;

/// The selections of a method for several budgets, in the call of the question.
void ask_method(const KeySources& sources, const KeyQuestion& question,
                const std::vector<std::optional<Budget>>& budgets,
                const std::vector<ReplayLayer>& data, ThreadPool& pool, const std::stop_token& stop,
                SelectionTrace* looked_at, const TakeSelection& take) {
  const TraceInfo& info = sources.trace.info();
  const TokenRange call = asked_call(info, question);
  const Phase phase = asked_phase(info, question);
  const Index n_prompt = question.as_step ? std::min(question.query, info.n_prompt) : info.n_prompt;
  std::vector<ReplayPair> pairs;
  for (const auto& budget : budgets) pairs.push_back({question.selector, budget});
  std::vector<Tensor<float>> draft_rows;
  if (question.selector.caps().needs_draft && phase != Phase::prefill) {
    const TokenRange proposed{call.begin - 1, call.end - 1};
    draft_rows = std::move(draft_attention_rows(*sources.draft, {&proposed, 1}, pool).front());
  }
  for (ReplayRun& run : make_runs(pairs, shape_of(info), question.dense_layers)) {
    check_stop(stop, "explain");
    run.calibrate(sources.calibration, data, pool);
    run.advance(sources.trace, data, call.begin, {.chunk = question.chunk}, n_prompt);
    check_stop(stop, "explain");
    run.begin_call(phase, call, draft_rows);
    for (const ReplayLayer& layer : data) {
      if (layer.window) continue;
      const Tensor<float> q = read_queries(sources.trace, layer.layer, call);
      const bool is_ours = layer.layer == question.layer;
      run.ask(layer, q.view(), call, &pool, is_ours ? looked_at : nullptr);
      if (!is_ours) continue;
      for (std::size_t m = 0; m < run.members().size(); ++m)
        take(run.members()[m], run.selections()[m]);
    }
  }
}

/// Exact logits and weights of the query.
void add_dense_row(const TraceSource& trace, const KeyQuestion& question, QueryLook& look) {
  const TraceInfo& info = trace.info();
  const auto window = info.window_of(question.layer);
  look.visible = visible_keys(question.query, window);
  const Tensor<float> k =
      trace.read_k(question.layer, question.q_head / info.group(), {0, look.visible.end});
  const Tensor<float> q =
      trace.read_q(question.layer, question.q_head, {question.query, question.query + 1});
  const KeyTable keys(k.view());
  ScoreRows scratch;
  const Index positions[] = {question.query};
  visit_score_rows({q.view(), question.query, keys, info.score_rule(), window}, positions, scratch,
                   [&](Index, std::span<double> scores, TokenRange) {
                     look.logits.assign(scores.begin(), scores.end());
                   });
  look.weights = look.logits;
  softmax_in_place(look.weights, info.sink_logit(question.layer, question.q_head));
}

std::string why_dense_of(const TraceInfo& info, const KeyQuestion& question) {
  const SelectorCaps& caps = question.selector.caps();
  if (const auto window = info.window_of(question.layer))
    return fmt::format(
        "layer {} looks through a sliding window of {} keys, and methods leave it as it is",
        question.layer, *window);
  const Phase phase = asked_phase(info, question);
  if (!caps.is_defined(phase))
    return fmt::format("{} is not defined for {} and leaves attention dense there",
                       question.selector.text(), enum_name(phase));
  const Index n_dense = question.dense_layers.value_or(caps.dense_layers);
  if (question.layer < n_dense)
    return fmt::format("{} leaves the first {} layers dense", question.selector.text(), n_dense);
  return "";
}

/// QuoKA's representative queries, and which of them gave each key its score.
void add_representatives(const TraceSource& trace, const KeyQuestion& question,
                         const ReplayLayer& layer, const SelectionTrace& seen, QueryLook& look) {
  QuokaRules rules;
  const SelectorOptions assigned = question.selector.stages().back().assignments();
  visit_fields(rules, [&](const Field& field, auto& value) {
    const auto it = assigned.find(field.name);
    if (it != assigned.end()) parse_field(field, it->second, value);
  });
  const Index group = trace.info().group();
  const Index kv_head = question.q_head / group;
  const Tensor<float> q = read_queries(trace, question.layer, look.call);
  std::vector<TensorView<const float>> heads;
  std::vector<std::vector<Index>> picks;
  for (Index head = kv_head * group; head < (kv_head + 1) * group; ++head) {
    heads.push_back(q.view().sub(head));
    picks.push_back(seen.picks[static_cast<std::size_t>(head)]);
  }
  const bool is_unit = rules.similarity == QuokaSimilarity::cosine;
  const Tensor<double> means = quoka_slot_means(heads, picks, is_unit, rules.eps);
  for (std::size_t slot = 0; slot < picks.front().size(); ++slot) {
    RepresentativeQuery out;
    for (std::size_t h = 0; h < heads.size(); ++h) {
      const Index row = picks[h][slot];
      const auto& cosines = seen.cosines[static_cast<std::size_t>(kv_head * group) + h];
      out.queries.push_back(look.call.begin + row);
      out.cosines.push_back(cosines.empty() ? kNan : cosines[static_cast<std::size_t>(row)]);
    }
    look.representatives.push_back(std::move(out));
  }
  const auto keys = layer.k.view().sub(kv_head);
  look.best_queries.assign(look.scores.size(), -1);
  for (std::size_t block = 0; block < look.scores.size(); ++block) {
    const Index pos = look.first_block + static_cast<Index>(block);
    const auto key = keys.row(pos);
    double best = kNoCandidate;
    for (std::size_t slot = 0; slot < look.representatives.size(); ++slot) {
      const auto& queries = look.representatives[slot].queries;
      const bool sees = !rules.mask_scores || pos <= *std::ranges::min_element(queries);
      if (pos >= look.call.begin && !sees) continue;
      double dot = 0.0;
      for (std::size_t c = 0; c < key.size(); ++c)
        dot += means(static_cast<Index>(slot), static_cast<Index>(c)) * static_cast<double>(key[c]);
      if (dot <= best) continue;
      best = dot;
      look.best_queries[block] = static_cast<Index>(slot);
    }
  }
}

void add_selection(const KeySources& sources, const KeyQuestion& question,
                   const Selection& selection, SelectionTrace& seen, const ReplayLayer& layer,
                   QueryLook& look) {
  const TraceInfo& info = sources.trace.info();
  const Index group = info.group();
  look.is_dense = selection.is_dense;
  if (selection.is_dense) {
    look.why_dense = why_dense_of(info, question);
    if (look.why_dense.empty())
      look.why_dense =
          fmt::format("{} answered \"everything visible\" in this call", question.selector.text());
    return;
  }
  const Index owner = owner_of(selection.owner, question.q_head, group);
  const Index n_shared = selection.owner == ListOwner::q_head    ? 1
                         : selection.owner == ListOwner::kv_head ? group
                                                                 : info.n_q;
  look.owner_heads = {owner * n_shared, (owner + 1) * n_shared};
  const ListView list = selection.list(owner, question.query - look.call.begin);
  for (std::size_t i = 0; i < list.keys.size(); ++i) {
    const KeyPos pos = list.keys[i];
    if (pos < look.visible.begin || pos >= look.visible.end) continue;
    look.kept.push_back(pos);
    look.by_rule.push_back(list.is_forced[i] != 0);
    look.kept_mass += look.weight(pos);
  }
  if (!info.layer_sink_logits(question.layer).empty())  // which takes its part of the weights
    look.kept_mass /= std::accumulate(look.weights.begin(), look.weights.end(), 0.0);
  const bool has_row = owner < static_cast<Index>(seen.scores.size()) &&
                       !seen.scores[static_cast<std::size_t>(owner)].empty();
  if (!has_row) {
    look.why_no_score = fmt::format("{} gives no score per key or page that could be shown here",
                                    question.selector.text());
    return;
  }
  look.page_size = std::max<Index>(1, question.selector.caps().page_size);
  look.first_block = seen.scored.begin;
  look.scores = std::move(seen.scores[static_cast<std::size_t>(owner)]);
  look.earned.assign(look.scores.size(), false);
  look.cut = kNan;
  for (const KeyPos pos : list.scored()) {
    const auto block = look.block_of(pos);
    if (!block || look.earned[*block]) continue;
    look.earned[*block] = true;
    ++look.n_earned;
    look.cut = std::isnan(look.cut) ? look.scores[*block] : std::min(look.cut, look.scores[*block]);
  }
  // Not where a wrapper asked by the mean queries of groups, which are no query of the text.
  const bool has_own_picks = static_cast<Index>(seen.picks.size()) == info.n_q;
  if (has_own_picks && question.selector.stages().back().method->name == "quoka")
    add_representatives(sources.trace, question, layer, seen, look);
}

bool list_holds(const Selection& selection, const KeyQuestion& question, TokenRange call,
                Index group, Index key) {
  if (selection.is_dense) return true;
  const ListView list = selection.list(owner_of(selection.owner, question.q_head, group),
                                       question.query - call.begin);
  return std::ranges::binary_search(list.keys, static_cast<KeyPos>(key));
}

}  // namespace

std::string KeyQuestion::cache_key() const {
  return fmt::format("explain-key/{}/{}/{}/{}/{}/{}/{}/{}", layer, q_head, query, selector,
                     budget ? budget->to_string() : "", chunk,
                     dense_layers ? fmt::format("{}", *dense_layers) : "", as_step);
}

double QueryLook::weight(Index key) const {
  return key >= visible.begin && key < visible.end
             ? weights[static_cast<std::size_t>(key - visible.begin)]
             : 0.0;
}

std::optional<std::size_t> QueryLook::block_of(Index key) const {
  const Index block = key / page_size - first_block;
  const bool has_score = key >= 0 && block >= 0 && block < static_cast<Index>(scores.size()) &&
                         scores[static_cast<std::size_t>(block)] > kNoCandidate;
  return has_score ? std::optional(static_cast<std::size_t>(block)) : std::nullopt;
}

std::vector<Index> QueryLook::ranking() const {
  return top_k(scores, n_of(scores));
}

std::vector<Index> QueryLook::heaviest(std::size_t n) const {
  std::vector<Index> order = top_k(weights, static_cast<Index>(n));
  for (Index& key : order) key += visible.begin;
  return order;
}

std::size_t QueryLook::bytes() const {
  return sizeof *this + (logits.size() + weights.size() + scores.size()) * sizeof(double) +
         kept.size() * sizeof(KeyPos) + best_queries.size() * sizeof(Index);
}

QueryLook look_at_query(const KeySources& all, const KeyQuestion& question, ThreadPool& pool,
                        const std::stop_token& stop) {
  check_question(all, question);
  const LikeLayers like(all, question);
  const KeySources& sources = like.sources;
  const TraceInfo& info = sources.trace.info();
  QueryLook look;
  look.question = question;
  look.call = asked_call(info, question);
  look.cut = kNan;
  add_dense_row(sources.trace, question, look);
  check_stop(stop, "explain");
  look.why_dense = why_dense_of(info, question);
  if (!look.why_dense.empty()) {
    look.is_dense = true;
    return look;
  }
  const std::vector<ReplayLayer> data = layers_for(sources, question, look.call.end);
  SelectionTrace seen;
  ask_method(sources, question, {question.budget}, data, pool, stop, &seen,
             [&](std::size_t, const Selection& selection) {
               add_selection(sources, question, selection, seen, data.back(), look);
             });
  return look;
}

KeyOutcome outcome_of(const QueryLook& look, Index key) {
  KeyOutcome outcome{.key = key};
  if (key < look.visible.begin || key >= look.visible.end) return outcome;
  const auto at = static_cast<std::size_t>(key - look.visible.begin);
  outcome.weight = look.weights[at];
  outcome.logit = look.logits[at];
  outcome.weight_rank =
      1 + std::ranges::count_if(look.weights, [&](double w) { return w > outcome.weight; });
  if (look.is_dense) {
    outcome.end = KeyEnd::dense;
    return outcome;
  }
  const auto found = std::ranges::lower_bound(look.kept, static_cast<KeyPos>(key));
  const bool is_kept = found != look.kept.end() && *found == static_cast<KeyPos>(key);
  const bool by_rule = is_kept && look.by_rule[static_cast<std::size_t>(found - look.kept.begin())];
  outcome.end = by_rule ? KeyEnd::by_rule : is_kept ? KeyEnd::kept : KeyEnd::dropped;
  const auto block = look.block_of(key);
  if (!block) return outcome;
  outcome.is_ranked = true;
  outcome.score = look.scores[*block];
  outcome.n_ranked =
      std::ranges::count_if(look.scores, [](double score) { return score > kNoCandidate; });
  outcome.rank = 1 + rank_of(look.scores, static_cast<Index>(*block));
  const Index page = look.first_block + static_cast<Index>(*block);
  outcome.page = {std::max(page * look.page_size, look.visible.begin),
                  std::min((page + 1) * look.page_size, look.visible.end)};
  outcome.page_logit = outcome.logit;
  for (Index pos = outcome.page.begin; pos < outcome.page.end; ++pos) {
    outcome.page_logit = std::max(outcome.page_logit,
                                  look.logits[static_cast<std::size_t>(pos - look.visible.begin)]);
  }
  if (*block < look.best_queries.size() && look.best_queries[*block] >= 0)
    outcome.best_query = static_cast<std::size_t>(look.best_queries[*block]);
  return outcome;
}

std::optional<Index> heaviest_dropped(const QueryLook& look) {
  if (look.is_dense) return std::nullopt;
  std::optional<Index> heaviest;
  for (Index key = look.visible.begin; key < look.visible.end; ++key) {
    if (std::ranges::binary_search(look.kept, static_cast<KeyPos>(key))) continue;
    if (!heaviest || look.weight(key) > look.weight(*heaviest)) heaviest = key;
  }
  return heaviest;
}

KeepingBudget budget_that_keeps(const KeySources& all, const KeyQuestion& question, Index key,
                                ThreadPool& pool, const std::stop_token& stop) {
  check_question(all, question);
  const LikeLayers like(all, question);
  const KeySources& sources = like.sources;
  const TraceInfo& info = sources.trace.info();
  const SelectorCaps& caps = question.selector.caps();
  KeepingBudget out{.takes_tokens = std::ranges::find(caps.budgets, Budget::Kind::tokens) !=
                                    caps.budgets.end()};
  const bool is_visible = key >= 0 && key <= question.query;
  if (!out.takes_tokens || !is_visible || !why_dense_of(info, question).empty()) return out;
  const TokenRange call = asked_call(info, question);
  const std::vector<ReplayLayer> data = layers_for(sources, question, call.end);
  out.is_exact = can_share_scoring(caps);
  // `below` loses the key, `above` keeps it, as far as budgets were tried.
  const auto first_that_keeps = [&](const std::vector<Index>& tried, Index& below) {
    std::vector<std::optional<Budget>> budgets;
    for (const Index tokens : tried)
      budgets.push_back(Budget{Budget::Kind::tokens, static_cast<double>(tokens)});
    std::vector<bool> keeps(tried.size());
    ask_method(sources, question, budgets, data, pool, stop, nullptr,
               [&](std::size_t i, const Selection& selection) {
                 keeps[i] = list_holds(selection, question, call, info.group(), key);
               });
    for (std::size_t i = 0; i < tried.size(); ++i) {
      if (keeps[i]) return tried[i];
      below = tried[i];
    }
    return Index{0};
  };
  std::vector<Index> ladder;
  for (Index tokens = 1; tokens < call.end; tokens *= 2) ladder.push_back(tokens);
  ladder.push_back(call.end);
  Index below = 0;
  Index above = first_that_keeps(ladder, below);
  if (above == 0) return out;
  while (out.is_exact && above - below > 1) {
    const Index step = std::max<Index>(1, (above - below) / kBudgetsAtOnce);
    std::vector<Index> between;
    for (Index tokens = below + step; tokens < above; tokens += step) between.push_back(tokens);
    const Index found = first_that_keeps(between, below);
    if (found > 0) above = found;
  }
  out.tokens = above;
  return out;
}

std::string_view end_words(KeyEnd end) {
  static constexpr std::string_view kWords[] = {"not seen", "kept: dense", "kept by rule", "kept",
                                                "dropped"};
  return kWords[static_cast<std::size_t>(end)];
}

std::string outcome_sentence(const QueryLook& look, const KeyOutcome& outcome) {
  const KeyQuestion& question = look.question;
  const bool has_pages = look.page_size > 1;
  const auto ranked = [&] {
    if (!outcome.is_ranked) return std::string();
    const std::string who =
        has_pages ? fmt::format("its page {} to {}", outcome.page.begin, outcome.page.end - 1)
                  : std::string("it");
    return fmt::format(
        " By score {} is number {} of {} ({}); the last of the {} {} that were kept "
        "for their score has {}.",
        who, outcome.rank, outcome.n_ranked, number_text(outcome.score), look.n_earned,
        has_pages ? "pages" : "keys", number_text(look.cut));
  };
  switch (outcome.end) {
    case KeyEnd::unseen:
      if (outcome.key > question.query)
        return fmt::format("The query at {} does not see position {}: the key comes after it.",
                           question.query, outcome.key);
      return fmt::format(
          "The query at {} does not see position {}: it lies before the layer's window.",
          question.query, outcome.key);
    case KeyEnd::dense:
      return fmt::format("Kept: {}.", look.why_dense);
    case KeyEnd::by_rule:
      if (outcome.key >= look.call.begin && look.call.size() > 1)
        return "Kept by rule: it is in the query's own chunk.";
      return outcome.key == question.query
                 ? "Kept by rule: it is the query's own position."
                 : "Kept by rule (first tokens, recent ones, or the last page), whatever its "
                   "score.";
    case KeyEnd::kept:
      return outcome.is_ranked ? "Kept." + ranked() : fmt::format("Kept; {}.", look.why_no_score);
    case KeyEnd::dropped:
      break;
  }
  if (outcome.is_ranked) return "Dropped." + ranked();
  if (question.selector.caps().permanent)
    return fmt::format("Dropped: {} discards keys for good, in this call or an earlier one.",
                       question.selector.text());
  if (look.has_scores()) return "Dropped: it was no candidate, so that no score could keep it.";
  return fmt::format("Dropped; {}.", look.why_no_score);
}

std::string score_sentence(const QueryLook& look, const KeyOutcome& outcome,
                           const std::function<std::string(Index)>& name_of) {
  if (look.page_size > 1 && outcome.is_ranked) {
    return fmt::format(
        "Its page holds keys {} to {}; their largest scaled q\u00b7k is {}, the key's own {}.",
        outcome.page.begin, outcome.page.end - 1, number_text(outcome.page_logit),
        number_text(outcome.logit));
  }
  if (!outcome.best_query) return "";
  const RepresentativeQuery& slot = look.representatives[*outcome.best_query];
  const auto own = static_cast<std::size_t>(look.question.q_head - look.owner_heads.begin);
  std::string words =
      fmt::format("Representative query {} of {} gave it its score: ", *outcome.best_query + 1,
                  look.representatives.size());
  for (std::size_t h = 0; h < slot.queries.size(); ++h) {
    words += fmt::format("{}{} of head {}", h == 0 ? "" : ", ", name_of(slot.queries[h]),
                         look.owner_heads.begin + static_cast<Index>(h));
  }
  if (own < slot.cosines.size() && !std::isnan(slot.cosines[own]))
    words += fmt::format("; S_q of this head's is {}", number_text(-slot.cosines[own], 3));
  return words + ".";
}

std::string budget_sentence(const KeyOutcome& outcome, const KeepingBudget& budget) {
  if (outcome.end == KeyEnd::unseen || outcome.end == KeyEnd::dense ||
      outcome.end == KeyEnd::by_rule)
    return "";
  if (!budget.takes_tokens) return "The method takes no number of tokens as its budget.";
  if (!budget.tokens) return "No budget up to the whole context keeps it.";
  const std::string_view about = budget.is_exact ? "" : " (of the powers of two)";
  return outcome.end == KeyEnd::dropped
             ? fmt::format("A budget of {} tokens would have kept it{}.", *budget.tokens, about)
             : fmt::format("A budget of {} tokens is the smallest that keeps it{}.", *budget.tokens,
                           about);
}

}  // namespace kvscope
