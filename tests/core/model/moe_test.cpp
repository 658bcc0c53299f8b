// Experts: which are picked, with which weights, and that the others are not even read.
#include "core/model/moe.hpp"

#include <sys/mman.h>
#include <unistd.h>

#include <cstdint>
#include <memory>
#include <nlohmann/json.hpp>
#include <set>

#include "core/model/transformer.hpp"
#include "core/tensor/lane_kernels.hpp"
#include "support/golden.hpp"
#include "tests/support/test.hpp"

namespace kvscope::moe_test {

// The router's logits of one token in lane `lane` of a narrow block; other lanes hold nonsense.
Tensor<float> one_token(const std::vector<float>& logits, Index lane) {
  Tensor<float> block({static_cast<Index>(logits.size()), kNarrowLanes});
  for (std::size_t e = 0; e < logits.size(); ++e) {
    for (Index j = 0; j < kNarrowLanes; ++j) block(static_cast<Index>(e), j) = -7.0f;
    block(static_cast<Index>(e), lane) = logits[e];
  }
  return block;
}

TEST_CASE("the largest logits are picked; their weights as the family defines them") {
  MoeConfig moe{.n_experts = 5, .n_picked = 3};
  const std::vector<float> logits = {0.5f, 2.0f, -1.0f, 2.0f, 1.0f};
  const Tensor<float> block = one_token(logits, 0);
  double sum_of_all = 0.0;
  for (const float l : logits) sum_of_all += std::exp(static_cast<double>(l));
  const double sum_of_picked = 2.0 * std::exp(2.0) + std::exp(1.0);
  for (const auto how :
       {MoeConfig::Weights::softmax_of_all, MoeConfig::Weights::softmax_of_picked}) {
    moe.weights = how;
    const Routing routing = pick_experts(moe, block.data(), /*n_tok=*/1, kNarrowLanes);
    // equal logits: the lower index first
    CHECK(std::vector<std::int32_t>(routing.expert.data(), routing.expert.data() + 3) ==
          std::vector<std::int32_t>{1, 3, 4});
    const double sum = how == MoeConfig::Weights::softmax_of_all ? sum_of_all : sum_of_picked;
    CHECK(std::abs(routing.weight(0, 0) - std::exp(2.0) / sum) < 1e-6);
    CHECK(routing.weight(0, 0) == routing.weight(0, 1));
    CHECK(std::abs(routing.weight(0, 2) - std::exp(1.0) / sum) < 1e-6);
  }
}

TEST_CASE("logits far apart give finite weights") {
  MoeConfig moe{.n_experts = 3, .n_picked = 2};
  const Tensor<float> block = one_token({-3e4f, 3e4f, 2e4f}, 0);
  const Routing routing = pick_experts(moe, block.data(), /*n_tok=*/1, kNarrowLanes);
  CHECK(routing.expert(0, 0) == 1);
  CHECK(routing.weight(0, 0) == 1.0f);
  CHECK(routing.weight(0, 1) == 0.0f);
}

// Notes which experts each layer's tokens went to.
class RoutingWatch final : public Observer {
 public:
  explicit RoutingWatch(const ModelConfig& config)
      : picked(static_cast<std::size_t>(config.n_layers)) {}
  bool wants(Index) const override { return false; }
  void on_attention(const AttentionEvent&) override {}
  void on_routing(const RoutingEvent& e) override {
    CHECK(e.expert.shape() == e.weight.shape());
    for (Index t = 0; t < e.expert.dim(0); ++t) {
      for (const std::int32_t expert : e.expert.row(t)) picked[e.layer].insert(expert);
    }
  }
  std::vector<std::set<Index>> picked;
};

// Takes away the right to read the whole pages of a range while it lives: a touch ends the program.
class Forbidden {
 public:
  Forbidden(const std::byte* data, std::size_t n_bytes) {
    const auto page = static_cast<std::uintptr_t>(sysconf(_SC_PAGESIZE));
    const auto begin = (reinterpret_cast<std::uintptr_t>(data) + page - 1) / page * page;
    const auto end = (reinterpret_cast<std::uintptr_t>(data) + n_bytes) / page * page;
    if (begin >= end) return;
    start_ = reinterpret_cast<void*>(begin);
    size_ = end - begin;
    REQUIRE(mprotect(start_, size_, PROT_NONE) == 0);
  }
  ~Forbidden() {
    if (size_ > 0) mprotect(start_, size_, PROT_READ);
  }
  Forbidden(const Forbidden&) = delete;
  Forbidden& operator=(const Forbidden&) = delete;
  std::size_t size() const { return size_; }

