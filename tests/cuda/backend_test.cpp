// Models on the GPU against Hugging Face transformers in float64 (tests/golden), against the CPU,
// and against themselves.
#include "core/cuda/backend.hpp"

#include <cstdio>
#include <nlohmann/json.hpp>
#include <random>

#include <catch2/generators/catch_generators.hpp>
#include "core/base/data_dir.hpp"
#include "tests/cuda/device_batch.hpp"
#include "tests/support/golden.hpp"
#include "tests/support/model_capture.hpp"

namespace kvscope::test::backend_test {

constexpr const char* kFamilies[] = {"llama2_mha",     "llama3_gqa", "llama3_bf16_sharded",
                                     "mistral_window", "qwen2",      "qwen3",
                                     "qwen3_moe",      "smollm3",    "gpt_oss",
                                     "gpt_oss_mxfp4",  "gemma2",     "gemma3",
                                     "phi3",           "olmo2",      "gpt_neox",
                                     "gpt_neox_serial"};

std::filesystem::path folder_of(const std::string& name) {
  return name == "verifier" ? embedded_verifier() : golden_dir() / name;
}

Transformer on_gpu(const std::string& name, bool has_bf16_products = false,
                   DType kv_dtype = DType::f32) {
  return Transformer::load(folder_of(name), gpu::cuda_backend({0, has_bf16_products, kv_dtype}));
}

std::vector<TokenId> some_tokens(const ModelConfig& config, Index n) {
  std::vector<TokenId> tokens;
  for (Index t = 0; t < n; ++t)
    tokens.push_back(static_cast<TokenId>((t * 37 + 11 + t * t / 7) % config.n_vocab));
  return tokens;
}

// Mean difference of logits over their root mean square, and the largest.
struct LogitDifference {
  double mean = 0.0, worst = 0.0;
};
LogitDifference compare_logits(const Capture& a, const Capture& b) {
  LogitDifference found;
  double sum = 0.0, squares = 0.0;
  const auto x = a.logits.flat();
  const auto y = b.logits.flat();
  for (std::size_t i = 0; i < x.size(); ++i) {
    const double difference = std::abs(static_cast<double>(x[i]) - static_cast<double>(y[i]));
    found.worst = larger_gap(found.worst, difference);
    sum += difference;
    squares += static_cast<double>(x[i]) * static_cast<double>(x[i]);
  }
  found.mean = sum / std::sqrt(squares * static_cast<double>(x.size()));
  return found;
}

double largest_difference(const std::vector<Tensor<float>>& a,
                          const std::vector<Tensor<float>>& b) {
  double worst = 0.0;
  for (std::size_t i = 0; i < a.size(); ++i)
    worst = larger_gap(worst, max_abs_difference(a[i].view(), b[i].view()));
  return worst;
}

TEST_CASE("gpu: models in f32 equal Hugging Face transformers", "[gpu][backend]") {
  KVSCOPE_NEEDS_DEVICE();
  for (const std::string name : kFamilies) {
    INFO(name);
    const auto file = golden_dir() / name / "golden.h5";
    const Transformer model = on_gpu(name);
    const auto tokens = read_golden_tokens(file);
    const Capture capture = run(model, tokens, /*chunk=*/0, /*n_threads=*/1);
    double rows = 0.0;
    for (Index layer = 0; layer < model.config().n_layers; ++layer) {
      const std::string path = "/layers/" + std::to_string(layer) + "/";
      const auto at = static_cast<std::size_t>(layer);
      const auto compare = [&](const Tensor<float>& found, const char* what) {
        const double difference =
            max_abs_difference(found.view(), read_golden(file, path + what).view());
        INFO("layer " << layer << ": " << what);
        CHECK(difference < 2e-4);
        rows = std::max(rows, difference);
      };
      compare(capture.q[at], "q");
      compare(capture.k[at], "k");
      compare(capture.v[at], "v");
      compare(attention_maps(model.config(), capture, layer), "attn");
    }
    const double logits =
        max_abs_difference(capture.logits.view(), read_golden(file, "/logits").view());
    CHECK(logits < 4e-4);
    std::printf("f32 %-20s rows %.1e logits %.1e\n", name.c_str(), rows, logits);
  }
}

TEST_CASE("gpu: in f32 any division into calls gives the same bits", "[gpu][backend]") {
  KVSCOPE_NEEDS_DEVICE();
  for (const std::string name : {"llama3_gqa", "mistral_window", "qwen3_moe", "gpt_oss_mxfp4",
                                 "gemma2", "gemma3", "olmo2", "gpt_neox", "verifier"}) {
    INFO(name);
    const Transformer model = on_gpu(name);
    const auto tokens = some_tokens(model.config(), name == "verifier" ? 300 : 100);
    const Capture whole = run(model, tokens, 0, 1);
    check_same_bits(whole, run(model, tokens, 1, 1));
    check_same_bits(whole, run(model, tokens, 7, 1));
    check_same_bits(whole, run(model, tokens, 33, 1));
  }
}

TEST_CASE("gpu: bf16 is near to the CPU's f32", "[gpu][backend][bf16]") {
  KVSCOPE_NEEDS_DEVICE();
  for (const std::string name :
       {"llama3_gqa", "mistral_window", "qwen3", "gemma2", "olmo2", "gpt_neox", "verifier"}) {
    INFO(name);
    const Transformer exact = Transformer::load(folder_of(name));
    const auto tokens = some_tokens(exact.config(), name == "verifier" ? 600 : 100);
    const Capture f32 = run(exact, tokens, 0, 2);
    const Transformer mixed = on_gpu(name, /*has_bf16_products=*/true);
    const Transformer half = on_gpu(name, /*has_bf16_products=*/true, DType::bf16);
    const Capture whole_mixed = run(mixed, tokens, 0, 1);
    const Capture whole_half = run(half, tokens, 0, 1);
    const LogitDifference of_mixed = compare_logits(f32, whole_mixed);
    const LogitDifference of_half = compare_logits(f32, whole_half);
    CHECK(of_mixed.mean < 0.05);
    CHECK(of_half.mean < 0.05);
    // In chunks: the products should give the same bits; attention in bf16 need not.
    const Capture mixed_chunks = run(mixed, tokens, 33, 1);
    const Capture half_chunks = run(half, tokens, 33, 1);
    const bool is_same = same_bits(whole_mixed.logits, mixed_chunks.logits);
    CHECK(is_same);
    const LogitDifference of_division = compare_logits(whole_half, half_chunks);
    CHECK(of_division.mean < 0.02);
    std::printf(
        "bf16 %-15s products: mean %.4f worst %.4f, same bits in chunks %s; keys too: mean "
        "%.4f worst %.4f, in chunks mean %.5f\n",
        name.c_str(), of_mixed.mean, of_mixed.worst, is_same ? "yes" : "no", of_half.mean,
        of_half.worst, of_division.mean);
  }
}

TEST_CASE("gpu: the log-sum-exp is that of the rows that are handed out, in bf16 too",
          "[gpu][backend][bf16]") {
  KVSCOPE_NEEDS_DEVICE();
  const Transformer model = on_gpu("verifier", /*has_bf16_products=*/true, DType::bf16);
  const ModelConfig& c = model.config();
  const Capture capture = run(model, some_tokens(c, 300), 128, 1);
  for (Index layer = 0; layer < c.n_layers; layer += 3) {
    const Tensor<float> maps = attention_maps(c, capture, layer);
    double worst = 0.0;
    for (Index h = 0; h < c.n_q; ++h) {
      for (Index i = 0; i < 300; ++i) {
        double sum = 0.0;
        for (Index j = 0; j <= i; ++j) sum += static_cast<double>(maps(h, i, j));
        worst = larger_gap(worst, std::abs(sum - 1.0));
      }
    }
    CHECK(worst < 1e-3);
  }
}

// Keeps what the backend hands out, and only looks at it when everything has run.
class HandedOut final : public Observer {
 public:
  explicit HandedOut(DType dtype) : dtype_(dtype) {}
  bool wants(Index) const override { return true; }
  void on_attention(const AttentionEvent&) override { FAIL("rows were asked for"); }
  std::optional<DType> rows_dtype(Index) const override { return dtype_; }
  void on_rows(const RowsEvent& event) override { events.push_back(event); }
  std::vector<RowsEvent> events;

