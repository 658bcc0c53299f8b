// Which keys stay, against kvpress 0.5.5 (NVIDIA, Apache-2.0): tests/golden/conformance, made by
// tests/golden/make_conformance.py. Where kvscope departs on purpose, a case here says so and names
// the option that removes the difference; core/selectors/CONFORMANCE.md has the table.
#include <fmt/format.h>

#include <functional>
#include <set>

#include "core/attention/output_projection.hpp"
#include "core/base/parallel.hpp"
#include "core/selectors/key_rotation.hpp"
#include "core/selectors/method_spec.hpp"
#include "core/selectors/owners.hpp"
#include "core/selectors/registry.hpp"
#include "core/sim/protocol.hpp"
#include "core/trace/memory_trace.hpp"
#include "tests/core/selectors/lists.hpp"
#include "tests/core/selectors/published.hpp"
#include "tests/core/selectors/sequence.hpp"
#include "tests/support/planted_trace.hpp"
#include "tests/support/test.hpp"

namespace kvscope::test::published_lists_test {

using Json = nlohmann::json;

/// W_o of the prompt's layer: the mean over a group's heads of the L1 norm of W_o v.
class PromptProjection final : public OutputProjection {
 public:
  explicit PromptProjection(const Prompt& prompt) : prompt_(prompt) {}
  std::vector<double> lengths(Index, Index kv_head, TensorView<const float> v) const override {
    std::vector<double> norms;
    for (Index j = 0; j < v.dim(0); ++j) {
      norms.push_back(0.0);
      for (Index h = kv_head * prompt_.group(); h < (kv_head + 1) * prompt_.group(); ++h) {
        for (Index i = 0; i < prompt_.w_o.dim(0); ++i) {
          double out = 0.0;
          for (Index c = 0; c < v.dim(1); ++c)
            out += static_cast<double>(prompt_.w_o(i, h * v.dim(1) + c)) *
                   static_cast<double>(v(j, c));
          norms.back() += std::abs(out) / static_cast<double>(prompt_.group());
        }
      }
    }
    return norms;
  }

