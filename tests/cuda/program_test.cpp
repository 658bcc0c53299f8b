// The program on a GPU as a user runs it: several methods in one command, of every task. What comes
// out is what one thread computes, and within rounding what the CPU does.
#include <algorithm>
#include <catch2/catch_test_macros.hpp>
#include <cmath>
#include <string>
#include <vector>

#include "tests/cli/run_program.hpp"
#include "tests/cuda/device_batch.hpp"
#include "tests/support/temp_dir.hpp"

namespace kvscope::test::program_test {

using testing::TempDir;

/// Columns of measured times, of words about other columns (tests of significance), and of what
/// names the device.
bool is_left_out(const std::string& column) {
  return column.find("second") != std::string::npos || column == "doubt" || column == "config_hash";
}

/// "" if all rows agree: texts exactly, numbers within `tolerance` of the larger one (or of 1), and
/// counts of keys and answers, which are shares, likewise.
std::string difference_of(const nlohmann::json& expected, const nlohmann::json& found,
                          double tolerance) {
  const auto& rows = expected.at("rows");
  const auto& others = found.at("rows");
  if (rows.size() != others.size() || rows.empty()) return "the number of rows";
  for (std::size_t r = 0; r < rows.size(); ++r) {
    for (const auto& [column, value] : rows[r].items()) {
      if (is_left_out(column)) continue;
      const auto& other = others[r].at(column);
      if (value.is_number() && other.is_number()) {
        const double a = value.get<double>();
        const double b = other.get<double>();
        if (std::abs(a - b) <= tolerance * std::max({1.0, std::abs(a), std::abs(b)})) continue;
      } else if (value == other) {
        continue;
      }
      return column + " of row " + std::to_string(r) + ": " + rows[r].dump() + " and " +
             others[r].dump();
    }
  }
  return "";
}

struct Task {
  const char* name;
  Words words;
};

const std::vector<Task>& tasks() {
  static const std::vector<Task> all = {
      {"perplexity", {"perplexity", "--max-tokens", "400", "--windows", "3"}},
      {"perplexity by chunks", {"perplexity", "--mode", "prefill", "--max-tokens", "600"}},
      {"pass keys",
       {"retrieval", "--protocol", "decode", "--lengths", "500", "--depths", "2", "--fed", "20"}},
      {"facts",
       {"retrieval", "--kinds", "passkey,multi_key", "--lengths", "500", "--depths", "2", "--facts",
        "4"}},
      {"chains",
       {"retrieval", "--kinds", "chain", "--protocol", "answer", "--lengths", "400", "--steps",
        "24", "--depths", "1"}},
      {"speculative",
       {"speculative", "--prompt", "300", "--n-new", "16", "--prompts", "1", "--gamma", "4"}}};
  return all;
}

nlohmann::json rows_of(const Task& task, const Words& methods, const Words& more) {
  const RunResult run =
      kvscope_run(with(with(with({"simulate"}, task.words), methods), with({"--json"}, more)));
  INFO(task.name << ": " << run.err);
  REQUIRE(run.code == 0);
  return run.json();
}

TEST_CASE("gpu: every simulation of three methods at once is that of one thread and of the CPU",
          "[gpu][program]") {
  KVSCOPE_NEEDS_DEVICE();
  const Words methods = {"--selector", "quoka,snapkv,quest", "--budget", "64"};
  for (const Task& task : tasks()) {
    INFO(task.name);
    const auto cpu = rows_of(task, methods, {});
    const auto gpu = rows_of(task, methods, {"--device", "cuda"});
    CHECK(difference_of(cpu, gpu, 2e-3) == "");
    CHECK(difference_of(gpu, rows_of(task, methods, {"--device", "cuda", "--threads", "1"}), 0.0) ==
          "");
  }
}

TEST_CASE("gpu: the same with products and keys in bf16, at equal cost and with units",
          "[gpu][program]") {
  KVSCOPE_NEEDS_DEVICE();
  const Words on_gpu = {"--device", "cuda"};
  const Words one_thread = with(on_gpu, {"--threads", "1"});
  const Task perplexity = tasks().front();
  SECTION("in bf16") {
    const Words methods = {"--selector", "quoka,snapkv,tova,streamingllm",
                           "--budget",   "64",
                           "--matmul",   "bf16",
                           "--kv-dtype", "bf16"};
    const auto several = rows_of(perplexity, methods, on_gpu);
    CHECK(difference_of(rows_of(perplexity, methods, one_thread), several, 0.0) == "");
  }
  SECTION("at equal cost") {
    const Words methods = {"--selector", "quest,streamingllm,oracle-topk", "--match", "keys=60"};
    const auto several = rows_of(perplexity, methods, on_gpu);
    CHECK(difference_of(rows_of(perplexity, methods, one_thread), several, 0.0) == "");
  }
}

TEST_CASE("gpu: SpecAttn's verifications are the CPU's, and who gets copies of keys is said",
          "[gpu][program]") {
  KVSCOPE_NEEDS_DEVICE();
  const Task& speculative = tasks().back();
  const Words methods = {"--selector", "full,specattn", "--budget", "p=0.9"};
  const auto gpu = rows_of(speculative, methods, {"--device", "cuda"});
  CHECK(difference_of(rows_of(speculative, methods, {}), gpu, 2e-3) == "");
  const auto said = [](const char* method) {
    return kvscope_run({"simulate", "perplexity", "--mode", "prefill", "--max-tokens", "300",
                        "--selector", method, "--budget", "64", "--device", "cuda"})
        .err;
  };
  CHECK(said("quest").find("copies") == std::string::npos);
  CHECK(said("minference-vertical-slash").find("copies") == std::string::npos);
  CHECK(said("lagkv").find("on the host, which gets copies") != std::string::npos);
}

TEST_CASE("gpu: recordings, the benchmark of live methods and the papers", "[gpu][program]") {
  KVSCOPE_NEEDS_DEVICE();
  const TempDir dir;
  const std::string trace = (dir.path() / "trace.h5").string();
  SECTION("record") {
    for (const Words& more : {Words{}, Words{"--matmul", "bf16", "--kv-dtype", "bf16"}}) {
      const auto run = kvscope_run(with({"record", trace, "--max-tokens", "700", "--decode", "8",
                                         "--device", "cuda", "--overwrite"},
                                        more));
      INFO(run.err);
      REQUIRE(run.code == 0);
      const auto verified = kvscope_run({"verify", trace});
      INFO(verified.out << verified.err);
      CHECK(verified.code == 0);
    }
  }
  SECTION("bench live") {
    const auto run = kvscope_run({"bench", "live", "--lengths", "512,1024", "--selector",
                                  "quoka,snapkv,streamingllm", "--budget", "128", "--repeat", "2",
                                  "--device", "cuda", "--json"});
    INFO(run.err);
    REQUIRE(run.code == 0);
    CHECK(run.json().at("rows").size() >= 6);
  }
  SECTION("papers") {
    const auto out = dir.path() / "report";
    const auto run = kvscope_run({"papers", "--quick", "--device", "cuda", "--items",
                                  "quoka-fig-4,quest-passkey", "--out", out.string(), "--json"});
    INFO(run.err);
    REQUIRE(run.code == 0);
    for (const auto& item : run.json().at("items")) {
      INFO(item.dump());
      CHECK(item.at("verdict") != "cannot be tested");
    }
    CHECK(run.err.find("--device cuda") != std::string::npos);
  }
}

}  // namespace kvscope::test::program_test
