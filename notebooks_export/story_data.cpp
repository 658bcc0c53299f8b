#include "notebooks_export/story_data.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>

#include "analysis/kinds/heads.hpp"
#include "analysis/plot/colour.hpp"
#include "core/base/escape.hpp"
#include "core/trace/result.hpp"
#include "notebooks_export/story_kept.hpp"
#include "notebooks_export/story_reads.hpp"
#include "notebooks_export/story_step_json.hpp"

namespace kvscope {

namespace {

using Json = nlohmann::ordered_json;

Json number_or_null(double value) {
  return std::isnan(value) ? Json(nullptr) : Json(value);
}

std::string script(const std::string& id, const std::string& text) {
  return fmt::format("<script type=\"text/plain\" id=\"{}\">{}</script>\n", id, text);
}

/// One method asked about one head, and who wants to know.
struct Ask {
  std::size_t trace = 0;
  Index layer = 0;
  Index head = 0;
  std::size_t method = 0;
  TokenRange queries;  // hull of what is wanted
  std::vector<KeptCells*> cells;
  std::vector<std::pair<WordReads*, std::size_t>> reads;  // and the place among their methods
};

class Computation {
 public:
  Computation(const Story& story, const StoryPlan& plan, const StoryPageOptions& options,
              ThreadPool& pool, const ProgressFn& progress, const std::stop_token& stop)
      : story_(story),
        plan_(plan),
        options_(options),
        pool_(pool),
        progress_(progress),
        stop_(stop) {}

  StoryData run() {
    data_.method_words.resize(plan_.methods.size());
    add_common();
    compute_kept();
    add_maps();
    add_reads();
    for (const std::size_t m : indices(plan_.methods)) {
      data_.json["methods"].push_back({{"words", plan_.methods[m].method.words()},
                                       {"note", clean_text(data_.method_words[m])}});
    }
    add_steps();
    return std::move(data_);
  }

 private:
  template <class List>
  static std::vector<std::size_t> indices(const List& list) {
    std::vector<std::size_t> all(list.size());
    for (std::size_t i = 0; i < all.size(); ++i) all[i] = i;
    return all;
  }

  const TraceSource& source(std::size_t trace) const { return *plan_.traces[trace].source; }

  void add_common() {
    Json& json = data_.json;
    json["floor"] = kPageFloor;
    json["pooling"] = std::string(enum_name(options_.pooling));
    for (int i = 0; i < 256; ++i)
      json["colours"].push_back(plot::hex(plot::colour_at(plot::ColourMap::sequential, i / 255.0)));
    json["traces"] = Json::array();
    for (const PlannedTrace& trace : plan_.traces) {
      const TraceInfo& info = trace.source->info();
      Json one = {{"name", clean_text(trace.path.filename().string())},
                  {"model", clean_text(info.model_name)},
                  {"tokens", info.n_tokens},
                  {"prompt", info.n_prompt}};
      one.update(page_tokens(*trace.source));
      json["traces"].push_back(std::move(one));
    }
    for (const char* list : {"methods", "measures", "maps", "reads", "steps"})
      json[list] = Json::array();
  }

  /// The asks of all maps and texts: each method once per head, over all that is wanted of it.
  std::vector<Ask> list_asks() {
    std::vector<Ask> asks;
    const auto ask_of = [&](std::size_t trace, Index layer, Index head, std::size_t method,
                            TokenRange queries) -> Ask& {
      for (Ask& ask : asks) {
        const bool is_same =
            ask.trace == trace && ask.layer == layer && ask.head == head && ask.method == method;
        if (!is_same) continue;
        ask.queries = {std::min(ask.queries.begin, queries.begin),
                       std::max(ask.queries.end, queries.end)};
        return ask;
      }
      asks.push_back({trace, layer, head, method, queries, {}, {}});
      return asks.back();
    };
    kept_.resize(plan_.maps.size());
    for (const std::size_t i : indices(plan_.maps)) {
      const PlannedMap& map = plan_.maps[i];
      for (const std::size_t method : map.methods) {
        kept_[i].push_back(std::make_unique<KeptCells>(map.grid));
        ask_of(map.trace, map.layer, map.head, method, map.grid.queries)
            .cells.push_back(kept_[i].back().get());
      }
    }
    for (const PlannedReads& reads : plan_.reads) {
      reads_.push_back(std::make_unique<WordReads>(reads, source(reads.trace), pool_, stop_));
      for (const std::size_t m : indices(reads.methods)) {
        ask_of(reads.trace, reads.layer, reads.head, reads.methods[m], reads.queries)
            .reads.emplace_back(reads_.back().get(), m);
      }
    }
    return asks;
  }

