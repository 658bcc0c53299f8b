// What a dropped key cost the answer: the next tokens of a dense run and of one under a method,
// and, for a token that suffers, which layer, query head and key must be put back to mend it.
//
// Nothing is estimated: a layer, a head or a key is put back into the method's lists and the model
// runs again. Both runs are closed loops that are fed the tokens which the dense model says.
#pragma once

#include <optional>
#include <span>
#include <stop_token>
#include <string>
#include <vector>

#include "analysis/kinds/put_back.hpp"
#include "core/base/progress.hpp"
#include "core/model/transformer.hpp"
#include "core/selectors/method_spec.hpp"
#include "core/sim/live.hpp"

namespace kvscope {

struct AnswerQuestion {
  MethodSpec selector;
  std::optional<Budget> budget;  // empty for methods that take none
  std::optional<Index> dense_layers;
  Index chunk = 128;                          // B_CP
  PrefillMode prefill = PrefillMode::sparse;  // of the prompt
  Index n_new = 1;                            // tokens of the answer
  std::optional<Index> token;                 // the one that is explained, from 0; else the first
                                              // that changes, else the one of largest KL
  bool every_call = false;                    // put back in every call, not in the token's alone
  bool only_changes = false;                  // nothing is put back where no token changes
  Index most_runs = 2000;  // beyond, heads of the layers that matter least are left; 0: nothing is
                           // put back
  Index n_keys = 8;        // keys tried of each of the first kHeadsOfKeys heads
  std::vector<Index> watched;  // positions of a fact, whose place in every head's list is told
  /// Puts these back, in the call of the explained token and those after it (with every_call: in
  /// every call), and runs on, instead of looking for what mends.
  std::optional<std::vector<PutBack>> back;
};
inline constexpr std::size_t kHeadsOfKeys = 3;

/// One next token: what either model says before it is fed the dense one's.
struct AnswerStep {
  TokenId dense = 0;             // the likeliest token
  TokenId sparse = 0;            // the same under the method
  double dense_surprise = 0.0;   // -log p of `dense`, nats
  double sparse_surprise = 0.0;  // the same under the method
  double kl = 0.0;               // KL(dense || method) of the distributions, nats
  // The same with AnswerQuestion::back put back.
  TokenId mended = 0;
  double mended_surprise = 0.0;
  double mended_kl = 0.0;
};

/// What was put back and what that did to the explained token.
struct Restored {
  PutBack what;
  double weight = 0.0;  // of a key: share of the exact attention of the head's last query, in the
                        // method's run
  double surprise = 0.0;
  double recovered = 0.0;  // share of what the method lost; NaN where it lost nothing
  TokenId says = 0;        // the likeliest token now
};

/// What one query head did with the watched keys in the call that predicts the explained token, of
/// the layers that the method was asked about.
struct HeadLook {
  Index layer = 0;
  Index q_head = 0;
  double dense_weight = 0.0;  // share of the exact attention of the call's last query, densely
  double weight = 0.0;        // the same of the query that the method's run has there
  bool answered = true;       // false: the method left the call dense
  Index kept = 0;             // of the watched keys, in the head's list
  /// Of the best watched key among all scored ones, from 1; 0: the method gave no scores.
  Index rank = 0;
  Index scored = 0;    // how many got scores
  Index budget = 0;    // keys of the list that a score earned
  double score = 0.0;  // of the best watched key (rank > 0)
  double cut = 0.0;    // the smallest score in the list (rank > 0)
};

/// Those that mend most first.
std::vector<const Restored*> ranked(const std::vector<Restored>& things);

struct AnswerBlame {
  std::vector<AnswerStep> steps;
  /// What either says when it is fed its own tokens; empty without AnswerQuestion::back.
  std::vector<TokenId> sparse_alone;
  std::vector<TokenId> mended_alone;
  bool is_explained = false;     // else what follows is empty
  Index step = 0;                // the explained one
  Index position = 0;            // of the query that predicts it
  std::vector<HeadLook> looks;   // at watched keys, the largest dense weight first
  Restored everything;           // all layers in the calls that are mended
  std::vector<Restored> layers;  // [layers that the method was asked about], ascending
  std::vector<Restored> heads;   // by layer and head: those that were tried
  std::vector<Restored> keys;    // by what they mend, the largest first
  bool all_heads = true;         // false: most_runs left some out
  std::string why_no_heads;      // a sentence, where a head alone cannot be put back
  Index n_runs = 0;              // forward calls or whole runs, one for each that was put back

  bool changes() const;  // some token of the answer
};

/// Throws ConfigError for an empty prompt, a token beyond the answer, a method that needs a draft
/// or a calibration, a layer, head or key to put back that there is not, or a head where the method
/// answers with summaries, and what LiveSequence throws; Interrupted on a stop. The same for any
/// number of threads.
AnswerBlame blame_answer(const Transformer& model, std::span<const TokenId> prompt,
                         const AnswerQuestion& question, ThreadPool& pool,
                         const ProgressFn& progress, const std::stop_token& stop);

}  // namespace kvscope