 private:
  DType dtype_;
};

TEST_CASE("gpu: rows that are handed out while the model computes are those of the observers",
          "[gpu][backend]") {
  KVSCOPE_NEEDS_DEVICE();
  const DType kv_dtype = GENERATE(DType::f32, DType::bf16);
  const std::string name = GENERATE("verifier", "gemma2");
  const Transformer model = on_gpu(name, /*has_bf16_products=*/false, kv_dtype);
  const ModelConfig& c = model.config();
  const Index n = 100;
  const auto tokens = some_tokens(c, n);
  const Capture expected = run(model, tokens, 33, 1);
  for (const DType dtype : {DType::f32, DType::bf16, DType::f16}) {
    INFO(name << ", keys in " << enum_name(kv_dtype) << ", rows in " << enum_name(dtype));
    HandedOut found(dtype);
    ThreadPool pool(1);
    const auto store = model.make_store(n);
    for (std::size_t at = 0; at < tokens.size(); at += 33) {
      const std::size_t size = std::min<std::size_t>(33, tokens.size() - at);
      model.forward({tokens.data() + at, size}, *store, pool, {Logits::none, &found});
    }
    const auto n_layers = static_cast<std::size_t>(c.n_layers);
    REQUIRE(found.events.size() == 4 * n_layers);
    std::size_t n_wrong = 0;
    for (std::size_t i = 0; i < found.events.size(); ++i) {
      const RowsEvent& event = found.events[i];
      const std::size_t layer = i % n_layers;
      CHECK(event.layer == static_cast<Index>(layer));
      CHECK(event.pos_begin == static_cast<Index>(i / n_layers) * 33);
      const auto compare = [&](TypedRows rows, const Tensor<float>& all) {
        REQUIRE(rows.dtype() == dtype);
        REQUIRE(rows.shape() == Shape{all.dim(0), event.n_tok, c.d_head});
        std::vector<std::byte> stored(static_cast<std::size_t>(c.d_head) * size_of(dtype));
        Index row = 0;
        rows.for_each_row([&](const std::byte* bytes) {
          from_float(&all(row / event.n_tok, event.pos_begin + row % event.n_tok, Index{0}), dtype,
                     stored.data(), static_cast<std::size_t>(c.d_head));
          n_wrong += std::equal(stored.begin(), stored.end(), bytes) ? 0 : 1;
          ++row;
        });
      };
      compare(event.q, expected.q[layer]);
      compare(event.k, expected.k[layer]);
      compare(event.v, expected.v[layer]);
      for (Index h = 0; h < c.n_q; ++h) {
        for (Index t = 0; t < event.n_tok; ++t)
          n_wrong += event.lse(h, t) == expected.lse[layer](h, event.pos_begin + t) ? 0 : 1;
      }
    }
    CHECK(n_wrong == 0);
  }
}

// Random lists with weights, and summaries of both kinds; the same on every backend.
class RandomPolicy final : public AttentionPolicy {
 public:
  RandomPolicy(const ModelConfig& config, ListOwner owner, int form)
      : config_(config), owner_(owner), form_(form) {}
  bool takes(Index layer) const override { return !config_.window[layer]; }
  const Selection& choose(const AttentionQuestion& question) override {
    std::mt19937 rng(static_cast<unsigned>(question.layer * 1000 + question.pos_begin));
    std::uniform_real_distribution<float> uniform;
    selection_ = Selection(owner_, question.n_tok, (question.n_tok + 1) / 2);
    const Index n_owners = owner_ == ListOwner::layer    ? 1
                           : owner_ == ListOwner::q_head ? config_.n_q
                                                         : config_.n_kv;
    const Index n_ctx = question.pos_begin + question.n_tok;
    for (Index i = 0; i < n_owners * selection_.n_row_blocks(); ++i) {
      KeyList list;
      for (Index pos = 0; pos < n_ctx; ++pos) {
        if (uniform(rng) > 0.4f) continue;
        list.scored.push_back(static_cast<KeyPos>(pos));
        if (form_ > 0) list.log_weight.push_back(uniform(rng));
      }
      selection_.add(list);
    }
    if (form_ < 2) return selection_;
    Summaries& summaries = selection_.summaries;
    const Index each = form_ == 2 ? 2 : 1;
    for (Index h = 0; h <= config_.n_kv; ++h) summaries.begin.push_back(h * each);
    summaries.k = Tensor<float>({config_.n_kv * each, config_.d_head});
    summaries.v = Tensor<float>({config_.n_kv * each, config_.d_head});
    for (float& x : summaries.k.flat()) x = uniform(rng) - 0.5f;
    for (float& x : summaries.v.flat()) x = uniform(rng) - 0.5f;
    summaries.log_count.assign(static_cast<std::size_t>(config_.n_kv * each), 0.7f);
    if (form_ == 3) {
      summaries.list_share = Tensor<float>({config_.n_q, question.n_tok});
      for (float& x : summaries.list_share.flat()) x = uniform(rng);
    }
    return selection_;
  }

