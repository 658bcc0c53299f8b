// Two models that people know, as a package registry serves them, against Hugging Face transformers
// (tests/golden/real): ids of texts in all scripts, and logits.
#include <nlohmann/json.hpp>

#include "core/model/transformer.hpp"
#include "support/golden.hpp"
#include "tests/support/real_models.hpp"
#include "tests/support/test.hpp"

namespace kvscope::real_models_test {

using nlohmann::json;

json expected_of(const std::string& name) {
  return json::parse(testing::read_file(test::golden_dir() / "real" / (name + ".json")));
}

void check_ids(const json& expected, const Tokenizer& tokenizer) {
  for (const json& one : expected.at("texts")) {
    const std::string text = one.at("text");
    CAPTURE(text);
    CHECK(tokenizer.encode(text, /*add_special=*/true) ==
          one.at("ids").get<std::vector<TokenId>>());
  }
}

void check_logits(const json& expected, const Transformer& model) {
  const auto ids = expected.at("texts").at(0).at("ids").get<std::vector<TokenId>>();
  ThreadPool pool(2);
  const auto store = model.make_store(static_cast<Index>(ids.size()));
  const Tensor<float> logits = model.forward(ids, *store, pool, {Logits::all});
  const TensorView<const float> rows = logits.view();
  std::vector<TokenId> largest;
  double sum = 0.0;
  for (Index row = 0; row < rows.dim(0); ++row)
    largest.push_back(argmax({&rows(row, Index{0}), static_cast<std::size_t>(rows.dim(1))}));
  for (const float x : logits.flat()) sum += double{x} * x;
  CHECK(largest == expected.at("largest").get<std::vector<TokenId>>());
  const double rms = expected.at("rms");
  CHECK(std::abs(std::sqrt(sum / static_cast<double>(logits.count())) - rms) < 1e-4 * rms);
  double worst = 0.0;
  const auto columns = expected.at("columns").get<std::vector<Index>>();
  for (const auto& [row, values] : expected.at("rows").items()) {
    for (std::size_t i = 0; i < columns.size(); ++i) {
      const double found = rows(static_cast<Index>(std::stoi(row)), columns[i]);
      worst = std::max(worst, std::abs(found - values.at(i).get<double>()));
    }
  }
  UNSCOPED_INFO("worst difference " << worst << " of rms " << rms);
  CHECK(worst < 2e-4 * rms);
}

void check_model(const std::string& name) {
  const auto folder = testing::real_models();
  if (folder.empty()) SKIP("the package with the model cannot be downloaded here");
  const json expected = expected_of(name);
  const auto file = folder / expected.at("file").get<std::string>();
  check_ids(expected, Tokenizer::load(file));
  check_logits(expected, Transformer::load(file));
}

TEST_CASE("SmolLM2 in Q4_1 gives the ids and logits of transformers", "[real][slow]") {
  check_model("smollm2");
}

TEST_CASE("Gemma 3 in Q4_K_M gives the ids and logits of transformers", "[real][slow]") {
  check_model("gemma3");
}

}  // namespace kvscope::real_models_test
