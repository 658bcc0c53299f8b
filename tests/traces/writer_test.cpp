// The writer: what is written is read back bit by bit; interruptions, overwriting, values that do
// not fit.
#include "traces/writer.hpp"

#include <fcntl.h>
#include <sys/file.h>
#include <unistd.h>

#include "tests/support/test.hpp"
#include "tests/traces/synthetic.hpp"
#include "traces/layout.hpp"
#include "traces/reader.hpp"

namespace kvscope::test::writer_test {

CaptureSet everything() {
  CaptureSet capture;
  capture.logits = capture.attn_dense = capture.stats = true;
  capture.attn_topk = 5;
  capture.page_size = 4;
  return capture;
}

/// False if the queries of the first layer lie in the file as they are.
bool is_chunked(const fs::path& file) {
  return !open_layout(file).data(1).file_offset();
}

/// Compares every stored element with the synthetic truth.
void require_equal(const TraceFile& file, const SyntheticTrace& truth) {
  const TraceInfo& info = file.info();
  const DType dtype = info.dtype;
  const TokenRange all = {0, info.n_tokens};
  const TokenRange rows = info.rows;
  REQUIRE(std::vector<TokenId>(file.tokens().begin(), file.tokens().end()) ==
          std::vector<TokenId>(truth.tokens.begin(), truth.tokens.begin() + info.n_tokens));
  if (file.info().token_text_capacity > 0) {
    REQUIRE(file.token_bytes() ==
            std::vector<std::string>(truth.texts.begin(), truth.texts.begin() + info.n_tokens));
  }
  for (const Index i : info.layers) {
    const auto& layer = truth.layers[i];
    const Index d_head = info.shape(i).d_head;
    for (const Index h : info.kv_heads_of(i)) {
      if (info.capture.qkv) {
        const auto k = file.read_k(i, h, all);
        const auto v = file.read_v(i, h, all);
        for (Index t = 0; t < info.n_tokens; ++t) {
          for (Index c = 0; c < d_head; ++c) {
            REQUIRE(k(t, c) == stored(dtype, layer.k(h, t, c)));
            REQUIRE(v(t, c) == stored(dtype, layer.v(h, t, c)));
          }
        }
      }
      if (info.capture.stats) {
        const auto low = file.read_stat("page_min", i, h);
        const auto high = file.read_stat("page_max", i, h);
        REQUIRE(low.dim(0) == info.n_tokens / info.capture.page_size);
        for (Index p = 0; p < low.dim(0); ++p) {
          for (Index c = 0; c < d_head; ++c) {
            float lo = INFINITY;
            float hi = -INFINITY;
            for (Index t = p * info.capture.page_size; t < (p + 1) * info.capture.page_size; ++t) {
              lo = std::min(lo, layer.k(h, t, c));
              hi = std::max(hi, layer.k(h, t, c));
            }
            REQUIRE(low(p, c) == lo);
            REQUIRE(high(p, c) == hi);
          }
        }
        REQUIRE(file.read_stat("k_norm", i, h, all).count() == info.n_tokens);
      }
    }
    for (const Index h : info.q_heads) {
      if (info.capture.qkv) {
        const auto q = file.read_q(i, h, rows);
        for (Index t = 0; t < rows.size(); ++t) {
          for (Index c = 0; c < d_head; ++c)
            REQUIRE(q(t, c) == stored(dtype, layer.q(h, rows.begin + t, c)));
        }
      }
      if (info.capture.lse) {
        const auto lse = file.read_lse(i, h, rows);
        for (Index t = 0; t < rows.size(); ++t) REQUIRE(lse(t) == layer.lse(h, rows.begin + t));
      }
      if (info.capture.attn_dense) {
        const auto attn = file.read_attn(i, h, rows);
        for (Index t = 0; t < rows.size(); ++t) {
          for (Index j = 0; j < info.n_tokens; ++j)
            REQUIRE(attn(t, j) == stored(dtype, layer.attn(h, rows.begin + t, j)));
        }
      }
      if (info.capture.attn_topk > 0) {
        const auto top = file.read_topk(i, h, rows);
        for (Index t = 0; t < rows.size(); ++t) {
          for (Index n = 0; n < info.capture.attn_topk; ++n) {
            if (top.pos(t, n) < 0) continue;
            REQUIRE(top.prob(t, n) == layer.attn(h, rows.begin + t, top.pos(t, n)));
          }
        }
      }
    }
  }
  if (info.capture.logits) {
    const auto logits = file.read_logits(rows);
    for (Index t = 0; t < rows.size(); ++t) {
      for (Index c = 0; c < info.n_vocab; ++c)
        REQUIRE(logits(t, c) == truth.logits(rows.begin + t, c));
    }
  }
}

TEST_CASE("a trace reads back bit by bit, in every storage type, plain and compressed") {
  const DType dtype = GENERATE(DType::f32, DType::f16, DType::bf16);
  const bool compressed = GENERATE(false, true);
  const TempFolder folder;
  Plan plan;
  plan.dtype = dtype;
  plan.capture = everything();
  const SyntheticTrace truth = make_trace(plan);
  WriterOptions options;
  if (compressed) options.gzip_level = 1;
  auto receiver = create_trace(folder / "t.h5", options);
  write_all(truth, *receiver);
  REQUIRE(!fs::exists(folder / "t.h5.part"));
  REQUIRE(!fs::exists(folder / "t.h5.rewrite.part"));

  const TraceFile file = TraceFile::open(folder / "t.h5");
  REQUIRE(is_chunked(folder / "t.h5") == compressed);
  REQUIRE(file.warnings().empty());
  REQUIRE(file.info().content_hash == receiver->content_hash());
  require_equal(file, truth);
}

TEST_CASE("the content hash does not depend on compression, and tells contents apart") {
  const TempFolder folder;
  const auto hash_of = [&](const std::string& name, std::uint64_t seed, std::optional<int> gzip) {
    auto receiver = create_trace(folder / name, {.overwrite = false, .gzip_level = gzip});
    write_all(make_trace(Plan{}, seed), *receiver);
    return receiver->content_hash();
  };
  const std::string plain = hash_of("a.h5", 1, std::nullopt);
  REQUIRE(plain.size() == 39);
  REQUIRE(hash_of("b.h5", 1, 1) == plain);
  REQUIRE(hash_of("c.h5", 2, std::nullopt) != plain);
}

TEST_CASE("every field of the header survives") {
  const TempFolder folder;
  Plan plan;
  plan.capture = everything();
  plan.layers = {0, 2};
  plan.q_heads = {1, 2};
  plan.rows = {5, 20};
  const SyntheticTrace truth = make_trace(plan);
  auto receiver = create_trace(folder / "t.h5", {});
  write_all(truth, *receiver);
  const TraceFile file = TraceFile::open(folder / "t.h5");
  const TraceInfo& a = truth.info;
  const TraceInfo& b = file.info();
  CHECK(b.model_name == a.model_name);
  CHECK(b.model_family == a.model_family);
  CHECK(b.model_config == a.model_config);
  CHECK(b.n_layers == a.n_layers);
  CHECK(b.n_q == a.n_q);
  CHECK(b.n_kv == a.n_kv);
  CHECK(b.d_head == a.d_head);
  CHECK(b.d_model == a.d_model);
  CHECK(b.n_vocab == a.n_vocab);
  CHECK(b.score_scale == a.score_scale);
  CHECK(b.score_cap == a.score_cap);
  CHECK(b.window == a.window);
  CHECK(b.rope_kind == a.rope_kind);
  CHECK(b.rope_theta == a.rope_theta);
  CHECK(b.capture == a.capture);
  CHECK(b.layers == a.layers);
  CHECK(b.q_heads == a.q_heads);
  CHECK(b.kv_heads == a.kv_heads);
  CHECK(b.rows == a.rows);
  CHECK(b.n_tokens == a.n_tokens);
  CHECK(b.n_prompt == a.n_prompt);
  CHECK(b.chunk == a.chunk);
  CHECK(b.calls == a.calls);
  CHECK(b.status == TraceStatus::complete);
  CHECK(b.created == a.created);
  CHECK(b.writer == a.writer);
  CHECK(b.command_line == a.command_line);
  CHECK(b.host == a.host);
  CHECK(b.text_source == a.text_source);
  CHECK(b.tokenizer_hash == a.tokenizer_hash);
  CHECK(b.seed == a.seed);
  CHECK(b.uuid.size() == 36);
  CHECK(b.uuid[14] == '8');
  require_equal(file, truth);
}

TEST_CASE("layers of several shapes come back as they were written, and verify") {
  const TempFolder folder;
  const LayerShape own{.n_kv = 2, .d_head = 8, .score_scale = 0.35355338f};
  const LayerShape other{.n_kv = 1, .d_head = 16, .score_scale = 0.25f};
  Plan plan{.dtype = GENERATE(DType::f32, DType::bf16), .capture = everything()};
  plan.layer_shapes = {own, other, own};
  plan.layer_shapes[2].keys_of = 0;
  const SyntheticTrace truth = make_trace(plan);
  WriterOptions options;
  if (plan.dtype == DType::f32) options.gzip_level = 2;
  write_all(truth, *create_trace(folder / "t.h5", options));
  const TraceFile file = TraceFile::open(folder / "t.h5");
  CHECK(file.info().layer_shapes == plan.layer_shapes);
  CHECK(file.warnings().empty());
  require_equal(file, truth);
  check_verifies(folder / "t.h5");
  SyntheticTrace changed = make_trace(plan);
  changed.info.layer_shapes[1].score_scale = 0.26f;
  write_all(changed, *create_trace(folder / "changed.h5", options));
  CHECK_FALSE(verified(folder / "changed.h5").ok);
}

TEST_CASE("a compression that is stopped leaves the whole recording uncompressed") {
  const TempFolder folder;
  const SyntheticTrace truth = make_trace(Plan{.capture = everything()});
  std::stop_source stop;
  WriterOptions options{.gzip_level = 9, .stop = stop.get_token()};
  auto receiver = create_trace(folder / "t.h5", options);
  stop.request_stop();
  write_all(truth, *receiver);
  const TraceFile file = TraceFile::open(folder / "t.h5");
  CHECK(file.info().status == TraceStatus::complete);
  CHECK_FALSE(is_chunked(folder / "t.h5"));
  CHECK(file.info().content_hash == receiver->content_hash());
  require_equal(file, truth);
  CHECK(folder.n_files() == 1);
}

TEST_CASE("a trace is read through symbolic links") {
  const TempFolder folder;
  const SyntheticTrace truth = make_trace(Plan{});
  write_all(truth, *create_trace(folder / "t.h5", {}));
  fs::create_symlink("t.h5", folder / "link.h5");
  fs::create_symlink(folder / "link.h5", folder / "link_of_link.h5");
  for (const char* name : {"link.h5", "link_of_link.h5"}) {
    CAPTURE(name);
    require_equal(TraceFile::open(folder / name), truth);
  }
  fs::create_symlink("nothing.h5", folder / "broken.h5");
  CHECK_THROWS_AS(TraceFile::open(folder / "broken.h5"), IoError);
}

TEST_CASE("a recording without one whole call leaves nothing behind") {
  const TempFolder folder;
  const SyntheticTrace truth = make_trace(Plan{});
  {
    auto receiver = create_trace(folder / "t.h5", {});
    receiver->begin(truth.info);
    receiver->finish(TraceStatus::interrupted);
  }
  { create_trace(folder / "u.h5", {})->begin(truth.info); }
  REQUIRE(!fs::exists(folder / "t.h5"));
  REQUIRE(!fs::exists(folder / "t.h5.part"));
  REQUIRE(!fs::exists(folder / "u.h5.part"));
}

TEST_CASE("a reader that looks at the .part does not keep the recording from ending") {
  const TempFolder folder;
  const SyntheticTrace truth = make_trace(Plan{});
  auto receiver = create_trace(folder / "t.h5", {});
  write_begun(truth, *receiver, truth.info.calls.size());
  // Another process that holds HDF5's shared lock, as an open reader does.
  const int fd = open((folder / "t.h5.part").c_str(), O_RDONLY);
  REQUIRE(flock(fd, LOCK_SH) == 0);
  receiver->finish(TraceStatus::complete);
  close(fd);
  const TraceFile file = TraceFile::open(folder / "t.h5");
  CHECK(file.info().status == TraceStatus::complete);
  CHECK(file.info().content_hash == receiver->content_hash());
  require_equal(file, truth);
}

TEST_CASE("NaN, Inf and f16 overflow are named where they stand") {
  const TempFolder folder;
  Plan plan;
  plan.dtype = DType::f16;
  SyntheticTrace truth = make_trace(plan);
  const auto attempt = [&] {
    auto receiver = create_trace(folder / "t.h5", {.overwrite = true});
    write_all(truth, *receiver);
  };
  truth.layers[1].k(1, 10, 3) = 1e6f;
  CHECK_SAYS(attempt(), "/layers/1/k: head slot 1, position 10, element 3", "bf16");
  truth.layers[1].k(1, 10, 3) = NAN;
  CHECK_SAYS(attempt(), "/layers/1/k: head slot 1, position 10, element 3 is NaN");
  truth.layers[1].k(1, 10, 3) = 0;
  truth.layers[2].lse(3, 9) = INFINITY;
  CHECK_SAYS(attempt(), "/layers/2/lse: head slot 3, position 9, element 0 is Inf");
}

}  // namespace kvscope::test::writer_test
