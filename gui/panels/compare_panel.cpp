// Where attention lies in the selected layer, by query block and page of keys, what the selected
// method keeps of it, and what it keeps more than another method, or at another budget.
#include <fmt/ranges.h>

#include <cmath>

#include "analysis/base/replay_pairs.hpp"
#include "analysis/kinds/coverage.hpp"
#include "core/base/lists.hpp"
#include "gui/model/methods/method_rows.hpp"
#include "gui/model/session/methods.hpp"
#include "gui/panels/analysis_panel.hpp"

namespace kvscope::gui {

enum class CompareWith { method, budget };
enum class CompareHeads { all, selected };

namespace {

constexpr Index kDecodeBlocks = 128;

struct CompareOptions {
  CompareWith with =
      option(with, "with", CompareWith::method,
             "the method that the side bar names after \"against\", or the same one at another "
             "budget");
  Index other_budget =
      option(other_budget, "other-budget", 64, "tokens, under \"with budget\"", at_least(1));
  CompareHeads heads =
      option(heads, "heads", CompareHeads::all, "mean over all heads of the layer, or this one");
  // What the session says.
  std::string methods = option(methods, "methods", "", "");
  std::string budgets = option(budgets, "budgets", "", "");
  bool decodes = option(decodes, "decodes", false, "");
  Index layer = option(layer, "layer", 0, "");
  Index q_head = option(q_head, "q-head", 0, "");
  Index chunk = option(chunk, "chunk", 128, "");
  Index page_size = option(page_size, "page-size", 16, "");
  Index dense_layers = option(dense_layers, "dense-layers", 0, "");
  bool operator==(const CompareOptions&) const = default;
  bool is_of_session(std::string_view name) const {
    return name != "with" && name != "other-budget" && name != "heads";
  }
};

/// Positions per row of the map.
Index block_of(const TraceInfo& info, const CompareOptions& options) {
  if (!options.decodes) return options.chunk;
  return std::max<Index>(1, (info.n_tokens - info.n_prompt + kDecodeBlocks - 1) / kDecodeBlocks);
}

void analyze_pages(const TraceSource& trace, const TraceSource* draft,
                   const CompareOptions& options, const AnalysisRun& run) {
  const TraceInfo& info = trace.info();
  CoverageOptions coverage;
  for (const std::string& method : split_words(options.methods, ';'))
    coverage.selectors.emplace_back(method);
  for (const std::string& budget : split_words(options.budgets, ';')) {
    if (!budget.empty()) coverage.budgets.push_back(Budget::parse(budget));
  }
  coverage.layers = {options.layer};
  coverage.replay.calls =
      call_plan(info, options.decodes ? Phase::decode : Phase::prefill, options.chunk);
  coverage.replay.rows_per_chunk = display_rows_per_chunk(info.n_tokens);
  coverage.replay.dense_layers = options.dense_layers;
  if (options.heads == CompareHeads::selected) coverage.replay.q_heads = {options.q_head};
  coverage.query_block = block_of(info, options);
  coverage.page_size = options.page_size;
  analyze_coverage(trace, draft, coverage, run);
}

class ComparePanel final : public AnalysisPanel<CompareOptions> {
 public:
  ComparePanel()
      : AnalysisPanel(
            {"compare", "Compare",
             "What the selected method keeps of the attention by query block and page of keys, and "
             "what more than another one. A click goes to the query and key.",
             Extent::layer},
            {.figure = "coverage-pages",
             .metrics = {"difference", "kept", "lost", "selected"},
             .rows = "map_mass",
             .scope = AnalysisScope::layer,
             .lists_figure = true},
            analyze_pages) {}

 private:
  std::shared_ptr<const Document> second_of(const Session& session) const override {
    if (switches_.of_second) return nullptr;  // which may be the draft itself
    const auto draft = session.draft_for(session.selection().selector);
    return draft ? draft : session.draft_for(session.selection().other);
  }

  CompareOptions asked(const Session& session) const override {
    CompareOptions options = switches_.analysis;
    const Selection& selection = session.selection();
    const Parameters& parameters = session.parameters();
    std::vector<std::string> methods = {spec_of(selection.selector, parameters).text()};
    std::vector<std::string> budgets;
    const auto add = [](std::vector<std::string>& list, const std::string& one) {
      if (std::ranges::find(list, one) == list.end()) list.push_back(one);
    };
    const auto add_budget = [&](const MethodSpec& method, const Parameters& of) {
      if (const auto budget = budget_of(method, of)) add(budgets, budget->to_string());
    };
    add_budget(selection.selector, parameters);
    if (options.with == CompareWith::method) {
      add(methods, spec_of(selection.other, parameters).text());
      add_budget(selection.other, parameters);
    } else {
      Parameters other = parameters;
      other.budget = options.other_budget;
      add_budget(selection.selector, other);
    }
    options.methods = fmt::format("{}", fmt::join(methods, ";"));
    options.budgets = fmt::format("{}", fmt::join(budgets, ";"));
    const TraceInfo& info = main_of(session)->info();
    options.decodes = phase_of(info, std::min(selection.query, info.n_tokens - 1)) == Phase::decode;
    options.layer = selection.layer;
    options.q_head = selection.q_head;
    options.chunk = parameters.chunk;
    options.page_size = parameters.page_size;
    options.dense_layers = parameters.dense_layers;
    return options;
  }
  bool is_shared(std::string_view name) const override {
    return switches_.analysis.is_of_session(name);
  }

