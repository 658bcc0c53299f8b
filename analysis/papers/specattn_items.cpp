// SpecAttn (arXiv 2510.27641): its figures, tables and appendix, from the paper's text.
#include "analysis/papers/item.hpp"

namespace kvscope::papers {

namespace {

Value specattn_of_perplexity(const std::string& key, const std::string& label,
                             const std::string& column, const std::string& where,
                             Unit unit = Unit::number) {
  return {key, label, "perplexity", column, where, unit, Spread::recorded};
}

/// Over full attention's, of the same tokens.
Value specattn_increase(const std::string& key, const std::string& label,
                        const std::string& where) {
  return specattn_of_perplexity(key, label, "relative_increase", where, Unit::percent);
}

Value specattn_total(const std::string& key, const std::string& label, const std::string& run,
                     const std::string& name, Unit unit = Unit::number) {
  return {key, label, run, "totals." + name, "", unit, Spread::rows};
}

Value specattn_speed(const std::string& key, const std::string& label, const std::string& where,
                     const std::string& column, Unit unit = Unit::number) {
  return {key, label, "speculative", column, where, unit};
}

Check specattn_knows_language() {
  return {Role::needs,
          "full",
          Op::at_most,
          "200",
          0.0,
          "this model does not know the language of the text, so its perplexity says nothing"};
}

}  // namespace

std::vector<Item> specattn_method_items() {
  return {
      {.id = "specattn-fig-1",
       .place = "Figure 1, Algorithm 1",
       .title = "The pipeline",
       .claim = "The draft's attention chooses the verifier's keys.",
       .words = "Layer specific tokens are dynamically selected during runtime from draft model to "
                "prune KV cache of target model",
       .published = "A drawing and pseudo-code; no number.",
       .never =
           "A drawing makes no claim in numbers; what the pipeline does is in the other items."},
      {.id = "specattn-fig-2",
       .place = "Figure 2",
       .title = "KL divergence between draft and verifier layers, the map boxed",
       .claim = "For each verifier layer some draft layer attends alike, and these draft layers "
                "rise with depth, so a monotone map loses little against the best layer of each.",
       .words = "For each verifier layer j, we find the best matching draft layer while keeping "
                "the index chosen for draft layer monotonically increasing ... Red boxes denote "
                "the draft layer selected for the corresponding verifier layer",
       .published = "TinyLlama-1.1B and Llama-2-7b on wikitext; a heat map, no number in the text.",
       .values = {{"excess", "divergence of the monotone map over that of the best layers",
                   "layer-map", "totals.monotone_cost", "", Unit::factor, Spread::none,
                   Derive::ratio, "best"},
                  specattn_total("best", "sum of the smallest divergences, nats", "layer-map",
                                 "argmax_cost"),
                  specattn_total("mapped", "divergence of the mapped pairs, mean, nats",
                                 "layer-map", "kl_mean_mapped")},
       .checks = {{Role::form, "excess", Op::at_most, "1.2"},
                  {Role::size, "mapped", Op::at_most, "0.5", 0.0,
                   "at 0.5 nats Pinsker's inequality promises half of the nucleus' mass; beyond, "
                   "\"alike\" promises little"}},
       .pictures = {{"figure layer-map {layer-map}"}},
       .note = "On the recorded text; the published map is of other models."},
      {.id = "specattn-app-a",
       .place = "Appendix A.3",
       .title = "The top-p choice bounds the error by (1 - p) ||V||",
       .claim = "Choosing tokens by p of the attention bounds the output error by (1 - p) ||V||.",
       .words = "The top-p approach provides a theoretical error bound of ... making it possible "
                "to control the trade-off between computational efficiency and output quality by "
                "adjusting the parameter p",
       .published = "A bound of equation (2), whose weights are not renormalised; no number. See "
                    "also the error \"The bound's factor\".",
       .values = {{"raw", "error over lost attention by equation (2), ||V|| = 1", "error-bound",
                   "output_error_raw", "selector=oracle-topk;q_head=", Unit::factor, Spread::none,
                   Derive::per_lost, "mass"},
                  {"mass", "attention kept there", "error-bound", "mass_mean",
                   "selector=oracle-topk;q_head=", Unit::percent},
                  specattn_total("kept", "the verifier's attention kept by p = .95 of the draft's",
                                 "pinsker", "specattn_mass", Unit::percent),
                  specattn_total("nucleus", "the same without whole blocks", "pinsker",
                                 "nucleus_mass", Unit::percent),
                  specattn_total("floor", "what Pinsker's inequality promises of it", "pinsker",
                                 "pinsker_floor", Unit::percent)},
       .checks = {{Role::form, "raw", Op::at_most, "1", 0.001}},
       .note = "A constructed recording that reaches the bound: kept keys have the value u, all "
               "others -u, ||u|| = 1. p is a share of the rows that the nucleus was computed on, "
               "the draft's; how much of the verifier's own attention that is, is shown."},
  };
}

std::vector<Item> specattn_quality_items() {
  return {
      {.id = "specattn-table-1",
       .place = "Table 1",
       .title = "Perplexity and KV reduction",
       .claim = "At 78.4 % KV reduction (p = .95) SpecAttn raises perplexity by 15.29 %, less than "
                "Quest (21.58 % at 77.4 %) and StreamingLLM (2794 %).",
       .words = "SpecAttn (p=0.95) reduces KV cache loading by 78.4% while increasing perplexity "
                "by mere 0.984 (15.29% relative increase), which significantly improves upon other "
                "sparse attention methods",
       .published = "Full 6.435; StreamingLLM 186.242 (77.4 %); Quest 7.823 (77.4 %); SpecAttn p = "
                    ".95 / .97 / .99: 7.419 / 6.720 / 6.471 at 78.4 / 68.8 / 44.3 %.",
       .values = {specattn_increase("spec", "SpecAttn's increase of perplexity at p = .6",
                                    "selector=specattn;budget=0.6"),
                  specattn_increase("quest", "Quest's, keys of an eighth of the text",
                                    "selector=quest"),
                  specattn_increase("window", "StreamingLLM's, the same", "selector=streamingllm"),
                  specattn_increase("random", "that of keys drawn at random, the same",
                                    "selector=random"),
                  specattn_of_perplexity("full", "full attention's perplexity", "perplexity",
                                         "selector=full"),
                  specattn_of_perplexity("kv95", "KV reduction at p = .95", "kv_reduction",
                                         "selector=specattn;budget=0.95", Unit::percent),
                  specattn_of_perplexity("kv6", "KV reduction at p = .6", "kv_reduction",
                                         "selector=specattn;budget=0.6", Unit::percent),
                  specattn_of_perplexity("kvquest", "Quest's KV reduction", "kv_reduction",
                                         "selector=quest", Unit::percent)},
       .checks = {specattn_knows_language(),
                  {Role::needs, "kv6", Op::at_least, "kvquest", 0.05},
                  {Role::form, "spec", Op::below, "quest", 0.0,
                   "at no more keys Quest loses less on this pair"},
                  {Role::form, "spec", Op::below, "window"},
                  {Role::form, "spec", Op::below, "random"},
                  {Role::size, "kv95", Op::at_least, "0.784", 0.02,
                   "at the printed p this pair's flat draft rows touch nearly every block"}},
       .pictures = {{"table specattn-1 {perplexity}"}},
       .note = "Compared at p = .6, with no more keys than Quest, and not at equal p. The increase "
               "over full attention is of the same tokens, so that its interval is narrower than "
               "perplexity's own."},
      {.id = "specattn-fig-5",
       .place = "Figure 5",
       .title = "Cumulative log perplexity by decode step",
       .claim = "Quest diverges from full attention faster than SpecAttn as decoding goes on.",
       .words = "Notice how Quest diverges faster than SpecAttn as the decoding step increases",
       .published = "PG-19, 2048 tokens; curves.",
       .values = {specattn_increase("spec", "SpecAttn's increase of perplexity at the end, p = .6",
                                    "selector=specattn;budget=0.6"),
                  specattn_increase("quest", "Quest's, keys of an eighth of the text",
                                    "selector=quest"),
                  specattn_increase("spec95", "SpecAttn's at p = .95",
                                    "selector=specattn;budget=0.95"),
                  specattn_of_perplexity("full", "full attention's perplexity", "perplexity",
                                         "selector=full")},
       .checks = {specattn_knows_language(),
                  {Role::form, "spec", Op::below, "quest", 0.0,
                   "the curve of SpecAttn ends above Quest's on this pair"}},
       .pictures = {{"figure perplexity {perplexity}"}},
       .note = "Judged at p = .6; at p = .95 SpecAttn may lie on full attention's curve because it "
               "keeps nearly everything."},
  };
}

std::vector<Item> specattn_speed_items() {
  return {
      {.id = "specattn-table-2",
       .place = "Table 2",
       .title = "Tokens per second",
       .claim = "Speculation is faster than plain decoding; SpecAttn at p = .97 with 71.89 % KV "
                "reduction is slower than dense speculation but faster than none.",
       .words = "The end-to-end latency seems to be higher for SpecAttn, and this can be "
                "attributed to high mask generation time",
       .published = "No speculation 42.00, dense speculation 68.26, SpecAttn 59.95 tokens/s, RTX "
                    "4090.",
       .values =
           {specattn_speed("spec", "SpecAttn's tokens/s", "selector=specattn", "tokens_per_second"),
            specattn_speed("dense", "dense speculation's", "selector=full", "tokens_per_second"),
            specattn_speed("greedy", "plain decoding's", "selector=greedy", "tokens_per_second"),
            specattn_speed("kv", "SpecAttn's KV reduction", "selector=specattn", "kv_reduction",
                           Unit::percent),
            specattn_speed("pass", "tokens per pass, dense speculation", "selector=full",
                           "tokens_per_pass")},
       .checks = {{Role::needs, "kv", Op::at_least, "0.5", 0.0,
                   "the claim is about a reduction of 71.89 %; at p = .97 this pair keeps nearly "
                   "every block"},
                  {Role::form, "spec", Op::above, "greedy", 0.0,
                   "the draft runs on the same processor, so speculation does not pay in time"},
                  {Role::form, "dense", Op::above, "spec"},
                  {Role::size, "kv", Op::at_least, "0.7189", 0.02}},
       .pictures = {{"table --rows selector+budget --value "
                     "tokens_per_second,kv_reduction,tokens_per_pass {speculative}"}},
       .note = "Seconds on this machine; everything else is exact."},
      {.id = "specattn-fig-3",
       .place = "Figure 3",
       .title = "The nucleus without sorting",
       .claim = "Finding the nucleus by a search for its threshold is at least four times as fast "
                "as sorting, up to 8192 keys.",
       .words = "there is at least 4x speedup till KV cache size 8192 by using sorting-free triton "
                "kernel",
       .published = "At least 4x, Triton against PyTorch's sort, RTX 4090.",
       .values = {{"long", "sorting over searching, 8192 keys", "nucleus-time", "ratio",
                   "keys=8192", Unit::factor, Spread::recorded},
                  {"short", "the same, 1024 keys", "nucleus-time", "ratio", "keys=1024",
                   Unit::factor, Spread::recorded}},
       .checks = {{Role::form, "long", Op::above, "1"},
                  {Role::size, "long", Op::at_least, "4"},
                  {Role::size, "short", Op::at_least, "4"}},
       .pictures = {{"table --rows keys --value sort_seconds,search_seconds,ratio {nucleus-time}"}},
       .note = "One thread of a CPU. Sorting is of the bare weights, without their positions, so "
               "the ratio is a lower one."},
      {.id = "specattn-fig-4",
       .place = "Figure 4",
       .title = "Attention speedup by prompt length",
       .claim = "Attention at p = .97 becomes faster than full attention as the prompt grows, more "
                "than 4x at 2048 tokens.",
       .words = "It shows an increasing trend of speedup as prompt length increases, with more "
                "than 4x speedup for prompt length 2048",
       .published = "More than 4x at 2048 tokens, FlashInfer's block-sparse kernel.",
       .values = {{"gain", "time of dense attention over SpecAttn's, its choice not counted",
                   "speculative", "attention_seconds", "selector=full", Unit::factor, Spread::none,
                   Derive::ratio, "spec"},
                  specattn_speed("spec", "SpecAttn's seconds of attention", "selector=specattn",
                                 "attention_seconds"),
                  specattn_speed("kv", "SpecAttn's KV reduction", "selector=specattn",
                                 "kv_reduction", Unit::percent)},
       .checks = {{Role::needs, "kv", Op::at_least, "0.5", 0.0,
                   "at p = .97 this pair keeps nearly every block, so there is nothing that could "
                   "be faster"},
                  {Role::form, "gain", Op::above, "1"},
                  {Role::size, "gain", Op::at_least, "4"}}},
  };
}

}  // namespace kvscope::papers
