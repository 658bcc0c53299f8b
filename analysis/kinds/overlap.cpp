#include "analysis/kinds/overlap.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <bit>
#include <functional>
#include <map>
#include <tuple>

#include "analysis/base/columns.hpp"
#include "analysis/base/measure_layers.hpp"
#include "analysis/base/reproducible_sums.hpp"
#include "analysis/base/statistics.hpp"
#include "core/base/error.hpp"
#include "core/base/fields_json.hpp"
#include "core/base/json.hpp"
#include "core/base/nan.hpp"
#include "core/selectors/spec_lists.hpp"

namespace kvscope {

namespace {

using Members = std::uint64_t;  // a bit per pair of method and budget

/// Two sides, each a method or all the others.
struct Couple {
  Members first = 0, second = 0;
  Json names;
};

std::vector<Couple> couples_of(const PairPlan& plan) {
  const std::vector<ReplayPair>& pairs = plan.pairs;
  if (pairs.size() > 64) {
    throw ConfigError("overlap: expected at most 64 methods with their budgets at once, found {}",
                      pairs.size());
  }
  const auto budget_of = [&](std::size_t p) {
    return pairs[p].budget ? pairs[p].budget->to_string() : std::string();
  };
  std::vector<std::string> budgets;
  for (std::size_t p = 0; p < pairs.size(); ++p) {
    if (pairs[p].budget && std::ranges::find(budgets, budget_of(p)) == budgets.end())
      budgets.push_back(budget_of(p));
  }
  if (budgets.empty()) budgets.emplace_back();
  std::vector<Couple> couples;
  for (const std::string& budget : budgets) {
    Members there = 0;
    for (std::size_t p = 0; p < pairs.size(); ++p) {
      if (!pairs[p].budget || budget_of(p) == budget) there |= Members{1} << p;
    }
    const auto add = [&](std::size_t first, Members second, const std::string& name) {
      couples.push_back({Members{1} << first,
                         second,
                         {{"first", pairs[first].selector.text()},
                          {"second", name},
                          {"budget", budget.empty() ? Json(nullptr) : Json(budget)}}});
    };
    const auto is_there = [&](std::size_t p) { return (there >> p & 1) != 0; };
    for (std::size_t a = 0; a < pairs.size(); ++a) {
      for (std::size_t b = a + 1; b < pairs.size(); ++b)
        if (is_there(a) && is_there(b)) add(a, Members{1} << b, pairs[b].selector.text());
    }
    for (std::size_t p = 0; std::popcount(there) > 2 && p < pairs.size(); ++p)
      if (is_there(p)) add(p, there & ~(Members{1} << p), "others");
  }
  if (couples.empty()) {
    std::string left_out;
    for (const std::string& sentence : plan.skipped) left_out += "; left out: " + sentence;
    throw ConfigError(
        "overlap: expected at least two methods with the same budget; name them with --selector" +
        left_out);
  }
  return couples;
}

/// What both analyses replay: all layers choose.
struct Asked {
  template <class Options>
  Asked(const TraceSource& trace, const Options& options, std::string_view kind)
      : part(selected_part(trace.info(), options.selection)) {
    require_full_qkv(trace, kind);
    plan = plan_pairs(parse_methods({options.selector}, "selector"),
                      split_budgets({options.budget}), {options.phase}, trace.where(), kind);
    replay.q_heads = part.q_heads;
    replay.calls.phase = options.phase;
    replay.calls.chunk = options.chunk;
    replay.calls.steps = options.steps;
    replay.dense_layers = 0;
    replay.calls = whole_periods(replay.calls, plan.pairs);
  }
  void run(const TraceSource& trace, const AnalysisRun& run) const {
    replay_layers(trace, /*draft=*/nullptr, part.layers, plan.pairs, replay, run.pool, run.progress,
                  run.stop);
  }
  TraceInfo part;
  PairPlan plan;
  ReplayOptions replay;
};

/// Numbers of one couple in one head, or of one method's rows there.
using Shares = std::array<double, 4>;
constexpr Shares kNothing = {kNan, kNan, kNan, kNan};

struct SharesColumn {
  const char* name;
  const char* units;
  const char* meaning;
};
using SharesColumns = std::array<SharesColumn, 4>;

/// Writes an array [layer, q_head, `item`] of each column, of what `shares` gives. The summary has
/// their means by layer, and of each of the `items`, whose entries get them.
Json write_shares(
    const AnalysisRun& run, std::string_view kind, const Asked& asked, const SharesColumns& columns,
    const std::string& item, Json items,
    const std::function<Shares(Index layer, std::size_t head, std::size_t item)>& shares) {
  const TraceInfo& part = asked.part;
  write_head_axes(run.output, part);
  LayerColumns arrays(run.output, n_of(part.layers));
  ColumnsOf<Shares> heads(arrays, {n_of(part.q_heads), n_of(items)}, {"q_head", item});
  for (std::size_t i = 0; i < columns.size(); ++i) {
    const auto& [name, units, meaning] = columns[i];
    heads.add<float>(name, [i](const Shares& one) { return one[i]; }, units, meaning,
                     {{Total::mean, name}});
    run.output.add_plot({fmt::format("plot_{}", name), name, {"layer", "q_head", "."}, meaning});
  }
  Totals totals(arrays);
  std::vector<std::array<Mean, 4>> means(items.size());
  const auto measure = [&](Index, Index layer) {
    for (std::size_t h = 0; h < part.q_heads.size(); ++h) {
      for (std::size_t n = 0; n < items.size(); ++n) {
        const Shares one = shares(layer, h, n);
        heads.put(static_cast<Index>(h), static_cast<Index>(n), one);
        for (std::size_t i = 0; i < one.size(); ++i) means[n][i].add(one[i]);
      }
    }
  };
  const auto summarize = [&](Index, Index, Json& entry) {
    totals.add();
    Totals of_layer(arrays);
    of_layer.add();
    entry.update(of_layer.to_json());
  };
  Json summary;
  summary["layers"] = measure_layers(kind, part.layers, arrays.arrays, {}, measure, summarize);
  summary["totals"] = totals.to_json();
  for (std::size_t n = 0; n < items.size(); ++n) {
    for (std::size_t i = 0; i < columns.size(); ++i)
      items[n][columns[i].name] = json_number(means[n][i].value());
  }
  summary[item + "s"] = std::move(items);
  summary["skipped"] = asked.plan.skipped;
  return run.finish(std::move(summary));
}

/// The sums over rows of one layer.
class OverlapSums {
 public:
  OverlapSums(const std::vector<Couple>& couples, std::size_t n_heads)
      : couples_(couples), sums_(n_heads * couples.size() * kSums) {}

