// The format against a trusted peer: what we write, plain h5py reads; what h5py writes, we read. A
// transposed array would survive our own round trip, but not this.
#include <fmt/format.h>

#include "tests/support/test.hpp"
#include "tests/traces/synthetic.hpp"
#include "traces/reader.hpp"
#include "traces/verify.hpp"
#include "traces/writer.hpp"

namespace kvscope::test::h5py_test {

TEST_CASE("h5py reads every element where we say it is, in every storage type") {
  Plan plan;
  plan.dtype = GENERATE(DType::f32, DType::f16, DType::bf16);
  const bool compressed = GENERATE(false, true);
  plan.capture.attn_dense = plan.capture.logits = plan.capture.stats = true;
  plan.capture.attn_topk = 2;
  plan.capture.page_size = 4;
  SyntheticTrace truth = make_trace(plan);
  // Numbers that tell their place: exact in bf16 too.
  for (auto& layer : truth.layers) {
    const auto number = [&](Tensor<float>& t, float sign) {
      for (Index h = 0; h < t.dim(0); ++h) {
        for (Index i = 0; i < t.dim(1); ++i) {
          for (Index c = 0; c < t.dim(2); ++c)
            t(h, i, c) = sign * static_cast<float>((h * 7 + i * 3 + c) % 128);
        }
      }
    };
    number(layer.q, 1);
    number(layer.k, -1);
    number(layer.v, 2);
  }
  const TempFolder folder;
  WriterOptions options;
  if (compressed) options.gzip_level = 1;
  write_all(truth, *create_trace(folder / "t.h5", options));
  const std::string out = run_python(R"py(
import sys, h5py, numpy as np
f = h5py.File(sys.argv[1], "r")
T, n_q, n_kv, d = 24, 4, 2, 8
for i in range(3):
    for name, heads, sign in (("q", n_q, 1), ("k", n_kv, -1), ("v", n_kv, 2)):
        h, t, c = np.meshgrid(np.arange(heads), np.arange(T), np.arange(d), indexing="ij")
        want = (sign * ((h * 7 + t * 3 + c) % 128)).astype(np.float32)
        data = f[f"/layers/{i}/{name}"]
        assert data.shape == (heads, T, d), data.shape
        assert (data[()].astype(np.float32) == want).all(), name
        assert data.attrs["n_nan"] == 0 and data.attrs["n_inf"] == 0
    assert f[f"/layers/{i}/lse"].shape == (n_q, T)
    a = f[f"/layers/{i}/attn"][()].astype(np.float64)
    assert a.shape == (n_q, T, T)
    assert np.abs(a.sum(-1) - 1).max() < 0.02 and (np.triu(a, 1) == 0).all()
    assert f[f"/layers/{i}/stats/page_min"].shape == (n_kv, 6, d)
text = lambda x: x.decode() if isinstance(x, bytes) else str(x)
print(f["/layers/0/k"].dtype, text(f["/layers/0/k"].attrs["axes"]), text(f["/layers/0/k"].attrs["dtype_logical"]))
assert f["/layers/2/stats/page_min"].dims[1][0] == f["/page"] and f["/page"].attrs["CLASS"] == b"DIMENSION_SCALE" and f["/page"].shape == (6,)
assert f["/row"][()].tolist() == list(range(T)) and f["/kv_head"][()].tolist() == [0, 1]
dims = lambda path: ",".join(dim[0].name for dim in f[path].dims)
print(dims("/layers/2/q"), dims("/layers/0/k"), dims("/layers/1/attn"), dims("/logits"), dims("/units"))
print(text(f.attrs["format"]), text(f.attrs["schema_version"]), text(f.attrs["status"]), f.attrs["n_q"])
print(text(f.attrs["command_line"]), f["/tokens"].dtype, f["/units"][()].tolist())
offsets, blob = f["/token_offsets"][()], bytes(f["/token_bytes"][()])
print(",".join(blob[a:b].decode() for a, b in zip(offsets, offsets[1:])))
)py",
                                     {(folder / "t.h5").string()});
  std::string texts;
  for (const auto& text : truth.texts) texts += (&text == &truth.texts.front() ? "" : ",") + text;
  const std::string type = plan.dtype == DType::f16 ? "float16" : "float32";
  CHECK(
      out ==
      fmt::format(
          "{} kv_head,token,dim {}\n/q_head,/row,/dim /kv_head,/token,/dim /q_head,/row,/key "
          "/row,/vocab /unit,/field\nkvscope-trace 1.1 complete 4\nkvscope record --out "
          "\xC3\xA9t\xC3\xA9.h5 "
          "int32 [[0, 8, 0], [8, 16, 0], [16, 21, 0], [21, 22, 1], [22, 23, 1], [23, 24, 1]]\n{}\n",
          type, enum_name(plan.dtype), texts));
}

