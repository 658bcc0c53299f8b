#include "gui/model/methods/why_view.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>

#include "core/base/nan.hpp"
#include "core/base/number_text.hpp"
#include "core/base/shell_word.hpp"
#include "gui/model/results/compact_figure.hpp"
#include "gui/model/session/methods.hpp"

namespace kvscope::gui {

namespace {

constexpr std::size_t kHeaviest = 24;        // keys of the table, and points along the score
constexpr std::size_t kMostByWeight = 4096;  // points along the weight
constexpr double kLeastScore = -1e300;       // QuoKA's "unscored" is no height of a figure
constexpr double kLeastWeight = 1e-12;

plot::Scatter points_named(const char* label, plot::Tone tone) {
  return {.label = label, .tone = tone, .size = 1.2, .opacity = 0.9};
}

/// What became of keys, as clouds of those that have a place.
class Ends {
 public:
  explicit Ends(WhyAlong along) : along_(along) {}
  void add(const KeyOutcome& outcome) {
    const auto place = why_place(outcome, along_);
    if (!place) return;
    plot::Scatter& points = outcome.end == KeyEnd::dropped ? dropped_
                            : outcome.end == KeyEnd::kept  ? kept_
                                                           : by_rule_;
    points.add(place->x, place->y, static_cast<std::size_t>(outcome.key));
  }
  void put_into(plot::Panel& panel) {
    for (plot::Scatter* points : {&by_rule_, &kept_, &dropped_})
      if (!points->of.empty()) panel.marks.emplace_back(std::move(*points));
  }

