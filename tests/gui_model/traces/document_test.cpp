// Open traces: what they lack, NaN in a piece, slices through the cache.
#include "gui/model/traces/document.hpp"

#include "tests/gui_model/trace_files.hpp"
#include "tests/support/test.hpp"

namespace kvscope::gui::test::document_test {

void check_equal(const Tensor<float>& a, const Tensor<float>& b) {
  REQUIRE(a.shape() == b.shape());
  for (Index i = 0; i < static_cast<Index>(a.flat().size()); ++i)
    REQUIRE(a.data()[i] == b.data()[i]);
}

TEST_CASE("without recorded text, tokens show as ids") {
  const TempFolder folder;
  Cache cache(1 << 20);
  Plan plan;
  plan.with_text = false;
  SyntheticTrace trace = make_trace(plan);
  trace.texts.assign(trace.texts.size(), "");
  const auto document = open_document(write_trace(folder / "a.h5", trace), cache);
  CHECK_FALSE(document->has_text());
  CHECK(document->token_text(5) == "id " + std::to_string(trace.tokens[5]));
}

TEST_CASE("what a trace lacks is warned of") {
  const TempFolder folder;
  Cache cache(1 << 20);
  Plan plan;
  plan.rows = {10, 24};
  const auto some = open_document(write_trace(folder / "a.h5", make_trace(plan)), cache);
  REQUIRE(some->warnings().size() == 1);
  CHECK_THAT(some->warnings()[0], ContainsSubstring("positions 10 to 23 only"));
  plan = {};
  plan.capture.qkv = plan.capture.lse = false;
  const auto none = open_document(write_trace(folder / "b.h5", make_trace(plan)), cache);
  REQUIRE(none->warnings().size() == 1);
  CHECK_THAT(none->warnings()[0], ContainsSubstring("no q, k and v"));
}

TEST_CASE("slices through the cache equal what the file holds, for every array and range") {
  const TempFolder folder;
  Plan plan;
  plan.rows = {4, 24};
  plan.dtype = DType::bf16;
  const auto path = write_trace(folder / "a.h5", make_trace(plan));
  for (const std::size_t limit : {std::size_t{1} << 20, std::size_t{4000}, std::size_t{100}}) {
    Cache cache(limit);
    const auto document = open_document(path, cache);
    const TraceSource& cached = document->source();
    const TraceFile& file = document->file();
    for (const TokenRange range : {TokenRange{4, 24}, TokenRange{7, 9}, TokenRange{11, 11}}) {
      for (const Index layer : {0, 1, 2}) {
        for (const Index head : {0, 1, 2, 3}) {
          check_equal(cached.read_q(layer, head, range), file.read_q(layer, head, range));
          check_equal(cached.read_lse(layer, head, range), file.read_lse(layer, head, range));
        }
        for (const Index head : {0, 1}) {
          check_equal(cached.read_k(layer, head, range), file.read_k(layer, head, range));
          check_equal(cached.read_v(layer, head, {0, 3}), file.read_v(layer, head, {0, 3}));
        }
      }
    }
    CHECK(cache.bytes() <= limit);
  }
}

TEST_CASE("NaN in a head fails in the piece where it is, and nowhere else") {
  const TempFolder folder;
  Cache cache(1 << 20);
  const SyntheticTrace trace = make_trace({});
  const auto path = write_trace(folder / "a.h5", trace);
  overwrite_number(path, trace.layers[0].k(0, 12, 5), trace.layers[0].k(0, 12, 6), std::nanf(""));
  const auto document = open_document(path, cache);
  for (int round = 0; round < 2; ++round) {
    CHECK_THROWS_AS(document->source().read_k(0, 0, {0, 24}), FormatError);
    CHECK_THROWS_AS(document->source().read_k(0, 0, {12, 13}), FormatError);
    check_equal(document->source().read_k(0, 0, {0, 8}), document->file().read_k(0, 0, {0, 8}));
    check_equal(document->source().read_k(0, 0, {16, 24}), document->file().read_k(0, 0, {16, 24}));
    CHECK_THROWS_AS(document->source().read_k(0, 0, {8, 12}), FormatError);  // its piece is damaged
  }
}

}  // namespace kvscope::gui::test::document_test
