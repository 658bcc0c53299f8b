// Two methods, two budgets or two traces side by side, with their difference.
#include <fmt/format.h>

#include <cmath>
#include <nlohmann/json.hpp>

#include "core/base/error.hpp"
#include "gui/model/compare/compare_figures.hpp"
#include "gui/panels/compare_picture.hpp"
#include "gui/panels/panel_base.hpp"
#include "gui/panels/switch_row.hpp"

namespace kvscope::gui {

namespace {

constexpr std::size_t kNotedKeys = 40;

class ComparePanel final : public TracePanel<CompareOptions> {
 public:
  PanelInfo info() const override {
    return {"compare", "Compare",
            "Two methods, two budgets or two traces side by side, with their difference. "
            "Clicking goes to the query and key."};
  }

  void controls(PanelContext&) override {
    switch_buttons(switches_, switches_.what);
    switch_buttons(switches_, switches_.show);
    if (switches_.show == CompareShow::maps)
      switch_box(switches_, switches_.shared_scale, "shared scale");
  }

  std::optional<std::string> csv() const override {
    if (!figure_.is_shown()) return std::nullopt;
    const auto& shown = picture_.value();
    const Document& document = picture_.document();
    if (shown == maps_.value) return compare_maps_csv(*maps_.value);
    if (shown == keys_.value) return compare_keys_csv(*keys_.value, document);
    return compare_rows_csv(*rows_.value, document);
  }

 private:
  std::shared_ptr<const Document> second_of(const Session& session) const override {
    const Selection& selection = session.selection();
    if (switches_.what == CompareWhat::traces) return session.second();
    const auto draft = session.draft_for(selection.selector);
    return draft ? draft : session.draft_for(selection.other);
  }

  void forget() override {
    sides_ = {};
    kept_a_.clear();
    kept_b_.clear();
    maps_.forget();
    keys_.forget();
    rows_.forget();
    picture_.forget();
  }

  void draw_trace(PanelContext& context) override {
    const bool traces = switches_.what == CompareWhat::traces;
    if (traces && needs_second(context, "the attention and the kept keys of the same tokens"))
      return;
    update_sides(context.session);
    draw_side_controls(context);
    update_sides(context.session);
    const bool wants_rows = traces && switches_.show == CompareShow::query;
    if (!sides_.problem.empty() && !(wants_rows && sides_.rows_only)) {
      empty_place(context, "These two cannot be compared here", sides_.problem);
      return;
    }
    if (wants_rows) {
      draw_rows(context);
    } else if (switches_.show == CompareShow::query) {
      draw_keys(context);
    } else {
      draw_maps(context);
    }
  }

  void update_sides(const Session& session) {
    if (has_changed(session)) sides_ = compare_sides(session, switches_);
  }

  void draw_side_controls(PanelContext& context) {
    const float width = context.look.px(150);
    if (switches_.what == CompareWhat::budgets) {
      const auto budget = sides_.a.request.budget;
      const bool is_mass = budget && budget->kind == Budget::Kind::mass;
      ImGui::SetNextItemWidth(width);
      if (is_mass) {
        const double low = 0.01;
        const double high = 1.0;
        ImGui::SliderScalar("p of B", ImGuiDataType_Double, &switches_.other_nucleus, &low, &high,
                            "%.3g", ImGuiSliderFlags_AlwaysClamp);
      } else {
        const Index low = 1;
        const Index high = 65536;
        ImGui::SliderScalar("budget of B", ImGuiDataType_S64, &switches_.other_budget, &low, &high,
                            "%lld", ImGuiSliderFlags_AlwaysClamp | ImGuiSliderFlags_Logarithmic);
      }
      help_tooltip("A has the budget of the slider at the left.");
    }
    if (switches_.what == CompareWhat::traces) {
      if (switch_box(switches_, switches_.own_head, "own layer and head for B") &&
          switches_.own_head) {
        switches_.other_layer = sides_.b.request.layer;
        switches_.other_head = sides_.b.request.q_head;
      }
      if (switches_.own_head) {
        const Index step = 1;
        ImGui::SameLine();
        ImGui::SetNextItemWidth(context.look.px(90));
        ImGui::InputScalar("layer", ImGuiDataType_S64, &switches_.other_layer, &step);
        ImGui::SameLine();
        ImGui::SetNextItemWidth(context.look.px(90));
        ImGui::InputScalar("head", ImGuiDataType_S64, &switches_.other_head, &step);
        const TraceInfo& info = sides_.b.document->info();
        switches_.other_layer = std::clamp<Index>(switches_.other_layer, 0, info.n_layers - 1);
        switches_.other_head = std::clamp<Index>(switches_.other_head, 0, info.n_q - 1);
      }
    }
  }

  /// The kept keys of both sides; empty while one of them is missing.
  struct KeptPair {
    std::shared_ptr<const KeptRows> a;
    std::shared_ptr<const KeptRows> b;
    bool fresh = false;
  };