 private:
  WhyAlong along_;
  plot::Scatter by_rule_ = points_named("kept by rule", {plot::Role::neutral, 0});
  plot::Scatter kept_ = points_named("kept", {plot::Role::series, 0});
  plot::Scatter dropped_ = points_named("dropped", {plot::Role::series, 1});
};

/// The heaviest key of a block.
Index heaviest_of(const QueryLook& look, std::size_t block) {
  const Index page = look.first_block + static_cast<Index>(block);
  Index best = std::max(page * look.page_size, look.visible.begin);
  for (Index key = best; key < std::min((page + 1) * look.page_size, look.visible.end); ++key) {
    if (look.weight(key) > look.weight(best)) best = key;
  }
  return best;
}

void draw_by_score(const QueryLook& look, const std::vector<KeyOutcome>& heaviest,
                   plot::Panel& panel) {
  plot::Line curve{.label = look.page_size > 1 ? "all pages" : "all keys",
                   .tone = {plot::Role::neutral, 0},
                   .markers = false};
  for (const Index place : look.ranking()) {
    const auto block = static_cast<std::size_t>(place);
    if (!(look.scores[block] > kLeastScore)) break;
    curve.add(static_cast<double>(curve.x.size() + 1), look.scores[block]);
    curve.of.push_back(static_cast<std::size_t>(heaviest_of(look, block)));
  }
  panel.marks.emplace_back(std::move(curve));
  if (std::isfinite(look.cut) && look.cut > kLeastScore) {
    panel.marks.emplace_back(
        plot::Rule{plot::Rule::Kind::horizontal, look.cut, "cut-off", {plot::Role::highlight, 0}});
  }
  Ends ends(WhyAlong::score);
  for (const KeyOutcome& outcome : heaviest) ends.add(outcome);
  ends.put_into(panel);
  panel.x.label = look.page_size > 1 ? "Rank of the page by the method's score"
                                     : "Rank of the key by the method's score";
  panel.y.label = look.page_size > 1 ? "Score of the page" : "Score";
}

void draw_by_weight(const QueryLook& look, plot::Panel& panel) {
  Ends ends(WhyAlong::weight);
  for (const Index key : look.heaviest(kMostByWeight)) ends.add(outcome_of(look, key));
  ends.put_into(panel);
  panel.x.label = "Rank of the key by its weight";
  panel.y.label = "Softmax weight";
  panel.y.scale = plot::ScaleKind::log10;
}

}  // namespace

KeyQuestion why_question(const Session& session) {
  const Selection& selection = session.selection();
  const Parameters& parameters = session.parameters();
  KeyQuestion question{.layer = selection.layer,
                       .q_head = selection.q_head,
                       .query = selection.query,
                       .selector = spec_of(selection.selector, parameters)};
  question.budget = budget_of(question.selector, parameters);
  question.chunk = parameters.chunk;
  question.dense_layers = parameters.dense_layers;
  const SelectorCaps& caps = question.selector.caps();
  question.as_step =
      session.phase() == Phase::prefill && !caps.is_defined(Phase::prefill) && caps.decode;
  return question;
}

std::string why_obstacle(const Session& session) {
  const KeyQuestion question = why_question(session);
  const Phase phase = question.as_step ? Phase::decode : session.phase();
  return obstacle(question.selector, phase, session.second() != nullptr);
}

Index asked_key(const QueryLook& look, std::optional<Index> selected) {
  return selected ? *selected : heaviest_dropped(look).value_or(look.question.query);
}

std::size_t WhyPicture::bytes() const {
  return sizeof *this + heaviest.size() * sizeof(KeyOutcome) + figure_bytes(figure);
}

bool has_ranking(const QueryLook& look) {
  return std::ranges::any_of(look.scores, [](double score) { return score > kLeastScore; });
}

std::optional<WhyPlace> why_place(const KeyOutcome& outcome, WhyAlong along) {
  if (outcome.end == KeyEnd::unseen) return std::nullopt;
  if (along == WhyAlong::score) {
    if (!outcome.is_ranked || !(outcome.score > kLeastScore)) return std::nullopt;
    return WhyPlace{static_cast<double>(outcome.rank), outcome.score};
  }
  if (outcome.weight < kLeastWeight) return std::nullopt;
  return WhyPlace{static_cast<double>(outcome.weight_rank), outcome.weight};
}

WhyPicture why_picture(const QueryLook& look, WhyAlong along, const std::string& trace) {
  WhyPicture picture;
  for (const Index key : look.heaviest(kHeaviest))
    picture.heaviest.push_back(outcome_of(look, key));
  if (look.is_dense) return picture;
  const bool by_score = along == WhyAlong::score && has_ranking(look);
  const KeyQuestion& question = look.question;
  plot::Panel panel;
  panel.x.scale = plot::ScaleKind::log10;
  panel.aspect = 0.6;
  if (by_score) {
    draw_by_score(look, picture.heaviest, panel);
  } else {
    draw_by_weight(look, panel);
  }
  if (panel.marks.empty()) return picture;
  const std::string budget = question.budget ? " at " + question.budget->to_string() : "";
  panel.title = fmt::format("{}{}: {} keys, {} of the attention", question.selector.text(), budget,
                            look.kept.size(), percent_text(look.kept_mass));
  plot::Figure& figure = picture.figure;
  figure.name = "why";
  figure.legend = plot::LegendPlace::above;
  figure.span = plot::Span::column;
  figure.caption.push_back(
      fmt::format("{}, layer {}, query head {}: what {}{} keeps for the query at {}{}.", trace,
                  question.layer, question.q_head, question.selector.text(), budget, question.query,
                  question.as_step ? ", taken as a decode step"
                  : look.call.size() > 1
                      ? fmt::format(" of the chunk {} to {}", look.call.begin, look.call.end - 1)
                      : std::string()));
  if (by_score) {
    figure.caption.push_back(fmt::format(
        "Points: the {} heaviest keys of the query{}. Cut-off: the smallest score that earned a "
        "place. Scores are in the method's own unit, which no other method and no weight shares.",
        picture.heaviest.size(), look.page_size > 1 ? ", at their pages" : ""));
  } else if (look.weights.size() > kMostByWeight) {
    figure.caption.push_back(
        fmt::format("The {} heaviest of {} keys.", kMostByWeight, look.weights.size()));
  }
  figure.panels.push_back(std::move(panel));
  return picture;
}

std::string why_csv(const QueryLook& look) {
  std::string csv = "key,weight,weight_rank,end,score,rank,page_begin,page_end\n";
  // Ranks at once: key by key they would cost the square of the context.
  std::vector<Index> rank(look.scores.size(), 0);
  Index next = 0;
  for (const Index block : look.ranking()) rank[static_cast<std::size_t>(block)] = ++next;
  Index place = 0;
  Index weight_rank = 0;  // 1 + the heavier ones
  double last = kNan;
  for (const Index key : look.heaviest(look.weights.size())) {
    ++place;
    if (look.weight(key) != last) weight_rank = place;
    last = look.weight(key);
    const auto block = look.block_of(key);
    const auto found = std::ranges::lower_bound(look.kept, static_cast<KeyPos>(key));
    const bool is_kept = found != look.kept.end() && *found == static_cast<KeyPos>(key);
    KeyEnd end = is_kept ? KeyEnd::kept : KeyEnd::dropped;
    if (is_kept && look.by_rule[static_cast<std::size_t>(found - look.kept.begin())])
      end = KeyEnd::by_rule;
    if (look.is_dense) end = KeyEnd::dense;
    csv += fmt::format("{},{:.9g},{},{}", key, look.weight(key), weight_rank, enum_name(end));
    if (!block) {
      csv += ",,,,\n";
      continue;
    }
    const Index page = look.first_block + static_cast<Index>(*block);
    csv += fmt::format(",{:.9g},{},{},{}\n", look.scores[*block], rank[*block],
                       std::max(page * look.page_size, look.visible.begin),
                       std::min((page + 1) * look.page_size, look.visible.end));
  }
  return csv;
}

std::string why_command(const QueryLook& look, Index key, const std::string& file,
                        const std::string& draft) {
  const KeyQuestion& question = look.question;
  const bool has_draft = question.selector.caps().needs_draft && !draft.empty();
  return fmt::format(
      "kvscope explain {}{} --layers {} --heads {} --query {} --key {} --selector {}{} --chunk "
      "{}{}{}",
      shell_word(file), has_draft ? " --draft " + shell_word(draft) : std::string(), question.layer,
      question.q_head, question.query, key, shell_word(question.selector.text()),
      question.budget ? " --budget " + question.budget->to_string() : std::string(), question.chunk,
      question.dense_layers ? fmt::format(" --dense-layers {}", *question.dense_layers)
                            : std::string(),
      question.as_step ? " --as-step" : "");
}

}  // namespace kvscope::gui
