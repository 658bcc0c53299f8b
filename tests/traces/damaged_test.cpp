// Damaged and hostile trace files: each gives one sentence, none a crash.
#include <fmt/format.h>

#include "tests/support/test.hpp"
#include "tests/traces/synthetic.hpp"
#include "traces/reader.hpp"
#include "traces/recover.hpp"
#include "traces/verify.hpp"
#include "traces/writer.hpp"

namespace kvscope::test::damaged_test {

SyntheticTrace sample() {
  Plan plan;
  plan.capture.stats = plan.capture.attn_dense = true;
  plan.capture.page_size = 4;
  return make_trace(plan);
}

/// Runs a Python edit of a sound trace `f` (open for writing), then gives the message that opening
/// it throws.
std::string message_after(const std::string& edit) {
  const TempFolder folder;
  write_all(sample(), *create_trace(folder / "t.h5", {}));
  run_python(
      "import sys, h5py, numpy as np\nf = h5py.File(sys.argv[1], 'r+')\n" + edit + "\nf.close()\n",
      {(folder / "t.h5").string()});
  return message_of<FormatError>([&] { TraceFile::open(folder / "t.h5").read_q(1, 0, {0, 24}); });
}

TEST_CASE("a file that is cut off is called truncated, with how much of it is here") {
  const TempFolder folder;
  write_all(sample(), *create_trace(folder / "t.h5", {}));
  const auto whole = std::filesystem::file_size(folder / "t.h5");
  std::filesystem::resize_file(folder / "t.h5", whole / 2);
  CHECK_SAYS(TraceFile::open(folder / "t.h5"), "t.h5 is truncated: ", "copy it again");
}

TEST_CASE("what contradicts the header is named") {
  CHECK_HAS(message_after("del f['/layers/1/k']"), "dataset /layers/1/k is missing");
  CHECK_HAS(message_after("del f['/checksums']"), "/checksums is missing");
  CHECK_HAS(message_after("del f['/tokens']"), "dataset /tokens is missing");
  CHECK_HAS(message_after("del f['/layers/1/k']\nf['/layers/1/k'] = np.zeros((2, 24, 9), '<f4')"),
            "/layers/1/k: shape [2, 24, 9], expected [2, 24, 8]");
  CHECK_HAS(message_after("del f['/layers/1/k']\nf['/layers/1/k'] = np.zeros((2, 24, 8), '<f8')"),
            "/layers/1/k: type f64, expected f32");
  CHECK_HAS(message_after("del f['/layers/1/k']\nf.create_group('/layers/1/k')"),
            "cannot be opened as a dataset");
  CHECK_HAS(
      message_after("del f['/layers/1/k']\nf['/layers/1/k'] = h5py.ExternalLink('other.h5', '/x')"),
      "is missing");
  CHECK_HAS(
      message_after("del f['/layers/1/k']\nf.create_dataset('/layers/1/k', (2, 24, 8), '<f4', "
                    "external=[('/etc/passwd', 0, 1536)])"),
      "other files");
  CHECK_HAS(message_after("f.attrs['schema_version'] = '2.0'"), "use a newer kvscope");
  CHECK_HAS(message_after("f.attrs['schema_version'] = 'new'"), "expected major.minor");
  CHECK_HAS(message_after("f.attrs['schema_version'] = '1x.2'"), "expected major.minor");
  CHECK_HAS(message_after("f.attrs['seed'] = '7 or so'"), "seed '7 or so'");
  CHECK_HAS(message_after("f.attrs['format'] = 'other'"), "not a kvscope trace");
  CHECK_HAS(message_after("f.attrs['status'] = 'fine'"), "status 'fine'");
  CHECK_HAS(message_after("f.attrs['dtype'] = 'f8'"), "dtype 'f8'");
  CHECK_HAS(message_after("f.attrs['n_kv'] = 3"), "n_q: expected a multiple of n_kv");
  CHECK_HAS(message_after("f.attrs['n_kv'] = 0"), "n_kv: expected 1 or more, found 0");
  CHECK_HAS(message_after("f.attrs['n_tokens'] = 2**60"), "n_tokens: expected 1 or more");
  CHECK_HAS(message_after("f.attrs['n_tokens'] = 'many'"), "'n_tokens' is not an integer");
  CHECK_HAS(message_after("del f.attrs['n_prompt']"), "'n_prompt' is missing");
  CHECK_HAS(message_after("f.attrs['score_scale'] = float('nan')"), "score_scale");
  for (const char* cap : {"float('nan')", "-3.0", "0.0"}) {
    CHECK_HAS(
        message_after(fmt::format("f.attrs['features'] = f.attrs['features'] + b',score-cap'\n"
                                  "f.attrs['score_cap'] = {}",
                                  cap)),
        "score_cap");
  }
  CHECK_HAS(message_after("f['/recorded/layers'][:] = [0, 0, 2]"), "ascending");
  CHECK_HAS(message_after("f['/recorded/kv_heads'][:] = [0, 7]"), "recorded KV heads");
  CHECK_HAS(message_after("f['/units'][1, 0] = 9"), "calls: expected one that starts at token 8");
  CHECK_HAS(message_after("f['/progress'][0] = 2"), "only 2 of 6 calls");
  CHECK_HAS(message_after("f['/layers/1/q'][0, 3, 1] = float('inf')"), "/layers/1/q",
            "position 3, element 1 is Inf");
  const std::string shapes = "f.attrs['features'] = f.attrs['features'] + b',layer-shapes'\n";
  CHECK_HAS(message_after(shapes), "/model/layer_shapes is missing");
  const std::string scores = shapes + "f['/model/layer_scores'] = np.full((3, 2), .5, '<f4')\n";
  CHECK_HAS(message_after(scores + "f['/model/layer_shapes'] = np.full((2, 3), 1, '<i8')"),
            "shape [2, 3], expected [3, 3]");
  CHECK_HAS(message_after(scores + "f['/model/layer_shapes'] = np.full((3, 3), 8, '<i8')"),
            "n_q of layer 0: expected a multiple of n_kv = 8");
  CHECK_HAS(message_after(scores + "f['/model/layer_shapes'] = np.array([[2, 9, -1]] * 3, '<i8')"),
            "expected those of layer 0 (2, 9");
  CHECK(message_after("f.attrs['extra'] = 1") == "no error");
}

TEST_CASE("a shape that the file cannot hold is refused before memory is taken") {
  // 2^31 - 1 tokens in the header and in the datasets' shapes, none of them stored.
  const std::string edit = R"py(
n = 2**31 - 1
f.attrs['n_tokens'] = n; f.attrs['n_prompt'] = n; f.attrs['rows_end'] = n; f.attrs['chunk'] = n
del f['/units'], f['/tokens']
f['/units'] = np.array([[0, n, 0]], '<i8')
f.create_dataset('/tokens', (n,), '<i4', chunks=(1024,))
)py";
  CHECK_HAS(message_after(edit), "the file does not hold them");
}

