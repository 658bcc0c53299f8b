// Methods that draw or group keys as they come: in decode they answer alike however a text was cut
// into chunks, and after drafts that were rejected.

#include "tests/core/selectors/sequence.hpp"
#include "tests/support/test.hpp"

namespace kvscope::test::decode_selections_test {

/// The selections of all layers at each decode step of a text of 90 tokens that is filled in by
/// chunks. drafts: after each call two tokens are verified and taken back.
std::vector<PlainSelection> decode_selections(const std::string& spec, Index chunk, Index n_decode,
                                              bool drafts) {
  const Sequence sequence = random_sequence({.n_tokens = 90, .chunk = chunk, .n_decode = n_decode});
  SelectorRun run(make_selector(spec, sequence), sequence.shape, {Budget::parse("tokens=8")});
  std::vector<PlainSelection> all;
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

TEST_CASE("neither chunks nor drafts change what is drawn or grouped") {
  for (const std::string spec :
       {"magicpig:bits=4,tables=12,n-sink=2,n-recent=4,dense-every=0",
        "pqcache:bits=3,n-sink=2,n-recent=3",
        "retroinfer:keys-per-cluster=4,n-sink=2,n-recent=3,append-segment=5",
        "socket:bits=5,tables=8,n-sink=2,n-recent=3",
        "vattention:base-budget=tokens=6,n-sink=2,n-recent=4,epsilon=0.3"}) {
    INFO(spec);
    const auto plain = decode_selections(spec, 70, 20, false);
    CHECK(plain == decode_selections(spec, 7, 20, false));
    CHECK(plain == decode_selections(spec, 16, 20, true));
    // from nothing: PQCache's codebooks of 1, 2, 4, ... keys
    CHECK(decode_selections(spec, 1, 89, false) == decode_selections(spec, 1, 89, true));
  }
}

}  // namespace kvscope::test::decode_selections_test
