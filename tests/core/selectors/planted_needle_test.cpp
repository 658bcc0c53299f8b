// Needles: keys that every later query attends to. Methods that look at scores must find them,
// methods that choose by position must not. Over the whole registry, from a table that says which
// is which; a method without an entry fails.
#include <map>
#include <mutex>

#include "core/base/parallel.hpp"
#include "core/selectors/registry.hpp"
#include "core/sim/replay.hpp"
#include "tests/core/selectors/sequence.hpp"
#include "tests/support/planted_trace.hpp"
#include "tests/support/test.hpp"

namespace kvscope::test::planted_needle_test {

/// How a method chooses.
enum class Chooses {
  everything,   // keeps all: finds needles without looking
  by_score,     // by queries and keys, by attention, or by keys alone: must find every needle
  by_position,  // never looks at a key: must miss them
  by_looks      // by what a key or value looks like, whatever is asked: may miss them
};

struct Entry {
  Chooses chooses;
  std::vector<std::string> specs;  // what is tried: options that fit a context of 288 tokens
};

/// Every method of the registry.
const std::map<std::string, Entry>& table() {
  using enum Chooses;
  static const std::map<std::string, Entry> entries = {
      {"adakv", {by_score, {"adakv:window=8", "adakv:window=8,division=safeguard,normalize=true"}}},
      {"bigbird", {by_position, {"bigbird:block=8,n-random=1"}}},
      {"blockmean",
       {by_score,
        {"blockmean:block=16,kernel=8,stride=4", "moba:block=16,kernel=16,stride=16,top-blocks=5",
         "nsa:block=16,kernel=8,stride=4,top-blocks=8,local-tokens=16",
         "nsa-compressed:block=16,kernel=8,stride=4,top-blocks=8,local-tokens=16",
         "infllm2:block=16,kernel=8,stride=4,top-blocks=5,local-tokens=16,dense-below=0"}}},
      {"flexprefill",
       {by_score,
        {"flexprefill:block=16,n-voters=16,min-budget=64",
         "flexprefill:block=16,n-voters=16,min-budget=64,tau=1",
         "flexprefill-frontier:block=16,n-voters=16,min-budget=64,n-local=32,gamma=0.9"}}},
      {"ceiling", {by_score, {"ceiling:level=0.02"}}},
      {"doublep",
       {by_score, {"doublep:n-recent=16,keys-per-cluster=4", "doublep:n-recent=16,refine=0.5"}}},
      {"doublesparsity",
       {by_score, {"doublesparsity:share=0.5", "doublesparsity:share=0.5,bits=16,owner=kv_head"}}},
      {"duoattention",
       {by_score, {"duoattention:by=threshold,threshold=0.3,n-sink=8,n-recent=24"}}},
      {"full", {everything, {"full"}}},
      {"h2o", {by_score, {"h2o", "h2o-by-queries", "h2o-sparq"}}},
      {"indexer",
       {by_score,
        {"indexer", "indexer:score=relu,owner=layer", "indexer:score=dot,owner=q_head,type=fp8",
         "indexer:per=layer,n-local=4,inside=true", "indexer:block=4,pool=max,n-local=1",
         "dsa:from=fit", "qsa:from=fit,block=2", "msa:from=fit,block=16",
         "seer:from=fit,block=8,index-share=0.5"}}},
      {"kascade",
       {by_score, {"kascade:n-anchors=2", "kascade:anchors=0/2", "omnikv", "tidaldecode"}}},
      {"keydiff", {by_score, {"keydiff", "keydiff:anchor=raw,recent-share=0.25"}}},
      {"lessismore", {by_score, {"lessismore"}}},
      {"loki", {by_score, {"loki", "loki:rank=8", "loki:owner=kv_head"}}},
      {"longformer", {by_position, {"longformer:window=32"}}},
      {"magicpig", {by_score, {"magicpig-paper:n-recent=16", "magicpig-hub:n-recent=16"}}},
      {"minference-a-shape", {by_position, {"minference-a-shape:n-init=8,n-local=32"}}},
      {"minference-block-sparse", {by_score, {"minference-block-sparse:block=16,top-blocks=6"}}},
      {"minference-vertical-slash",
       {by_score,
        {"minference-vertical-slash:sizes=budget,n-voters=16,forced-vertical=4,forced-slash=4"}}},
      {"oracle-pages", {by_score, {"oracle-pages"}}},
      {"oracle-topk",
       {by_score, {"oracle-topk", "oracle-topk-chunk", "oracle-topk-group", "oracle-topk-past"}}},
      {"oracle-topp", {by_score, {"oracle-topp"}}},
      {"pqcache",
       {by_score, {"pqcache", "pqcache-hub:n-recent=32", "pqcache:parts=4,bits=3,metric=inner"}}},
      {"quest",
       {by_score,
        {"quest", "quest-paper", "quest-frontier", "quest:page-size=1", "quest:bound-bits=4"}}},
      {"quoka", {by_score, {"quoka", "quoka:n-queries=4", "quoka:scope=whole"}}},
      {"random", {by_position, {"random"}}},
      {"recent", {by_position, {"recent"}}},
      {"retroinfer",
       {by_score, {"retroinfer:n-recent=16", "retroinfer:n-recent=16,keys-per-cluster=4"}}},
      {"rocket2", {by_score, {"rocket2", "rocket2:compression=4"}}},
      {"rocketkv", {by_score, {"rocketkv:prompt-budget=tokens=120,window=8,kernel=7"}}},
      {"sampleattention", {by_score, {"sampleattention", "sampleattention:n-queries=4"}}},
      {"shadowkv", {by_score, {"shadowkv:outliers=4", "shadowkv:page-size=4,outliers=0"}}},
      {"sink-recent", {by_position, {"sink-recent"}}},
      {"socket", {by_score, {"socket:n-sink=4,n-recent=16", "socket-page:n-sink=4,n-recent=16"}}},
      {"skip-softmax",
       {by_score,
        {"skip-softmax:block-q=8,block-k=8,lambda=0.05",
         "skip-softmax:block-q=8,block-k=8,scale=30",
         "skip-softmax:block-q=8,block-k=8,by=target,target=0.3"}}},
      {"snapkv", {by_score, {"snapkv:window=8", "snapkv:window=8,official-mha=true"}}},
      {"spargeattn", {by_score, {"spargeattn:block-q=16,block-k=16,sizes=budget"}}},
      {"sparq", {by_score, {"sparq", "sparq:n-channels=8"}}},
      {"specattn", {by_score, {"specattn", "specattn:blocks=none", "specattn:blocks=block_mass"}}},
      {"streamingllm", {by_position, {"streamingllm"}}},
      {"strided", {by_position, {"strided"}}},
      {"knorm", {by_looks, {"knorm", "knorm:recent=16"}}},
      {"lagkv", {by_looks, {"lagkv:lag=16", "lagkv:lag=16,cross-scoring=true"}}},
      {"qfilters", {by_score, {"qfilters"}}},
      {"think", {by_score, {"think"}}},
      {"tova", {by_score, {"tova", "tova-kvpress"}}},
      {"twilight",
       {by_score, {"twilight:base-budget=tokens=80", "twilight:base=full,base-budget=ratio=1"}}},
      {"unique",
       {by_score,
        {"unique:recent=32", "unique:recent=16,sink=0,page-size=1",
         "unique:recent=32,owner=group_sum"}}},
      // larger tiles add the noise of other pairs, and may hold one of several equal needles
      // for nine tenths
      {"xattention",
       {by_score, {"xattention:block=16,stride=1", "xattention:block=16,stride=1,sizes=budget"}}},
      {"vattention",
       {by_score,
        {"vattention", "vattention:base-budget=tokens=8,n-sink=4,n-recent=16",
         "vattention:base=quest:page-size=4,base-budget=tokens=16,n-sink=4,n-recent=16"}}},
  };
  return entries;
}

constexpr Index kTokens = 288;
constexpr Index kChunk = 32;
constexpr Index kFarFrom = 200;  // rows from here on: no window of 80 keys reaches a needle

/// All queries after a needle point to it, in every layer and head.
MemoryTrace needle_trace(Index group, const std::vector<Index>& needles) {
  PlantOptions plant{.n_layers = 4,
                     .n_q = 2 * group,
                     .n_kv = 2,
                     .d_head = 32,
                     .n_tokens = kTokens,
                     .chunk = kChunk,
                     .query_scale = 0.1,
                     .aim = 12.0,
                     .common = 8.0};
  for (Index key : needles) {
    plant.needles.push_back({key, key + 1, kTokens});
    if (key != needles.front()) plant.duplicates.emplace_back(needles.front(), key);
  }
  return planted_trace(plant);
}

Budget budget_of(const SelectorCaps& caps) {
  if (caps.budgets.empty() || caps.budgets.front() != Budget::Kind::mass)
    return Budget::parse("tokens=80");
  return Budget::parse("p=0.9");
}

/// What a spec kept of the needles in the rows that are far from them.
struct Found {
  Index n_rows = 0;    // rows times heads
  Index n_all = 0;     // of these, rows that kept every needle
  double least = 1.0;  // smallest kept mass
  double mean = 0.0;   // mean kept mass
  double dense = 1.0;  // smallest mass that the needles really have
};

Found look_for(const std::vector<Index>& needles, const MemoryTrace& trace, const std::string& spec,
               Phase phase) {
  const SelectorCaps caps = selector_registry().make(spec)->caps();
  ReplayPair pair{spec, {}};
  if (!caps.budgets.empty()) pair.budget = budget_of(caps);
  ReplayOptions options{.calls = {.phase = phase, .chunk = kChunk, .steps = 6, .drafts = 4},
                        .rows_per_chunk = 4};
  Found out;
  std::mutex mutex;
  options.on_row = [&](const MeasuredRow& row) {
    if (row.pos < kFarFrom) return;
    const auto& kept = row.kept.front();
    bool has_all = true;
    double on_needles = 0.0;
    for (Index needle : needles) {
      has_all = has_all && std::ranges::binary_search(kept, needle);
      on_needles += row.probs[needle];
    }
    double mass = 0.0;
    for (KeyPos key : kept) mass += row.probs[key];
    const std::lock_guard lock(mutex);
    ++out.n_rows;
    out.n_all += has_all ? 1 : 0;
    out.least = std::min(out.least, mass);
    out.mean += mass;
    out.dense = std::min(out.dense, on_needles);
  };
  options.calibration = &trace;  // one model's text; nothing else is known about it
  ThreadPool pool(1);
  // layers 0 and 1 are dense for some methods
  replay_layers(trace, &trace, {2, 3}, {pair}, options, pool);
  out.mean /= static_cast<double>(std::max<Index>(out.n_rows, 1));
  return out;
}

void check_registry(Index group, const std::vector<Index>& needles) {
  const MemoryTrace trace = needle_trace(group, needles);
  for (const SelectorEntry& entry : selector_registry().entries()) {
    // Of models alone: published_lists_test, live_test.
    if (entry.caps.needs_rotation || entry.caps.needs_projection) continue;
    const auto known = table().find(entry.name);
    if (known == table().end()) {
      FAIL_CHECK("the method " << entry.name
                               << " has no entry in the table of planted_needle_test.cpp: say "
                                  "there whether it chooses keys by score or by position");
      continue;
    }
    for (const std::string& spec : known->second.specs) {
      const SelectorCaps caps = selector_registry().make(spec)->caps();
      for (Phase phase : {Phase::prefill, Phase::decode, Phase::verify}) {
        if (!caps.is_defined(phase)) continue;
        const Found found = look_for(needles, trace, spec, phase);
        INFO(spec << " in " << enum_name(phase) << ", group " << group << ", " << needles.size()
                  << " needles: kept by " << found.n_all << " of " << found.n_rows
                  << " rows, smallest mass " << found.least << ", mean " << found.mean);
        REQUIRE(found.n_rows > 0);
        REQUIRE(found.dense > 0.99);  // the trace is what it should be
        switch (known->second.chooses) {
          case Chooses::everything:
            CHECK(found.n_all == found.n_rows);
            CHECK(found.least > 1.0 - 1e-9);
            break;
          case Chooses::by_score:
            CHECK(found.n_all == found.n_rows);
            CHECK(found.least > 0.95);
            break;
          case Chooses::by_position:
            // random ones meet a needle now and then
            CHECK(found.n_all < found.n_rows / 2);
            CHECK(found.mean < 0.5);
            break;
          case Chooses::by_looks:
            break;
        }
      }
    }
  }
}

TEST_CASE("methods that look at scores find a planted needle, the others do not") {
  check_registry(GENERATE(1, 4), {53});
}

TEST_CASE("several needles are all found") {
  check_registry(2, {29, 53, 83});
}

}  // namespace kvscope::test::planted_needle_test
