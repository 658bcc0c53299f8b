// The commands behind all items, each run once. {--model} and {--draft} are the options that name
// the report's models ({--model} also the device that computes them), {model} and {draft-model}
// their names alone, {NAME} the result of another run, {pick:RUN:BY:COLUMN} the cell of COLUMN in
// the row of RUN with the largest BY (the first, where several have it), {--chat:RUN:BY} the option
// --chat where that row was asked in the chat template, {lengths:N,N,...} those of the lengths that
// the model has positions for.
//
// A draft that was made of the model's own first layers ({own-layers} of them) attends in these
// as the model itself does. They say nothing about a draft, so {--unlike-draft} leaves them out of
// an analysis, {--layer-map-unlike-draft} out of a layer map, and {live-dense-layers} leaves them
// dense under every method, where the papers leave two; with any other draft nothing is left out.
#include <algorithm>
#include <utility>

#include "analysis/papers/item.hpp"

namespace kvscope::papers {

namespace {

/// Quest by both published rules, the controls of either, and what they are compared with.
const std::string kPages =
    "quest,quest:choice=random,quest-paper,quest-paper:choice=random,h2o,tova,streamingllm ";
const std::string kMatched =
    "--layers {sparse-layers} --dense-layers 0 --match keys=56,63 --no-ceiling --selector " +
    kPages + "--out {out}";
const std::string kChunked =
    "full,quoka,quoka:scope=whole,quoka:queries=random,sampleattention,sparq,loki:basis=self,"
    "lessismore,keydiff,snapkv --budget 256 ";

std::vector<Run> record_runs() {
  return {
      {kOwnDraft, "/model.safetensors",
       "fit draft --model {model} --n-layers {own-layers} --overwrite --out {draft-model}",
       "fit draft --model {model} --n-layers {own-layers} --max-tokens 4096 --held-out 256 "
       "--overwrite --out {draft-model}"},
      {"verifier", ".h5",
       "record {out} {--model} --max-tokens 4096 --decode 64 --capture k-pre-rope",
       "record {out} {--model} --max-tokens 2048 --decode 32 --capture k-pre-rope"},
      {"draft", ".h5", "record {out} --model {draft-model} --tokens {verifier}", ""},
      {"b1-recording", ".h5", "papers --example theorem-b1 --out {out}", ""},
      {"error-example", ".h5", "papers --example error-bound --out {out}", ""},
      {"abcd", ".h5", "record {out} {--model} --prompt 'A is B. C is D. A is'", ""},
  };
}

std::vector<Run> analysis_runs() {
  return {
      {"quoka", ".h5", "analyze quoka {verifier} --budget 256 --out {out}", ""},
      {"query-selection", ".h5", "analyze query-selection {verifier} --out {out}", ""},
      {"geometry", ".h5", "analyze geometry {verifier} --out {out}", ""},
      {"theorem-b1", ".h5", "analyze theorem-b1 {verifier} --out {out}", ""},
      {"b1-example", ".h5", "analyze theorem-b1 {b1-recording} --out {out}", "", true},
      {"attention-map", ".h5",
       "analyze attention-map {verifier} --layers {pick:query-selection:best_pearson_log:layer} "
       "--heads {pick:query-selection:best_pearson_log:best_head} --out {out}",
       ""},
      {"abcd-map", ".h5", "analyze attention-map {abcd} --layers 0 --heads 0 --out {out}", ""},
      {"pairing", ".h5",
       "analyze overlap {verifier} --budget 256 --selector quoka,quoka:pairing=position_sorted "
       "--out {out}",
       ""},
      {"coverage", ".h5", "analyze coverage {verifier} --out {out}", ""},
      {"pinsker", ".h5", "analyze coverage {verifier} --draft {draft} {--unlike-draft} --out {out}",
       ""},
      {"layer-map", ".h5",
       "analyze layer-map {verifier} {draft} {--layer-map-unlike-draft} --out {out}", ""},
  };
}

std::vector<Run> sweep_runs() {
  return {
      {"sweep-decode", ".csv",
       "sweep {verifier} --phase decode --dense-layers 2 --budget 64,128,256,512,1024 --selector "
       "full,oracle-topk,quest,quest-paper,h2o,tova,streamingllm --out {out}",
       "sweep {verifier} --phase decode --steps 8 --dense-layers 2 --budget 64,256 --selector "
       "full,oracle-topk,quest,quest-paper,h2o,tova,streamingllm --out {out}"},
      {"sweep-prefill", ".csv",
       "sweep {verifier} --budget 256 --selector full,quoka,quoka:queries=random,"
       "quoka:queries=nearest,quoka:queries=all,sampleattention,sparq,loki:basis=self,"
       "lessismore --out {out}",
       ""},
      // at the keys that Quest keeps of a budget of 64, by either of its rules
      {"match-decode", ".csv", "sweep {verifier} --phase decode " + kMatched,
       "sweep {verifier} --phase decode --steps 8 " + kMatched},
      {"pages", ".csv",
       "sweep {verifier} --phase decode --steps 8 --dense-layers 0 --budget 32 --selector "
       "quest-paper,quest --out {out}",
       ""},
      {"error-bound", ".csv",
       "sweep {error-example} --phase decode --dense-layers 0 --budget 32 --selector oracle-topk "
       "--out {out}",
       "", true},
  };
}

std::vector<Run> simulation_runs() {
  return {
      // which fact the dense model finds best; other prompts than those that are measured
      {"asked", ".csv",
       "simulate retrieval {--model} --chat=auto --kinds passkey,niah_single_2 --selector full "
       "--lengths 4096 --depths 5 --trials 2 --seed 1 --out {out}",
       "simulate retrieval {--model} --chat=auto --kinds passkey,niah_single_2 --selector full "
       "--lengths 768 --depths 5 --trials 1 --seed 1 --out {out}"},
      // both budgets of the claims at once: the dense model answers each prompt once
      {"needle", ".h5",
       "simulate retrieval {--model} {--chat:asked:accuracy} --kinds {pick:asked:accuracy:kind} "
       "--selector full,quoka,streamingllm,oracle-topk-chunk --budget ratio=0.25,0.12 --lengths "
       "1024,2048,4096,8000 --depths 10 --trials 2 --out {out}",
       "simulate retrieval {--model} {--chat:asked:accuracy} --kinds {pick:asked:accuracy:kind} "
       "--selector full,quoka,streamingllm --budget ratio=0.25,0.12 --lengths 768,1536 --depths 5 "
       "--trials 2 --out {out}"},
      {"ruler", ".h5",
       "simulate retrieval {--model} --chat=auto --kinds passkey,multi_key --selector " + kChunked +
           "--lengths 1024,2048,4096 --depths 5 --trials 4 --out {out}",
       "simulate retrieval {--model} --chat=auto --kinds multi_key --selector " + kChunked +
           "--lengths 1024 --depths 5 --trials 2 --out {out}"},
      {"passkey", ".h5",
       "simulate retrieval --protocol decode {--model} {--chat:asked:accuracy} "
       "--kinds {pick:asked:accuracy:kind} --selector full," +
           kPages +
           "--budget 32,64,128,256,512 --lengths 2048,8000 --depths 10 "
           "--trials 2 --dense-layers 2 --out {out}",
       "simulate retrieval --protocol decode {--model} {--chat:asked:accuracy} "
       "--kinds {pick:asked:accuracy:kind} --selector full," +
           kPages +
           "--budget 64,256 --lengths 1024 --depths 5 --trials 2 --fed 24 "
           "--dense-layers 2 --out {out}"},
      {"perplexity", ".h5",
       "simulate perplexity {--model} {--draft} --selector "
       "full,streamingllm,random,quest,quest-paper,specattn,specattn:blocks=none --budget "
       "tokens=256,p=0.6,0.95,0.97,0.99 --dense-layers {live-dense-layers} --windows 4 --out {out}",
       "simulate perplexity {--model} {--draft} --selector full,streamingllm,random,quest,"
       "specattn --budget tokens=128,p=0.6,0.95 --dense-layers {live-dense-layers} --max-tokens "
       "1024 --out {out}"},
      {"perplexity-empty", ".h5",
       "simulate perplexity {--model} --prefill 0 --selector full," + kPages +
           "--budget 256 --dense-layers 2 --max-tokens 4096 --windows 2 --out {out}",
       "simulate perplexity {--model} --prefill 0 --selector full," + kPages +
           "--budget 128 --dense-layers 2 --max-tokens 576 --out {out}"},
      {"speculative", ".csv",
       "simulate speculative {--model} {--draft} --selector full,specattn --budget p=0.97 "
       "--dense-layers {live-dense-layers} --out {out}",
       "simulate speculative {--model} {--draft} --selector full,specattn --budget p=0.97 "
       "--dense-layers {live-dense-layers} --prompts 2 --n-new 48 --out {out}"},
  };
}

std::vector<Run> bench_runs() {
  return {
      {"live", ".json",
       "bench live {--model} --selector quoka --budget 1024 --lengths "
       "{lengths:4096,8192,16384,32768} --json",
       "bench live {--model} --selector quoka --budget 1024 --lengths {lengths:2048,5120} "
       "--repeat 2 --json"},
      {"select", ".json",
       "bench select --selector quest,quoka --phase decode --budget tokens=2048 --lengths "
       "8192,16384,32768 --json",
       "bench select --selector quest,quoka --phase decode --budget tokens=2048 --lengths "
       "8192,16384,32768 --repeat 3 --json"},
      {"nucleus-time", ".json", "bench nucleus --json", ""},
      {"decode", ".json",
       "bench live {--model} --lengths 1000,8000 --chunk 512 --repeat 1 --steps 192 --json",
       "bench live {--model} --lengths 1000,8000 --chunk 512 --repeat 1 --steps 96 --json"},
  };
}

}  // namespace

const Run* run_named(std::string_view name) {
  const auto at = std::ranges::find(runs(), name, &Run::name);
  return at == runs().end() ? nullptr : &*at;
}

std::span<const Run> runs() {
  static const std::vector<Run> all = [] {
    std::vector<Run> list;
    for (auto make : {record_runs, analysis_runs, sweep_runs, simulation_runs, bench_runs}) {
      for (Run& run : make()) list.push_back(std::move(run));
    }
    return list;
  }();
  return all;
}

}  // namespace kvscope::papers