  void compute_kept() {
    Index done = 0;
    const std::vector<Ask> asks = list_asks();
    for (const Ask& ask : asks) {
      check_stop(stop_, "export");
      const PlannedMethod& method = plan_.methods[ask.method];
      std::shared_ptr<const TraceSource> draft;
      for (const PlannedTrace& trace : plan_.drafts) {
        if (trace.path == method.draft) draft = trace.source;
      }
      const KeptQuery query{source(ask.trace), draft.get(),  ask.layer,
                            ask.head,          method.chunk, method.dense_layers};
      std::string words = visit_kept(query, method.method, ask.queries, pool_, {}, stop_,
                                     [&](const KeptQueryRow& row) {
                                       for (KeptCells* cells : ask.cells) cells->put(row);
                                       for (const auto& [reads, m] : ask.reads) reads->put(m, row);
                                     });
      if (!words.empty()) data_.method_words[ask.method] = std::move(words);
      if (progress_) progress_({"export", ++done, static_cast<Index>(asks.size()), "methods"});
    }
  }

  void add_maps() {
    for (const std::size_t i : indices(plan_.maps)) {
      const PlannedMap& map = plan_.maps[i];
      const std::vector<float> weights = cell_weights(source(map.trace), map.layer, map.head,
                                                      map.grid, options_.pooling, pool_, stop_);
      heaviest_.push_back(heaviest_words(map, weights));
      data_.scripts += script(fmt::format("map-{}", i), encode_cells(weights, map.grid));
      Json one = {{"trace", map.trace},
                  {"layer", map.layer},
                  {"head", map.head},
                  {"window", map.grid.window ? Json(*map.grid.window) : Json(nullptr)},
                  {"block", map.grid.block},
                  {"queries", pair_json(map.grid.queries)},
                  {"keys", pair_json(map.grid.keys)},
                  {"kept", Json::array()}};
      for (const std::size_t m : indices(map.methods)) {
        const KeptCells& kept = *kept_[i][m];
        one["kept"].push_back({{"method", map.methods[m]},
                               {"mass", number_or_null(kept.mean_mass())},
                               {"keys", number_or_null(kept.mean_keys())}});
        data_.scripts += script(fmt::format("kept-{}-{}", i, m), kept.encode());
        data_.scripts += script(fmt::format("mass-{}-{}", i, m), kept.encode_masses());
      }
      data_.json["maps"].push_back(std::move(one));
      kept_[i].clear();
      if (progress_)
        progress_(
            {"export", static_cast<Index>(i) + 1, static_cast<Index>(plan_.maps.size()), "maps"});
    }
  }

  void add_reads() {
    for (const std::size_t i : indices(plan_.reads)) {
      const PlannedReads& reads = plan_.reads[i];
      data_.scripts += script(fmt::format("reads-{}", i), reads_[i]->encode());
      data_.scripts += script(fmt::format("read-masses-{}", i), reads_[i]->encode_masses());
      data_.json["reads"].push_back({{"trace", reads.trace},
                                     {"layer", reads.layer},
                                     {"head", reads.head},
                                     {"queries", pair_json(reads.queries)},
                                     {"most", reads.most},
                                     {"methods", reads.methods}});
    }
  }

