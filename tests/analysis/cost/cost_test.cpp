// The cost model against numbers computed by hand and by loops; profiles as they are built in;
// faults in them.
#include "analysis/cost/trace_cost.hpp"

#include <nlohmann/json.hpp>
#include <set>

#include "analysis/sweep/sweep.hpp"
#include "tests/support/planted_trace.hpp"
#include "tests/support/run_sweep.hpp"
#include "tests/support/test.hpp"

namespace kvscope::cost_test {

/// A card of round numbers: 1e12 FLOP/s, 1e9 bytes/s, launches of a microsecond, no losses.
HardwareProfile plain_card() {
  HardwareProfile card{.name = "plain", .kind = "gpu", .compute = "bf16"};
  card.peak["bf16"] = {1e12, "made up"};
  card.bandwidth = {{{1.0, 1e9}}, "made up"};
  card.memory = {1e9, "made up"};
  card.launch = {1e-6, "made up"};
  card.attend = {1.0, "made up"};
  card.attend_rows = {{{1.0, 1.0}}, "made up"};
  card.score = {1.0, "made up"};
  card.matmul = {1.0, "made up"};
  card.gather = {{{1.0, 1.0}}, "made up"};
  card.topk = {1e-9, "made up"};
  return card;
}

TEST_CASE("cost: dense work is what loops count") {
  for (const Index window : {0, 5}) {
    const CallShape shape{4, 2, 8, 3, 10};
    double pairs = 0.0;
    double first = 10.0;
    for (Index head = 0; head < 4; ++head) {
      for (Index row = 0; row < 3; ++row) {
        for (Index key = 0; key < 10; ++key) {
          const Index pos = 7 + row;
          if (key > pos || (window > 0 && key <= pos - window)) continue;
          pairs += 1.0;
          first = std::min(first, static_cast<double>(key));
        }
      }
    }
    const LayerWork work =
        dense_work(shape, window > 0 ? std::optional<Index>(window) : std::nullopt);
    CHECK(work.is_dense);
    CHECK(work.attend.pairs == pairs);
    CHECK(work.attend.keys == 2.0 * (10.0 - first));
    CHECK(work.attend.rows == 6.0);
  }
}

TEST_CASE("cost: every stage is a launch and the larger of arithmetic and memory") {
  HardwareProfile card = plain_card();
  card.attend.value = 0.5;
  card.gather = {{{32.0, 0.25}}, "made up"};
  LayerWork work{.shape = {4, 2, 8, 1, 100}, .attend = {40, 20, 10, 2}};
  work.score_flops = 5e7;   // 50 us of arithmetic
  work.score_bytes = 3000;  // 3 us of memory
  work.append_bytes = 64;
  work.ranked = 200;
  work.summaries = 6;
  const StageTimes times = predict_layer(work, card, {});
  // 64 bytes written, two keys of 8 numbers of 2 bytes read
  CHECK(times.of(CostStage::append) == Approx(1e-6 + (64 + 32) * 1e-9));
  CHECK(times.of(CostStage::score) == Approx(1e-6 + 50e-6));
  CHECK(times.of(CostStage::topk) == Approx(1e-6 + 200e-9));
  // 20 keys and values of 16 bytes at a quarter of the bandwidth; 4 * 8 * 40 FLOPs are less
  CHECK(times.of(CostStage::attend) == Approx(1e-6 + 20 * 2 * 16 / 0.25 * 1e-9));
  CHECK(times.of(CostStage::estimate) == Approx(1e-6 + 6 * 2 * 16 * 1e-9));
  double sum = 0.0;
  for (const double one : times.seconds) sum += one;
  CHECK(times.total() == Approx(sum));
  // a batch has caches of its own but one launch; f32 is twice the bytes
  const StageTimes many = predict_layer(work, card, {.batch = 3.0, .kv_bytes = 4.0});
  CHECK(many.of(CostStage::attend) == Approx(1e-6 + 3 * 20 * 2 * 32 / 0.25 * 1e-9));
  CHECK(many.of(CostStage::score) == Approx(1e-6 + 150e-6));
  // what is not done takes no time
  const StageTimes dense = predict_layer(dense_work(work.shape), card, {});
  CHECK(dense.of(CostStage::score) == 0.0);
  CHECK(dense.total() == Approx(1e-6 + 2 * 100 * 2 * 16 * 1e-9));
}

TEST_CASE("cost: a processor gathers each list anew, and many vectors score as matrices do") {
  HardwareProfile card = plain_card();
  card.score.value = 0.1;
  LayerWork work{.shape = {4, 2, 8, 4, 100}};
  work.attend = {320, 20, 20, 2};  // 160 keys of lists, 20 of them different
  work.score_flops = 6e6;
  work.score_bytes = 3e5;  // 20 vectors to a key
  const double union_bytes = 20 * 2 * 16;
  const double list_bytes = 160 * 2 * 16;
  CHECK(predict_layer(work, card, {}).of(CostStage::attend) == Approx(1e-6 + union_bytes * 1e-9));
  card.kind = "cpu";
  // What an earlier list has brought comes from the nearest cache.
  card.bandwidth = {{{100.0, 4e9}, {200.0, 1e9}}, "made up"};
  CHECK(predict_layer(work, card, {}).of(CostStage::attend) ==
        Approx(1e-6 + union_bytes * 1e-9 + (list_bytes - union_bytes) / 4e9));
  card.bandwidth = {{{1.0, 1e15}}, "made up"};
  CHECK(predict_layer(work, card, {}).of(CostStage::score) == Approx(1e-6 + 6e6 / 1e11));
  card.kernels["score-many"] = {0.5, "made up"};
  const double share = 0.1 + 0.4 * std::log(20.0 / 4.0) / std::log(64.0 / 4.0);
  CHECK(predict_layer(work, card, {}).of(CostStage::score) == Approx(1e-6 + 6e6 / (share * 1e12)));
  work.score_bytes = 6e6;  // one vector to a key
  CHECK(predict_layer(work, card, {}).of(CostStage::score) == Approx(1e-6 + 6e6 / 1e11));
  work.score_bytes = 1e3;
  CHECK(predict_layer(work, card, {}).of(CostStage::score) == Approx(1e-6 + 6e6 / 5e11));
}

TEST_CASE("cost: the work behind a selection is what loops count") {
  // two KV heads with two query heads each, three queries at 7 to 9, a list for all of them
  Selection selection(ListOwner::q_head, 3, 3);
  const std::vector<std::vector<KeyPos>> lists = {
      {0, 1, 2, 7, 8, 9}, {1, 2, 3, 7, 8, 9}, {0, 5, 9}, {6}};
  for (const auto& keys : lists) selection.add(KeyList{keys, {}, {}});
  const LayerWork work =
      measured_work(selection, {.score_flops = 10, .score_bytes = 20, .metadata_bytes = 100}, 4, 2,
                    8, {7, 10}, 4);
  double pairs = 0.0;
  double keys = 0.0;
  double runs = 0.0;
  for (std::size_t kv = 0; kv < 2; ++kv) {
    std::set<KeyPos> all;
    for (std::size_t head = 2 * kv; head < 2 * kv + 2; ++head) {
      for (KeyPos pos = 7; pos < 10; ++pos) {
        for (const KeyPos key : lists[head]) {
          pairs += key <= pos ? 1.0 : 0.0;
          if (key <= pos) all.insert(key);
        }
      }
    }
    keys += static_cast<double>(all.size());
    for (const KeyPos key : all) runs += all.contains(key - 1) ? 0.0 : 1.0;
  }
  CHECK(work.attend.pairs == pairs);
  CHECK(work.attend.keys == keys);
  CHECK(work.attend.runs == runs);
  CHECK(work.attend.rows == 3.0);   // lists of a query head serve its own rows
  CHECK(work.ranked == 4.0 * 3.0);  // four lists over ceil(10 / 4) pages
  CHECK(work.append_bytes == 30.0);
  CHECK_FALSE(work.is_dense);
}

TEST_CASE("cost: break-even is where the method stops being slower") {
  HardwareProfile card = plain_card();
  LayerWork work{.shape = {1, 1, 8, 1, 64}, .attend = {16, 16, 1, 1}};
  work.score_flops = 1.0;  // a second launch
  const auto even = break_even_of({.keeps_count = true, .at_length = {{1.0, {work}}}}, card, {});
  REQUIRE(even);
  const auto gain = [&](double n) {
    CallShape shape = work.shape;
    shape.n_ctx = n;
    return predict_layer(dense_work(shape), card, {}).total() -
           predict_layer(at_context(work, n, true), card, {}).total();
  };
  CHECK(gain(*even) >= 0.0);
  CHECK(gain(*even - 2.0) < 0.0);
  LayerWork between = work;  // of a step that does not choose
  between.score_flops = 0.0;
  const MethodWork some = {.keeps_count = true, .at_length = {{1.0, {work, between, between}}}};
  const auto sooner = break_even_of(some, card, {});
  REQUIRE(sooner);
  CHECK(gain(*sooner) +
            2.0 *
                (gain(*sooner) + predict_layer(at_context(work, *sooner, true), card, {}).total() -
                 predict_layer(at_context(between, *sooner, true), card, {}).total()) >=
        0.0);
  CHECK(*sooner < *even - 2.0);
  CHECK_FALSE(break_even_of({.keeps_count = true, .at_length = {{1.0, {dense_work(work.shape)}}}},
                            card, {}));
}

TEST_CASE("cost: every built-in profile has all fields with sources and sensible sizes") {
  const std::vector<std::string> names = hardware_names();
  CHECK(std::set<std::string>(names.begin(), names.end()) ==
        std::set<std::string>{"a100-80", "a6000", "b200", "h100-sxm", "h200", "rtx-2080",
                              "rtx-4090", "rtx-6000-ada", "xeon-w-2125"});
  for (const std::string& name : names) {
    INFO(name);
    const HardwareProfile profile = find_hardware(name);  // refuses what lacks a field or a source
    CHECK(profile.name == name);
    CHECK(profile.bandwidth.at(1e9) > 1e10);
    CHECK(profile.bandwidth.at(1e9) < 1e13);
    CHECK(profile.gather.at(1e9) == Approx(1.0));
    const HardwareProfile again = parse_hardware(hardware_json(profile).dump(), "again");
    CHECK(hardware_json(again) == hardware_json(profile));
  }
}

TEST_CASE("cost: a profile with a fault is refused in a sentence that names it") {
  const nlohmann::ordered_json good = hardware_json(find_hardware("h100-sxm"));
  for (const auto& [key, value] : good.items()) {
    if (key == "kernels") continue;
    nlohmann::ordered_json bad = good;
    bad.erase(key);
    INFO(key);
    CHECK_SAYS(parse_hardware(bad.dump(), "card.json"), key, "card.json");
  }
  nlohmann::ordered_json bad = good;
  bad["launch"].erase("source");
  CHECK_SAYS(parse_hardware(bad.dump(), "card.json"), "launch.source");
  bad = good;
  bad["attend"]["value"] = 1.5;
  CHECK_THROWS_AS(parse_hardware(bad.dump(), "card.json"), FormatError);
  bad = good;
  bad["gather"]["points"] = {{64, 0.5}, {32, 0.6}};
  CHECK_SAYS(parse_hardware(bad.dump(), "card.json"), "ascending");
  // Every number of every field as what it is not: one sentence with the field and the file.
  const auto said = [](const nlohmann::ordered_json& json) {
    try {
      parse_hardware(json.dump(), "card.json");
    } catch (const FormatError& error) {
      return std::string(error.what());
    }
    return std::string();
  };
  int n_walked = 0;
  for (const auto& [key, value] : good.items()) {
    if (!value.is_object()) continue;
    const bool is_table = key == "peak" || key == "kernels";
    const std::string inner = is_table ? value.items().begin().key() : "";
    for (const nlohmann::json& wrong :
         {nlohmann::json(-1.0), nlohmann::json("fast"), nlohmann::json(1e30),
          nlohmann::json(nullptr), nlohmann::json::array(), nlohmann::json(true)}) {
      nlohmann::ordered_json broken = good;
      nlohmann::ordered_json& field = is_table ? broken[key][inner] : broken[key];
      if (field.contains("value")) {
        field["value"] = wrong;
      } else {
        field["points"] = {{1.0, wrong}};
      }
      const std::string words = said(broken);
      INFO(key << " = " << wrong.dump() << ": " << words);
      CHECK_HAS(words, key, "card.json");
      CHECK(words.find('\n') == std::string::npos);
      ++n_walked;
    }
    nlohmann::ordered_json nameless = good;
    (is_table ? nameless[key][inner] : nameless[key])["source"] = "";
    CHECK_HAS(said(nameless), key, "source");
    nlohmann::ordered_json replaced = good;
    replaced[key] = "a word";
    CHECK_HAS(said(replaced), key);
  }
  CHECK(n_walked > 50);
  for (const char* text : {"", "[]", "null", "{", "{\"format\": 1}", "\"a\""})
    CHECK_THROWS_AS(parse_hardware(text, "card.json"), FormatError);
  bad = good;
  bad["kind"] = "tpu";
  CHECK_HAS(said(bad), "gpu or cpu");
  bad = good;
  bad["attend_rows"]["points"] = nlohmann::json::array();
  CHECK_HAS(said(bad), "attend_rows", "at least one");
  bad = good;
  bad["compute"] = "f16";
  CHECK_THROWS_AS(parse_hardware(bad.dump(), "card.json"), FormatError);
  CHECK_SAYS(find_hardware("h100"), "h100-sxm");
  CHECK_THROWS_AS(find_hardware("./nothing.json"), IoError);
}

/// The report of two methods on the first n_tokens of one recording.
nlohmann::ordered_json report_at(Index n_tokens, double budget, std::vector<double> contexts) {
  const MemoryTrace trace = test::planted_trace(test::PlantOptions{.n_tokens = n_tokens});
  const TraceInfo& info = trace.info();
  const std::vector<ReplayPair> pairs = {
      {MethodSpec("full"), std::nullopt},
      {MethodSpec("quoka:dense-layers=0"), Budget{Budget::Kind::tokens, budget}}};
  ReplayOptions options{.calls = {.chunk = 16}, .only_costs = true};
  WorkCollector works(info);
  options.on_selection = [&](const SelectedCall& selected) { works.add(selected); };
  ThreadPool pool(2);
  replay_layers(trace, nullptr, info.layers, pairs, options, pool);
  CostOptions cost{.hardware = {plain_card()}, .contexts = std::move(contexts)};
  return trace_cost_report(info, info.layers, pairs, works, Phase::prefill, cost);
}

TEST_CASE("cost: recordings of three lengths give one answer for a longer context") {
  std::vector<double> speedups;
  std::vector<double> pays_from;
  for (const Index n_tokens : {160, 320, 960}) {
    const auto report = report_at(n_tokens, 96.0, {131072.0});
    for (const auto& row : report["rows"]) {
      if (row["selector"] == "full" || row["extrapolated"] == 0) continue;
      UNSCOPED_INFO(row.dump());
      CHECK(row["union"].get<double>() == 96.0 + 16.0);  // the budget and the call's own keys
      CHECK(row["note"] == "");
      speedups.push_back(row["predicted_speedup"].get<double>());
      pays_from.push_back(row["break_even"].get<double>());
    }
  }
  REQUIRE(speedups.size() == 3);
  for (std::size_t i = 1; i < 3; ++i) {
    CHECK(speedups[i] == Approx(speedups[0]).epsilon(0.02));
    CHECK(pays_from[i] == Approx(pays_from[0]).epsilon(0.02));
    CHECK(pays_from[i] >= 96.0 + 16.0);
  }
}

TEST_CASE("cost: a sweep on a card has predicted microseconds in the rows of layers") {
  SweepOptions options{.selectors = {"full", "oracle-topk"},
                       .budgets = {Budget::parse("8")},
                       .n_resamples = 2,
                       .hardware = plain_card()};
  const auto open = [] { return std::make_unique<MemoryTrace>(test::planted_trace({})); };
  const SweepPlan plan = plan_sweep({{"t.h5", open, {}}}, options);
  ThreadPool pool(2);
  Store store;
  const SweepResult result = run_sweep(plan, store, pool);
  REQUIRE(result.blocks.size() == 4);
  for (const SweepBlock& block : result.blocks) {
    for (std::size_t r = 0; r < block.rows.size(); ++r) {
      const SweepRow& row = block.rows[r];
      CHECK(std::isnan(row.number(SweepNumber::predicted_us)) == (r > 0));
      if (r > 0) continue;
      CHECK(row.number(SweepNumber::predicted_dense_us) > 0.0);
      if (row.text(SweepText::selector) == "full")
        CHECK(row.number(SweepNumber::predicted_speedup) == Approx(1.0));
    }
  }
}

}  // namespace kvscope::cost_test
