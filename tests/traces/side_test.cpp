// Side tensors of traces: written, read back, cut, recovered and verified like all others; absurd
// shapes are refused before anything is believed.
#include "core/trace/side.hpp"

#include "tests/support/test.hpp"
#include "tests/traces/synthetic.hpp"
#include "traces/reader.hpp"
#include "traces/recover.hpp"
#include "traces/verify.hpp"
#include "traces/writer.hpp"

namespace kvscope::test::side_test {

constexpr Index kSideTokens = 24;

/// A number that says where it belongs.
float side_value(SideTensor what, Index layer, Index head, Index pos, Index channel) {
  return static_cast<float>(1000 * static_cast<int>(what) + 300 * layer + 50 * head + pos) +
         0.01f * static_cast<float>(channel);
}

/// Every second block before the row and its own one.
std::int32_t side_block(Index list, Index pos, Index rank, Index block) {
  const Index chosen = 2 * rank + list;
  return chosen <= pos / block ? static_cast<std::int32_t>(chosen) : -1;
}

SyntheticTrace side_trace(TokenRange rows = {0, kSideTokens}) {
  Plan plan;
  plan.rows = rows;
  SyntheticTrace trace = make_trace(plan);
  trace.info.capture.k_pre_rope = true;
  trace.info.index = {.layers = {0, 2},
                      .n_heads = 4,
                      .n_key_heads = 2,
                      .width = 5,
                      .has_gates = true,
                      .n_lists = 4,
                      .n_selected = 3,
                      .block = 4};
  return trace;
}

/// Hands everything on, and side tensors with each layer.
class WithSide final : public PassingOn {
 public:
  using PassingOn::PassingOn;
  std::int32_t first_block = 0;  // of list 0, row 0

  void begin(const TraceInfo& info) override {
    info_ = info;
    to_.begin(info);
  }
  void write(const CallRows& rows) override {
    CallRows out = rows;
    const Index layer = rows.arrays.front().layer;
    const TokenRange tokens = info_.calls[call_].tokens;
    const TokenRange kept{std::clamp(tokens.begin, info_.rows.begin, info_.rows.end),
                          std::clamp(tokens.end, info_.rows.begin, info_.rows.end)};
    const IndexShape& index = info_.index;
    const auto made = [&](SideTensor what, Index n_heads, TokenRange range, Index width) {
      Tensor<float> side(Shape{n_heads, range.size(), width});
      for (Index h = 0; h < n_heads; ++h) {
        for (Index i = 0; i < range.size(); ++i) {
          for (Index c = 0; c < width; ++c)
            side(h, i, c) = side_value(what, layer, h, range.begin + i, c);
        }
      }
      return side;
    };
    const auto q = made(SideTensor::index_q, index.n_heads, kept, index.width);
    const auto k = made(SideTensor::index_k, index.n_key_heads, tokens, index.width);
    const auto w = made(SideTensor::index_w, index.n_heads, kept, 1);
    const auto raw = made(SideTensor::k_pre_rope, 2, tokens, info_.d_head);
    Tensor<std::int32_t> blocks(Shape{index.n_lists, kept.size(), index.n_selected});
    for (Index l = 0; l < index.n_lists; ++l) {
      for (Index i = 0; i < kept.size(); ++i) {
        for (Index r = 0; r < index.n_selected; ++r)
          blocks(l, i, r) = side_block(l, kept.begin + i, r, index.block);
      }
    }
    if (first_block != 0 && kept.begin == 0) blocks(0, 0, 0) = first_block;
    out.arrays.push_back({layer, "k_pre_rope", raw.view()});
    if (index.has_layer(layer)) {
      out.arrays.push_back({layer, "index_q", q.view()});
      out.arrays.push_back({layer, "index_k", k.view()});
      out.arrays.push_back({layer, "index_w", w.view()});
      out.arrays.push_back({layer, "index_selected", blocks.view()});
    }
    to_.write(out);
  }
  void commit_call() override {
    to_.commit_call();
    ++call_;
  }

