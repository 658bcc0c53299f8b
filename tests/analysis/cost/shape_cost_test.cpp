// Cost without a recording: lists by a method's own rule, prompts as sums of calls, memory.
#include "analysis/cost/shape_cost.hpp"

#include "tests/support/test.hpp"

namespace kvscope::shape_cost_test {

/// Six layers, the odd ones with a window of 64.
constexpr const char* kConfig = R"({"model_type": "gemma3_text", "hidden_size": 64,
  "intermediate_size": 128, "num_hidden_layers": 6, "num_attention_heads": 8,
  "num_key_value_heads": 2, "head_dim": 16, "vocab_size": 256, "max_position_embeddings": 8192,
  "rms_norm_eps": 1e-6, "rope_theta": 10000.0, "rope_local_base_freq": 10000.0,
  "query_pre_attn_scalar": 16, "sliding_window": 64, "hidden_activation": "gelu_pytorch_tanh",
  "layer_types": ["full_attention", "sliding_attention", "full_attention", "sliding_attention",
                  "full_attention", "sliding_attention"]})";

ShapeListsOfAll lists_of(const std::string& method, std::optional<Budget> budget,
                         Phase phase = Phase::prefill,
                         std::optional<Index> dense_layers = std::nullopt) {
  static const ModelConfig config = parse_model_config(kConfig, "config.json");
  ListQuestion question{config, kConfig, {{MethodSpec(method), budget}}, phase};
  question.chunk = 32;
  question.dense_layers = dense_layers;
  ThreadPool pool(2);
  return lists_of_shape(question, pool, {}, {});
}

const Budget kKeys{Budget::Kind::tokens, 64};

TEST_CASE("shape: lists have the sizes of the method's own rule") {
  const ShapeLists quoka = lists_of("quoka", kKeys).methods.front();
  for (const MethodWork* work : {&quoka.middle, &quoka.alike, &quoka.apart}) {
    REQUIRE(work->at_length.size() == 2);  // the first and the last layer without a window
    CHECK(work->at_length[0].n == 1.5);
    for (const AlikeLayers& layers : work->at_length) {
      const LayerWork& call = layers.calls.front();
      CHECK(call.attend.keys == 2 * (64 + 32));  // budget and own chunk, two KV heads
      CHECK(call.attend.pairs == 8 * (32 * 64 + 32 * 33 / 2));
      CHECK(call.attend.rows == 32 * 4);
      CHECK(call.score_flops > 0.0);
    }
  }
  CHECK_HAS(quoka.source, "rule", "96 loaded");
  // Lists per query head: from one list for all heads of a group to one for each.
  const ShapeLists quest = lists_of("quest:page-size=4", kKeys, Phase::decode, 0).methods.front();
  const double alike = quest.alike.at_length.front().calls.front().attend.keys;
  const double apart = quest.apart.at_length.front().calls.front().attend.keys;
  CHECK(alike <= 2 * 64);
  CHECK(alike > 2 * 60);
  CHECK(apart == quest.apart.at_length.front().calls.front().attend.pairs);  // no key twice
  CHECK(apart > 3.9 * alike);
  CHECK(apart <= 4 * 2 * 64);
  const double middle = quest.middle.at_length.front().calls.front().attend.keys;
  CHECK(middle == Approx(std::sqrt(alike * apart)));
  // One of the three layers without a window is left dense.
  const ShapeLists dense = lists_of("recent", kKeys, Phase::decode, 1).methods.front();
  REQUIRE(dense.middle.at_length.size() == 3);
  CHECK(dense.middle.at_length[0].n == 1.0);
  CHECK(dense.middle.at_length[0].calls.front().is_dense);
  CHECK(!dense.middle.at_length[1].calls.front().is_dense);
}

TEST_CASE("shape: prompts are sums of calls, and memory counts windows and experts") {
  const ModelConfig config = parse_model_config(kConfig, "config.json");
  const CostModel model = cost_model(config, "tiny", 16.0);
  const HardwareProfile card = find_hardware("h200");
  const CostSetting setting{2.0, 2.0, std::nullopt};
  CHECK(model.n_full() == 3);
  CHECK(memory_bytes(model, 1000.0, setting) ==
        Approx(2.0 * static_cast<double>(config.n_parameters()) +
               (3 * 1000.0 + 3 * 64.0) * 2 * 2 * 16 * 2 * 2));
  const ShapeLists lists = lists_of("quoka", kKeys).methods.front();
  double sum = 0.0;
  double dense = 0.0;
  for (double end = 32.0; end <= 256.0; end += 32.0) {
    const CallCost call = call_cost(model, lists.middle, end, card, setting);
    sum += *call.call;
    dense += *call.dense;
  }
  const PromptCost prompt = prompt_cost(model, lists.middle, 256.0, card, setting);
  CHECK(prompt.seconds == Approx(sum));
  CHECK(prompt.dense == Approx(dense));
}

TEST_CASE("shape: a call reads the experts that its tokens pick") {
  const ModelConfig config = parse_model_config(R"({"model_type": "qwen3_moe", "hidden_size": 64,
    "intermediate_size": 128, "moe_intermediate_size": 32, "num_experts": 8,
    "num_experts_per_tok": 2, "num_hidden_layers": 2, "num_attention_heads": 4,
    "num_key_value_heads": 2, "head_dim": 16, "vocab_size": 256, "max_position_embeddings": 4096,
    "rms_norm_eps": 1e-6, "rope_theta": 10000.0, "tie_word_embeddings": true,
    "norm_topk_prob": true, "decoder_sparse_step": 1, "mlp_only_layers": []})",
                                                "config.json");
  const RestOfModel rest = rest_of_model(config, 16.0);
  const double experts = 2.0 * 2 * 8 * 3 * 64 * 32;  // bytes x layers x experts x matrices
  CHECK(rest.expert_bytes == Approx(experts));
  CHECK(rest.expert_share == 0.25);
  HardwareProfile card = find_hardware("h200");
  card.launch.value = 0.0;
  const auto bytes_read = [&](double n_tok, double batch) {
    return predict_rest(rest, n_tok, card, {batch, 2.0, std::nullopt}) * card.bandwidth.at(1e3);
  };
  CHECK(bytes_read(1.0, 1.0) == Approx(rest.weight_bytes));
  CHECK(bytes_read(1.0, 2.0) == Approx(rest.weight_bytes + experts * (0.4375 - 0.25)));
  CHECK(bytes_read(2.0, 1.0) == Approx(bytes_read(1.0, 2.0)));
}

}  // namespace kvscope::shape_cost_test
