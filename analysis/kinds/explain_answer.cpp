#include "analysis/kinds/explain_answer.hpp"

#include <algorithm>
#include <cmath>
#include <limits>
#include <map>
#include <utility>

#include "analysis/base/analysis.hpp"
#include "analysis/base/measure_layers.hpp"
#include "core/attention/exact_rows.hpp"
#include "core/base/error.hpp"
#include "core/base/nan.hpp"
#include "core/selectors/candidates.hpp"

namespace kvscope {

namespace {

/// Dense softmax weights of a query head's last query of the call over all keys up to its own,
/// [pos_begin + n_tok], in f64; an attention sink takes its part.
std::vector<double> last_row_weights(const SelectCall& call, Index q_head) {
  const Index group = call.q.dim(0) / call.k.dim(0);
  const Index position = call.pos_begin + call.n_tok - 1;
  const KeyTable keys(call.k.sub(q_head / group));
  std::vector<double> weights;
  ScoreRows scratch;
  const Index positions[] = {position};
  visit_score_rows(
      {call.q.sub(q_head), call.pos_begin, keys, call.score_rule(), /*window=*/std::nullopt},
      positions, scratch, [&](Index, std::span<double> scores, TokenRange) {
        weights.assign(scores.begin(), scores.end());
      });
  softmax_in_place(weights, sink_logit_of(call, q_head));
  return weights;
}

/// Natural logarithms of the probabilities of the last row of logits.
std::vector<double> log_probs(const Tensor<float>& logits) {
  std::vector<double> out = widened(logits.view().row(logits.dim(0) - 1));
  const double lse = log_sum_exp(out);
  for (double& x : out) x -= lse;
  return out;
}

TokenId likeliest(std::span<const double> log_p) {
  return static_cast<TokenId>(std::ranges::max_element(log_p) - log_p.begin());
}

AnswerStep compare(std::span<const double> dense, std::span<const double> sparse) {
  AnswerStep step;
  step.dense = likeliest(dense);
  step.sparse = likeliest(sparse);
  step.dense_surprise = -dense[static_cast<std::size_t>(step.dense)];
  step.sparse_surprise = -sparse[static_cast<std::size_t>(step.dense)];
  for (std::size_t i = 0; i < dense.size(); ++i)
    step.kl += std::exp(dense[i]) * (dense[i] - sparse[i]);
  return step;
}

/// Adds the best watched key's rank among the method's scores, where it has some.
void add_rank(const ListView& list, const SelectionTrace& seen, Index owner, Index page_size,
              std::span<const Index> watched, HeadLook& found) {
  if (owner >= n_of(seen.scores)) return;
  const std::vector<double>& scores = seen.scores[static_cast<std::size_t>(owner)];
  const Index page = std::max<Index>(1, page_size);
  const auto score_of = [&](Index pos) {
    const Index at = pos / page - seen.scored.begin;
    return at >= 0 && at < n_of(scores) ? scores[static_cast<std::size_t>(at)]
                                        : -std::numeric_limits<double>::infinity();
  };
  found.score = -std::numeric_limits<double>::infinity();
  for (const Index pos : watched) found.score = std::max(found.score, score_of(pos));
  if (!std::isfinite(found.score)) return;
  found.cut = std::numeric_limits<double>::infinity();
  for (const KeyPos pos : list.scored()) found.cut = std::min(found.cut, score_of(pos));
  found.scored = n_of(scores);
  found.rank = 1 + std::ranges::count_if(scores, [&](double s) { return s > found.score; });
}

double weight_on(const SelectCall& call, Index head, std::span<const Index> watched) {
  const std::vector<double> weights = last_row_weights(call, head);
  double sum = 0.0;
  for (const Index pos : watched) sum += weights[static_cast<std::size_t>(pos)];
  return sum;
}

HeadLook look_of_head(const SelectCall& call, const Selection& selection,
                      const SelectionTrace& seen, Index page_size, Index head,
                      std::span<const Index> watched) {
  HeadLook found{.layer = call.layer, .q_head = head, .weight = weight_on(call, head, watched)};
  found.answered = !selection.is_dense;
  if (selection.is_dense) {
    found.kept = n_of(watched);
    return found;
  }
  const Index owner = owner_of(selection.owner, head, call.q.dim(0) / call.k.dim(0));
  const ListView list = selection.list(owner, call.n_tok - 1);
  for (const Index pos : watched) {
    if (std::ranges::binary_search(list.keys, static_cast<KeyPos>(pos))) ++found.kept;
  }
  found.budget = n_of(list.scored());
  add_rank(list, seen, owner, page_size, watched, found);
  return found;
}

/// A key that a head's list lost.
struct LostKey {
  Index key = 0;
  double weight = 0.0;
};

/// Forward calls of a prompt and its answer: chunks of the prompt, then a token each.
struct AnswerCalls {
  std::span<const TokenId> prompt;
  std::vector<TokenId> answer;  // what the dense model says, as far as it is known
  Index chunk = 128;
  PrefillMode prefill = PrefillMode::sparse;

