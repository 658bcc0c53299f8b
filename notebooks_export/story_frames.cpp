#include "notebooks_export/story_frames.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>

#include "analysis/base/analysis.hpp"
#include "core/base/error.hpp"
#include "core/base/escape.hpp"
#include "core/base/nan.hpp"
#include "notebooks_export/story_data.hpp"
#include "notebooks_export/story_drawing.hpp"
#include "notebooks_export/story_figure.hpp"

namespace kvscope {

namespace {

constexpr Index kMapCells = 512;
constexpr Index kSmallCells = 48;
constexpr Index kFirstBudget = 16;

/// A step as it is drawn once, and what is different from the step itself.
struct Variant {
  StoryStep step;
  std::string words;          // "layer 3"
  std::optional<Index> last;  // queries up to this one are drawn
};

bool has_head(const StoryStep& step) {
  return step.shows(StoryPanel::map) || step.shows(StoryPanel::text);
}

std::vector<Variant> over_layers(const StoryStep& step, const TraceInfo& info) {
  std::vector<Variant> variants;
  for (const Index layer : info.layers) {
    variants.push_back({step, fmt::format("layer {}", layer), std::nullopt});
    variants.back().step.view.layer = layer;
  }
  return variants;
}

std::vector<Variant> over_budgets(const StoryStep& step, const TraceInfo& info) {
  std::vector<Variant> variants;
  if (step.view.methods.empty()) return variants;
  const StoryMethod& first = step.view.methods.front();
  const auto& budgets = first.method.caps().budgets;
  const bool takes_tokens =
      std::find(budgets.begin(), budgets.end(), Budget::Kind::tokens) != budgets.end();
  for (Index tokens = kFirstBudget; takes_tokens && tokens < 2 * info.n_tokens; tokens *= 2) {
    const Index budget = std::min(tokens, info.n_tokens);
    variants.push_back({step, fmt::format("{} tokens", budget), std::nullopt});
    variants.back().step.view.methods = {
        {first.method, Budget{Budget::Kind::tokens, static_cast<double>(budget)}}};
  }
  return variants;
}

std::vector<Variant> over_steps(const StoryStep& step, const TraceInfo& info) {
  std::vector<Variant> variants;
  for (Index pos = info.n_prompt; pos < info.n_tokens; ++pos) {
    if (step.view.queries && (pos < step.view.queries->begin || pos >= step.view.queries->end))
      continue;
    variants.push_back({step, fmt::format("decoded token {}", pos), pos});
    variants.back().step.view.query = pos;
    variants.back().step.view.key.reset();
  }
  return variants;
}

class FrameMaker {
 public:
  FrameMaker(const TraceOpener& open, ThreadPool& pool, const std::stop_token& stop)
      : open_(open), pool_(pool), stop_(stop) {}

  DrawnStep draw(const Variant& variant, const std::string& place) {
    const StoryStep& step = variant.step;
    DrawnStep out;
    out.place = place + (variant.words.empty() ? "" : ": " + variant.words);
    out.title = step.title;
    out.note = note_words(step.note);
    out.marks = step.marks;
    if (step.figure) out.figure = story_figure(*step.figure, fmt::format("\"{}\"", step.title));
    if (has_head(step)) add_head(variant, out);
    if (step.shows(StoryPanel::atlas)) add_atlas(step, out);
    return out;
  }

 private:
  DrawnMap map_of(const TraceSource& trace, Index layer, Index head, TokenRange queries,
                  TokenRange keys, Index most_cells) {
    DrawnMap map;
    const Index longest = std::max(queries.size(), keys.size());
    map.grid = {queries, keys, (longest + most_cells - 1) / most_cells,
                window_of(trace.info(), layer)};
    map.weights = cell_weights(trace, layer, head, map.grid, MapPooling::max, pool_, stop_);
    map.words = fmt::format("L{} H{}", layer, head);
    map.shown = queries;
    return map;
  }

  void add_head(const Variant& variant, DrawnStep& out) {
    const StoryView& view = variant.step.view;
    const auto trace = open_(view.trace);
    const TraceInfo& info = trace->info();
    const TokenRange queries = view.queries.value_or(TokenRange{0, info.n_tokens});
    const TokenRange keys = view.keys.value_or(TokenRange{0, info.n_tokens});
    DrawnMap map = map_of(*trace, *view.layer, *view.head, queries, keys, kMapCells);
    map.words = fmt::format("Layer {}, query head {}", *view.layer, *view.head);
    if (variant.last) map.shown.end = *variant.last + 1;
    std::vector<double> lost(static_cast<std::size_t>(queries.size()), 0.0);
    if (!view.methods.empty()) {
      const StoryMethod& method = view.methods.front();
      const auto draft = method.method.caps().needs_draft && !view.draft.empty()
                             ? open_(view.draft)
                             : std::shared_ptr<const TraceSource>();
      map.kept.emplace(map.grid);
      const KeptQuery query{*trace,     draft.get(), *view.layer,
                            *view.head, view.chunk,  view.dense_layers};
      const std::string words =
          visit_kept(query, method, queries, pool_, {}, stop_, [&](const KeptQueryRow& row) {
            map.kept->put(row);
            lost[static_cast<std::size_t>(row.pos - queries.begin)] = 1.0 - row.mass;
          });
      const double mass = map.kept->mean_mass();
      map.words += std::isnan(mass) ? ": " + words
                                    : fmt::format(": {} keeps {:.1f} % of the attention",
                                                  method.words(), 100.0 * mass);
    }
    if (variant.step.shows(StoryPanel::text)) add_text(variant, *trace, queries, lost, out);
    if (variant.step.shows(StoryPanel::map)) out.maps.push_back(std::move(map));
  }