 private:
  const Prompt& prompt_;
};

/// The rotary embedding that the prompt's queries were turned by.
KeyRotation rotation_of(const Prompt& prompt) {
  KeyRotation rotation;
  const Index n_pairs = prompt.k.dim(2) / 2;
  for (Index i = 0; i < n_pairs; ++i) {
    rotation.frequencies.push_back(
        std::pow(prompt.rope_theta, -static_cast<double>(i) / static_cast<double>(n_pairs)));
  }
  return rotation;
}

/// The prompt as a recording, for methods that learn before they run.
MemoryTrace recording_of(const Prompt& prompt) {
  MemoryTrace text(make_trace_info(1, prompt.q.dim(0), prompt.k.dim(0), prompt.k.dim(2),
                                   prompt.n_tok(), prompt.n_tok()));
  std::copy_n(prompt.q.data(), prompt.q.count(), text.q(0).data());
  std::copy_n(prompt.k.data(), prompt.k.count(), text.k(0).data());
  std::copy_n(prompt.v.data(), prompt.v.count(), text.v(0).data());
  return text;
}

/// What a method holds after the prompt in one call; of one that evicts nothing, what the last
/// query sees. block: the keys behind the budget come in calls of so many.
KeptKeys kept_by(const std::string& spec, const Prompt& prompt, Index budget, Index block = 0) {
  const auto d = static_cast<float>(prompt.k.dim(2));
  AttentionShape shape{.n_layers = 1,
                       .n_q = prompt.q.dim(0),
                       .n_kv = prompt.k.dim(0),
                       .d_head = prompt.k.dim(2),
                       .max_tokens = prompt.n_tok(),
                       .score_scale = 1.0f / std::sqrt(d)};
  shape.rotations = std::make_shared<std::vector<KeyRotation>>(1, rotation_of(prompt));
  shape.projection = std::make_shared<PromptProjection>(prompt);
  std::unique_ptr<Selector> selector = selector_registry().make(spec);
  if (selector->caps().needs_calibration) {
    const MemoryTrace text = recording_of(prompt);
    ThreadPool pool(1);
    selector->calibrate(text, text.info().layers, pool);
  }
  SelectorRun run(std::move(selector), shape, {{Budget::Kind::tokens, static_cast<double>(budget)}},
                  /*dense_layers=*/0);
  std::vector<Index> ends;
  for (Index end = budget; block > 0 && end < prompt.n_tok(); end += block) ends.push_back(end);
  ends.push_back(prompt.n_tok());
  for (const Index end : ends) {
    const Index begin = run.n_keys();
    run.begin_call(Phase::prefill, end - begin);
    run.layer_call({.layer = 0,
                    .q = prompt.q.view().range(1, begin, end),
                    .k = prompt.k.view().range(1, 0, end),
                    .v = prompt.v.view().range(1, 0, end)});
  }
  const Selection& selection = run.last_selection();
  KeptKeys kept;
  for (Index head = 0; head < shape.n_kv; ++head) {
    if (run.caps().permanent) {
      const std::set<KeyPos> alive = alive_keys(run.alive(0), head);
      kept.emplace_back(alive.begin(), alive.end());
    } else {
      kept.push_back(merged(selection.list(
          owner_of(selection.owner, head * shape.group(), shape.group()), selection.n_tok - 1)));
    }
  }
  return kept;
}

/// The same keys; where the program's scores at its border are equal, any of those.
void check_kept(const KeptKeys& ours, const Json& run, const Json& scores) {
  const auto its = run["kept"].get<KeptKeys>();
  if (!run["tied"].get<bool>()) {
    CHECK(ours == its);
    return;
  }
  for (std::size_t h = 0; h < its.size(); ++h) {
    const auto score = scores[h].get<std::vector<double>>();
    double border = std::numeric_limits<double>::infinity();
    for (const KeyPos pos : its[h]) border = std::min(border, score[pos]);
    CHECK(ours[h].size() == its[h].size());
    for (const KeyPos pos : ours[h]) CHECK(score[pos] >= border);
    const auto is_above = [&](KeyPos pos) { return score[pos] > border; };
    CHECK(std::ranges::count_if(ours[h], is_above) == std::ranges::count_if(its[h], is_above));
  }
}

using SpecOf = std::function<std::string(const Json& options, Index budget)>;

void check_method(const std::string& file, const SpecOf& spec_of) {
  for_each_run(file, [&](const Prompt& prompt, const Json& one, const Json& run, Index budget) {
    const std::string spec = spec_of(one["options"], budget);
    INFO(spec);
    check_kept(kept_by(spec, prompt, budget), run, one["scores"]);
  });
}

SpecOf always(const std::string& spec) {
  return [spec](const Json&, Index) { return spec; };
}

std::string window_options(const Json& options) {
  return fmt::format("window={},kernel={}", options["window_size"].get<Index>(),
                     options["kernel_size"].get<Index>());
}

/// The floor that leaves a head as much as kvpress does. There trunc(share * budget) keys of a head
/// are safe, its window first among them; here a floor is a share of what the budget leaves beside
/// the window.
double floor_beside_window(const Json& options, Index budget) {
  const Index window = options["window_size"];
  const double share = options["alpha_safeguard"];
  const auto n_safe = static_cast<Index>(share * static_cast<double>(budget));
  const auto n_more = static_cast<double>(std::max<Index>(0, n_safe - window));
  return (n_more + 0.5) / static_cast<double>(budget - window);
}

std::string critical_spec(const Json& options) {
  return fmt::format("critical:{},epsilon={},first-stage={}", window_options(options),
                     options["epsilon"].get<double>(), options["first_stage_ratio"].get<double>());
}

TEST_CASE("methods keep what kvpress keeps") {
  const std::pair<const char*, SpecOf> methods[] = {
      {"snapkv/kept.json",
       [](const Json& options, Index) { return "snapkv:" + window_options(options); }},
      {"tova/kept.json", always("tova-kvpress")},
      {"keydiff/kept.json", always("keydiff")},
      // its observed attention
      {"h2o/kept.json", always("h2o:recent-share=0,normalise=by_queries")},
      // what the last query sees
      {"streamingllm/kept.json",
       [](const Json& options, Index) {
         return fmt::format("streamingllm:n-sink={}", options["n_sink"].get<Index>());
       }},
      // if the floor counts the window
      {"adakv/kept.json",
       [](const Json& options, Index budget) {
         return fmt::format("adakv-kvpress:{},floor={}", window_options(options),
                            floor_beside_window(options, budget));
       }},
      {"knorm/kept.json", always("knorm")},
      {"lagkv/kept.json",
       [](const Json& options, Index) {
         return fmt::format("lagkv:n-sink={},lag={},cross-scoring={}",
                            options["n_sink"].get<Index>(), options["lag_size"].get<Index>(),
                            options["cross_scoring"].get<bool>());
       }},
      // with filters of the same queries
      {"qfilters/kept.json", always("qfilters")},
      {"expected-attention/kept.json",
       [](const Json& options, Index) {
         return fmt::format(
             "expected-attention:n-future={},n-sink={},covariance={},value-norm={},epsilon={}",
             options["n_future_positions"].get<Index>(), options["n_sink"].get<Index>(),
             options["use_covariance"].get<bool>(), options["use_vnorm"].get<bool>(),
             options["epsilon"].get<double>());
       }},
      // an even budget per head
      {"critical/kept.json",
       [](const Json& options, Index) { return critical_spec(options) + ",heads=even"; }},
      // where heads compete, if the floor counts the window
      {"critical/kept_adakv.json", [](const Json& options, Index budget) {
         return fmt::format("{},heads=adaptive,floor={}", critical_spec(options),
                            floor_beside_window(options, budget));
       }}};
  for (const auto& [file, spec_of] : methods) check_method(file, spec_of);
}

TEST_CASE("tova lets the last key go, which kvpress holds") {
  Index n_departures = 0;
  for_each_run("tova/kept.json",
               [&](const Prompt& prompt, const Json&, const Json& run, Index budget) {
                 const auto its = run["kept"].get<KeptKeys>();
                 const KeptKeys ours = kept_by("tova", prompt, budget);
                 for (std::size_t h = 0; h < its.size(); ++h) {
                   std::vector<KeyPos> lost;
                   std::set_difference(its[h].begin(), its[h].end(), ours[h].begin(), ours[h].end(),
                                       std::back_inserter(lost));
                   if (lost.empty()) continue;
                   ++n_departures;
                   CHECK(lost == std::vector<KeyPos>{static_cast<KeyPos>(prompt.n_tok() - 1)});
                 }
               });
  CHECK(n_departures > 0);
}

TEST_CASE("keydiff in chunks keeps what kvpress keeps in blocks") {
  for_each_run("keydiff/kept_blocks.json",
               [](const Prompt& prompt, const Json& one, const Json& run, Index budget) {
                 CHECK(kept_by("keydiff", prompt, budget, one["options"]["block_size"]) ==
                       run["kept"].get<KeptKeys>());
               });
}

TEST_CASE("adakv-kvpress: a head that votes for nothing holds a floor beside its window") {
  Index n_starved = 0;
  for_each_run("adakv/kept.json",
               [&](const Prompt& prompt, const Json& one, const Json& run, Index budget) {
                 if (one["options"]["alpha_safeguard"] != 0.2) return;
                 const Index window = one["options"]["window_size"];
                 const KeptKeys ours =
                     kept_by("adakv-kvpress:" + window_options(one["options"]), prompt, budget);
                 const auto floor = static_cast<Index>(0.2 * static_cast<double>(budget - window));
                 const auto its = run["kept"].get<KeptKeys>();
                 for (std::size_t h = 0; h < its.size(); ++h) {
                   const auto n_ours = static_cast<Index>(ours[h].size());
                   CHECK(n_ours >= window + floor);
                   if (static_cast<Index>(its[h].size()) >= window + floor) continue;
                   ++n_starved;
                   CHECK(n_ours == window + floor);
                 }
               });
  CHECK(n_starved > 0);
}

}  // namespace kvscope::test::published_lists_test