  Index n_chunks() const { return (n_of(prompt) + chunk - 1) / chunk; }
  /// The call that predicts token `step` of the answer.
  Index call_of(Index step) const { return n_chunks() - 1 + step; }

  Tensor<float> run(LiveSequence& live, Index call) const {
    if (call >= n_chunks()) {
      const TokenId& token = answer[static_cast<std::size_t>(call - n_chunks())];
      return live.run(Phase::decode, {&token, 1}, Logits::last);
    }
    const auto begin = static_cast<std::size_t>(call * chunk);
    const auto part =
        prompt.subspan(begin, std::min(static_cast<std::size_t>(chunk), prompt.size() - begin));
    return live.prefill(part, chunk, prefill, Logits::last);
  }
};

/// Runs the prompt and n_steps - 1 tokens of the answer: logarithms of the probabilities at every
/// step. Without an answer it is fed what it says itself, which becomes calls.answer. `before` is
/// told of each call.
template <class Before>
std::vector<std::vector<double>> steps_of(LiveSequence& live, AnswerCalls& calls, Index n_steps,
                                          const std::stop_token& stop, const Before& before) {
  const bool is_fed_its_own = calls.answer.empty();
  std::vector<std::vector<double>> out;
  for (Index call = 0; call <= calls.call_of(n_steps - 1); ++call) {
    check_stop(stop, "explain");
    before(call);
    const Tensor<float> logits = calls.run(live, call);
    if (call < calls.call_of(0)) continue;
    out.push_back(log_probs(logits));
    if (is_fed_its_own) calls.answer.push_back(likeliest(out.back()));
  }
  return out;
}

/// The weights of the dense run on watched keys: [step, layer, q_head].
using DenseLooks = std::vector<double>;

/// The dense answer, which becomes calls.answer.
std::vector<std::vector<double>> dense_answer(const Transformer& model, AnswerCalls& calls,
                                              Index n_steps, Index capacity, ThreadPool& pool,
                                              const std::stop_token& stop,
                                              std::span<const Index> watched = {},
                                              DenseLooks* looks = nullptr) {
  const ModelConfig& config = model.config();
  Index step = -1;  // of the answer, in the running call
  LiveOptions options;
  if (!watched.empty()) {
    options.watch = [&](Selector& method, const SelectCall& call) {
      const Index row = (step * config.n_layers + call.layer) * config.n_q;
      for (Index head = 0; step >= 0 && head < config.n_q; ++head)
        looks->at(static_cast<std::size_t>(row + head)) = weight_on(call, head, watched);
      return method.select(call);
    };
    looks->assign(static_cast<std::size_t>(n_steps * config.n_layers * config.n_q), kNan);
  }
  LiveSequence live(model, options, capacity, pool);
  return steps_of(live, calls, n_steps, stop,
                  [&](Index call) { step = watched.empty() ? -1 : call - calls.call_of(0); });
}

/// The sequence under the method, run again and again with something put back.
class AnswerRuns {
 public:
  AnswerRuns(const Transformer& model, const AnswerQuestion& question, Index capacity,
             ThreadPool& pool, const std::stop_token& stop)
      : model_(model), question_(question), capacity_(capacity), pool_(pool), stop_(stop) {}

  /// Logarithms of the probabilities at every step, with this put back from a call on.
  std::vector<std::vector<double>> all_steps(AnswerCalls& calls, Index n_steps,
                                             std::vector<PutBack> what = {}, Index from_call = 0) {
    what_ = std::move(what);
    LiveSequence live = make();
    return steps_of(live, calls, n_steps, stop_,
                    [&](Index call) { is_mended_ = call >= from_call; });
  }

  /// What is said when every token is fed back.
  std::vector<TokenId> alone(const AnswerCalls& calls, Index n_steps,
                             std::vector<PutBack> what = {}, Index from_call = 0) {
    AnswerCalls own{calls.prompt, {}, calls.chunk, calls.prefill};
    all_steps(own, n_steps, std::move(what), from_call);
    return own.answer;
  }

