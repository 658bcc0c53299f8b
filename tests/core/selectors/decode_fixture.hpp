// What tests of methods that answer in decode share: the shape of one step, and a text that is
// decoded under a method with or without rejected drafts.
#pragma once

#include "tests/core/selectors/call_fixture.hpp"
#include "tests/core/selectors/sequence.hpp"

namespace kvscope::test {

/// One decode step after n_past keys.
inline CallShape step_shape(Index n_past, unsigned seed) {
  CallShape shape;
  shape.phase = Phase::decode;
  shape.n_past = n_past;
  shape.n_tok = 1;
  shape.seed = seed;
  return shape;
}

/// The answers of all layers at each decode step of a text of 90 tokens that is filled in by
/// chunks. drafts: after each call two tokens are verified and taken back.
inline std::vector<Answer> decode_answers(const std::string& spec, std::string_view budget,
                                          Index chunk, Index n_decode, bool drafts) {
  const Sequence sequence = random_sequence({.n_tokens = 90, .chunk = chunk, .n_decode = n_decode});
  SelectorRun run(make_selector(spec, sequence), sequence.shape, {Budget::parse(budget)});
  std::vector<Answer> all;
  for (const auto& [phase, n_tok] : sequence.calls) {
    for (auto& layer : run_call(run, sequence, phase, n_tok)) {
      if (phase == Phase::decode) all.push_back(layer.front());
    }
    if (!drafts || run.n_keys() + 2 > sequence.n_tokens()) continue;
    const Index n_keys = run.n_keys();
    run_call(run, sequence, Phase::verify, 2);
    run.rollback(n_keys);
  }
  return all;
}

}  // namespace kvscope::test
