// Errors found in the three papers: what is printed, and the command whose result contradicts it or
// shows that it cannot be meant so. Constructed recordings come from "kvscope papers --example".
#include "analysis/papers/item.hpp"

namespace kvscope::papers {

namespace {

Value lost(const std::string& key, const std::string& label, const std::string& column) {
  return {key,          label,        "error-bound",    column, "selector=oracle-topk;q_head=",
          Unit::factor, Spread::none, Derive::per_lost, "mass"};
}

Value nucleus_mass(const std::string& key, const std::string& label, const std::string& mode) {
  return {key, label, "nucleus-time", "least_mass_" + mode, "keys=8192", Unit::percent};
}

Value pairing(const std::string& key, const std::string& label) {
  return {key, label, "pairing", "totals." + key, "", Unit::percent, Spread::rows};
}

}  // namespace

std::vector<Item> quoka_errors() {
  return {
      {.id = "error-theorem-b1",
       .place = "Theorem B.1",
       .title = "Theorem B.1 as printed is false",
       .claim = "For ||q|| = 1 and all squared norms below M: (log(n/(n+1)) - log(1-w)) / (2M) - 1 "
                "<= CosSim(k*, q).",
       .words = "Without loss of generality suppose ||q|| = 1 and assume k* is a key not in",
       .published =
           "Printed with an upper bound M of the squared norms, and no other condition on them.",
       .values = {{"violations",
                   "number of rows of the constructed recording that violate the printed bound",
                   "b1-example", "totals.printed_violations"},
                  {"repaired", "number of rows that violate a proved bound", "b1-example",
                   "totals.violations_of_proved_bounds"}},
       .checks =
           {{Role::form, "violations", Op::at_most, "0", 0.0,
             "two counterexamples are enough (keys of unequal norm; norms below 1/2, where the "
             "squared norm is no bound of the logits)"}},
       .pictures = {{"table --rows layer --value rows,printed_violations,jensen_violations "
                     "{b1-example}"}},
       .note = "Layer 0: q = (1, 0), k = (-1, 0), k* = (-0.001, 0): w = .731, the printed bound is "
               "-.69, the cosine is -1. Layer 1: k* = (.1, 0), k = (-.1, 0), M = .01: the printed "
               "bound is 4.25. True for keys of equal norm of at least 1/2; Jensen's form always.",
       .kind = Kind::error},
      {.id = "error-normalised-keys",
       .place = "Algorithm 1, lines 7 and 12",
       .title = "Normalised keys, if taken literally",
       .claim = "Line 7 replaces K by unit keys and line 12 gathers K* from that K.",
       .words = "K <- K/norm(K, dim=-1) ... K*, V* <- gather(K, I), gather(V, I)",
       .published =
           "Algorithm 1 overwrites K (and Q, of which N_Q rows are left) before gathering.",
       .values = {{"norm", "norm of the keys that attention needs, mean over heads and layers",
                   "geometry", "totals.k_norm_mean", "", Unit::number, Spread::rows}},
       .checks =
           {{Role::form, "norm", Op::at_most, "1", 0.05,
             "attention over the gathered unit keys would divide every logit by that norm; the "
             "original rows must be meant"}},
       .pictures = {{"table --rows layer --value k_norm_mean,k_norm_p05,k_norm_p95 {geometry}"}},
       .kind = Kind::error},
      {.id = "error-pairing",
       .place = "Algorithm 1, lines 4 and 8",
       .title = "Pairing by rank or by position is left open",
       .claim = "Algorithm 1 says which keys are kept.",
       .words = "Q <- gather(topk(-S_Q, N_Q), Q) ... mean(Q, reshape(b, n_kv, n_q, d), dim=2)",
       .published = "After each head has chosen its own queries (line 4), slot j of the mean over "
                    "heads (line 8) joins different tokens, in whatever order top-k returns them.",
       .values = {pairing("jaccard", "keys kept by both readings, of those that either keeps"),
                  pairing("first_mass", "attention on keys kept if paired by rank alone"),
                  pairing("second_mass", "on keys kept if paired by position alone")},
       .checks = {{Role::form, "jaccard", Op::at_least, "1", 0.01,
                   "the two readings choose different keys"}},
       .pictures = {{"table --rows layer --value jaccard,first_mass,second_mass {pairing}"}},
       .note = "The program's tests hold a call in which the readings keep keys 0, 2 and 1, 3.",
       .kind = Kind::ambiguity},
  };
}

std::vector<Item> quest_errors() {
  return {
      {.id = "error-budget-48",
       .place = "Pass-key table, budget 32",
       .title = "Budget 32 was 48 tokens",
       .claim = "The first column of the pass-key table has a budget of 32 tokens.",
       .words = "Method / Budget 32 64 128 256 512",
       .published = "65 % at budget 32. The published evaluator takes max(3, budget / 16) pages.",
       .values =
           {{"kept",
             "number of keys that the evaluator's rule keeps at budget 32, largest layer mean",
             "pages", "kept", "selector=quest-paper;q_head=;window=0", Unit::tokens, Spread::none,
             Derive::none, "", Reduce::max},
            {"kernel", "keys that the published kernels' rule keeps", "pages", "kept",
             "selector=quest;q_head=;window=0", Unit::tokens, Spread::none, Derive::none, "",
             Reduce::max}},
       .checks =
           {{Role::form, "kept", Op::at_most, "32", 0.0,
             "three pages of 16 are 48 tokens (a little less where the last page is not full)"}},
       .pictures = {{"table --rows selector --columns layer --value kept --where q_head= {pages}"}},
       .kind = Kind::error},
  };
}

std::vector<Item> specattn_errors() {
  return {
      {.id = "error-last-midpoint",
       .place = "Algorithm 2, line 17",
       .title = "The last midpoint loses mass",
       .claim = "The set {i : a_i >= theta_mid} holds at least p of the row's mass.",
       .words = "ensuring that we retain tokens accounting for at least p fraction of the total "
                "attention mass",
       .published = "Line 17 returns the last midpoint tried, also where that test failed.",
       .values = {nucleus_mass("printed", "least mass kept by the printed search, p = .95",
                               "paper_eps"),
                  nucleus_mass("ten", "with ten halvings, as its footnote says", "paper_10"),
                  nucleus_mass("low", "returning the lower end instead", "safe_low"),
                  nucleus_mass("exact", "the exact nucleus", "exact")},
       .checks = {{Role::form, "ten", Op::at_least, "0.95", 1e-6,
                   "the last midpoint failed its test and was returned all the same"},
                  {Role::form, "printed", Op::at_least, "0.95", 1e-6}},
       .pictures = {{"table --rows keys --value least_mass_paper_eps,least_mass_paper_10,"
                     "least_mass_safe_low,least_mass_exact {nucleus-time}"}},
       .note = "Made-up rows, softmax of normal numbers; the same on recorded rows with kvscope "
               "sweep --phase verify --selector specattn:nucleus=paper_10.",
       .kind = Kind::error},
      {.id = "error-bound-factor",
       .place = "Appendix A.3",
       .title = "The bound's factor 2",
       .claim = "The output error of top-p attention is at most (1 - p) ||V||.",
       .words = "The top-p approach provides a theoretical error bound of",
       .published = "Shown for equation (2), whose weights are not renormalised; FlashInfer, which "
                    "computes the results, renormalises.",
       .values = {lost("renormalised", "error over lost mass, renormalised as computed",
                       "output_error"),
                  lost("raw", "error over lost mass by equation (2)", "output_error_raw"),
                  {"mass", "attention kept", "error-bound", "mass_mean",
                   "selector=oracle-topk;q_head=", Unit::percent}},
       .checks = {{Role::form, "renormalised", Op::at_most, "1", 0.001,
                   "renormalised attention has twice the printed bound, and reaches it"}},
       .note = "A constructed recording: kept keys have the value u, all others -u, ||u|| = 1.",
       .kind = Kind::error},
      {.id = "error-77-percent",
       .place = "Table 1",
       .title = "77.4 % KV reduction leaves the dense layers out",
       .claim = "A window of 256 keys reduces the KV loads of the model by 77.4 %.",
       .words = "the first 2 layers use full attention for all methods",
       .published = "77.4 %; the first two layers are dense and 10 % of 2048 tokens prefilled.",
       .values =
           {{"all", "KV reduction of all layers, with 2 of 32 dense (30/32 of the sparse layers')",
             "perplexity", "kv_reduction", "selector=streamingllm", Unit::percent, Spread::none,
             Derive::none, "", Reduce::mean, 30.0 / 32.0},
            {"kv", "KV reduction of a window of an eighth of the text, dense layers not counted",
             "perplexity", "kv_reduction", "selector=streamingllm", Unit::percent},
            {"quest", "Quest's", "perplexity", "kv_reduction", "selector=quest", Unit::percent}},
       .checks =
           {{Role::needs, "kv", Op::at_least, "0.774", 0.001},
            {Role::needs, "kv", Op::at_most, "0.774", 0.001},
            {Role::form, "all", Op::at_least, "0.774", 0.001,
             "the printed number comes out only if the two dense layers are left out, which the "
             "paper does not say"}},
       .kind = Kind::error},
  };
}

}  // namespace kvscope::papers
