// The sweep: same bytes for any thread count, any shards and any interruption; journals that cannot
// be trusted.
#include "analysis/sweep/sweep.hpp"

#include <fmt/format.h>

#include <fstream>
#include <nlohmann/json.hpp>

#include "analysis/sweep/sweep_journal.hpp"
#include "analysis/sweep/sweep_rows.hpp"
#include "core/base/progress.hpp"
#include "core/trace/result.hpp"
#include "tests/support/planted_trace.hpp"
#include "tests/support/test.hpp"

namespace kvscope::test::sweep_test {

SweepTrace planted(const std::string& name, std::uint64_t seed) {
  return {name,
          [seed] {
            PlantOptions plant{.n_layers = 3, .n_tokens = 60};
            plant.sink = plant.band = 1.0;
            plant.seed = seed;
            return std::make_unique<MemoryTrace>(test::planted_trace(plant));
          },
          {}};
}

SweepOptions options() {
  SweepOptions sweep;
  sweep.selectors = {"full", "oracle-topk", "streamingllm", "lessismore:dense-layers=1"};
  sweep.budgets = {Budget::parse("4"), Budget::parse("ratio=0.5")};
  sweep.replay.calls.chunk = 16;
  sweep.n_resamples = 20;
  return sweep;
}

SweepPlan plan(SweepOptions sweep = options()) {
  return plan_sweep({planted("a.h5", 1), planted("b,\"odd\".h5", 2)}, std::move(sweep));
}

void run(const SweepPlan& sweep, const fs::path& journal, JournalMode mode = JournalMode::fresh,
         Shard shard = {}, int threads = 1) {
  ThreadPool pool(threads);
  run_sweep(sweep, journal, mode, shard, pool, {}, {});
}

void write_text(const fs::path& file, const std::string& text) {
  std::ofstream(file, std::ios::binary | std::ios::trunc) << text;
}

/// Every array of the result file as bytes.
std::string arrays_of(const SweepResult& result) {
  MemoryResult output;
  write_sweep(result, output, "test");
  std::string all = output.summary().dump() + output.info().config.dump();
  const auto append = [&](const auto& values) {
    all.append(reinterpret_cast<const char*>(values.data()), values.size_bytes());
  };
  for (const ResultArray& array : output.arrays()) {
    all += array.name;
    if (array.type == ResultType::f32) append(output.values<float>(array.name));
    if (array.type == ResultType::f64) append(output.values<double>(array.name));
    if (array.type == ResultType::i32) append(output.values<std::int32_t>(array.name));
    if (array.type == ResultType::i64) append(output.values<std::int64_t>(array.name));
  }
  return all;
}

TEST_CASE("threads, shards and interruptions change no byte of a sweep") {
  const TempDir dir;
  const SweepPlan sweep = plan();
  run(sweep, dir.path() / "one");
  const SweepResult whole = merge_sweep({dir.path() / "one"});
  CHECK(whole.blocks.size() == 2 * 3 * 7);  // traces, layers, pairs: full takes no budget
  CHECK_HAS(sweep_csv(whole), "\n\"b,\"\"odd\"\".h5\",prefill,full,none,");
  run(sweep, dir.path() / "three", JournalMode::fresh, {}, 3);
  CHECK(read_file(dir.path() / "one") == read_file(dir.path() / "three"));

  for (Index count : {2, 3, 20}) {
    std::vector<fs::path> shards;
    for (Index i = count; i >= 1; --i) {
      shards.push_back(dir.path() / fmt::format("shard-{}-{}", i, count));
      run(sweep, shards.back(), JournalMode::fresh, {i, count});
    }
    const SweepResult merged = merge_sweep(shards);
    CHECK(sweep_csv(merged) == sweep_csv(whole));
    CHECK(sweep_json(merged) == sweep_json(whole));
    CHECK(arrays_of(merged) == arrays_of(whole));
  }

  // cut anywhere behind the first line: whole units stay, the torn one is done again
  const std::string text = read_file(dir.path() / "one");
  const std::size_t header = text.find('\n') + 1;
  for (const std::size_t cut :
       {header, header + 1, header + (text.size() - header) / 2, text.size() - 1}) {
    write_text(dir.path() / "cut", text.substr(0, cut));
    run(sweep, dir.path() / "cut", JournalMode::resume);
    CHECK(read_file(dir.path() / "cut") == text);
  }
}

TEST_CASE("a stop keeps the finished units and a resumed sweep goes on") {
  const TempDir dir;
  const SweepPlan sweep = plan();
  std::stop_source stop;
  ThreadPool pool(1);
  const auto journal = dir.path() / "j";
  CHECK_THROWS_AS(run_sweep(
                      sweep, journal, JournalMode::fresh, {}, pool,
                      [&](const Progress& p) {
                        if (p.done > p.total / 2) stop.request_stop();
                      },
                      stop.get_token()),
                  Interrupted);
  const std::size_t n_done = read_sweep_journal(journal).units.size();
  CHECK(n_done > 0);
  CHECK(n_done < sweep.units.size());
  CHECK_SAYS(merge_sweep({journal}), "--resume");
  run(sweep, journal, JournalMode::resume);
  run(sweep, dir.path() / "straight");
  CHECK(read_file(journal) == read_file(dir.path() / "straight"));
}

TEST_CASE("a journal of another sweep is refused") {
  const TempDir dir;
  const auto journal = dir.path() / "j";
  run(plan(), journal);
  CHECK_SAYS(run(plan(), journal), "exists");
  SweepOptions other = options();
  other.replay.calls.chunk = 8;
  CHECK_SAYS(run(plan(other), journal, JournalMode::resume), "chunk was 16, now 8");
  CHECK_SAYS(run(plan(), journal, JournalMode::resume, {1, 2}), "n_shards was 1, now 2");
  run(plan(other), journal, JournalMode::overwrite);
}

/// The journal with data that `change` alters, under checksums that are right.
std::string forged(const std::string& text,
                   const std::function<void(nlohmann::ordered_json&, std::size_t line)>& change) {
  std::string out;
  std::istringstream lines(text);
  std::size_t number = 0;
  for (std::string line; std::getline(lines, line); ++number) {
    nlohmann::ordered_json data = nlohmann::ordered_json::parse(line).at("data");
    change(data, number);
    out += fmt::format("{{\"sum\":\"{}\",\"data\":{}}}\n", text_checksum(data.dump()), data.dump());
  }
  return out;
}

TEST_CASE("journals with right checksums but missing or foreign rows are refused") {
  const TempDir dir;
  const auto journal = dir.path() / "j";
  run(plan(), journal);
  const std::string text = read_file(journal);
  const auto refuses = [&](const char* words,
                           const std::function<void(nlohmann::ordered_json&)>& change) {
    write_text(journal, forged(text, [&](nlohmann::ordered_json& data, std::size_t line) {
                 if (line == 1) change(data["blocks"][0]);
               }));
    CHECK_SAYS(read_sweep_journal(journal), words);
    CHECK_THROWS_AS(run(plan(), journal, JournalMode::resume), FormatError);
    CHECK_THROWS_AS(merge_sweep({journal}), FormatError);
  };
  refuses("lacks rows", [](auto& block) { block["rows"].erase(1); });
  refuses("lacks rows", [](auto& block) { block["rows"] = nlohmann::ordered_json::array(); });
  refuses("lacks rows", [](auto& block) { block["rows"].push_back(block["rows"][0]); });
  refuses("another layer or head",
          [](auto& block) { std::swap(block["rows"][0], block["rows"][1]); });
  refuses("another layer or head", [](auto& block) { block["rows"][0][1][0] = 77; });
  refuses("another size", [](auto& block) { block["ages"].erase(0); });
  write_text(journal, forged(text, [](nlohmann::ordered_json&, std::size_t) {}));
  CHECK_NOTHROW(merge_sweep({journal}));
  const std::string deep = std::string(100000, '[') + std::string(100000, ']');
  write_text(journal, fmt::format("{{\"sum\":\"{}\",\"data\":{}}}\n", text_checksum(deep), deep));
  CHECK_SAYS(read_sweep_journal(journal), "nested");
}

TEST_CASE("absurd numbers of resamples are refused before memory is taken") {
  SweepOptions options = plan().options;
  options.n_resamples = 99'999'999'999;
  CHECK_SAYS(plan(options), "at most 10000 resamples");
}

TEST_CASE("damaged journals are named, not believed") {
  const TempDir dir;
  const auto journal = dir.path() / "j";
  run(plan(), journal);
  const std::string text = read_file(journal);
  std::string flipped = text;
  flipped[text.find('\n') + 200] ^= 1;
  write_text(journal, flipped);
  CHECK_SAYS(read_sweep_journal(journal), "line 2");
  write_text(journal, "");
  CHECK_THROWS_AS(read_sweep_journal(journal), FormatError);
  write_text(journal, "not a journal\n");
  CHECK_THROWS_AS(read_sweep_journal(journal), FormatError);
  const std::string data = "{\"kvscope_sweep\":1,\"config_hash\":7}";
  write_text(journal, fmt::format("{{\"sum\":\"{}\",\"data\":{}}}\n", text_checksum(data), data));
  CHECK_THROWS_AS(read_sweep_journal(journal), FormatError);
  write_text(journal, text + text.substr(text.find('\n') + 1,
                                         text.find('\n', text.find('\n') + 1) - text.find('\n')));
  CHECK_SAYS(read_sweep_journal(journal), "was there before");
  CHECK_THROWS_AS(read_sweep_journal(dir.path() / "none"), IoError);
}

TEST_CASE("merge refuses missing, duplicate and foreign shards") {
  const TempDir dir;
  const SweepPlan sweep = plan();
  const auto first = dir.path() / "1";
  const auto second = dir.path() / "2";
  run(sweep, first, JournalMode::fresh, {1, 2});
  run(sweep, second, JournalMode::fresh, {2, 2});
  CHECK_SAYS(merge_sweep({second}), "shard 1/2 is missing");
  CHECK_SAYS(merge_sweep({first, second, first}), "both shard 1/2");
  SweepOptions other = options();
  other.seed = 5;
  run(plan(other), second, JournalMode::overwrite, {2, 2});
  CHECK_SAYS(merge_sweep({first, second}), "different sweeps");
  run(sweep, second, JournalMode::overwrite, {2, 3});
  CHECK_SAYS(merge_sweep({first, second}), "expected shards of 2");
}

}  // namespace kvscope::test::sweep_test