  KeptPair ask_kept(PanelContext& context, bool has_picture) {
    const auto ask_side = [&](AsyncValue<KeptRows>& slot, const CompareSide& side,
                              const char* name) {
      return ask(context, slot, side.key(),
                 {fmt::format("Kept keys of {}: {}", name, side.label), Lane::heavy},
                 on_traces(side.document, side.draft, side.request, kept_rows));
    };
    const auto a = ask_side(kept_a_, sides_.a, "A");
    const bool are_same = sides_.a.key() == sides_.b.key();
    const auto b = are_same ? a : ask_side(kept_b_, sides_.b, "B");
    // One report at a time.
    if (!a.fresh) {
      report_job(context, kept_a_, a.status, has_picture, /*fresh=*/false);
    } else {
      report_job(context, kept_b_, b.status, has_picture, b.fresh);
    }
    return {a.value, b.value, a.fresh && b.fresh};
  }

  /// A value with what it was made for: it stays in sight while the next one is computed.
  template <class T>
  struct Shown {
    AsyncValue<T> slot;
    std::shared_ptr<const T> value;
    CompareSides sides;
    std::vector<NotedKey> noted;
    void forget() {
      slot.clear();
      value.reset();
      sides = {};  // they hold the traces
    }
  };
  /// Asks for the value of the sides as they are; `note`: which keys of it are noted.
  template <class T, class Compute>
  void update(PanelContext& context, Shown<T>& shown, const std::string& key,
              const std::string& title, Compute compute,
              std::vector<NotedKey> (*note)(const T&, std::size_t) = nullptr) {
    const auto view = ask(context, shown.slot, key, {title, Lane::quick, /*urgent=*/true}, compute);
    if (!async_place(context, shown.slot, view) || !view.fresh || view.value == shown.value) return;
    shown.value = view.value;
    shown.sides = sides_;
    if (note != nullptr) shown.noted = note(*view.value, kNotedKeys);
  }
  /// Says of a key under the mouse what `lines` say, and goes there if it was clicked.
  void explain_key(PanelContext& context, Index key, HoverLines lines) {
    const Document& document = picture_.document();
    context.fonts.require(document.token_text(key));
    lines.insert(lines.begin(), {"key", token_words(document, key)});
    detail_tooltip(lines);
    if (figure_.hit()->clicked) go_to_key(context.session, key);
  }

  void draw_maps(PanelContext& context) {
    const KeptPair kept = ask_kept(context, /*has_picture=*/maps_.value != nullptr);
    if (kept.fresh) {
      const CompareSide& a = sides_.a;
      const TraceInfo& trace = a.document->info();
      const MapCells cells =
          map_cells_for(trace.n_tokens, trace.n_tokens - trace.n_prompt, a.request.phase,
                        a.request.chunk, context.session.parameters().page_size);
      update(
          context, maps_,
          fmt::format("compare-maps/{}/{}x{}", sides_.key(), cells.query_block, cells.page_size),
          "Comparison", [kept, window = a.window(), request = a.request, cells](JobContext& job) {
            return compare_kept(*kept.a, *kept.b, window, request.phase, request.chunk, cells, job);
          });
    }
    if (!maps_.value) return;
    const KeptComparison& c = *maps_.value;
    number_table(
        "numbers", {"", "A", "B", "A − B"},
        {{"attention mass", fmt::format("{:.4f}", c.mass_a), fmt::format("{:.4f}", c.mass_b),
          signed_with_interval(c.mass_a - c.mass_b, c.interval)},
         {"keys per query", fmt::format("{:.1f}", c.kept_a), fmt::format("{:.1f}", c.kept_b),
          fmt::format("{:+.1f}, Jaccard {:.3f}", c.kept_a - c.kept_b, c.jaccard)}});
    picture_.show(
        context, figure_, maps_.value, maps_.sides, switches_.shared_scale ? 1 : 0,
        ImGui::GetContentRegionAvail(),
        [&](const KeptComparison& value, const CompareSides& sides, const CompareMarks& marks) {
          return compare_maps_figure(value, sides, switches_.shared_scale, marks);
        });
    const auto& hit = figure_.hit();
    if (!hit) return;
    const auto query = static_cast<Index>(std::floor(hit->y));
    const auto key = static_cast<Index>(std::floor(hit->x));
    const auto cell = c.cell_of(query, key);
    if (!cell) return;
    const Document& document = picture_.document();
    const Index block = query / c.cells.query_block * c.cells.query_block;
    const Index page = key / c.cells.page_size * c.cells.page_size;
    const auto share = [](float value) {
      return std::isnan(value) ? std::string("not visible") : fmt::format("{:.4f}", value);
    };
    context.fonts.require(document.token_text(query) + document.token_text(key));
    detail_tooltip({{"queries", fmt::format("{} to {}", block, block + c.cells.query_block - 1)},
                    {"keys", fmt::format("{} to {}", page, page + c.cells.page_size - 1)},
                    {"share of A", share(c.share_a[*cell])},
                    {"share of B", share(c.share_b[*cell])},
                    {"A − B", share(c.difference[*cell])},
                    {"query", token_words(document, query)},
                    {"key", token_words(document, key)}});
    if (hit->clicked) go_to_key(context.session, key, query);
  }