  void add_steps() {
    constexpr std::array kNames = {"map", "text", "atlas", "figure"};
    for (std::size_t i = 0; i < story_.steps.size(); ++i) {
      const StoryStep& step = story_.steps[i];
      const PlannedStep& planned = plan_.steps[i];
      Json one = {{"title", clean_text(step.title)}, {"panels", Json::array()}};
      for (const StoryPanel panel : step.panels)
        one["panels"].push_back(kNames[static_cast<std::size_t>(panel)]);
      one["trace"] = planned.trace ? Json(*planned.trace) : Json(nullptr);
      one["maps"] = planned.maps;
      one["reads"] = planned.reads ? Json(*planned.reads) : Json(nullptr);
      one["words"] = pair_json(planned.words);
      one["fold"] = fold_json(step.view);
      one["methods"] = planned.methods;
      one["query"] = step.view.query ? Json(*step.view.query) : Json(nullptr);
      one["key"] = step.view.key ? Json(*step.view.key) : Json(nullptr);
      one["marks"] = Json::array();
      for (const StoryMark& mark : step.marks) one["marks"].push_back(mark_json(mark));
      if (step.shows(StoryPanel::atlas)) add_atlas(step, planned, one);
      data_.json["steps"].push_back(std::move(one));
      data_.alts.push_back(step.shows(StoryPanel::map)
                               ? alt_words(plan_.maps[planned.maps.back()]) +
                                     heaviest_[planned.maps.back()]
                               : std::string());
    }
  }

  /// The numbers of every head, which its maps get, and the head that opens.
  void add_atlas(const StoryStep& step, const PlannedStep& planned, Json& one) {
    HeadsOptions heads;
    heads.selection = step.view.atlas;
    heads.selector.clear();  // without methods
    heads.needle = options_.needle;
    heads.cells = 4;  // the page has its own maps
    MemoryResult numbers;
    analyze_heads(source(*planned.trace), heads, {numbers, pool_, {}, stop_});
    for (const HeadMeasure& measure : kHeadMeasures) {
      const auto values = numbers.values<double>(measure.name);
      const bool says_something = std::any_of(
          values.begin(), values.end(), [](double x) { return std::isfinite(x) && x != 0.0; });
      const Json entry = {{"name", measure.name}, {"label", measure.label}};
      auto& measures = data_.json["measures"];
      if (says_something && std::find(measures.begin(), measures.end(), entry) == measures.end())
        measures.push_back(entry);
      for (std::size_t at = 0; at < planned.maps.size(); ++at)
        data_.json["maps"][planned.maps[at]]["numbers"][std::string(measure.name)] =
            number_or_null(values[at]);
    }
    const Index layer = plan_.maps[planned.maps.front()].layer;
    one["columns"] = std::count_if(planned.maps.begin(), planned.maps.end(),
                                   [&](std::size_t m) { return plan_.maps[m].layer == layer; });
    one["first"] = nullptr;
    for (std::size_t at = 0; at < planned.maps.size(); ++at) {
      const PlannedMap& map = plan_.maps[planned.maps[at]];
      if (step.view.layer == map.layer && step.view.head == map.head) one["first"] = at;
    }
  }

  const Story& story_;
  const StoryPlan& plan_;
  const StoryPageOptions& options_;
  ThreadPool& pool_;
  const ProgressFn& progress_;
  const std::stop_token& stop_;
  StoryData data_;
  std::vector<std::vector<std::unique_ptr<KeptCells>>> kept_;  // by map and its methods
  std::vector<std::unique_ptr<WordReads>> reads_;
  std::vector<std::string> heaviest_;  // by map
};

}  // namespace

Json page_tokens(const TraceSource& trace) {
  const std::vector<std::string> bytes = trace.token_bytes();
  if (bytes.empty())
    return {{"ids", std::vector<TokenId>(trace.tokens().begin(), trace.tokens().end())}};
  Json texts = Json::array();
  for (const std::string& text : bytes) texts.push_back(clean_text(text));
  return {{"texts", std::move(texts)}};
}

StoryData compute_story(const Story& story, const StoryPlan& plan, const StoryPageOptions& options,
                        ThreadPool& pool, const ProgressFn& progress, const std::stop_token& stop) {
  return Computation(story, plan, options, pool, progress, stop).run();
}

}  // namespace kvscope
