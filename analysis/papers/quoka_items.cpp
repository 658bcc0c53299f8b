// QuoKA (arXiv 2602.08722): its figures, tables and theorem, from the slides and the poster.
#include "analysis/papers/item.hpp"

namespace kvscope::papers {

namespace {

Value quoka_accuracy(const std::string& key, const std::string& label, const std::string& run,
                     const std::string& where) {
  return {key, label, run, "accuracy", where, Unit::percent, Spread::wilson};
}

Value quoka_total(const std::string& key, const std::string& label, const std::string& run,
                  const std::string& name, Spread spread = Spread::rows, Unit unit = Unit::number) {
  return {key, label, run, "totals." + name, "", unit, spread};
}

/// Of the heads' lists of 256 keys in prefill.
Value quoka_choice(const std::string& key, const std::string& label, const std::string& column,
                   const std::string& name = "{method}") {
  const std::string where = "selector=" + name + ";window=0;q_head=";
  return {key, label, "sweep-prefill", column, where, Unit::percent, Spread::recorded};
}

/// The bound that norms are held to.
Value quoka_bound(const std::string& key, const std::string& label, const std::string& name) {
  Value value = quoka_total(key, label, "geometry", name);
  value.factor = 2.0;
  return value;
}

/// What a retrieval claim needs before a sparse method can be judged by it.
Check quoka_dense_finds() {
  return {Role::needs,
          "full",
          Op::at_least,
          "0.75",
          0.0,
          "this model does not find the facts with full attention, so a sparse method's misses say "
          "nothing"};
}

}  // namespace

std::vector<Item> quoka_geometry_items() {
  return {
      {.id = "quoka-fig-2a",
       .place = "Figure 2 (a)",
       .title = "Attention map: some queries matter more than others",
       .claim = "Some queries score consistently higher across keys, so a few of them can speak "
                "for a chunk.",
       .words = "Attention plot shows some queries are consistently higher scoring across keys, "
                "these are more important to use for attention estimation",
       .published = "Llama-3.2-3B-Instruct, layer 0, head 11; a picture, no number.",
       .values = {quoka_total("recall", "share of the oracle's keys that the 16 queries find",
                              "quoka", "oracle_recall", Spread::rows, Unit::percent),
                  quoka_choice("found", "share of as many heaviest keys that the list has",
                               "recallk"),
                  quoka_total("mass", "attention kept with 256 keys", "quoka", "mass_mean",
                              Spread::rows, Unit::percent)},
       .checks = {{Role::form, "recall", Op::at_least, "0.5"},
                  {Role::size, "mass", Op::at_least, "0.9", 0.0,
                   "near-lossless selection would keep nearly all attention"}},
       .pictures = {{"figure attention-map {attention-map} {quoka}"}},
       .readings = {{"", "quoka"}},
       .control = ":queries=random",
       .control_label = "16 queries drawn at random",
       .note =
           "The head shown is the one whose S_q agrees best with its attention on this "
           "recording. The words became numbers here: 16 queries of 128 find at least half of the "
           "keys that an oracle over the whole chunk keeps, and more than any 16 do."},
      {.id = "quoka-queries",
       .place = "Query subselection, Algorithm 1 (lines 1 to 4)",
       .title = "The queries far from the mean speak for the chunk",
       .claim = "The 16 queries with the lowest cosine to the mean query choose keys better than "
                "16 others.",
       .words = "queries with low cosine similarity to the mean query interact with the most keys, "
                "enabling an efficient strategy for query selection",
       .published = "The idea behind all of the paper's numbers; none of them is of other queries.",
       .values = {quoka_choice("mass", "attention kept with 256 keys", "mass_mean"),
                  quoka_accuracy("facts", "facts found with 256 keys", "ruler",
                                 "selector={method}"),
                  quoka_choice("nearest", "attention kept by the 16 queries nearest to the mean",
                               "mass_mean", "quoka:queries=nearest"),
                  quoka_choice("all", "by all queries", "mass_mean", "quoka:queries=all")},
       .pictures =
           {{"table --rows selector --value kept,mass_mean,recallk,output_error_rel --where "
             "q_head= {sweep-prefill}"}},
       .readings = {{"", "quoka"}},
       .control = ":queries=random",
       .control_label = "16 queries drawn at random",
       .note = "Drawn anew for each layer, KV head and chunk."},
      {.id = "quoka-fig-2b",
       .place = "Figure 2 (b)",
       .title = "Queries and keys form two clusters",
       .claim = "Keys cluster around their mean direction and queries around theirs; the two means "
                "point different ways.",
       .words = "We see using PCA that keys and queries tend to cluster amongst themselves and "
                "that higher scoring queries tend to be near the bulk of the keys",
       .published = "Llama-3.2-3B-Instruct, layer 0, head 11; a picture of two clouds.",
       .values = {quoka_total("queries", "mean cosine of queries with their mean", "geometry",
                              "query_clustering"),
                  quoka_total("keys", "mean cosine of keys with their mean", "geometry",
                              "key_clustering"),
                  quoka_total("means", "cosine between the two means", "geometry",
                              "mean_query_mean_key")},
       .checks = {{Role::form, "queries", Op::above, "means"},
                  {Role::form, "keys", Op::above, "means"},
                  {Role::size, "queries", Op::at_least, "0.5", 0.0,
                   "\"most queries point in the same direction\" asks for a cosine near 1"},
                  {Role::size, "keys", Op::at_least, "0.5"}},
       .pictures = {{"figure geometry {geometry} --layers "
                     "{pick:query-selection:best_pearson_log:layer} --heads "
                     "{pick:query-selection:best_pearson_log:best_head}"}}},
      {.id = "quoka-fig-2c",
       .place = "Figure 2 (c)",
       .title = "S_q finds the queries with a large attention weight",
       .claim = "S_q, the negative cosine of a query with the mean query, correlates with the "
                "query's largest attention weight.",
       .words = "The score we use to determine query subselection, S_q, also defined as the "
                "negative cosine similarity of queries with their mean, correlates with query "
                "tokens with high maximum attention score",
       .published = "Correlation 0.737 in layer 0, head 11 of Llama-3.2-3B-Instruct (as readers of "
                    "the full paper quote it; the slides print no number).",
       .values = {quoka_total("mean", "Pearson correlation with log max weight, mean over heads",
                              "query-selection", "{method}_pearson_log"),
                  quoka_total("partial", "the same with the query's position held fixed",
                              "query-selection", "{method}_partial_pearson"),
                  quoka_total("best", "best head of each layer, mean over layers",
                              "query-selection", "best_pearson_log")},
       .checks = {{Role::form, "mean", Op::above, "0"},
                  {Role::form, "partial", Op::above, "0"},
                  {Role::size, "mean", Op::at_least, "0.737", 0.05,
                   "the published number is one head's"}},
       .pictures = {{"figure query-scores {query-selection}"}},
       .readings = {{"mean of the whole prompt", "prompt"},
                    {"mean of the chunk, as in Algorithm 1", "chunk"}},
       .note = "One text, one model. Later queries see more keys and have smaller weights, so the "
               "partial correlation is the fairer number."},
      {.id = "quoka-theorem-b1",
       .place = "Theorem B.1",
       .title = "A key with attention weight w has a cosine of at least the bound",
       .claim = "(log(n/(n+1)) - log(1-w)) / (2M) - 1 <= CosSim(k*, q): a heavy key must point "
                "towards its query.",
       .words = "Suppose that for a fixed query token q, there is a set of key tokens ... that has "
                "attention weight w",
       .published = "A theorem; no number. See also the error \"Theorem B.1 as printed\".",
       .values = {quoka_total("gap", "cosine minus the printed bound, mean", "theorem-b1",
                              "printed_mean_gap"),
                  quoka_total("violations", "number of rows that violate the printed bound",
                              "theorem-b1", "printed_violations", Spread::none),
                  quoka_total("proved", "number of rows that violate a proved bound", "theorem-b1",
                              "violations_of_proved_bounds", Spread::none),
                  quoka_total("jensen", "cosine minus the repaired bound (Jensen), mean",
                              "theorem-b1", "jensen_mean_gap")},
       .checks = {{Role::form, "violations", Op::at_most, "0"},
                  {Role::form, "proved", Op::at_most, "0"},
                  {Role::size, "gap", Op::at_most, "0.5", 0.0,
                   "a bound that lies near -1 says nothing about any key"}},
       .pictures = {{"figure theorem-b1 {theorem-b1}"}}},
      {.id = "quoka-norms",
       .place = "Key and Query Geometry",
       .title = "Norms are bounded; deviation comes mostly from RoPE",
       .claim = "Norms of keys and queries are bounded within all layers, and most of the "
                "geometric deviation comes from RoPE.",
       .words = "Key and query L2 norms are bounded within all layers of LLM (due to LayerNorms) "
                "... Majority of geometric deviation can be attributed to RoPE",
       .published = "Words; no number.",
       .values = {quoka_total("q95", "norm of queries, 95th percentile", "geometry", "q_norm_p95"),
                  quoka_total("k95", "norm of keys, 95th percentile", "geometry", "k_norm_p95"),
                  quoka_bound("q_bound", "twice the mean norm of queries", "q_norm_mean"),
                  quoka_bound("k_bound", "twice the mean norm of keys", "k_norm_mean"),
                  quoka_total("rope", "share of the keys' spread that RoPE makes, mean over heads",
                              "geometry", "rope_share", Spread::rows, Unit::percent),
                  quoka_total("after", "mean cosine of keys with their mean", "geometry",
                              "key_clustering"),
                  quoka_total("before", "the same before RoPE", "geometry",
                              "key_clustering_before_rope")},
       .checks = {{Role::form, "rope", Op::at_least, "0.5", 0.0,
                   "\"most\" asks for more than half"},
                  {.left = "k95", .op = Op::at_most, .right = "k_bound", .in_every_layer = true},
                  {.left = "q95", .op = Op::at_most, .right = "q_bound", .in_every_layer = true}},
       .pictures = {{"table --rows layer --value q_norm_mean,q_norm_p95,k_norm_mean,k_norm_p95 "
                     "{geometry}"}},
       .note = "Spread is 1 minus the cosine with the mean; layers differ. \"Bounded within all "
               "layers\" became: in each, 95 of 100 norms are at most twice their mean."},
  };
}

std::vector<Item> quoka_accuracy_items() {
  return {
      {.id = "quoka-fig-4",
       .place = "Figures 4 and 7",
       .title = "Needle in a haystack",
       .claim = "QuoKA finds needles as the dense model does at all depths and lengths, where "
                "other methods lose them.",
       .words =
           "QuoKA achieves baseline performance on NIAH tasks up to 32k with selective budget 2048",
       .published = "Llama-3.2-3B-Instruct, B_SA = 2048, B_CP = 128, up to 32k tokens: as dense.",
       .values = {quoka_accuracy("quoka", "QuoKA, 25 % of the cache", "needle",
                                 "selector=quoka;budget=0.25"),
                  quoka_accuracy("full", "full attention", "needle", "selector=full"),
                  quoka_accuracy("window", "StreamingLLM, 25 %", "needle",
                                 "selector=streamingllm;budget=0.25")},
       .checks = {quoka_dense_finds(),
                  {Role::form, "quoka", Op::above, "window", 0.0, "", 0.3},
                  {Role::size, "quoka", Op::at_least, "full", 0.05}},
       .pictures = {{"figure needle {needle}"}},
       .note = "Prompt by chunks and answer under the method (protocol all). The needle is a pass "
               "key, or a magic number in the same prose if the dense model finds that more often "
               "in other prompts (run asked); the command says which."},
      {.id = "quoka-table-1",
       .place = "Table 1",
       .title = "RULER by length, seven methods",
       .claim = "At B_SA = 1024 QuoKA scores above SnapKV, KeyDiff, LessIsMore, Loki, SparQ and "
                "SampleAttention at every length.",
       .words = "RULER evaluation results across increasing lengths with B_SA = 1,024. Highest per "
                "column in bold (Higher is better)",
       .published = "Llama-3.2-3B, 4k / 8k / 16k / 32k: QuoKA 86.7 / 80.2 / 70.9 / 57.0; "
                    "SampleAttention 78.3 / 61.1 / 48.3 / 31.7; SparQ 79.4 / 60.8 / 48.6 / 31.1; "
                    "Loki 74.8 / 56.5 / 25.8 / 8.1; SnapKV 29.2 / 13.7 / 12.4 / 6.2.",
       .values = {quoka_accuracy("quoka", "QuoKA, 256 keys", "ruler", "selector={method}"),
                  quoka_accuracy("full", "full attention", "ruler", "selector=full"),
                  quoka_accuracy("snapkv", "SnapKV", "ruler", "selector=snapkv"),
                  quoka_accuracy("keydiff", "KeyDiff", "ruler", "selector=keydiff"),
                  quoka_accuracy("lessismore", "LessIsMore", "ruler", "selector=lessismore"),
                  quoka_accuracy("loki", "Loki", "ruler", "selector=loki:basis=self"),
                  quoka_accuracy("sparq", "SparQ", "ruler", "selector=sparq"),
                  quoka_accuracy("sample", "SampleAttention", "ruler", "selector=sampleattention")},
       .checks = {quoka_dense_finds(),
                  {Role::form, "quoka", Op::above, "snapkv"},
                  {Role::form, "quoka", Op::above, "keydiff"},
                  {Role::form, "quoka", Op::above, "lessismore"},
                  {Role::form, "quoka", Op::above, "loki"},
                  {Role::form, "quoka", Op::above, "sparq"},
                  {Role::form, "quoka", Op::above, "sample"}},
       .pictures = {{"table quoka-1 {ruler}"}},
       .readings = {{"the chunk's keys beside the budget", "quoka"},
                    {"the chunk's keys within it", "quoka:scope=whole"}},
       .note = "Of RULER's tasks only those are asked that this model can do densely. Loki's "
               "directions are fitted on the first keys of each prompt; its authors fit them on a "
               "corpus."},
      {.id = "quoka-table-2",
       .place = "Table 2",
       .title = "RULER with a quarter of the cache",
       .claim =
           "With B_SA = 25 % of the cache QuoKA loses little: at most 3.5 points in the table.",
       .words =
           "QuoKA performs significantly better on the benchmark when using both a fixed "
           "selective budget and with a selective budget as the percentage of current cache size",
       .published = "At 32k, full and QuoKA: Llama-3.2-3B 76.31 and 74.14, Qwen3-4B 88.54 and "
                    "87.87, SmolLM3 75.18 and 73.55; the largest loss is Qwen2.5-3B's at 4096, "
                    "89.56 to 86.07.",
       .values = {quoka_accuracy("quoka", "QuoKA, 25 % of the cache", "needle",
                                 "selector=quoka;budget=0.25"),
                  quoka_accuracy("full", "full attention", "needle", "selector=full"),
                  quoka_accuracy("window", "StreamingLLM, 25 %", "needle",
                                 "selector=streamingllm;budget=0.25")},
       .checks = {quoka_dense_finds(),
                  {Role::form, "quoka", Op::above, "window", 0.0, "", 0.3},
                  {Role::size, "quoka", Op::at_least, "full", 0.035}},
       .pictures = {{"table quoka-2 {needle}"}},
       .note = "Pass keys, or magic numbers in prose where the dense model finds these more often, "
               "stand for RULER's retrieval tasks; its other tasks small models cannot do "
               "densely."},
      {.id = "quoka-table-3",
       .place = "Table 3",
       .title = "LongBench, relative to full attention",
       .claim = "QuoKA keeps 94.5 to 98.6 % of the dense score, other methods 69 to 90 %.",
       .words = "Longbench results demonstrate near baseline performance for QuoKA, much better "
                "than other sparse attention methods applied to chunked prefill",
       .published = "Llama-3.2-3B at 512 / 1024 / 2048: QuoKA .945 / .972 / .986, SampleAttention "
                    ".738 / .800 / .901. The slides and the poster disagree on Loki with SmolLM3 "
                    "(.384 and .784 at 512).",
       .never = "LongBench's documents and questions do not come with this program (kvscope "
                "simulate retrieval --examples asks them, where they are)."},
  };
}

std::vector<Item> quoka_cost_items() {
  const auto flops = [](const std::string& key, const std::string& label,
                        const std::string& selector) {
    return Value{key, label, "sweep-prefill", "score_flops", "selector=" + selector + ";q_head="};
  };
  const auto ratio = [](const std::string& key, const std::string& label, const std::string& column,
                        Reduce reduce) {
    return Value{
        key,          label, "live", column, "selector=quoka", Unit::factor, Spread::recorded,
        Derive::none, "",    reduce};
  };
  return {
      {.id = "quoka-complexity",
       .place = "Complexity table",
       .title = "Scoring costs less than other methods' scoring",
       .claim = "QuoKA's runtime complexity is below that of SampleAttention, SparQ, Loki and "
                "LessIsMore.",
       .words = "Quoka has superior theoretical memory/compute complexity than attention and other "
                "sparse attention methods",
       .published = "QuoKA O((B_CP + N_Q (1 + d n_KV)) T), SampleAttention O((d n_Q + n_Q / n_KV + "
                    "n_KV) N_Q T), SparQ O(B_CP T d_l n_Q), Loki O(d_l n_Q (B_CP T + d (B_CP + "
                    "T))), LessIsMore O(d n_Q B_CP T / L).",
       .values = {flops("quoka", "number of QuoKA's scoring operations per call", "quoka"),
                  flops("sample", "SampleAttention's number", "sampleattention"),
                  flops("sparq", "SparQ's", "sparq"), flops("loki", "Loki's", "loki:basis=self"),
                  flops("less", "LessIsMore's, mean over layers", "lessismore")},
       .checks = {{Role::form, "quoka", Op::below, "sample"},
                  {Role::form, "quoka", Op::below, "sparq"},
                  {Role::form, "quoka", Op::below, "loki"}},
       .pictures = {{"table --rows selector --value score_flops,attend_flops,bytes --where q_head= "
                     "{sweep-prefill}"}},
       .note = "Counted operations of one prefill call and layer, chunks of 128. LessIsMore "
               "chooses in some layers only and is shown, not judged."},
      {.id = "quoka-fig-5b",
       .place = "Figure 5 (b)",
       .title = "Time to the first token",
       .claim = "The first token comes up to three times sooner than with dense attention, and the "
                "gain grows with the prompt.",
       .words = "TTFT and attention module latency significantly reduced by up to 3-5x on "
                "different hardware ... Results include 3x lower TTFT",
       .published = "About 3x on an A100, Qwen3-4B, B_CP = 128; the length, about 50k tokens, is "
                    "read off the axis.",
       .values = {ratio("best", "dense over QuoKA, longest prompt measured", "ttft_ratio",
                        Reduce::max),
                  ratio("least", "the same, shortest prompt", "ttft_ratio", Reduce::min)},
       .checks = {{Role::form, "best", Op::above, "1"},
                  {Role::size, "best", Op::at_least, "3", 0.0,
                   "the published number needs prompts of tens of thousands of tokens"}},
       .pictures = {{"figure latency {live}"}},
       .note = "Measured on this machine's cores; on a busy one read the ratio only."},
      {.id = "quoka-fig-5acd",
       .place = "Figure 5 (a, c, d)",
       .title = "Attention speedup",
       .claim =
           "Attention becomes about five times as fast on GPUs and up to seven times on a CPU.",
       .words = "5x GPU attention speedup, and up to 7x CPU speedup",
       .published = "5x on an A100, 5 to 6x on an RTX 2080, 7x on a Xeon W-2125; Qwen3-4B.",
       .values = {ratio("best", "dense attention over QuoKA's choice and attention, longest prompt",
                        "attention_ratio", Reduce::max),
                  ratio("least", "the same, shortest prompt", "attention_ratio", Reduce::min)},
       .checks = {{Role::form, "best", Op::above, "1"},
                  {Role::size, "best", Op::at_least, "7", 0.0,
                   "the published number is the longest prompt's on another machine"}},
       .pictures = {{"figure latency {live}"}},
       .note = "Measured where the report was made; the paper's machines were others."},
      {.id = "quoka-88-percent",
       .place = "Abstract",
       .title = "88 % fewer key-value pairs",
       .claim = "QuoKA uses 88 % fewer key-value pairs at near-baseline accuracy.",
       .words = "while using 88% fewer KV pairs and maintaining near-baseline accuracy",
       .published = "88 %; the configuration is not stated (1024 of 8192 keys would be 87.5 %).",
       .values = {{"kv", "key-value pairs not attended to, QuoKA at 12 %", "needle", "kv_reduction",
                   "selector=quoka;budget=0.12", Unit::percent, Spread::rows},
                  quoka_accuracy("quoka", "QuoKA's accuracy there", "needle",
                                 "selector=quoka;budget=0.12"),
                  quoka_accuracy("full", "full attention", "needle", "selector=full"),
                  quoka_accuracy("window", "StreamingLLM, 12 %", "needle",
                                 "selector=streamingllm;budget=0.12")},
       .checks = {quoka_dense_finds(),
                  {Role::form, "quoka", Op::above, "window", 0.0, "", 0.3},
                  {Role::size, "kv", Op::at_least, "0.88", 0.005,
                   "a chunk's own keys are attended to beside the chosen ones, which weighs more "
                   "in short prompts"},
                  {Role::size, "quoka", Op::at_least, "full", 0.05}}},
  };
}

}  // namespace kvscope::papers