  /// Goes to the token that is explained, and learns which layers lose keys there.
  void go_to(const AnswerCalls& calls, Index step) {
    calls_ = &calls;
    last_call_ = calls.call_of(step);
    const SelectorCaps& caps = question_.selector.caps();
    const bool has_history = caps.permanent || caps.needs_probs;
    const bool remembers = has_history && question_.selector.make()->remembers();
    runs_whole_ = question_.every_call || remembers || caps.steps_per_choice > 1;
    copies_ = caps.permanent;
    base_.emplace(make());
    for (Index call = 0; call < last_call_; ++call) {
      check_stop(stop_, "explain");
      calls.run(*base_, call);
    }
    notes_layers_ = true;
    with({});
    notes_layers_ = false;
  }

  /// Logarithms of the probabilities of the explained token.
  std::vector<double> with(std::vector<PutBack> what) {
    check_stop(stop_, "explain");
    what_ = std::move(what);
    lost_.clear();
    if (runs_whole_) {
      LiveSequence live = make();
      is_mended_ = question_.every_call;
      for (Index call = 0; call < last_call_; ++call) calls_->run(live, call);
      return last(live);
    }
    if (copies_) {
      LiveSequence live = make();
      live.go_on_from(*base_);
      return last(live);
    }
    const Index n_before = base_->n_tokens();
    const std::vector<double> found = last(*base_);
    base_->rollback(n_before);
    return found;
  }

  /// Layers that the method left without all keys in the explained call.
  const std::vector<Index>& sparse_layers() const { return sparse_layers_; }
  bool has_heads() const { return has_heads_; }
  /// Of the explained call.
  const std::vector<HeadLook>& looks() const { return looks_; }
  /// What the head that was put back had lost in the explained call, the heaviest first.
  const std::vector<LostKey>& lost() const { return lost_; }

 private:
  LiveSequence make() {
    const LiveOptions options{
        .selector = question_.selector,
        .budget = question_.budget,
        .dense_layers = question_.dense_layers,
        .watch = [this](Selector& method, const SelectCall& call) { return answer(method, call); }};
    return LiveSequence(model_, options, capacity_, pool_);
  }

  std::vector<double> last(LiveSequence& live) {
    is_mended_ = is_last_ = true;
    const Tensor<float> logits = calls_->run(live, last_call_);
    is_mended_ = is_last_ = false;
    return log_probs(logits);
  }

  Selection answer(Selector& method, const SelectCall& call) {
    Selection selection = looked_at(method, call);
    if (notes_layers_ && is_last_ && !selection.is_dense) {
      sparse_layers_.push_back(call.layer);
      has_heads_ = has_heads_ && has_lists_of_heads(selection);
    }
    for (const PutBack& what : what_) {
      if (!is_mended_ || selection.is_dense || !what.is_in(call.layer)) continue;
      if (what.q_head >= 0 && !has_lists_of_heads(selection))
        throw ConfigError(
            "explain: the method answers with summaries: no head alone can be put back");
      if (is_last_ && what.q_head >= 0 && what.key < 0) note_lost(call, selection, what.q_head);
      selection = with_put_back(std::move(selection), call, what);
    }
    return selection;
  }

  Selection looked_at(Selector& method, const SelectCall& call) {
    if (!notes_layers_ || !is_last_ || question_.watched.empty()) return method.select(call);
    SelectionTrace seen;
    SelectCall watched = call;
    watched.trace = &seen;
    Selection selection = method.select(watched);
    for (Index head = 0; head < call.q.dim(0); ++head) {
      looks_.push_back(
          look_of_head(call, selection, seen, method.caps().page_size, head, question_.watched));
    }
    return selection;
  }

  void note_lost(const SelectCall& call, const Selection& selection, Index q_head) {
    const Index owner = owner_of(selection.owner, q_head, call.q.dim(0) / call.k.dim(0));
    const ListView list = selection.list(owner, call.n_tok - 1);
    const std::vector<double> weights = last_row_weights(call, q_head);
    for (Index key = 0; key < n_of(weights); ++key) {
      if (!std::ranges::binary_search(list.keys, static_cast<KeyPos>(key)))
        lost_.push_back({key, weights[static_cast<std::size_t>(key)]});
    }
    const auto n = std::min(lost_.size(), static_cast<std::size_t>(question_.n_keys));
    std::partial_sort(lost_.begin(), lost_.begin() + static_cast<std::ptrdiff_t>(n), lost_.end(),
                      [](const LostKey& a, const LostKey& b) {
                        return std::pair(-a.weight, a.key) < std::pair(-b.weight, b.key);
                      });
    lost_.resize(n);
  }