  void add_text(const Variant& variant, const TraceSource& trace, TokenRange queries,
                const std::vector<double>& lost, DrawnStep& out) {
    const StoryView& view = variant.step.view;
    DrawnText text;
    const Index end = variant.last ? *variant.last + 1 : queries.end;
    text.first = 0;
    const auto tokens = page_tokens(trace);
    for (Index at = 0; at < end; ++at) {
      const auto i = static_cast<std::size_t>(at);
      text.words.push_back(tokens.contains("texts")
                               ? tokens["texts"][i].get<std::string>()
                               : fmt::format(" {}", tokens["ids"][i].get<TokenId>()));
    }
    // what lies between far keys and the queries is left out, as the page folds it
    constexpr Index kAround = 24;
    for (Index at = view.keys ? view.keys->end + kAround : end; at < queries.begin - kAround; ++at)
      text.words[static_cast<std::size_t>(at)] = at == view.keys->end + kAround ? "\n...\n" : "";
    text.lost.assign(text.words.size(), 0.0);
    for (Index at = queries.begin; at < end; ++at)
      text.lost[static_cast<std::size_t>(at)] = lost[static_cast<std::size_t>(at - queries.begin)];
    text.query = view.query;
    if (view.query) {
      constexpr Index kMost = 32;
      const HeavyKeys heavy = heavy_keys(trace, *view.layer, *view.head,
                                         {*view.query, *view.query + 1}, kMost, pool_, stop_);
      text.read.assign(text.words.size(), 0.0);
      for (std::size_t j = 0; j < heavy.keys.size(); ++j) {
        const auto key = static_cast<std::size_t>(heavy.keys[j]);
        if (heavy.keys[j] >= 0 && key < text.read.size())
          text.read[key] = heavy.weights[j] / heavy.weights[0];
      }
    }
    text.caption =
        fmt::format("{}{}", view.methods.empty() ? "" : "orange: attention lost there",
                    view.query ? fmt::format("{}blue: what word {} reads",
                                             view.methods.empty() ? "" : "; ", *view.query)
                               : "");
    out.text = std::move(text);
  }

  void add_atlas(const StoryStep& step, DrawnStep& out) {
    const auto trace = open_(step.view.trace);
    const TraceInfo part = selected_part(trace->info(), step.view.atlas);
    const TokenRange all{0, part.n_tokens};
    for (const Index layer : part.layers) {
      for (const Index head : part.q_heads)
        out.maps.push_back(map_of(*trace, layer, head, all, all, kSmallCells));
    }
  }

  const TraceOpener& open_;
  ThreadPool& pool_;
  const std::stop_token& stop_;
};

}  // namespace

std::vector<OutputFile> make_story_frames(const Story& story, FramesOver over,
                                          const TraceOpener& open, ThreadPool& pool,
                                          const ProgressFn& progress, const std::stop_token& stop) {
  plan_story(story, open);  // refuses what the traces do not hold
  std::vector<std::pair<Variant, std::string>> variants;
  bool any = over == FramesOver::story;
  for (std::size_t i = 0; i < story.steps.size(); ++i) {
    const StoryStep& step = story.steps[i];
    std::vector<Variant> found;
    if (over != FramesOver::story && has_head(step)) {
      const auto trace = open(step.view.trace);
      found = over == FramesOver::layers    ? over_layers(step, trace->info())
              : over == FramesOver::budgets ? over_budgets(step, trace->info())
                                            : over_steps(step, trace->info());
    }
    any = any || !found.empty();
    if (found.empty()) found.push_back({step, "", std::nullopt});
    for (Variant& one : found)
      variants.emplace_back(std::move(one), fmt::format("{} of {}", i + 1, story.steps.size()));
  }
  if (!any) {
    constexpr std::string_view kLacks[] = {
        "", "a map or a text", "a map or a text with a method that takes a budget in tokens",
        "a map or a text of a trace with decoded tokens among its queries"};
    throw ConfigError("--over {}: no step of the story has {}", enum_name(over),
                      kLacks[static_cast<std::size_t>(over)]);
  }
  if (variants.size() > kMostFrames) {
    throw ConfigError(
        "--over {}: {} frames, expected at most {}; name fewer steps or a part of the queries",
        enum_name(over), variants.size(), kMostFrames);
  }
  FrameMaker maker(open, pool, stop);
  std::vector<OutputFile> files;
  for (const auto& [variant, place] : variants) {
    check_stop(stop, "export");
    files.push_back({fmt::format("frame-{:04}.png", files.size() + 1),
                     draw_story_step(maker.draw(variant, place))});
    if (progress)
      progress({"export", static_cast<Index>(files.size()), static_cast<Index>(variants.size()),
                "frames"});
  }
  return files;
}

}  // namespace kvscope