constexpr const char* kWriteTrace = R"py(
import sys, h5py, numpy as np
path, dtype = sys.argv[1], sys.argv[2]
T, n_q, n_kv, d = 10, 4, 2, 6
f = h5py.File(path, "w")
a = f.attrs
a["format"], a["schema_version"], a["status"], a["uuid"] = "kvscope-trace", "1.0", "complete", "from-python"
a["features"], a["dtype"] = "qkv,lse", {"f2": "f16", "f4": "f32"}[dtype]
for name, value in dict(n_layers=3, n_q=n_q, n_kv=n_kv, d_head=d, d_model=24, n_vocab=11, n_tokens=T, n_prompt=T, chunk=T,
                        rows_begin=0, rows_end=T, attn_topk=0, page_size=16, token_text_capacity=0).items():
    a[name] = value
a["score_scale"] = 0.5
f["/tokens"] = np.arange(T, dtype="<i4")
f["/units"] = np.array([[0, T, 0]], dtype="<i8")
f["/recorded/layers"] = np.array([0, 2], dtype="<i8")
f["/recorded/q_heads"] = np.arange(n_q, dtype="<i8")
f["/recorded/kv_heads"] = np.arange(n_kv, dtype="<i8")
rng = np.random.default_rng(7)
for i in (0, 2):
    q = rng.normal(size=(n_q, T, d)).astype("<" + dtype)
    k, v = (rng.normal(size=(n_kv, T, d)).astype("<" + dtype) for _ in "kv")
    s = 0.5 * np.einsum("htd,hjd->htj", q.astype("f8"), np.repeat(k, 2, 0).astype("f8"))
    s[:, np.triu(np.ones((T, T), bool), 1)] = -np.inf
    f[f"/layers/{i}/q"], f[f"/layers/{i}/k"], f[f"/layers/{i}/v"] = q, k, v
    f[f"/layers/{i}/lse"] = np.log(np.exp(s).sum(-1)).astype("<f4")
    for h, t, c in ((3, 9, 5), (1, 0, 2)):
        print(f"{i} {float(q[h, t, c]):.9g} {float(k[h // 2, t, c]):.9g} {float(v[h // 2, t, c]):.9g}")
)py";

TEST_CASE("a trace that h5py wrote reads and verifies") {
  const std::string dtype = GENERATE("f4", "f2");
  const TempFolder folder;
  const std::string said = run_python(kWriteTrace, {(folder / "t.h5").string(), dtype});
  const TraceFile file = TraceFile::open(folder / "t.h5");
  CHECK(file.info().uuid == "from-python");
  CHECK(file.warnings().size() == 1);  // no checksums
  std::string ours;
  for (const Index i : {0, 2}) {
    for (const auto& [h, t, c] : {std::tuple<Index, Index, Index>{3, 9, 5}, {1, 0, 2}}) {
      const TokenRange one = {t, t + 1};
      ours += fmt::format("{} {:.9g} {:.9g} {:.9g}\n", i, file.read_q(i, h, one)(0, c),
                          file.read_k(i, h / 2, one)(0, c), file.read_v(i, h / 2, one)(0, c));
    }
  }
  CHECK(ours == said);
  const VerifyReport report = verified(folder / "t.h5");
  INFO((report.problems.empty() ? "" : report.problems.front()));
  CHECK(report.ok);
  CHECK(report.n_rows_checked == 2 * 4 * 10);
  CHECK(report.notes.size() == 1);
}

}  // namespace kvscope::test::h5py_test
