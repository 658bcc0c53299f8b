// Drafts of a model's first layers: exact where later layers do nothing, better than the plain exit
// elsewhere, and an ordinary folder in every family.
#include "analysis/fit/draft_fit.hpp"

#include "analysis/fit/draft_folder.hpp"
#include "core/base/progress.hpp"
#include "core/base/rng.hpp"
#include "core/model/safetensors_writer.hpp"
#include "core/model/tokenizer.hpp"
#include "tests/support/gguf_from_hub.hpp"
#include "tests/support/places.hpp"
#include "tests/support/planted_trace.hpp"
#include "tests/support/test.hpp"

namespace kvscope::test::draft_fit_test {

const fs::path kGolden = testing::source_dir() / "tests/golden";

std::vector<TokenId> random_ids(Index n, Index n_vocab) {
  const CounterRng rng({17});
  std::vector<TokenId> ids;
  for (Index i = 0; i < n; ++i)
    ids.push_back(static_cast<TokenId>(rng.uniform(static_cast<std::uint64_t>(i)) *
                                       static_cast<double>(n_vocab)));
  return ids;
}

// A copy of a checkpoint in F32 in which layers from `first` on add nothing to what goes through.
void write_with_idle_layers(const fs::path& from, const fs::path& to, Index first) {
  const WeightFiles files = WeightFiles::open(from);
  std::vector<TensorToWrite> tensors;
  for (const auto& [name, tensor] : files.entries()) {
    const std::size_t at = name.find("layers.");
    const bool is_idle = at != std::string::npos && std::stol(name.substr(at + 7)) >= first &&
                         (name.ends_with("o_proj.weight") || name.ends_with("down_proj.weight"));
    std::string bytes(reinterpret_cast<const char*>(tensor.bytes.data()), tensor.bytes.size());
    if (is_idle) bytes.assign(bytes.size(), '\0');
    tensors.push_back({name, tensor.type_name, tensor.shape, bytes.size(),
                       [bytes](const auto& put) { put(bytes); }});
  }
  fs::create_directories(to);
  write_safetensors(to / "model.safetensors", tensors, /*overwrite=*/false);
  fs::copy_file(from / "config.json", to / "config.json");
}

TEST_CASE("where the later layers do nothing, the draft is the verifier") {
  const TempDir dir;
  const fs::path model = dir.path() / "idle";
  write_with_idle_layers(kGolden / "llama3_gqa", model, 1);
  const Transformer verifier = Transformer::load(model);
  const auto ids = random_ids(400, verifier.config().n_vocab);
  ThreadPool pool(2);
  const DraftFit fit = fit_draft(model, ids, {.n_layers = 1, .window = 40}, pool, {}, {});
  CHECK(fit.n_tokens == 400);
  CHECK(fit.plain_error < 1e-10);
  CHECK(fit.fitted_error < 1e-10);
  write_draft(model, 1, fit, R"({"what": "test"})", dir.path() / "draft", false);
  const Transformer draft = Transformer::load(dir.path() / "draft");
  const DraftAcceptance found = measure_acceptance(verifier, draft, ids, 40, pool, {});
  CHECK(found.n_tokens == 390);
  CHECK(found.greedy > 0.99);
  CHECK(found.sampled > 0.9999);
}

TEST_CASE("the fitted head is the minimum, and logits of the folder are it on normed states") {
  const TempDir dir;
  const fs::path model = kGolden / "llama3_gqa";
  const Transformer verifier = Transformer::load(model);
  const ModelConfig& config = verifier.config();
  REQUIRE(config.n_layers >= 2);
  const auto ids = random_ids(1200, config.n_vocab);
  ThreadPool pool(1);
  const DraftFit fit = fit_draft(model, ids, {.n_layers = 1, .window = 40}, pool, {}, {});
  CHECK(fit.fitted_error < fit.plain_error);
  ThreadPool three(3);
  const DraftFit again = fit_draft(model, ids, {.n_layers = 1, .window = 40}, three, {}, {});
  CHECK(std::equal(fit.head.flat().begin(), fit.head.flat().end(), again.head.flat().begin()));
  write_draft(model, 1, fit, "{}", dir.path() / "draft", false);
  const Transformer draft = Transformer::load(dir.path() / "draft");
  const Transformer plain(first_layers(config, 1), WeightFiles::open(model));
  const auto fitted = measure_acceptance(verifier, draft, ids, 40, pool, {});
  CHECK(fitted.sampled > measure_acceptance(verifier, plain, ids, 40, pool, {}).sampled);
  CHECK(fitted.sampled <= 1.0);
}

TEST_CASE("sampled acceptance is the shared probability, greedy the shared likeliest") {
  const Transformer verifier = Transformer::load(kGolden / "llama3_gqa");
  const Transformer other(first_layers(verifier.config(), 1),
                          WeightFiles::open(kGolden / "llama3_gqa"));
  const auto ids = random_ids(30, verifier.config().n_vocab);
  ThreadPool pool(1);
  ForwardOptions options{.logits = Logits::all};
  const auto rows_of = [&](const Transformer& model) {
    const auto store = model.make_store(30);
    return model.forward(ids, *store, pool, options);
  };
  const Tensor<float> p = rows_of(verifier);
  const Tensor<float> q = rows_of(other);
  double sampled = 0.0;
  double greedy = 0.0;
  for (Index row = 1; row < 30; ++row) {
    double sums[2] = {0.0, 0.0};
    for (Index t = 0; t < p.dim(1); ++t) {
      sums[0] += std::exp(static_cast<double>(p.view()(row, t)));
      sums[1] += std::exp(static_cast<double>(q.view()(row, t)));
    }
    for (Index t = 0; t < p.dim(1); ++t)
      sampled += std::min(std::exp(static_cast<double>(p.view()(row, t))) / sums[0],
                          std::exp(static_cast<double>(q.view()(row, t))) / sums[1]) /
                 29.0;
    greedy += argmax(p.view().row(row)) == argmax(q.view().row(row)) ? 1.0 / 29.0 : 0.0;
  }
  const DraftAcceptance found = measure_acceptance(verifier, other, ids, 30, pool, {});
  CHECK(found.sampled == Catch::Approx(sampled));
  CHECK(found.greedy == Catch::Approx(greedy));
}

TEST_CASE("every family's draft is a folder that opens") {
  ThreadPool pool(1);
  for (const char* family :
       {"llama2_mha", "llama3_bf16_sharded", "mistral_window", "qwen2", "qwen3", "qwen3_moe",
        "smollm3", "gpt_oss", "gemma2", "gemma3", "phi3", "olmo2", "gpt_neox", "gpt_neox_serial"}) {
    INFO(family);
    const TempDir dir;
    const fs::path model = kGolden / family;
    const ModelConfig config = load_model_config(model);
    const auto ids = random_ids(200, config.n_vocab);
    const DraftFit fit = fit_draft(model, ids, {.n_layers = 1, .window = 20}, pool, {}, {});
    write_draft(model, 1, fit, "{}", dir.path() / "draft", false);
    const Transformer draft = Transformer::load(dir.path() / "draft");
    CHECK(draft.config().n_layers == 1);
    CHECK(draft.weights().unread().empty());
    const auto found = measure_acceptance(Transformer::load(model), draft, ids, 20, pool, {});
    const auto exit = measure_acceptance(
        Transformer::load(model), Transformer(first_layers(config, 1), WeightFiles::open(model)),
        ids, 20, pool, {});
    CHECK(found.sampled > 0.0);
    CHECK(fit.fitted_error <= fit.plain_error);
    CHECK(found.sampled > exit.sampled - 0.05);
  }
}

TEST_CASE("a draft of a GGUF file has the file's weights") {
  const TempDir dir;
  const fs::path file = dir.write("m.gguf", testing::gguf_from_hub(kGolden / "llama3_gqa").bytes());
  const auto ids = random_ids(200, load_model_config(file).n_vocab);
  ThreadPool pool(1);
  const auto draft_of = [&](const fs::path& model, const char* name) {
    const DraftFit fit = fit_draft(model, ids, {.n_layers = 1, .window = 20}, pool, {}, {});
    write_draft(model, 1, fit, "{}", dir.path() / name, false);
    return Transformer::load(dir.path() / name);
  };
  const Transformer of_file = draft_of(file, "a");
  const Transformer of_hub = draft_of(kGolden / "llama3_gqa", "b");
  CHECK(measure_acceptance(of_hub, of_file, ids, 20, pool, {}).sampled > 0.999);
}

}  // namespace kvscope::test::draft_fit_test
