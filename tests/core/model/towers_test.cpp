// Models of texts and pictures, of which the layers of text are computed, against transformers
// (tests/golden/make_text_towers.py).
#include "core/model/transformer.hpp"
#include "support/golden.hpp"
#include "tests/support/model_capture.hpp"
#include "tests/support/test.hpp"

namespace kvscope::towers_test {

TEST_CASE("the text part of models of texts and pictures gives transformers' logits") {
  const auto [name, family] = GENERATE(
      std::pair("gemma3", ModelFamily::gemma3_text), std::pair("gemma4", ModelFamily::gemma4_text),
      std::pair("mistral3", ModelFamily::mistral), std::pair("qwen2_vl", ModelFamily::qwen2),
      std::pair("qwen2_vl_flat", ModelFamily::qwen2), std::pair("qwen2_5_vl", ModelFamily::qwen2),
      std::pair("qwen3_vl", ModelFamily::qwen3));
  INFO(name);
  const auto folder = test::golden_dir() / "towers" / name;
  const Transformer model = Transformer::load(folder);
  CHECK(model.config().family == family);
  const auto tokens = test::read_golden_tokens(folder / "golden.h5");
  const test::Capture found = test::run(model, tokens, /*chunk=*/0, /*n_threads=*/2);
  CHECK(test::max_abs_difference(found.logits.view(),
                                 test::read_golden(folder / "golden.h5", "/logits").view()) < 4e-4);
}

}  // namespace kvscope::towers_test