  void draw_keys(PanelContext& context) {
    const KeptPair kept = ask_kept(context, /*has_picture=*/keys_.value != nullptr);
    if (kept.fresh) {
      const CompareSide& side = sides_.a;
      update(
          context, keys_, fmt::format("compare-keys/{}/{}", sides_.key(), sides_.query),
          fmt::format("Keys of query {}", sides_.query),
          [document = side.document, request = side.request, kept,
           query = sides_.query](JobContext&) {
            return compare_query_keys(document->source(), request.layer, request.q_head, *kept.a,
                                      *kept.b, query);
          },
          most_attended_differences);
    }
    if (!keys_.value) return;
    const QueryKeys& q = *keys_.value;
    const auto count = [](const KeyPart& part) { return fmt::format("{}", part.keys.size()); };
    const auto mass = [](double m) { return fmt::format("{:.4f}", m); };
    side_names(context, keys_.sides);
    number_table("numbers", {"", "both", "only A", "only B", "A", "B", "Jaccard"},
                 {{"keys", count(q.both), count(q.only_a), count(q.only_b),
                   fmt::format("{}", q.both.keys.size() + q.only_a.keys.size()),
                   fmt::format("{}", q.both.keys.size() + q.only_b.keys.size()),
                   fmt::format("{:.3f}", q.jaccard)},
                  {"attention mass", mass(q.both.mass), mass(q.only_a.mass), mass(q.only_b.mass),
                   mass(q.mass_a()), mass(q.mass_b()), ""}});
    picture_.show(context, figure_, keys_.value, keys_.sides, 0,
                  ComparePicture::size_beside_list(context), compare_keys_figure);
    if (const auto& hit = figure_.hit()) {
      const double x = hit->point ? hit->point_x : hit->x;
      if (const auto key = key_under(q, hit->panel, x, hit->y)) {
        explain_key(context, *key,
                    {{"attention", fmt::format("{:.6g}", q.row.prob(*key))},
                     {"kept by", std::string(kept_by(q, *key))}});
      }
    }
    picture_.list_keys(context, keys_.noted, /*two_rows=*/false);
  }

  void draw_rows(PanelContext& context) {
    const CompareSide a = sides_.a;
    const CompareSide b = sides_.b;
    const std::string key = fmt::format(
        "compare-rows/{}/{}/{}/{}/{}/{}", documents_key(*a.document, b.document.get()),
        a.request.layer, a.request.q_head, b.request.layer, b.request.q_head, sides_.query);
    update(
        context, rows_, key, fmt::format("Attention of query {} in both traces", sides_.query),
        [a, b, query = sides_.query](JobContext&) {
          return compare_rows(
              attention_row(a.document->source(), a.request.layer, a.request.q_head, query),
              attention_row(b.document->source(), b.request.layer, b.request.q_head, query));
        },
        largest_differences);
    if (!rows_.value) return;
    const RowDifference& r = *rows_.value;
    number_table(
        "numbers", {"", "A", "B", "total variation", "KL(A‖B)", "KL(B‖A)"},
        {{"attention", fmt::format("breadth {:.1f}", r.a.breadth),
          fmt::format("breadth {:.1f}", r.b.breadth), fmt::format("{:.4f}", r.total_variation),
          fmt::format("{:.4g} nat", r.kl_a_b), fmt::format("{:.4g} nat", r.kl_b_a)}});
    picture_.show(context, figure_, rows_.value, rows_.sides, 0,
                  ComparePicture::size_beside_list(context), compare_rows_figure);
    if (const auto& hit = figure_.hit()) {
      const auto pos = static_cast<Index>(std::lround(hit->point ? hit->point_x : hit->x));
      if (pos >= r.visible.begin && pos < r.visible.end) {
        explain_key(context, pos,
                    {{"attention in A", fmt::format("{:.6g}", r.a.prob(pos))},
                     {"attention in B", fmt::format("{:.6g}", r.b.prob(pos))},
                     {"A − B", fmt::format("{:+.6g}", r.a.prob(pos) - r.b.prob(pos))}});
      }
    }
    picture_.list_keys(context, rows_.noted, /*two_rows=*/true);
  }

  CompareSides sides_;

  AsyncValue<KeptRows> kept_a_;
  AsyncValue<KeptRows> kept_b_;
  Shown<KeptComparison> maps_;
  Shown<QueryKeys> keys_;
  Shown<RowDifference> rows_;
  ComparePicture picture_;
};

}  // namespace

std::unique_ptr<Panel> make_compare_panel() {
  return std::make_unique<ComparePanel>();
}

}  // namespace kvscope::gui
