#include "notebooks_export/story_plan.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <numeric>

#include "analysis/base/analysis.hpp"
#include "core/base/error.hpp"
#include "notebooks_export/story_kept.hpp"
#include "notebooks_export/story_reads.hpp"

namespace kvscope {

namespace {

namespace fs = std::filesystem;

constexpr double kBytesPerMb = 1e6;
constexpr Index kLeastCells = 16;
constexpr Index kOverviewCells = 256;
constexpr Index kMostReads = 32;
constexpr Index kFewestReads = 8;
constexpr double kReadsShare = 0.3;  // of the page, at most, as long as kFewestReads allow it

double in_base64(double bytes) {
  return bytes * 4.0 / 3.0;
}

/// The index of `item`, which is added if it is new.
template <class Item, class Same>
std::size_t index_of(std::vector<Item>& items, Item item, Same&& same) {
  const auto at = std::find_if(items.begin(), items.end(), same);
  const auto index = static_cast<std::size_t>(at - items.begin());
  if (at == items.end()) items.push_back(std::move(item));
  return index;
}

void add_all(std::vector<std::size_t>& to, const std::vector<std::size_t>& from) {
  for (const std::size_t one : from) {
    if (std::find(to.begin(), to.end(), one) == to.end()) to.push_back(one);
  }
}

class Planner {
 public:
  Planner(const Story& story, const TraceOpener& open) : story_(story), open_(open) {}

  StoryPlan plan() {
    for (std::size_t i = 0; i < story_.steps.size(); ++i) {
      step_ = &story_.steps[i];
      name_ = fmt::format("step {} (\"{}\")", i + 1, step_->title);
      plan_.steps.push_back(plan_step());
    }
    return std::move(plan_);
  }

 private:
  PlannedStep plan_step() {
    PlannedStep out;
    const StoryView& view = step_->view;
    const bool has_head = step_->shows(StoryPanel::map) || step_->shows(StoryPanel::text);
    if (!has_head && !step_->shows(StoryPanel::atlas)) return out;
    out.trace = add_trace(plan_.traces, view.trace);
    const TraceSource& trace = *plan_.traces[*out.trace].source;
    const TraceInfo& info = trace.info();
    check_positions(trace);
    const TokenRange all{0, info.n_tokens};
    if (step_->shows(StoryPanel::atlas)) {
      const TraceInfo part = named([&] { return selected_part(info, view.atlas); });
      const std::size_t group = n_groups_++;
      for (const Index layer : part.layers) {
        for (const Index head : part.q_heads)
          out.maps.push_back(add_map({*out.trace,
                                      layer,
                                      head,
                                      grid_of(info, layer, all, all),
                                      group,
                                      /*is_overview=*/false,
                                      {}}));
      }
      return out;
    }
    named([&] { return info.layer_slot(*view.layer); });
    named([&] { return info.q_slot(*view.head); });
    for (const StoryMethod& method : view.methods) {
      const PlannedMethod planned{method, view.chunk, view.dense_layers,
                                  method.method.caps().needs_draft ? view.draft : fs::path()};
      if (!planned.draft.empty()) add_trace(plan_.drafts, planned.draft);
      out.methods.push_back(index_of(plan_.methods, planned,
                                     [&](const PlannedMethod& one) { return one == planned; }));
    }
    const TokenRange queries = view.queries.value_or(all);
    const TokenRange keys = view.keys.value_or(all);
    const PlannedMap main{
        *out.trace, *view.layer, *view.head, grid_of(info, *view.layer, queries, keys),
        n_groups_,  false,       out.methods};
    if (step_->shows(StoryPanel::map)) {
      if (!(queries == all && keys == all)) {
        PlannedMap behind = main;
        behind.grid = grid_of(info, *view.layer, all, all);
        behind.grid.block = (info.n_tokens + kOverviewCells - 1) / kOverviewCells;
        behind.is_overview = true;
        behind.methods.clear();
        out.maps.push_back(add_map(behind));
      }
      ++n_groups_;
      out.maps.push_back(add_map(main));
    }
    if (step_->shows(StoryPanel::text)) {
      const bool is_part = view.queries || view.keys;
      out.words = is_part && view.keys ? TokenRange{std::min(queries.begin, keys.begin),
                                                    std::max(queries.end, keys.end)}
                                       : TokenRange{0, queries.end};
      const PlannedReads reads{*out.trace, *view.layer, *view.head, queries, kMostReads, {}};
      out.reads = index_of(plan_.reads, reads, [&](const PlannedReads& one) {
        return one.trace == reads.trace && one.layer == reads.layer && one.head == reads.head &&
               one.queries == reads.queries;
      });
      add_all(plan_.reads[*out.reads].methods, out.methods);
      if (plan_.reads[*out.reads].methods.size() > kMostStoryMethods) {
        throw ConfigError(
            "{}: the steps that show this head's text name {} methods, expected at most {} "
            "together",
            name_, plan_.reads[*out.reads].methods.size(), kMostStoryMethods);
      }
    }
    return out;
  }

  static CellGrid grid_of(const TraceInfo& info, Index layer, TokenRange queries, TokenRange keys) {
    return {queries, keys, 1, window_of(info, layer)};
  }

  std::size_t add_trace(std::vector<PlannedTrace>& traces, const fs::path& path) {
    for (std::size_t i = 0; i < traces.size(); ++i) {
      if (traces[i].path == path) return i;
    }
    traces.push_back({path, named([&] { return open_(path); })});
    require_full_qkv(*traces.back().source, "export");
    return traces.size() - 1;
  }