  /// A row of the head at `slot`; keys before `end` count.
  void add(std::size_t slot, const MeasuredRow& row, KeyPos end) {
    const auto n = static_cast<std::size_t>(std::max<Index>(0, end - row.visible.begin));
    if (n == 0) return;
    std::vector<Members> keepers(n, 0);
    for (std::size_t p = 0; p < row.kept.size(); ++p) {
      for (const KeyPos pos : row.kept[p]) {
        if (pos >= row.visible.begin && pos < end)
          keepers[static_cast<std::size_t>(pos - row.visible.begin)] |= Members{1} << p;
      }
    }
    struct Part {
      double keys = 0.0, mass = 0.0;
    };
    std::map<Members, Part> parts;  // keys with the same keepers
    for (std::size_t i = 0; i < n; ++i) {
      Part& part = parts[keepers[i]];
      part.keys += 1.0;
      part.mass += row.probs[i];
    }
    for (std::size_t c = 0; c < couples_.size(); ++c) {
      std::array<Part, 4> by_side;  // neither, first alone, second alone, both
      for (const auto& [members, part] : parts) {
        Part& side = by_side[((members & couples_[c].first) != 0 ? 1 : 0) +
                             ((members & couples_[c].second) != 0 ? 2 : 0)];
        side.keys += part.keys;
        side.mass += part.mass;
      }
      const double either = by_side[1].keys + by_side[2].keys + by_side[3].keys;
      const std::size_t at = (slot * couples_.size() + c) * kSums;
      sums_.add(at, 1.0);
      for (std::size_t side = 1; side < 4; ++side) sums_.add(at + side, by_side[side].mass);
      if (either == 0.0) continue;
      sums_.add(at + 4, 1.0);
      sums_.add(at + 5, by_side[3].keys / either);
    }
  }

  /// NaN without rows.
  Shares mean(std::size_t slot, std::size_t c) const {
    const std::size_t at = (slot * couples_.size() + c) * kSums;
    const double n = sums_.sum(at);
    return {sums_.sum(at + 5) / sums_.sum(at + 4), sums_.sum(at + 3) / n, sums_.sum(at + 1) / n,
            sums_.sum(at + 2) / n};
  }

