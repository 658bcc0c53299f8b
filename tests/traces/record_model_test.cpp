// Records real (small) checkpoints and compares with references that Hugging Face transformers
// computed in float64.

#include <map>
#include <nlohmann/json.hpp>

#include "support/golden.hpp"
#include "tests/support/test.hpp"
#include "tests/traces/synthetic.hpp"
#include "traces/reader.hpp"
#include "traces/recorder.hpp"
#include "traces/verify.hpp"
#include "traces/writer.hpp"

namespace kvscope::test::record_model_test {

/// One head of a golden array [heads, n, m] as [n, m].
TensorView<const float> head_of(const Tensor<float>& golden, Index head) {
  return golden.sub(head);
}

TEST_CASE("a recording of a checkpoint holds what transformers computed") {
  const std::string name =
      GENERATE("llama3_gqa", "mistral_window", "qwen3", "qwen3_moe", "smollm3", "gpt_oss",
               "gpt_oss_mxfp4", "gemma2", "gemma3", "gemma4", "gemma4_keys_as_values", "phi3",
               "olmo2", "gpt_neox", "gpt_neox_serial");
  const fs::path dir = golden_dir() / name;
  const fs::path golden = dir / "golden.h5";
  const Transformer model = Transformer::load(dir);
  const ModelConfig& config = model.config();
  const auto tokens = read_golden_tokens(golden);
  const auto n = static_cast<Index>(tokens.size());
  const TempFolder folder;
  ThreadPool pool(2);
  RecordOptions options;
  options.capture.attn_dense = options.capture.logits = options.capture.stats = true;
  options.capture.attn_topk = 4;
  options.chunk = 7;
  auto receiver = create_trace(folder / "t.h5", {});
  const RecordReport report = record_trace(model, nullptr, tokens, options, *receiver, pool, {});
  CHECK(report.status == TraceStatus::complete);
  CHECK(report.n_prompt == n);
  CHECK(report.bytes_written > 0);
  CHECK(report.content_hash.starts_with("xxh128:"));

  const TraceFile file = TraceFile::open(folder / "t.h5");
  const TokenRange all = {0, n};
  CHECK(std::vector<TokenId>(file.tokens().begin(), file.tokens().end()) == tokens);
  CHECK(max_abs_difference(file.read_logits(all).view(), read_golden(golden, "/logits").view()) <
        4e-4);
  for (Index i = 0; i < config.n_layers; ++i) {
    const auto path = [&](const char* what) { return "/layers/" + std::to_string(i) + "/" + what; };
    const auto q = read_golden(golden, path("q"));
    const auto k = read_golden(golden, path("k"));
    const auto v = read_golden(golden, path("v"));
    const auto attn = read_golden(golden, path("attn"));
    for (Index h = 0; h < config.n_q; ++h) {
      CHECK(max_abs_difference(file.read_q(i, h, all).view(), head_of(q, h)) < 2e-4);
      CHECK(max_abs_difference(file.read_attn(i, h, all).view(), head_of(attn, h)) < 2e-4);
    }
    for (Index h = 0; h < config.shape(i).n_kv; ++h) {
      CHECK(max_abs_difference(file.read_k(i, h, all).view(), head_of(k, h)) < 2e-4);
      CHECK(max_abs_difference(file.read_v(i, h, all).view(), head_of(v, h)) < 2e-4);
    }
  }
  check_verifies(folder / "t.h5");

  // What is particular about the layers comes back as the model has it.
  const TraceInfo& info = file.info();
  CHECK(info.window == config.window);
  CHECK(info.layer_shapes == config.layer_shapes);
  CHECK(info.sink_logits == model.sink_logits());
  CHECK(info.sink_logits.empty() != config.has_sink_logits);
  for (Index i = 0; i < config.n_layers; ++i) {
    const auto at = static_cast<std::size_t>(i);
    CHECK(info.layer_kinds[at].has_rope == config.has_rope[at]);
    CHECK(info.has_experts(i) == config.has_experts[at]);
  }
}

TEST_CASE("of layers that differ those of one shape make a trace as of a model without others") {
  const Transformer model = Transformer::load(golden_dir() / "gemma4");
  const auto tokens = read_golden_tokens(golden_dir() / "gemma4/golden.h5");
  const std::vector<Index> layers = GENERATE(std::vector<Index>{0, 2}, std::vector<Index>{1, 5});
  const TempFolder folder;
  ThreadPool pool(2);
  RecordOptions options;
  options.layers = layers;
  options.capture.k_pre_rope = true;
  auto receiver = create_trace(folder / "t.h5", {});
  record_trace(model, nullptr, tokens, options, *receiver, pool, {});
  check_verifies(folder / "t.h5");
  const TraceFile file = TraceFile::open(folder / "t.h5");
  CHECK(file.info().layer_shapes.empty());
  CHECK(file.info().d_head == model.config().shape(layers[0]).d_head);
  CHECK(std::ssize(file.info().rope_frequencies) == 6 * file.info().d_head / 2);
}

/// Keeps what on_routing shows.
class RoutingLog final : public Observer {
 public:
  bool wants(Index) const override { return false; }
  void on_attention(const AttentionEvent&) override {}
  void on_routing(const RoutingEvent& e) override {
    for (Index t = 0; t < e.expert.dim(0); ++t) {
      for (Index i = 0; i < e.expert.dim(1); ++i) {
        expert[e.layer].push_back(e.expert(t, i));
        weight[e.layer].push_back(e.weight(t, i));
      }
    }
  }
  std::map<Index, std::vector<std::int32_t>> expert;
  std::map<Index, std::vector<float>> weight;
};

TEST_CASE("the experts of the recorded rows, in plain, compressed and interrupted files") {
  const std::string name = GENERATE("qwen3_moe", "gpt_oss_mxfp4");
  const Transformer model = Transformer::load(golden_dir() / name);
  const auto tokens = read_golden_tokens(golden_dir() / name / "golden.h5");
  ThreadPool pool(2);
  RoutingLog log;
  KvCache cache(model.config(), static_cast<Index>(tokens.size()));
  model.forward(tokens, cache, pool, {Logits::none, &log});

  const bool compressed = GENERATE(false, true);
  const bool interrupted = GENERATE(false, true);
  const TempFolder folder;
  RecordOptions options{.capture = {.qkv = false, .routing = true},
                        .chunk = 7,
                        .layers = {0, 1, 2},
                        .rows = TokenRange{5, 20}};
  WriterOptions writer;
  if (compressed) writer.gzip_level = 1;
  auto receiver = create_trace(folder / "t.h5", writer);
  std::stop_source stop;
  const auto progress = [&](const Progress& p) {
    if (interrupted && p.done >= 14) stop.request_stop();
  };
  record_trace(model, nullptr, tokens, options, *receiver, pool, progress, stop.get_token());
  const TraceFile file = TraceFile::open(folder / "t.h5");
  const TokenRange rows = file.info().rows;
  CHECK(rows == (interrupted ? TokenRange{5, 14} : TokenRange{5, 20}));
  CHECK(file.info().n_experts_per_token == 2);
  for (const Index layer : file.info().layers) {
    if (!file.info().has_experts(layer)) {
      CHECK(layer == 1);  // mlp_only_layers of qwen3_moe
      CHECK_THROWS_AS(file.read_routing(layer, rows), ConfigError);
      continue;
    }
    const RoutedRows routed = file.read_routing(layer, rows);
    REQUIRE(routed.expert.shape() == Shape{rows.size(), 2});
    CHECK(std::equal(routed.expert.flat().begin(), routed.expert.flat().end(),
                     log.expert[layer].begin() + rows.begin * 2));
    CHECK(std::equal(routed.weight.flat().begin(), routed.weight.flat().end(),
                     log.weight[layer].begin() + rows.begin * 2));
  }
  check_verifies(folder / "t.h5");
  CHECK_THROWS_AS(plan_recording(Transformer::load(golden_dir() / "qwen3").config(), 8, options),
                  ConfigError);
}

TEST_CASE(
    "greedy decoding takes the arg max of the last logits, and records exactly the tokens asked "
    "for") {
  const fs::path dir = golden_dir() / "llama3_gqa";
  const Transformer model = Transformer::load(dir);
  const auto tokens = read_golden_tokens(dir / "golden.h5");
  const std::span<const TokenId> prompt = std::span(tokens).first(10);
  const TempFolder folder;
  ThreadPool pool(1);
  RecordOptions options{.capture = {.logits = true}, .chunk = 4, .n_decode = 5};
  auto receiver = create_trace(folder / "t.h5", {});
  const RecordReport report = record_trace(model, nullptr, prompt, options, *receiver, pool, {});
  CHECK(report.n_prompt == 10);
  CHECK(report.n_decoded == 5);
  const TraceFile file = TraceFile::open(folder / "t.h5");
  REQUIRE(file.info().n_tokens == 15);
  const auto logits = file.read_logits({0, 15});
  for (Index t = 9; t + 1 < 15; ++t)
    CHECK(file.tokens()[static_cast<std::size_t>(t) + 1] == argmax(logits.view().row(t)));
  // Without recorded logits the same tokens come out.
  options.capture.logits = false;
  options.rows = TokenRange{2, 5};
  auto second = create_trace(folder / "u.h5", {});
  record_trace(model, nullptr, prompt, options, *second, pool, {});
  const TraceFile other = TraceFile::open(folder / "u.h5");
  CHECK(std::equal(other.tokens().begin(), other.tokens().end(), file.tokens().begin(),
                   file.tokens().end()));
}

}  // namespace kvscope::test::record_model_test
