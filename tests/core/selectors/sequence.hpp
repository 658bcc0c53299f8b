// Random sequences of q, k, v for tests of selectors, and what a selector chooses in them.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "core/base/rng.hpp"
#include "core/sim/protocol.hpp"
#include "core/trace/memory_trace.hpp"

namespace kvscope::test {

/// A few layers of random tensors and the forward calls that go through them.
struct Sequence {
  AttentionShape shape;
  std::vector<Tensor<float>> q;  // [n_layers][n_q, T, d_head]
  std::vector<Tensor<float>> k;  // [n_layers][n_kv, T, d_head]
  std::vector<Tensor<float>> v;
  std::vector<std::pair<Phase, Index>> calls;
  Index n_tokens() const { return shape.max_tokens; }
};

struct SequenceOptions {
  Index n_layers = 3;
  Index n_kv = 2;
  Index group = 2;
  Index d_head = 8;
  Index n_tokens = 40;
  Index chunk = 16;    // of prefill
  Index n_decode = 5;  // tokens at the end that are decoded one by one
  float score_cap = 0.0f;
  bool has_ties = true;  // some keys are copies of others, some are zero
  std::uint64_t seed = 1;
};

Sequence random_sequence(const SequenceOptions& options);

/// Shapes drawn at random: group 1..8, T mostly small, d 8..128, chunks 1..16.
Sequence random_shape_sequence(std::uint64_t seed);

/// One layer's selection in one call, in a form that compares.
struct PlainSelection {
  ListOwner owner = ListOwner::kv_head;
  bool is_dense = false;
  std::vector<std::vector<KeyPos>> scored;
  std::vector<std::vector<KeyPos>> forced;
  bool operator==(const PlainSelection&) const = default;
};
PlainSelection selection_of(const Selection& selection);

/// Runs `n_tok` tokens of the sequence as one call through all layers; selections
/// [n_layers][n_budgets].
std::vector<std::vector<PlainSelection>> run_call(SelectorRun& run, const Sequence& sequence,
                                                  Phase phase, Index n_tok);

/// Random tensors of such a model that are not the sequence's own, for methods that learn before
/// they see one.
MemoryTrace calibration_text(const AttentionShape& shape);

/// The method, calibrated on such a text if it needs that.
std::unique_ptr<Selector> make_selector(const std::string& spec, const Sequence& sequence);

/// All calls of the sequence with one budget: selections [n_calls * n_layers].
std::vector<PlainSelection> run_all(const std::string& spec, const Sequence& sequence,
                                    const Budget& budget);

/// Checks a method that looks at positions alone: in every call that begins at position `begin`, a
/// KV head's list holds the past keys j for which keeps(j, begin) (all of them while they fit into
/// the budget), and the call's own keys are forced.
void check_past_keys(const std::string& spec, Index budget,
                     const std::function<bool(Index j, Index begin)>& keeps);

/// Attention rows of made-up draft layers for a verification of n_tok tokens: [n_layers][n_tok,
/// n_ctx], rows sum to 1.
std::vector<Tensor<float>> draft_rows(const Sequence& sequence, Index pos_begin, Index n_tok);

/// Those rows for the run's next call if its method needs them, else none.
std::vector<Tensor<float>> drafts_for(const SelectorRun& run, const Sequence& sequence, Phase phase,
                                      Index n_tok);

/// Softmax weights of one query over the keys `allowed` at positions up to its own, by loops: [pos
/// + 1], 0 elsewhere.
std::vector<double> naive_weights(const Sequence& sequence, Index layer, Index q_head, Index pos,
                                  const std::set<KeyPos>& allowed);

/// {0, ..., n - 1}.
std::set<KeyPos> first_keys(Index n);

/// The keys of `allowed` with the n best scores, equal scores by position. scores: by position.
std::set<KeyPos> naive_best(const std::vector<double>& scores, const std::set<KeyPos>& allowed,
                            Index n);

/// Alive keys of one KV head.
std::set<KeyPos> alive_keys(const AliveMask& alive, Index kv_head);

}  // namespace kvscope::test
