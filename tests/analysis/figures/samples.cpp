#include "tests/analysis/figures/samples.hpp"

#include "tests/support/temp_dir.hpp"

namespace kvscope::testing {

namespace {

/// Methods at budgets and contexts on one GPU, as `kvscope cost` reports them.
std::string costs() {
  std::string csv =
      "selector,budget,batch,context,hardware,predicted_speedup,call_speedup,predicted_us,"
      "append_us,score_us,topk_us,attend_us,estimate_us,memory_share,extrapolated\n";
  for (const auto& [method, speed] : {std::pair{"full", 1.0}, {"quoka", 3.1}, {"quest", 5.2}}) {
    for (const int batch : {1, 16}) {
      for (const int context : {1024, 32768, 131072}) {
        const double gain = 1.0 + (speed - 1.0) * context / 131072.0;
        csv += fmt::format("{},256,{},{},h100-sxm,{},{},{},0.2,{},0.5,{},0,0.5,0\n", method, batch,
                           context, gain, 0.5 + 0.5 * gain, batch * context / 1e4 / gain,
                           batch * 0.4, batch * 1.5);
      }
    }
  }
  return csv;
}

/// Times of methods over contexts, with intervals.
const char* const kTimes =
    "selector,budget,length,repeat,seconds,seconds_low,seconds_high,ttft_seconds,attention_seconds,"
    "selection_seconds,ttft_ratio,ttft_ratio_low,ttft_ratio_high,attention_ratio\n"
    "full,,1024,3,2,1.9,2.1,2,1,0,1,1,1,1\n"
    "full,,4096,3,9,8.8,9.3,9,6,0,1,1,1,1\n"
    "quoka,128,1024,3,1,0.9,1.1,1,0.2,0.1,1.9,1.7,2.2,3.2\n"
    "quoka,128,4096,3,4,3.9,4.3,4,0.9,0.3,2.2,2.0,2.4,5.0\n"
    "quest,128,1024,3,1.5,1.4,1.6,1.5,0.5,0.1,1.3,1.2,1.5,1.7\n";

const char* const kPareto =
    "selector,budget_kind,budget,mass_mean,mass_low,mass_high,predicted_us,predicted_dense_us\n"
    "quest,tokens,256,0.98,0.97,0.985,4,9\n"
    "quest,tokens,64,0.95,0.94,0.955,2,9\n"
    "quoka,tokens,256,0.94,0.93,0.945,5,9\n"
    "oracle-topk,tokens,256,0.999,0.99,1,1,9\n"
    "full,none,,1,1,1,9,9\n";

/// Mean losses along a text of 2,000 tokens.
std::string losses() {
  std::string csv = "selector,budget,budget_kind,position,log_perplexity\n";
  for (const auto& [method, loss] : {std::pair{"full", 3.0}, {"quoka", 3.05}, {"quest", 3.2}}) {
    for (int t = 10; t < 2000; t += 10)
      csv += fmt::format("{},64,tokens,{},{}\n", method, t, loss + 20.0 / t);
  }
  return csv;
}

/// Answers of two methods by length and depth.
std::string answers() {
  std::string csv = "selector,budget,length,depth,accuracy\n";
  for (const char* method : {"full", "quoka", "quest"}) {
    for (const int length : {512, 1024, 2048, 4096}) {
      for (int depth = 0; depth < 5; ++depth)
        csv += fmt::format("{},64,{},{},{}\n", method, length, depth / 4.0,
                           *method == 'f' ? 1.0 : (depth + 512.0 / length) / 5.0);
    }
  }
  return csv;
}

/// Four methods that meet one cost, and one that cannot.
std::string equal_costs() {
  std::string csv =
      "trace,phase,selector,budget_kind,match,knob,match_note,layer,q_head,budget,dense,window,"
      "kept,mass_mean,mass_low,mass_high,output_error_rel,match_reached\n";
  const auto add = [&](const char* method, const char* setting, const char* note, double mass) {
    csv += fmt::format("t,decode,{},none,density=0.05,{},{},0,,,0,0,205,{},{},{},{},{}\n", method,
                       setting, note, mass, mass - 0.01, mass + 0.03, 1.0 - mass,
                       *note == '\0' ? 0.05 : 0.2);
  };
  add("oracle-topk", "ratio=0.05", "", 0.7);
  add("quest", "ratio=0.06", "", 0.6);
  add("sparq", "ratio=0.04", "", 0.65);
  add("loki", "ratio=0.04", "", 0.66);
  add("vattention", "epsilon=1", "not reached: the least is 0.2", 0.9);
  return csv;
}

/// What dropped keys cost an answer of six tokens.
void explain_answer(MemoryResult& result) {
  result.begin({.kind = "explain-answer", .config = {{"selector", "quoka"}, {"budget", "48"}}});
  write_axis(result, "layer", std::vector<Index>{0, 1, 2}, "1", "layer");
  write_axis(result, "q_head", std::vector<Index>{0, 1, 2, 3}, "1", "query head");
  put(result, "steps/dense_surprise", {1, 6}, {"prompt", "step"},
      std::vector<double>{0.1, 0.4, 0.2, 0.1, 0.1, 0.1});
  put(result, "steps/sparse_surprise", {1, 6}, {"prompt", "step"},
      std::vector<double>{0.3, 0.9, 2.4, 0.2, 0.1, 0.3});
  std::vector<double> shares(12, 0.0);
  shares[5] = 0.4;
  shares[6] = -0.1;
  put(result, "heads/recovered", {1, 3, 4}, {"prompt", "layer", "head"}, shares);
  result.finish({{"prompts", nlohmann::ordered_json::array({{{"sentence", "One."}}})}});
}

}  // namespace

std::vector<std::unique_ptr<MemoryResult>> samples() {
  std::vector<std::unique_ptr<MemoryResult>> results;
  const auto next = [&]() -> MemoryResult& {
    return *results.emplace_back(std::make_unique<MemoryResult>());
  };
  test::PlantOptions plant{.n_layers = 3, .n_q = 8, .n_tokens = 300};
  plant.sink = plant.band = 1.0;
  MemoryTrace trace = test::planted_trace(plant);
  std::vector<TokenId> tokens;
  for (Index t = 0; t < plant.n_tokens; ++t) tokens.push_back(static_cast<TokenId>(t % 13));
  trace.set_tokens(tokens);
  ThreadPool pool(2);
  for (const test::Analysis& analysis : test::analyses()) analysis.run(trace, {next(), pool});
  explain_answer(next());
  const auto table = [&](const Table& rows, const std::string& kind) {
    table_to_result(rows, {.kind = kind}, next());
  };
  const std::pair<std::string, const char*> tables[] = {{swept(), "sweep"},
                                                        {costs(), "cost"},
                                                        {costs(), "cost-shape"},
                                                        {kTimes, "latency"},
                                                        {kPareto, "sweep"},
                                                        {losses(), "table"},
                                                        {answers(), "simulate-needle"},
                                                        {equal_costs(), "sweep"}};
  for (const auto& [csv, kind] : tables) table(table_from_csv(csv, "t.csv"), kind);
  // measured, with many methods and intervals
  for (const auto& [file, kind] : {std::pair{"budgets", "simulate-ruler"},
                                   {"perplexity_steps", "table"},
                                   {"mass_steps", "table"}}) {
    const auto path = source_dir() / "results/smollm2" / (std::string(file) + ".json");
    table(table_from_json(nlohmann::json::parse(read_file(path)), path.string()), kind);
  }
  return results;
}

}  // namespace kvscope::testing