TEST_CASE("a newer minor version and unknown features are warnings") {
  const TempFolder folder;
  write_all(sample(), *create_trace(folder / "t.h5", {}));
  run_python(
      "import sys, h5py\nf = h5py.File(sys.argv[1], 'r+')\nf.attrs['schema_version'] = '1.7'\n"
      "f.attrs['features'] = 'qkv,lse,attn-dense,stats,token-text,checksums,holograms'\n",
      {(folder / "t.h5").string()});
  const auto warnings = TraceFile::open(folder / "t.h5").warnings();
  REQUIRE(warnings.size() == 2);
  CHECK_HAS(warnings[0], "1.7");
  CHECK_HAS(warnings[1], "holograms");
}

TEST_CASE("a file cut off anywhere is refused") {
  const TempFolder folder;
  write_all(sample(), *create_trace(folder / "t.h5", {}));
  const std::string bytes = slurp(folder / "t.h5");
  for (std::size_t n = 0; n < bytes.size(); n += 1 + bytes.size() / 150) {
    spill(folder / "cut.h5", bytes.substr(0, n));
    INFO("cut to " << n << " of " << bytes.size() << " bytes");
    REQUIRE_THROWS_AS(TraceFile::open(folder / "cut.h5"), Error);
    REQUIRE_THROWS_AS(TraceFile::open_image(std::as_bytes(std::span(bytes.data(), n)), "cut"),
                      Error);
    REQUIRE_THROWS_AS(recover_trace(folder / "cut.h5", folder / "r.h5", false), Error);
  }
}

TEST_CASE("a file in memory reads as one on disk") {
  const TempFolder folder;
  const SyntheticTrace truth = sample();
  write_all(truth, *create_trace(folder / "t.h5", {}));
  const std::string bytes = slurp(folder / "t.h5");
  const TraceFile file = TraceFile::open_image(std::as_bytes(std::span(bytes)), "image");
  CHECK(file.where() == "image");
  CHECK(file.read_k(2, 1, {10, 11})(0, 3) == truth.layers[2].k(1, 10, 3));
}

}  // namespace kvscope::test::damaged_test