 private:
  TraceInfo info_;
  std::size_t call_ = 0;
};

void check_side_of(const TraceSource& trace) {
  const TraceInfo& info = trace.info();
  const TokenRange all{0, info.n_tokens};
  for (const Index layer : {0, 2}) {
    for (Index head = 0; head < 4; ++head) {
      const Tensor<float> q = trace.read_side(SideTensor::index_q, layer, head, info.rows);
      const Tensor<float> w = trace.read_side(SideTensor::index_w, layer, head, info.rows);
      const Tensor<std::int32_t> blocks = trace.read_selected(layer, head, info.rows);
      REQUIRE(q.shape() == Shape{info.rows.size(), 5});
      REQUIRE(w.shape() == Shape{info.rows.size()});
      REQUIRE(blocks.shape() == Shape{info.rows.size(), 3});
      for (Index i = 0; i < info.rows.size(); ++i) {
        const Index pos = info.rows.begin + i;
        CHECK(q(i, 4) == side_value(SideTensor::index_q, layer, head, pos, 4));
        CHECK(w(i) == side_value(SideTensor::index_w, layer, head, pos, 0));
        for (Index r = 0; r < 3; ++r) CHECK(blocks(i, r) == side_block(head, pos, r, 4));
      }
    }
    for (Index head = 0; head < 2; ++head) {
      const Tensor<float> k = trace.read_side(SideTensor::index_k, layer, head, all);
      for (Index pos = 0; pos < all.end; ++pos)
        CHECK(k(pos, 3) == side_value(SideTensor::index_k, layer, head, pos, 3));
    }
  }
  for (const Index layer : {0, 1, 2}) {
    const Tensor<float> raw = trace.read_side(SideTensor::k_pre_rope, layer, 1, {3, 7});
    CHECK(raw(2, 6) == side_value(SideTensor::k_pre_rope, layer, 1, 5, 6));
  }
  CHECK(has_side(info, SideTensor::k_pre_rope, 1));
  CHECK(!has_side(info, SideTensor::index_q, 1));
  CHECK_SAYS(trace.read_side(SideTensor::index_q, 1, 0, {0, 1}), "holds no index_q of layer 1",
             "kvscope_recorder");
  CHECK_SAYS(trace.read_selected(1, 0, {0, 1}), "index_selected");
  CHECK_SAYS(trace.read_side(SideTensor::index_k, 0, 2, {0, 1}),
             "head 2 does not exist, expected 0 to 1");
  CHECK_THROWS_AS(trace.read_selected(0, 4, {0, 1}), ConfigError);
  CHECK_THROWS_AS(trace.read_side(SideTensor::index_q, 0, 0, {20, 25}), ConfigError);
}

void write_side_file(const SyntheticTrace& trace, const std::filesystem::path& file,
                     std::int32_t first_block = 0) {
  const auto writer = create_trace(file, {});
  WithSide receiver(*writer);
  receiver.first_block = first_block;
  write_all(trace, receiver);
}

TEST_CASE("side tensors are read back as they were written", "[side]") {
  const TempFolder folder;
  for (const TokenRange rows : {TokenRange{0, kSideTokens}, TokenRange{5, 20}}) {
    const SyntheticTrace trace = side_trace(rows);
    write_side_file(trace, folder / "t.h5");
    const TraceFile file = TraceFile::open(folder / "t.h5");
    CHECK(file.warnings().empty());
    CHECK(file.info().index == trace.info.index);
    CHECK(file.info().capture == trace.info.capture);
    check_side_of(file);
    const VerifyReport report = verified(folder / "t.h5");
    for (const std::string& problem : report.problems) FAIL_CHECK(problem);
    std::filesystem::remove(folder / "t.h5");
  }
}

TEST_CASE("recordings with side tensors that end early keep them; recovery and compression too",
          "[side]") {
  const TempFolder folder;
  const SyntheticTrace trace = side_trace();
  {
    const auto writer = create_trace(folder / "cut.h5", {});
    WithSide receiver(*writer);
    write_begun(trace, receiver, 2);
    receiver.finish(TraceStatus::interrupted);
  }
  const TraceFile cut = TraceFile::open(folder / "cut.h5");
  CHECK(cut.info().n_tokens == 16);
  CHECK(cut.read_side(SideTensor::index_k, 2, 1, {15, 16})(0, 2) ==
        side_value(SideTensor::index_k, 2, 1, 15, 2));
  check_verifies(folder / "cut.h5");
  {
    const auto writer = create_trace(folder / "killed.h5", {});
    WithSide receiver(*writer);
    write_begun(trace, receiver, 3);
  }
  recover_trace(folder / "killed.h5.part", folder / "saved.h5", /*overwrite=*/false, {});
  CHECK(TraceFile::open(folder / "saved.h5").info().index == trace.info.index);
  check_verifies(folder / "saved.h5");
  WriterOptions small{.gzip_level = 6};
  {
    const auto writer = create_trace(folder / "small.h5", small);
    WithSide receiver(*writer);
    write_all(trace, receiver);
  }
  check_side_of(TraceFile::open(folder / "small.h5"));
}

TEST_CASE("a trace without side tensors is written as version 1.1, one with them as 1.2",
          "[side]") {
  const TempFolder folder;
  write_all(make_trace(Plan{}), *create_trace(folder / "plain.h5", {}));
  write_side_file(side_trace(), folder / "side.h5");
  const std::string script =
      "import sys, h5py\nf = h5py.File(sys.argv[1])\n"
      "print(f.attrs['schema_version'].decode(), f.attrs['features'].decode())";
  const std::string plain = run_python(script, {folder / "plain.h5"});
  CHECK_THAT(plain, has("1.1 ") && !has("index"));
  CHECK_HAS(run_python(script, {folder / "side.h5"}), "1.2 ", ",index,k-pre-rope");
  const TraceFile file = TraceFile::open(folder / "plain.h5");
  CHECK(file.info().index.empty());
  CHECK_SAYS(file.read_side(SideTensor::k_pre_rope, 0, 0, {0, 1}), "capture k-pre-rope");
}

TEST_CASE("verify names damaged side tensors and blocks that a row cannot see", "[side]") {
  const TempFolder folder;
  write_side_file(side_trace(), folder / "late.h5", /*first_block=*/1);
  const VerifyReport late = verified(folder / "late.h5");
  CHECK(!late.ok);
  CHECK_HAS(late.problems.front(), "/layers/0/index_selected: list 0, row 0 names block 1");
  for (const std::string array :
       {"index_q", "index_k", "index_w", "index_selected", "k_pre_rope"}) {
    const auto file = folder / (array + ".h5");
    write_side_file(side_trace(), file);
    run_python(
        "import sys, h5py\nf = h5py.File(sys.argv[1], 'r+')\nd = f['/layers/2/' + sys.argv[2]]\n"
        "d[(1, 7) + (0,) * (len(d.shape) - 2)] = 0.5 if d.dtype.kind == 'f' else -1",
        {file, array});
    const VerifyReport report = verified(file);
    INFO(array);
    CHECK(!report.ok);
    CHECK_HAS(report.problems.empty() ? "" : report.problems.back(), "/layers/2/" + array);
  }
  // without checksums, too
  const auto bare = folder / "bare.h5";
  write_side_file(side_trace(), bare);
  run_python(
      "import sys, h5py\nf = h5py.File(sys.argv[1], 'r+')\ndel f['/checksums']\n"
      "f.attrs['features'] = f.attrs['features'].decode().replace('checksums', 'qkv').encode()\n"
      "f['/layers/2/index_k'][1, 7, 0] = float('nan')",
      {bare});
  const VerifyReport report = verified(bare);
  REQUIRE(!report.ok);
  CHECK_HAS(report.problems.front(), "/layers/2/index_k");
}

TEST_CASE("absurd or contradictory shapes of side tensors are refused with a sentence", "[side]") {
  const TempFolder folder;
  const auto said = [&](const std::string& edit) {
    const auto file = folder / "hostile.h5";
    write_side_file(side_trace(), file);
    run_python("import sys, h5py, numpy\nf = h5py.File(sys.argv[1], 'r+')\na = f.attrs\n" + edit,
               {file});
    const std::string sentence = message_of<FormatError>([&] { TraceFile::open(file); });
    std::filesystem::remove(file);
    return sentence;
  };
  CHECK_HAS(said("a['index_heads'] = 2**40"), "index heads: expected 1 to");
  CHECK_HAS(said("a['index_heads'] = -4"), "index heads: expected 1 to");
  CHECK_HAS(said("a['index_heads'] = 3"), "a multiple of the 2 index key heads");
  CHECK_HAS(said("a['index_key_heads'] = 0"), "index key heads");
  CHECK_HAS(said("a['index_width'] = 2**62"), "channels: expected 1 to");
  CHECK_HAS(said("a['index_width'] = 2**20"), "/layers/0/index_q: shape");
  CHECK_HAS(said("a['index_block'] = 0"), "tokens of a chosen block");
  CHECK_HAS(said("a['index_selected'] = 2**50"), "chosen blocks");
  CHECK_HAS(said("a['index_lists'] = 3"), "lists of chosen blocks");
  CHECK_HAS(said("a['index_selected'] = 0"), "lists of chosen blocks");
  CHECK_HAS(said("f['/recorded/index_layers'][1] = 9"), "recorded ones, found 9");
  CHECK_HAS(said("f['/recorded/index_layers'][1] = 0"), "ascending");
  CHECK_HAS(said("f['/recorded/index_layers'][1] = 1"), "/layers/1/index_q");
  CHECK_HAS(said("del f['/recorded/index_layers']"), "/recorded/index_layers");
  CHECK_HAS(said("del f['/layers/2/index_w']"), "/layers/2/index_w");
  CHECK_HAS(said("del a['index_width']"), "index_width");
  CHECK_HAS(said("del f['/layers/0/index_k']\n"
                 "f.create_dataset('/layers/0/index_k', (2, 2**40, 5), 'f4', chunks=(1, 2**20, 5), "
                 "compression='gzip')"),
            "/layers/0/index_k: shape");
  CHECK_HAS(said("del f['/layers/0/k_pre_rope']"), "/layers/0/k_pre_rope");
  // what is there but not announced is not looked at
  CHECK(said("a['features'] = a['features'].decode().replace('index', 'lse').encode()\n") != "");
}

}  // namespace kvscope::test::side_test