  /// A map of the same place and fineness may be in the plan already.
  std::size_t add_map(const PlannedMap& map) {
    const std::size_t index = index_of(plan_.maps, map, [&](const PlannedMap& one) {
      return one.trace == map.trace && one.layer == map.layer && one.head == map.head &&
             one.grid.queries == map.grid.queries && one.grid.keys == map.grid.keys &&
             one.is_overview == map.is_overview;
    });
    add_all(plan_.maps[index].methods, map.methods);
    return index;
  }

  void check_positions(const TraceSource& trace) const {
    const Index n = trace.info().n_tokens;
    const auto check = [&](const char* what, Index last) {
      if (last < n) return;
      throw ConfigError("{}: {} up to position {}, but {} holds positions 0 to {}", name_, what,
                        last, trace.where(), n - 1);
    };
    const StoryView& view = step_->view;
    if (view.queries) check("queries", view.queries->end - 1);
    if (view.keys) check("keys", view.keys->end - 1);
    if (view.query) check("the held query", *view.query);
    if (view.key) check("the held key", *view.key);
    for (const StoryMark& mark : step_->marks) {
      check("a box's queries", mark.queries.end - 1);
      check("a box's keys", mark.keys.end - 1);
      for (const Index place : {mark.from[0], mark.from[1], mark.to[0], mark.to[1]})
        check("an arrow", place);
      check("marked words", mark.words.end - 1);
      if (mark.at) check("marked words", mark.at->end - 1);
    }
    if (view.queries && view.keys && view.keys->begin >= view.queries->end) {
      throw ConfigError(
          "{}: no query up to {} sees a key from {} on: a query sees the keys up to "
          "its own position",
          name_, view.queries->end - 1, view.keys->begin);
    }
  }

  template <class Work>
  auto named(Work&& work) -> decltype(work()) {
    try {
      return work();
    } catch (const ConfigError& e) {
      throw ConfigError("{}: {}", name_, e.what());
    }
  }

  const Story& story_;
  const TraceOpener& open_;
  const StoryStep* step_ = nullptr;
  std::string name_;
  std::size_t n_groups_ = 0;
  StoryPlan plan_;
};

Index longest_side(const CellGrid& grid) {
  return std::max(grid.rows(), grid.cols());
}

}  // namespace

bool PlannedMethod::operator==(const PlannedMethod& other) const {
  return method.words() == other.method.words() && chunk == other.chunk &&
         dense_layers == other.dense_layers && draft == other.draft;
}

double StoryPlan::map_bytes(const PlannedMap& map) const {
  return in_base64(2.0 * static_cast<double>(map.grid.n_seen()) +
                   static_cast<double>(map.methods.size() * KeptCells::encoded_bytes(map.grid)));
}

double StoryPlan::reads_bytes(const PlannedReads& of) const {
  return in_base64(WordReads::encoded_bytes(of));
}

StoryPlan plan_story(const Story& story, const TraceOpener& open) {
  return Planner(story, open).plan();
}

void choose_blocks(StoryPlan& plan, const StoryPageOptions& options, double other_bytes) {
  const double room = options.max_size * kBytesPerMb;
  const auto reads_size = [&] {
    return std::accumulate(
        plan.reads.begin(), plan.reads.end(), 0.0,
        [&](double sum, const auto& one) { return sum + plan.reads_bytes(one); });
  };
  for (Index most = kMostReads; most > kFewestReads && reads_size() > kReadsShare * room;) {
    most = std::max(kFewestReads, most / 2);
    for (PlannedReads& one : plan.reads) one.most = most;
  }
  std::vector<double> bytes;  // by map
  std::size_t n_groups = 0;
  for (PlannedMap& map : plan.maps) {
    if (options.max_cells > 0 && !map.is_overview) {
      const Index longest = std::max(map.grid.queries.size(), map.grid.keys.size());
      map.grid.block = (longest + options.max_cells - 1) / options.max_cells;
    }
    bytes.push_back(plan.map_bytes(map));
    n_groups = std::max(n_groups, map.group + 1);
  }
  const auto total = [&] {
    return std::accumulate(bytes.begin(), bytes.end(), other_bytes + reads_size());
  };
  const auto refuse = [&](const char* what_to_do) {
    const auto largest = std::max_element(plan.maps.begin(), plan.maps.end(),
                                          [](const PlannedMap& a, const PlannedMap& b) {
                                            return longest_side(a.grid) < longest_side(b.grid);
                                          });
    const Index cells = largest == plan.maps.end() ? 0 : longest_side(largest->grid);
    throw ConfigError(
        "export: {} maps with up to {} cells per side, texts and figures take {:.1f} MB, expected "
        "at most {} (--max-size); {}",
        plan.maps.size(), cells, total() / kBytesPerMb, options.max_size, what_to_do);
  };
  if (options.max_cells > 0 && total() > room)
    refuse("choose fewer --layers, --heads or steps, or fewer --max-cells");
  // The group that takes most gets coarser, again and again.
  while (total() > room) {
    std::vector<double> of_group(n_groups, 0.0);
    for (std::size_t i = 0; i < plan.maps.size(); ++i) {
      const bool can_shrink =
          !plan.maps[i].is_overview && longest_side(plan.maps[i].grid) > kLeastCells;
      if (can_shrink) of_group[plan.maps[i].group] += bytes[i];
    }
    const auto most = std::max_element(of_group.begin(), of_group.end());
    if (most == of_group.end() || *most == 0.0) refuse("choose fewer --layers, --heads or steps");
    const auto group = static_cast<std::size_t>(most - of_group.begin());
    for (std::size_t i = 0; i < plan.maps.size(); ++i) {
      if (plan.maps[i].group != group || plan.maps[i].is_overview) continue;
      ++plan.maps[i].grid.block;
      bytes[i] = plan.map_bytes(plan.maps[i]);
    }
  }
}

}  // namespace kvscope