  AnalysisCard card_for(const CompareOptions& options) const override {
    AnalysisCard card = AnalysisPanel::card_for(options);
    const auto methods = split_words(options.methods, ';');
    auto budgets = split_words(options.budgets, ';');
    std::erase(budgets, "");
    const auto label = [&](const std::string& method, std::size_t budget) {
      return budget < budgets.size() ? fmt::format("{} {}", method, budgets[budget]) : method;
    };
    card.selector = methods.size() > 1 ? methods[0] : label(methods[0], 0);
    card.against = methods.size() > 1 ? methods[1] : label(methods[0], 1);
    return card;
  }

  std::optional<Question> question(PanelContext& context) override {
    const Session& session = context.session;
    const Selection& selection = session.selection();
    std::string why;
    for (const MethodSpec& method : {selection.selector, selection.other}) {
      const bool takes_part =
          method == selection.selector || switches_.analysis.with == CompareWith::method;
      const Phase phase = asked(session).decodes ? Phase::decode : Phase::prefill;
      if (why.empty() && takes_part) why = obstacle(method, phase, second_ != nullptr);
    }
    if (selection.layer < session.parameters().dense_layers) {
      why = fmt::format(
          "Layer {} stays dense (\"dense-layers\" in the side bar): both keep all keys.",
          selection.layer);
    }
    if (document_->info().window_of(selection.layer)) {
      why = fmt::format(
          "Layer {} attends to a sliding window, which every method leaves as it is: choose a "
          "layer with full attention.",
          selection.layer);
    }
    if (why.empty()) return AnalysisPanel::question(context);
    empty_place(context, "These two cannot be compared here", why);
    return std::nullopt;
  }

  TokenRange queries_of(const CompareOptions& options) const {
    const TraceInfo& info = document_->info();
    return options.decodes ? TokenRange{info.n_prompt, info.n_tokens}
                           : TokenRange{0, info.n_prompt};
  }

  /// The block and the page at a place of the map.
  std::pair<TokenRange, TokenRange> cell_at(const Session& session, double key,
                                            double query) const {
    const CompareOptions options = asked(session);
    const Index first = queries_of(options).begin;
    const Index size = block_of(document_->info(), options);
    const Index block = first + static_cast<Index>(std::floor((query - static_cast<double>(first)) /
                                                              static_cast<double>(size))) *
                                    size;
    const Index page = static_cast<Index>(key) / options.page_size * options.page_size;
    return {{block, block + size}, {page, page + options.page_size}};  // as the figure's cells
  }

  static void frame(AccentMarks& marks, TokenRange keys, TokenRange queries) {
    marks.frame({static_cast<double>(keys.begin), static_cast<double>(keys.end)},
                {static_cast<double>(queries.begin), static_cast<double>(queries.end)});
  }

  void draw_over(PanelContext& context) override {
    const TokenRange all = queries_of(asked(context.session));
    const auto draw = [&](const std::optional<Index>& query, const std::optional<Index>& key,
                          plot::Colour colour) {
      if ((!query && !key) || (query && (*query < all.begin || *query >= all.end))) return;
      const auto [block, page] = cell_at(context.session, static_cast<double>(key.value_or(0)),
                                         static_cast<double>(query.value_or(all.begin)));
      for (std::size_t panel = 0; panel < picture_.panels.size(); ++panel) {
        AccentMarks marks(context, figure_, panel, colour);
        frame(marks, key ? page : TokenRange{0, std::min(block.end, all.end)}, query ? block : all);
      }
    };
    const Pointed& at = pointed();
    draw(at.query, at.keys.size() > 0 ? std::optional(at.keys.begin) : std::nullopt,
         context.look.ink);
    const Selection& selection = context.session.selection();
    draw(selection.query, selection.key, context.look.accent);
  }

  void follow(PanelContext& context, const FigureHit& hit) override {
    if (!hit.value) return;
    auto [block, page] = cell_at(context.session, hit.x, hit.y);
    const Index query = std::min(block.end, queries_of(asked(context.session)).end) - 1;
    page.end = std::min(page.end, document_->info().n_tokens);
    HoverLines lines = {{"queries", fmt::format("{} to {}", block.begin, query)},
                        {"keys", fmt::format("{} to {}", page.begin, page.end - 1)}};
    if (document_->has_text()) lines.emplace_back("text", document_->text_of(page, 72));
    lines.emplace_back(picture_.panels[hit.panel].title,
                       std::isnan(*hit.value) ? "nothing" : fmt::format("{:.6g}", *hit.value));
    const bool is_one = block.size() == 1;
    detail_tooltip(lines, {.query = is_one ? std::optional(query) : std::nullopt, .keys = page});
    if (!hit.clicked) return;
    context.session.select_pair("compare click", query, std::min(page.begin, query));
  }
};

}  // namespace

std::unique_ptr<Panel> make_compare_panel() {
  return std::make_unique<ComparePanel>();
}

}  // namespace kvscope::gui