 private:
  const ModelConfig& config_;
  ListOwner owner_;
  int form_;
  Selection selection_;
};

TEST_CASE("gpu: attention over the host's lists equals the CPU's", "[gpu][backend]") {
  KVSCOPE_NEEDS_DEVICE();
  for (const std::string name : {"llama3_gqa", "gpt_oss", "gemma2", "verifier"}) {
    const Transformer cpu = Transformer::load(folder_of(name));
    const Transformer gpu = on_gpu(name);
    const auto tokens = some_tokens(cpu.config(), 90);
    for (const ListOwner owner : {ListOwner::q_head, ListOwner::kv_head, ListOwner::layer}) {
      for (int form = 0; form < 4; ++form) {
        INFO(name << ", owner " << static_cast<int>(owner) << ", form " << form);
        RandomPolicy of_cpu(cpu.config(), owner, form), of_gpu(gpu.config(), owner, form);
        const Capture expected = run(cpu, tokens, 31, 1, &of_cpu);
        const Capture found = run(gpu, tokens, 31, 1, &of_gpu);
        CHECK(max_abs_difference(expected.logits.view(), found.logits.view()) < 1e-3);
        CHECK(largest_difference(expected.v, found.v) < 4e-4);
      }
    }
  }
}

TEST_CASE("gpu: a store hands out, cuts and copies its rows", "[gpu][backend]") {
  KVSCOPE_NEEDS_DEVICE();
  const DType dtype = GENERATE(DType::f32, DType::bf16);
  const Transformer model = on_gpu("verifier", /*has_bf16_products=*/false, dtype);
  const auto tokens = some_tokens(model.config(), 64);
  ThreadPool pool(1);
  const auto store = model.make_store(100);
  const auto fill = [&](std::size_t begin, std::size_t n) {
    return model.forward({tokens.data() + begin, n}, *store, pool, {Logits::last});
  };
  fill(0, 40);
  const auto before = store->host_k(1, 0, 40);
  const std::vector<float> first(&before(Index{0}, Index{0}, Index{0}),
                                 &before(Index{0}, Index{0}, Index{0}) + 40 * 64);
  const Tensor<float> once = fill(40, 8);
  store->truncate(40);
  const Tensor<float> twice = fill(40, 8);
  CHECK(same_bits(once, twice));
  const auto rows = store->host_k(1, 0, 48);
  CHECK(std::equal(first.begin(), first.end(), &rows(Index{0}, Index{0}, Index{0})));
  CHECK(rows.dim(1) == 48);
  const auto other = model.make_store(70);
  other->copy_from(*store);
  CHECK(other->n_tokens() == 48);
  CHECK(max_abs_difference(other->host_v(3, 8, 48), store->host_v(3, 8, 48)) == 0.0);
  CHECK(
      same_bits(model.forward({tokens.data() + 48, 1}, *other, pool, {Logits::last}), fill(48, 1)));
  CHECK_THROWS_AS(model.make_store(20)->copy_from(*store), ConfigError);
  CHECK_THROWS_AS(store->truncate(50), ConfigError);
  const Transformer cpu = Transformer::load(embedded_verifier());
  const auto on_host = cpu.make_store(49);  // a copy of the 49 tokens by way of the host
  on_host->copy_from(*store);
  const auto back = model.make_store(60);
  back->copy_from(*on_host);
  CHECK(max_abs_difference(back->host_k(2, 0, 49), store->host_k(2, 0, 49)) == 0.0);
  CHECK(
      same_bits(model.forward({tokens.data() + 49, 1}, *back, pool, {Logits::last}), fill(49, 1)));
  CHECK_THROWS_AS(model.make_store(20)->copy_from(*on_host), ConfigError);
  CHECK_THROWS_AS(model.forward({tokens.data(), 1}, *cpu.make_store(10), pool), ConfigError);
  CHECK_THROWS_AS(cpu.forward({tokens.data(), 1}, *store, pool), ConfigError);
}

TEST_CASE("gpu: what does not do is said in one sentence", "[gpu][backend]") {
  KVSCOPE_NEEDS_DEVICE();
  const auto sentence = [](const auto& work) -> std::string {
    try {
      work();
    } catch (const Error& error) {
      return error.what();
    }
    return "";
  };
  CHECK(sentence([] {
          Transformer::load(embedded_draft(), gpu::cuda_backend({7, false, DType::f32}));
        }).find("there is no GPU 7") != std::string::npos);
  // 10^15 bytes of keys do not fit anywhere.
  ModelConfig config = load_model_config(embedded_verifier());
  config.max_positions = Index{1} << 40;
  const Transformer huge(config, WeightFiles::open(embedded_verifier()),
                         gpu::cuda_backend({0, false, DType::f32}));
  const std::string full = sentence([&] { huge.make_store(Index{1} << 38); });
  INFO(full);
  CHECK(full.find("not enough memory for the keys and values of") != std::string::npos);
}

}  // namespace kvscope::test::backend_test