  const Transformer& model_;
  const AnswerQuestion& question_;
  Index capacity_;
  ThreadPool& pool_;
  std::stop_token stop_;
  const AnswerCalls* calls_ = nullptr;
  Index last_call_ = 0;  // that of the explained token
  bool runs_whole_ = false;
  bool copies_ = false;  // the base stays as it is, since what was evicted does not come back
  std::optional<LiveSequence> base_;  // before the last call
  std::vector<PutBack> what_;
  bool is_mended_ = false, is_last_ = false, notes_layers_ = false;  // the running call
  bool has_heads_ = true;
  std::vector<Index> sparse_layers_;
  std::vector<HeadLook> looks_;
  std::vector<LostKey> lost_;
};

/// The token that is asked for; else the first that changes, else the one of largest KL.
Index explained_step(const std::vector<AnswerStep>& steps, const std::optional<Index>& asked) {
  if (asked) return *asked;
  const auto changed =
      std::ranges::find_if(steps, [](const AnswerStep& s) { return s.dense != s.sparse; });
  if (changed != steps.end()) return changed - steps.begin();
  return std::ranges::max_element(steps, {}, &AnswerStep::kl) - steps.begin();
}

void check_question(const ModelConfig& config, std::span<const TokenId> prompt,
                    const AnswerQuestion& question) {
  const SelectorCaps& caps = question.selector.caps();
  if (prompt.empty()) throw ConfigError("explain: the prompt has no tokens");
  if (question.n_new < 1 || question.chunk < 1)
    throw ConfigError("explain: expected at least 1 token and a chunk of 1");
  if (question.token && (*question.token < 0 || *question.token >= question.n_new)) {
    throw ConfigError("explain: token {} of an answer of {}: expected 1 to {}", *question.token + 1,
                      question.n_new, question.n_new);
  }
  if (caps.needs_draft || caps.needs_calibration) {
    throw ConfigError("explain: {} needs a draft or a calibration, which explain has not",
                      question.selector.text());
  }
  const Index n_keys = n_of(prompt) + question.n_new;
  for (const PutBack& what : question.back.value_or(std::vector<PutBack>())) {
    if (what.layer >= config.n_layers || what.q_head >= config.n_q || what.key >= n_keys) {
      throw ConfigError(
          "explain: layer {}, head {}, key {} cannot be put back: the model has {} "
          "layers of {} query heads, and the text {} keys",
          what.layer, what.q_head, what.key, config.n_layers, config.n_q, n_keys);
    }
  }
}

/// Runs on with question.back put back.
void add_mended(AnswerRuns& runs, AnswerCalls& calls, const AnswerQuestion& question,
                std::span<const std::vector<double>> dense, AnswerBlame& blame) {
  const Index from = question.every_call ? 0 : calls.call_of(blame.step);
  const auto mended = runs.all_steps(calls, question.n_new, *question.back, from);
  for (std::size_t i = 0; i < dense.size(); ++i) {
    const AnswerStep step = compare(dense[i], mended[i]);
    blame.steps[i].mended = step.sparse;
    blame.steps[i].mended_surprise = step.sparse_surprise;
    blame.steps[i].mended_kl = step.kl;
  }
  blame.sparse_alone = runs.alone(calls, question.n_new);
  blame.mended_alone = runs.alone(calls, question.n_new, *question.back, from);
}

/// Puts back one thing after another, and counts.
class Blaming {
 public:
  Blaming(AnswerRuns& runs, const AnswerQuestion& question, const ProgressFn& progress,
          AnswerBlame& blame)
      : runs_(runs), question_(question), progress_(progress), blame_(blame) {}

  void all() {
    const std::vector<Index>& layers = runs_.sparse_layers();
    n_expected_ = 1 + n_of(layers);
    blame_.everything = put_back(PutBack{});
    for (const Index layer : layers) blame_.layers.push_back(put_back({layer, -1, -1}));
  }

  void heads(Index n_q) {
    if (!runs_.has_heads()) {
      blame_.why_no_heads =
          "The method answers with summaries, which stand for the keys of a KV "
          "head: no head alone can be put back.";
      return;
    }
    const std::vector<const Restored*> layers = ranked(blame_.layers);
    const Index n_left = question_.most_runs - blame_.n_runs;
    const Index n_for_keys =
        std::min(static_cast<Index>(kHeadsOfKeys) * question_.n_keys, n_left / 3);
    const Index n_fit = (n_left - n_for_keys) / n_q;
    const Index n_layers = std::clamp<Index>(n_fit, 0, n_of(layers));
    blame_.all_heads = n_layers == n_of(layers);
    n_expected_ += n_layers * n_q + n_for_keys;
    for (Index i = 0; i < n_layers; ++i) {
      for (Index head = 0; head < n_q; ++head) {
        const Index layer = layers[static_cast<std::size_t>(i)]->what.layer;
        blame_.heads.push_back(put_back({layer, head, -1}));
        lost_[{layer, head}] = runs_.lost();
      }
    }
    std::ranges::sort(blame_.heads, {},
                      [](const Restored& r) { return std::pair(r.what.layer, r.what.q_head); });
  }