 private:
  static constexpr std::size_t kSums = 6;
  const std::vector<Couple>& couples_;
  ReproducibleSums sums_;
};

constexpr SharesColumns kOverlapColumns = {
    {{"jaccard", "1", "keys that both keep / keys that one of them keeps"},
     {"shared_mass", "1", "attention on keys that both keep"},
     {"first_mass", "1", "attention on keys that the first alone keeps"},
     {"second_mass", "1", "attention on keys that the second alone keeps"}}};

constexpr SharesColumns kRowColumns = {
    {{"row_keys", "token", "keys before the call that a row keeps"},
     {"call_keys", "token", "keys before the call that any of its rows keeps"},
     {"row_share", "1", "keys that a row keeps / keys that any row keeps"},
     {"jaccard", "1", "keys that every row keeps / keys that any row keeps"}}};

/// What the rows of a call keep of the keys before it, by the lists of one owner.
Shares shares_of_rows(const SelectedCall& call, Index owner) {
  std::vector<std::size_t> n_keepers(static_cast<std::size_t>(call.tokens.begin));  // by key
  double n_kept = 0.0;
  const Index n_rows = call.tokens.size();
  for (Index row = 0; row < n_rows; ++row) {
    for (const KeyPos key : call.selection.list(owner, row).keys) {
      if (key >= call.tokens.begin) break;
      ++n_keepers[static_cast<std::size_t>(key)];
      n_kept += 1.0;
    }
  }
  std::erase(n_keepers, 0);
  const auto of_call = static_cast<double>(n_keepers.size());
  const auto of_all =
      static_cast<double>(std::ranges::count(n_keepers, static_cast<std::size_t>(n_rows)));
  const double of_row = n_kept / static_cast<double>(n_rows);
  if (of_call == 0.0) return kNothing;
  return {of_row, of_call, of_row / of_call, of_all / of_call};
}

}  // namespace

Json analyze_overlap(const TraceSource& trace, const OverlapOptions& options,
                     const AnalysisRun& run) {
  check_fields(options);
  Asked asked(trace, options, "overlap");
  asked.replay.rows_per_chunk = options.rows_per_chunk;
  const TraceInfo& part = asked.part;
  const std::vector<Couple> couples = couples_of(asked.plan);
  std::vector<OverlapSums> sums(part.layers.size(), OverlapSums(couples, part.q_heads.size()));
  const std::vector<TokenRange> calls = plan_calls(trace.info(), asked.replay.calls, trace.where());
  asked.replay.on_row = [&](const MeasuredRow& row) {
    const auto behind = std::ranges::upper_bound(calls, row.pos, {}, &TokenRange::begin);
    sums[static_cast<std::size_t>(part.layer_slot(row.layer))].add(
        static_cast<std::size_t>(part.q_slot(row.q_head)), row, std::prev(behind)->begin);
  };
  asked.run(trace, run);
  std::map<Index, Members> dense;  // by layer: of what it says nothing
  for (const Index layer : part.layers) {
    for (std::size_t p = 0; p < asked.plan.pairs.size(); ++p) {
      if (layer < dense_layers_of(asked.plan.pairs[p].selector, 0)) dense[layer] |= Members{1} << p;
    }
  }
  Json names = Json::array();
  for (const Couple& couple : couples) names.push_back(couple.names);
  run.begin("overlap", trace, with_part(fields_to_json(options), part));
  return write_shares(run, "overlap", asked, kOverlapColumns, "couple", std::move(names),
                      [&](Index layer, std::size_t head, std::size_t c) {
                        if (((couples[c].first | couples[c].second) & dense[layer]) != 0)
                          return kNothing;
                        return sums[static_cast<std::size_t>(part.layer_slot(layer))].mean(head, c);
                      });
}

Json analyze_row_sharing(const TraceSource& trace, const RowSharingOptions& options,
                         const AnalysisRun& run) {
  check_fields(options);
  Asked asked(trace, options, "row-sharing");
  asked.replay.only_costs = true;  // lists alone
  asked.replay.calls.drafts = options.drafts;
  std::map<std::tuple<Index, std::size_t, std::size_t>, std::array<Mean, 4>> means;
  asked.replay.on_selection = [&](const SelectedCall& call) {
    for (std::size_t h = 0; h < asked.part.q_heads.size() && !call.selection.is_dense; ++h) {
      const Index owner =
          owner_of(call.selection.owner, asked.part.q_heads[h], trace.info().group(call.layer));
      const Shares one = shares_of_rows(call, owner);
      for (std::size_t i = 0; i < one.size(); ++i) means[{call.layer, h, call.pair}][i].add(one[i]);
    }
  };
  asked.run(trace, run);
  Json names = Json::array();
  for (const ReplayPair& pair : asked.plan.pairs) names.push_back({{"method", pair_label(pair)}});
  run.begin("row-sharing", trace, with_part(fields_to_json(options), asked.part));
  return write_shares(
      run, "row-sharing", asked, kRowColumns, "pair", std::move(names),
      [&](Index layer, std::size_t head, std::size_t pair) {
        Shares one;
        std::ranges::transform(means[{layer, head, pair}], one.begin(), &Mean::value);
        return one;
      });
}

}  // namespace kvscope
