#include "analysis/cost/shape_lists.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <nlohmann/json.hpp>

#include "analysis/base/measure_layers.hpp"
#include "analysis/base/replay_pairs.hpp"
#include "analysis/cost/made_up_text.hpp"
#include "analysis/cost/trace_cost.hpp"
#include "core/base/error.hpp"
#include "core/base/evenly_spaced.hpp"
#include "core/base/json_reader.hpp"
#include "core/base/number_text.hpp"
#include "core/trace/memory_trace.hpp"

namespace kvscope {

namespace {

constexpr Index kShortestText = 4096;      // tokens of a text
constexpr Index kLongestText = 64 * 1024;  // unless the lists are longer
constexpr Index kLearnedFrom = 1024;       // tokens of the text that a method learns from
constexpr Index kLastSteps = 4;            // decode and verify: calls that are asked about
constexpr double kSameSize = 0.02;         // of sizes that follow from a rule

/// The layers without a window that a method chooses in, ascending, and how many it leaves dense.
struct AskedLayers {
  std::vector<Index> asked;
  double n_dense = 0.0;
};

/// How many of config's layers are left dense: of the model's leading ones, those that attend.
Index dense_layers_of(const ListQuestion& question, const MethodSpec& method) {
  const Index n_dense = question.dense_layers.value_or(method.caps().dense_layers);
  if (question.places.empty()) return n_dense;
  return std::ranges::lower_bound(question.places, n_dense) - question.places.begin();
}

AskedLayers asked_layers(const ListQuestion& question, const MethodSpec& method) {
  AskedLayers layers;
  const Index n_dense = dense_layers_of(question, method);
  for (Index layer = 0; layer < question.config.n_layers; ++layer) {
    const auto at = static_cast<std::size_t>(layer);
    if (at < question.config.window.size() && question.config.window[at]) continue;
    if (layer < n_dense) {
      layers.n_dense += 1.0;
    } else {
      layers.asked.push_back(layer);
    }
  }
  return layers;
}

/// Long enough that lists are as long as at any context, and far from all that there is: keys that
/// are chosen at random would lie side by side.
Index text_length(const ListQuestion& question, const ReplayPair& pair, Index n_tok) {
  const SelectorCaps& caps = pair.selector.caps();
  Index n = kShortestText;
  const bool is_count = pair.budget && (pair.budget->kind == Budget::Kind::tokens ||
                                        pair.budget->kind == Budget::Kind::pages);
  if (is_count) {
    const Index count = pair.budget->tokens(Index{1} << 40, caps.page_size);
    // every call of a text is asked of a method with a history
    const bool has_history = caps.permanent || caps.needs_probs;
    n = std::max(3 * count, has_history ? kShortestText : std::min(8 * count, kLongestText));
  }
  return std::max(n, kShortestText) + question.chunk + n_tok;
}

TraceInfo shape_info(const ListQuestion& question, const std::vector<Index>& layers,
                     Index n_tokens) {
  const ModelConfig& config = question.config;
  TraceInfo info = make_trace_info(config.n_layers, config.n_q, config.n_kv, config.d_head,
                                   n_tokens, question.chunk);
  info.model_config = question.config_text;
  info.score_scale = config.score_scale();
  info.score_cap = static_cast<float>(config.plan.score_softcap);
  info.window = config.window;
  info.layers = layers;
  return info;
}

/// The last calls of a text.
std::vector<TokenRange> last_calls(const ListQuestion& question, Index n_tok, Index steps,
                                   Index n_tokens) {
  const Index n_calls = question.phase == Phase::prefill ? 1 : steps;
  std::vector<TokenRange> calls;
  for (Index i = n_calls; i > 0; --i)
    calls.push_back({n_tokens - i * n_tok, n_tokens - (i - 1) * n_tok});
  return calls;
}

/// What one made-up text says. All layers of the model without a window: those left dense, and the
/// first and the last of the others, for half of them each.
MethodWork work_on(MadeUp kind, const ListQuestion& question, const ReplayPair& pair,
                   const AskedLayers& layers, ThreadPool& pool, const std::stop_token& stop) {
  const SelectorCaps& caps = pair.selector.caps();
  const Index n_tok = question.phase == Phase::prefill  ? question.chunk
                      : question.phase == Phase::decode ? 1
                                                        : question.drafts;
  const Index steps = std::max(kLastSteps, caps.steps_per_choice);
  const Index n_tokens = text_length(question, pair, n_tok * steps);
  std::vector<Index> ends = {layers.asked.front()};
  if (layers.asked.size() > 1) ends.push_back(layers.asked.back());
  const TraceInfo info = shape_info(question, ends, n_tokens);
  const MadeUpText text(info, kind, 1);
  const std::vector<Index> all = all_in(0, question.config.n_layers);
  const MadeUpText other(shape_info(question, all, kLearnedFrom), kind, 2);
  ReplayOptions options;
  options.calls.phase = question.phase;
  options.calls.chunk = question.chunk;
  options.calls.drafts = question.drafts;
  options.calls.at = last_calls(question, n_tok, steps, n_tokens);
  options.dense_layers = question.dense_layers;
  ReplayPair asked = pair;
  if (!question.places.empty()) {  // which layers are dense is counted in the model's own
    options.dense_layers = dense_layers_of(question, pair.selector);
    if (std::ranges::any_of(pair.selector.stages(),
                            [](const auto& stage) { return stage.sets("dense-layers"); }))
      asked.selector.set("dense-layers", *options.dense_layers);
  }
  options.only_costs = true;
  options.calibration = &other;
  WorkCollector works(info);
  options.on_selection = [&works](const SelectedCall& selected) { works.add(selected); };
  replay_layers(text, nullptr, ends, {asked}, options, pool, {}, stop);

  std::vector<AlikeLayers> calls;
  const auto share = static_cast<double>(layers.asked.size()) / static_cast<double>(ends.size());
  for (const Index layer : ends) calls.push_back({share, works.calls(0, layer)});
  std::vector<Index> names = ends;
  if (layers.n_dense > 0.0) {
    AlikeLayers dense{layers.n_dense, {}};
    for (const LayerWork& one : calls.front().calls) dense.calls.push_back(dense_work(one.shape));
    calls.insert(calls.begin(), std::move(dense));
    names.insert(names.begin(), 0);
  }
  return method_work(pair, names, std::move(calls));
}

/// Calls f with every call at length that chooses of both, in order.
template <class F>
void for_chosen(MethodWork& of, const MethodWork& with, F&& f) {
  for (std::size_t i = 0; i < of.at_length.size(); ++i) {
    for (std::size_t c = 0; c < of.at_length[i].calls.size(); ++c) {
      if (!of.at_length[i].calls[c].is_dense)
        f(of.at_length[i].calls[c], with.at_length[i].calls[c]);
    }
  }
}

/// Lists that share keys by chance share ever fewer in a longer context: what they load together is
/// what they hold together.
void share_nothing(MethodWork& work) {
  for (AlikeLayers& one : work.at_length) {
    for (LayerWork& call : one.calls) {
      const double held = call.attend.pairs / call.attend.rows;
      if (call.is_dense || held <= call.attend.keys) continue;
      call.attend.runs *= held / call.attend.keys;
      call.attend.keys = held;
    }
  }
}

double mean_kept(const MethodWork& work) {
  double pairs = 0.0;
  double rows = 0.0;
  for (const AlikeLayers& one : work.at_length) {
    for (const LayerWork& call : one.calls) {
      if (call.is_dense) continue;
      pairs += call.attend.pairs;
      rows += call.shape.n_q * call.shape.n_tok;
    }
  }
  return rows > 0.0 ? pairs / rows : 0.0;
}

MethodWork middle_of(const MethodWork& alike, const MethodWork& apart) {
  MethodWork middle = alike;
  for_chosen(middle, apart, [](LayerWork& one, const LayerWork& other) {
    one.attend.keys = std::sqrt(one.attend.keys * other.attend.keys);
    one.attend.runs = std::sqrt(one.attend.runs * other.attend.runs);
  });
  return middle;
}

/// The sizes of `lists` in place of the made-up text's.
void take_sizes(const MeasuredLists& lists, MethodWork& work) {
  for (AlikeLayers& one : work.at_length) {
    for (LayerWork& call : one.calls) {
      const bool is_dense = call.is_dense;
      call = at_context(call, lists.context, work.keeps_count);
      if (is_dense) continue;
      const CallShape& shape = call.shape;
      call.attend.pairs = lists.kept * shape.n_q * shape.n_tok;
      call.attend.keys = lists.union_keys * shape.n_kv;
      call.attend.runs = lists.runs * shape.n_kv;
    }
  }
}

const MeasuredLists& lists_like(const ListQuestion& question, const ReplayPair& pair,
                                double n_tok) {
  const std::string budget = pair.budget ? pair.budget->to_string() : std::string();
  const std::string& where = question.like.front().where;
  for (const MeasuredLists& one : question.like) {
    if (one.selector != pair.selector.text() || one.budget != budget ||
        one.phase != enum_name(question.phase))
      continue;
    if (one.queries == n_tok) return one;
    throw ConfigError("{}: its lists are of calls of {} queries, expected {}: take the same chunk",
                      where, number_text(one.queries, 8), number_text(n_tok, 8));
  }
  throw ConfigError(
      "{}: no lists of {} in {}, expected those of the same method, budget and phase "
      "(kvscope cost TRACE --out FILE)",
      where, pair_label(pair), enum_name(question.phase));
}

std::string keys_sentence(const MethodWork& alike, const MethodWork& apart) {
  const LayerWork one = mean_work(alike.at_length.back().calls);
  const LayerWork other = mean_work(apart.at_length.back().calls);
  if (one.is_dense) return "the method keeps everything";
  const double least = one.attend.keys / one.shape.n_kv;
  const double most = other.attend.keys / other.shape.n_kv;
  std::string loaded = number_text(std::round(least), 7);
  if (std::round(most) != std::round(least))
    loaded += fmt::format(" to {} (by how far lists agree)", number_text(std::round(most), 7));
  return fmt::format("{} keys of a query, {} loaded for a KV head and call",
                     number_text(std::round(mean_kept(apart)), 7), loaded);
}

void refuse_unfit(const ReplayPair& pair, const AskedLayers& layers) {
  const SelectorCaps& caps = pair.selector.caps();
  if (caps.cross_layer)
    throw ConfigError("it links layers, so that each has another cost: replay a recording");
  if (caps.needs_draft) throw ConfigError("its lists come from a draft model: replay a recording");
  if (caps.needs_side)
    throw ConfigError("its lists come from the model's own indexer: replay a recording");
  if (layers.asked.empty())
    throw ConfigError("no layer is left to it: all have a window or stay dense");
}

ShapeLists lists_of_method(const ListQuestion& question, const ReplayPair& pair, ThreadPool& pool,
                           const std::stop_token& stop) {
  const AskedLayers layers = asked_layers(question, pair.selector);
  refuse_unfit(pair, layers);
  ShapeLists out{pair, {}, {}, {}, {}};
  out.apart = work_on(MadeUp::apart, question, pair, layers, pool, stop);
  if (!out.apart.too_short.empty())
    throw ConfigError(
        "its lists of different queries together cover a made-up text, so that what "
        "is loaded depends on a real one: measure its lists on a recording (kvscope "
        "cost TRACE --out FILE) and add --like FILE");
  if (!question.like.empty()) {
    const double n_tok = out.apart.calls.back().calls.front().shape.n_tok;
    const MeasuredLists& lists = lists_like(question, pair, n_tok);
    take_sizes(lists, out.apart);
    out.alike = out.middle = out.apart;
    out.source = "sizes of lists measured in " + lists.where;
    return out;
  }
  share_nothing(out.apart);
  out.alike = work_on(MadeUp::alike, question, pair, layers, pool, stop);
  const double alike = mean_kept(out.alike);
  const double apart = mean_kept(out.apart);
  if (!out.alike.too_short.empty() || std::abs(alike - apart) > kSameSize * apart) {
    throw ConfigError(
        "how many keys it keeps depends on the text ({} and {} in two made-up ones), "
        "and no rule gives a size: measure its lists on a recording (kvscope cost "
        "TRACE --out FILE) and add --like FILE",
        number_text(apart, 4), number_text(alike, 4));
  }
  out.middle = middle_of(out.alike, out.apart);
  out.source = "sizes of lists from the method's own rule: " + keys_sentence(out.alike, out.apart);
  return out;
}

}  // namespace

std::vector<MeasuredLists> measured_lists(std::string_view text, const std::string& where) {
  const nlohmann::json json = parse_json(text, where);
  const JsonObject report(json, where);
  const std::string model = report.string_if("model").value_or("");
  const std::string kind = report.string_if("kind").value_or("");
  if (kind != "cost" || report.find("lists") == nullptr) {
    throw FormatError(
        "{}: expected a report of kvscope cost TRACE --out with \"lists\", found kind \"{}\"",
        where, kind);
  }
  std::vector<MeasuredLists> out;
  constexpr double kMost = 1e12;
  for (const nlohmann::json& entry : report.list("lists")) {
    const JsonObject one(entry, where + ": lists");
    out.push_back({fmt::format("{} ({})", where, model), one.string("selector"),
                   one.string_if("budget").value_or(""), one.string("phase"),
                   one.number("queries", 1.0, kMost), one.number("context", 1.0, kMost),
                   one.number("union", 0.0, kMost), one.number("runs", 0.0, kMost),
                   one.number("kept", 0.0, kMost)});
  }
  if (out.empty())
    throw FormatError(where + ": it holds no lists: its recording was too short for every budget");
  return out;
}

ShapeListsOfAll lists_of_shape(const ListQuestion& question, ThreadPool& pool,
                               const ProgressFn& progress, const std::stop_token& stop) {
  ShapeListsOfAll out;
  const auto total = static_cast<std::int64_t>(question.pairs.size());
  for (const ReplayPair& pair : question.pairs) {
    if (stop.stop_requested()) throw Interrupted("cost: stopped on request");
    const auto done = static_cast<std::int64_t>(out.methods.size() + out.left_out.size());
    if (progress) progress({"lists", done, total, "methods"});
    try {
      out.methods.push_back(lists_of_method(question, pair, pool, stop));
    } catch (const ConfigError& error) {
      out.left_out.push_back(fmt::format("{}: {}", pair_label(pair), error.what()));
    }
  }
  if (progress) progress({"lists", total, total, "methods"});
  if (out.methods.empty() && !out.left_out.empty())
    throw ConfigError("cost: " + out.left_out.front());
  return out;
}

}  // namespace kvscope