  void keys() {
    std::vector<const Restored*> best = ranked(blame_.heads);
    best.resize(std::min(best.size(), kHeadsOfKeys));
    for (const Restored* head : best) {
      const auto& [layer, q_head, key] = head->what;
      if (!(head->recovered > 0.0)) continue;
      for (const LostKey& one : lost_[{layer, q_head}]) {
        if (blame_.n_runs >= question_.most_runs) break;
        Restored found = put_back({layer, q_head, one.key});
        found.weight = one.weight;
        blame_.keys.push_back(found);
      }
    }
    std::ranges::stable_sort(blame_.keys, std::ranges::greater{}, &Restored::recovered);
  }

 private:
  Restored put_back(PutBack what) {
    const AnswerStep& step = blame_.steps[static_cast<std::size_t>(blame_.step)];
    const std::vector<double> log_p = runs_.with({what});
    Restored out;
    out.what = what;
    out.surprise = -log_p[static_cast<std::size_t>(step.dense)];
    const double lost = step.sparse_surprise - step.dense_surprise;
    // f32 logits: less is rounding
    out.recovered = std::abs(lost) < 1e-5 ? kNan : (step.sparse_surprise - out.surprise) / lost;
    out.says = likeliest(log_p);
    ++blame_.n_runs;
    if (progress_)
      progress_({"explain", blame_.n_runs, std::max(blame_.n_runs, n_expected_), "runs"});
    return out;
  }

  AnswerRuns& runs_;
  const AnswerQuestion& question_;
  const ProgressFn& progress_;
  AnswerBlame& blame_;
  Index n_expected_ = 0;
  std::map<std::pair<Index, Index>, std::vector<LostKey>> lost_;  // by layer and head
};

}  // namespace

std::vector<const Restored*> ranked(const std::vector<Restored>& things) {
  std::vector<const Restored*> order;
  for (const Restored& thing : things) order.push_back(&thing);
  std::ranges::stable_sort(order, std::ranges::greater{}, &Restored::recovered);
  return order;
}

bool AnswerBlame::changes() const {
  return std::ranges::any_of(steps, [](const AnswerStep& s) { return s.dense != s.sparse; });
}

AnswerBlame blame_answer(const Transformer& model, std::span<const TokenId> prompt,
                         const AnswerQuestion& question, ThreadPool& pool,
                         const ProgressFn& progress, const std::stop_token& stop) {
  check_question(model.config(), prompt, question);
  const Index capacity = n_of(prompt) + question.n_new;
  AnswerCalls calls{prompt, {}, question.chunk, question.prefill};

  DenseLooks dense_looks;
  const auto dense = dense_answer(model, calls, question.n_new, capacity, pool, stop,
                                  question.watched, &dense_looks);
  AnswerRuns runs(model, question, capacity, pool, stop);
  AnswerBlame blame;
  const auto sparse = runs.all_steps(calls, question.n_new);
  for (std::size_t i = 0; i < dense.size(); ++i)
    blame.steps.push_back(compare(dense[i], sparse[i]));
  blame.step = explained_step(blame.steps, question.token);
  blame.position = n_of(prompt) - 1 + blame.step;
  if (question.only_changes && !question.back && !blame.changes()) return blame;
  blame.is_explained = true;
  if (question.back) {
    add_mended(runs, calls, question, dense, blame);
    return blame;
  }

  runs.go_to(calls, blame.step);
  blame.looks = runs.looks();
  for (HeadLook& look : blame.looks) {
    const ModelConfig& config = model.config();
    const Index row = (blame.step * config.n_layers + look.layer) * config.n_q;
    look.dense_weight = dense_looks[static_cast<std::size_t>(row + look.q_head)];
  }
  std::ranges::stable_sort(blame.looks, std::ranges::greater{}, &HeadLook::dense_weight);
  if (question.most_runs == 0) return blame;
  Blaming blaming(runs, question, progress, blame);
  blaming.all();
  blaming.heads(model.config().n_q);
  blaming.keys();
  return blame;
}

}  // namespace kvscope