 private:
  void* start_ = nullptr;
  std::size_t size_ = 0;
};

// Where an expert's largest weights lie in the mapped checkpoint.
std::pair<const std::byte*, std::size_t> place_of(const Transformer& model, Index layer,
                                                  Index expert) {
  const ModelConfig& c = model.config();
  const std::string prefix = "model.layers." + std::to_string(layer) + ".mlp.experts.";
  const Index n_rows = 2 * c.moe.d_ff;
  if (c.family == ModelFamily::qwen3_moe) {
    const auto gate = model.weights().get(prefix + std::to_string(expert) + ".gate_proj.weight",
                                          {c.moe.d_ff, c.d_model});
    return {gate.data, stored_bytes(gate.type, gate.count())};
  }
  if (model.weights().contains(prefix + "gate_up_proj_blocks")) {
    const auto n = static_cast<std::size_t>(n_rows * c.d_model / 2);
    return {model.weights()
                    .get_bytes(prefix + "gate_up_proj_blocks", "U8",
                               {c.moe.n_experts, n_rows, c.d_model / 32, 16})
                    .data +
                static_cast<std::size_t>(expert) * n,
            n};
  }
  const auto all =
      model.weights().get(prefix + "gate_up_proj", {c.moe.n_experts, c.d_model, n_rows});
  const auto n = stored_bytes(all.type, n_rows * c.d_model);
  return {all.data + static_cast<std::size_t>(expert) * n, n};
}

TEST_CASE("experts that no token is routed to are not read") {
  const std::string name = GENERATE("qwen3_moe", "gpt_oss", "gpt_oss_mxfp4");
  INFO(name);
  const Transformer model = Transformer::load(test::golden_dir() / name);
  const ModelConfig& config = model.config();
  const std::vector<TokenId> token = {17};
  ThreadPool pool(2);
  RoutingWatch watch(config);
  KvCache cache(config, 4);
  const Tensor<float> expected = model.forward(token, cache, pool, {Logits::last, &watch});

  std::vector<std::unique_ptr<Forbidden>> forbidden;
  std::size_t n_bytes = 0;
  for (Index layer = 0; layer < config.n_layers; ++layer) {
    const auto& picked = watch.picked[layer];
    if (!config.has_experts[layer]) {
      CHECK(picked.empty());
      continue;
    }
    CHECK(static_cast<Index>(picked.size()) == config.moe.n_picked);
    for (Index e = 0; e < config.moe.n_experts; ++e) {
      if (picked.contains(e)) continue;
      const auto [data, size] = place_of(model, layer, e);
      forbidden.push_back(std::make_unique<Forbidden>(data, size));
      n_bytes += forbidden.back()->size();
    }
  }
  REQUIRE(n_bytes > 0);
  KvCache again(config, 4);
  const Tensor<float> logits = model.forward(token, again, pool, {Logits::last});
  CHECK(test::max_abs_difference(logits.view(), expected.view()) == 0.0);
  // Nor is any of them needed to load the checkpoint: it is mapped, and the kernel brings pages in
  // only where they are touched.
}

TEST_CASE("many tokens in several batches of experts equal one token after another") {
  const Transformer model = Transformer::load(test::golden_dir() / "qwen3_moe");
  std::vector<TokenId> tokens;
  for (int i = 0; i < 512; ++i) tokens.push_back((i * 7919 + 13) % 320);
  ThreadPool pool(2);
  KvCache whole(model.config(), 512), steps(model.config(), 512);
  const Tensor<float> all = model.forward(tokens, whole, pool, {Logits::all});
  for (std::size_t i = 0; i < tokens.size(); ++i) {
    const Tensor<float> one = model.forward({tokens.data() + i, 1}, steps, pool, {Logits::last});
    const auto at = static_cast<Index>(i);
    REQUIRE(test::max_abs_difference(all.view().range(0, at, at + 1), one.view()) == 0.0);
  }
}

}  // namespace kvscope::moe_test
