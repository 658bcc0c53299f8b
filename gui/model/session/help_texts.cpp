#include "gui/model/session/help_texts.hpp"

#include <algorithm>
#include <iterator>

namespace kvscope::gui {

namespace {

constexpr HelpText kAttentionMap[] = {
    {"Softmax weight", "a_it = exp(s·q_i·k_t) / Σ_{u ≤ i} exp(s·q_i·k_u)",
     "How much the query at position i attends to the key at position t, exact, from the "
     "recorded q and k after rotation; s is the model's scale, usually 1/√d. Keys after the "
     "query are masked. Attention sinks (a logit without a key) take a share of the sum, so such "
     "rows add up to less than 1.",
     "the softmax of SpecAttn (arXiv 2510.27641), equation (1)"},
    {"Cells", "",
     "Zoomed out, a cell pools many weights: their largest or their mean. A sampled picture comes "
     "first, the exact one replaces it. A click takes the heaviest pair of the cell.",
     ""},
};
constexpr HelpText kRecall[] = {
    {"Attention mass kept", "m = Σ_{t ∈ S} a_it",
     "The share of a query's exact attention on the keys S that the method keeps for it; "
     "mean over measured queries, then heads.",
     "SpecAttn (arXiv 2510.27641), section 3.4: a nucleus is the smallest S with m ≥ p"},
    {"Recall", "R_k = |S ∩ Top_k(a_i)| / k",
     "The share of the k largest weights that is kept: k = 10 as in Quest's figure, or k = the "
     "budget.",
     "Quest (arXiv 2406.10774), figure 4"},
    {"Output error", "|y − o|,  y = Σ_{t ∈ S} aₜvₜ / m,  o = Σₜ aₜvₜ",
     "How far the head's output moves if only the kept keys are attended to and their weights are "
     "renormalised; relative: divided by |o|.",
     "without the division by m: SpecAttn, equation (2)"},
    {"Cost", "",
     "Keys kept: what a query attends to, with the keys kept by rule. Bytes and FLOPs: what the "
     "method's own formula counts for scoring, and the kept keys and values, per query head and "
     "call. The nominal budget is what the method is told: methods of the same budget may keep "
     "different numbers of keys, which is why a method can lie above the oracle there; the title "
     "then says so.",
     ""},
};
constexpr HelpText kCoverage[] = {
    {"Heads", "m = Σ_{t ∈ S} a_it",
     "One cell per layer and query head: what the selected method keeps of the head's attention at "
     "the sliders' budget, mean over measured queries.",
     ""},
};
constexpr HelpText kQuest[] = {
    {"Bound of a page", "U(q, page) = Σ_c max(q_c·m_c, q_c·M_c)  ≥  max_{t ∈ page} q·kₜ",
     "m and M are the smallest and largest value of each channel over the page's keys. For each "
     "channel, the sum takes the larger product of the two ends of the box, so no key of the "
     "page can exceed it: the bound holds for every query, and is exact for pages of one key. "
     "Quest keeps the pages of largest U. Points below the diagonal would be violations.",
     "Quest (arXiv 2406.10774), algorithm 1"},
    {"How many pages", "eval: K = max(3, ⌊B / S⌋)    kernel: K = ⌊B / S⌋, the last page among them",
     "B is the budget in tokens, S the page size. The published evaluation lets all pages compete "
     "and keeps at least three; the published kernels always attend to the last page.",
     "Quest, evaluation and kernel sources (github.com/mit-han-lab/Quest)"},
    {"Gap", "s·(U − max q·k)",
     "How loose the bound is, in logits. A page with a large gap can displace one with a heavier "
     "key.",
     ""},
};
constexpr HelpText kTheorem[] = {
    {"The theorem as printed", "( log(n/(n+1)) − log(1−w) ) / (2M) − 1  ≤  cos(k*, q)",
     "For a unit query, keys with |k|² < M and w the softmax weight of k* among k* and n others: "
     "a key with a large weight points along the query. As printed, it does not hold in general: "
     "with keys of unequal norms, or norms below one half, there are counterexamples (kvscope "
     "papers --example). On real heads M is large and the left side is just above −1, where it "
     "says nothing; 0 violations then confirm nothing.",
     "QuoKA (arXiv 2602.08722), theorem B.1"},
    {"Forms that hold",
     "x = log(w/(1−w)),   N = s·|q|·max|k|\n"
     "Jensen:  cos ≥ (x + log n + mean_i s_i) / |k*|\n"
     "worst case:  cos ≥ (τ − N)/N,  τ = log n + x,  if τ ≥ N, else (τ − N)/|k*|\n"
     "repaired:  cos ≥ (log(n/(n+1)) − log(1−w)) / N − 1",
     "Norms are those of keys scaled by s·|q|, since a recorded query is no unit vector. Jensen "
     "and the worst case always hold (red marks would be bugs of the program); the repaired "
     "form holds if all norms are equal or the cosine is not negative.",
     "our corrections of theorem B.1 (core/attention/theorem_b1.hpp)"},
    {"Main-text theorem", "cos(M_Q, q) ≤ 1 − (α − β)²/2,   α = cos(M_Q, k), β = cos(k, q)",
     "A query that attends to a key that points away from the mean query must itself be far "
     "from it. Exact form (spherical triangle): αβ + √((1−α²)(1−β²)).",
     "QuoKA, theorem 1"},
};
constexpr HelpText kQuerySelection[] = {
    {"S_q", "S_q(i) = −cos(M_Q, q_i),   M_Q = mean_i q_i",
     "How far a query points away from the mean query, of the prompt or of its chunk. QuoKA keeps "
     "the N_Q queries with the largest S_q of every chunk and head as its representatives.",
     "QuoKA (arXiv 2602.08722), algorithm 1, lines 2 to 4, and figure 2 (c)"},
    {"Against the largest weight", "log max_t a_it",
     "The paper's claim: queries with a large S_q are those that attend strongly to some key. "
     "The first key (the sink) is left out. Position confounds the correlation, since early "
     "queries spread their weight over fewer keys: the partial correlation holds it fixed.",
     "QuoKA, figure 2 (c)"},
    {"Score of a key",
     "Ŝ(t) = max_j  p_j·k_t/|k_t|,   p_j = mean over the group's heads of q_hj/|q_hj|",
     "Slot j holds each head's j-th chosen query; the mean is not normalised again. The keys "
     "with the largest Ŝ are kept, one list for the KV head and the whole chunk.",
     "QuoKA, algorithm 1, lines 5 to 12"},
};
constexpr HelpText kGeometry[] = {
    {"Principal axes", "(q − μ)·u₁, (q − μ)·u₂",
     "Queries of the head and keys of its KV head, projected on the axes along which they vary "
     "most together; μ is their mean, the explained share stands at the axes. Colour: S_q of "
     "queries.",
     "QuoKA (arXiv 2602.08722), figure 2 (b)"},
};
constexpr HelpText kLayerMap[] = {
    {"Divergence", "D(i, j) = mean over rows of KL(v_j || d_i) = Σ_k v_j[k]·log(v_j[k] / d_i[k])",
     "How badly the rows d_i of draft layer i predict the rows v_j of verifier layer j, in nats: "
     "rows averaged over heads, over the same tokens. The verifier comes first, so mass that the "
     "draft misses counts.",
     "SpecAttn (arXiv 2510.27641), equation (4): S = −D"},
    {"Monotone map", "min_f Σ_j D(f(j), j),   f(j) ≤ f(j+1)",
     "The boxed cells: one draft layer for each verifier layer, never going back. Draft layers may "
     "be skipped or repeated at no cost.",
     "SpecAttn, algorithm 3 (appendix B)"},
    {"Floor on the kept mass", "m ≥ p − √(KL/2)",
     "A nucleus of mass p of the draft's row holds at least this much of the verifier's (Pinsker's "
     "inequality, for the same row).",
     "our own; the paper states no guarantee for the verifier"},
};
constexpr HelpText kCompare[] = {
    {"Difference", "Σ_{t ∈ page ∩ A} a_it − Σ_{t ∈ page ∩ B} a_it",
     "What the selected method keeps of a page's attention, less what the other one keeps: mean "
     "over the measured queries of a block, and over the heads of the layer. Which keys of one "
     "query both keep stands in the text, underlined.",
     ""},
    {"Pages", "Σ_{t ∈ page} a_it,  Σ_{t ∈ page ∩ S} a_it",
     "Rows are blocks of queries, columns pages of keys. Attention: what lies in the page. Kept: "
     "the part of it on kept keys. Lost: the rest. Selected: the share of the page's visible keys "
     "that the method keeps.",
     ""},
};
constexpr HelpText kHeads[] = {
    {"Distance", "Σ_t a_it·(i − t)",
     "How far back the head attends, in tokens, mean over query rows.", ""},
    {"Entropy", "H = −Σ_t a_it·log a_it",
     "In nats; exp(H) is the number of keys of a uniform row with the same entropy.", ""},
    {"Shares", "Σ_{t < 4} a_it,   Σ_{t > i − n} a_it",
     "Sink: on the first tokens. Local: on the nearest keys. Retrieval: on tokens that followed an "
     "earlier occurrence of the current one. Lost: what the selected method drops.",
     ""},
};
constexpr HelpText kWhy[] = {
    {"Score, rank, cut-off", "kept by score  ⇔  rank(t) ≤ B  ⇔  score(t) ≥ cut-off",
     "A method gives every past key, or every page, a score and keeps the best. The rank counts "
     "those with a better score (of equal ones the first position); the cut-off is the smallest "
     "score that was kept, the margin the distance to it. Keys kept by rule (the query's own "
     "chunk, first and recent tokens, the last page) do not compete.",
     ""},
    {"The budget that keeps it", "",
     "The method is asked again with other budgets until the smallest is found that keeps the key: "
     "to the token if its scores do not depend on the budget, otherwise among powers of two.",
     ""},
    {"QuoKA: the key's representative query", "Ŝ(t) = max_j  p_j·k_t/|k_t|",
     "The representative query j that gave the key its score: the mean of one chosen query per "
     "head of the group.",
     "QuoKA (arXiv 2602.08722), algorithm 1, lines 5 to 12"},
    {"Quest: the page and its bound", "U(q, page) = Σ_c max(q_c·m_c, q_c·M_c)",
     "A key is kept with its page. The bound may be far above the page's largest product, and "
     "pages with looser bounds may outrank the page of a heavy key.",
     "Quest (arXiv 2406.10774), algorithm 1"},
};

struct PanelHelp {
  std::string_view panel;
  std::span<const HelpText> texts;
};
constexpr PanelHelp kTable[] = {
    {"attention-map", kAttentionMap},
    {"recall", kRecall},
    {"coverage", kCoverage},
    {"quest-bounds", kQuest},
    {"theorem-b1", kTheorem},
    {"query-selection", kQuerySelection},
    {"geometry", kGeometry},
    {"layer-map", kLayerMap},
    {"compare", kCompare},
    {"heads", kHeads},
    {"why", kWhy},
};

}  // namespace

std::span<const HelpText> help_texts(std::string_view panel) {
  const auto* const found = std::ranges::find(kTable, panel, &PanelHelp::panel);
  return found == std::end(kTable) ? std::span<const HelpText>() : found->texts;
}

}  // namespace kvscope::gui
