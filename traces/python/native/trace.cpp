// Recorded traces: every read is one slice of the file, as the analyses read it.
#include <nanobind/nanobind.h>
#include <nanobind/stl/string.h>
#include <nanobind/stl/unique_ptr.h>
#include <nanobind/stl/vector.h>

#include <cmath>
#include <memory>

#include "core/attention/exact_rows.hpp"
#include "core/base/error.hpp"
#include "core/trace/result.hpp"
#include "traces/python/native/arrays.hpp"
#include "traces/python/native/module.hpp"
#include "traces/reader.hpp"

namespace kvscope::python {

namespace nb = nanobind;

namespace {

std::unique_ptr<TraceFile> open_trace(const nb::bytes& name, bool allow_partial) {
  const std::filesystem::path path = path_of(name);
  const nb::gil_scoped_release released;
  return std::make_unique<TraceFile>(TraceFile::open(path, {.allow_partial = allow_partial}));
}

template <Tensor<float> (TraceSource::*read)(Index, Index, TokenRange) const>
NumpyArray<float> read_slice(const TraceFile& trace, Index layer, Index head, Index begin,
                             Index end) {
  Tensor<float> slice;
  {
    const nb::gil_scoped_release released;
    slice = (trace.*read)(layer, head, {begin, end});
  }
  return owning(std::move(slice));
}

/// Exact attention probabilities of one query head at `positions`, [n, n_tokens] f64, from the
/// stored q and k; 0 where a query does not look, so a row sums to 1 (less where an attention sink
/// takes a part).
NumpyArray<double> attention_rows(const TraceFile& trace, Index layer, Index q_head,
                                  const std::vector<Index>& positions) {
  const TraceInfo& info = trace.info();
  const Index n_keys = info.n_tokens;
  std::vector<double> out(positions.size() * static_cast<std::size_t>(n_keys), 0.0);
  {
    const nb::gil_scoped_release released;
    for (const Index pos : positions) {
      if (pos >= info.rows.begin && pos < info.rows.end) continue;
      throw ConfigError("{}: position {}: expected one of the recorded rows, {} to {}",
                        trace.where(), pos, info.rows.begin, info.rows.end - 1);
    }
    info.layer_slot(layer);  // throws for what is not recorded, before the window is read
    info.q_slot(q_head);
    const KeyTable keys(trace.read_k(layer, q_head / info.group(layer), {0, n_keys}).view());
    ScoreRows scratch;
    for (std::size_t i = 0; i < positions.size(); ++i) {
      const Index pos = positions[i];
      const Tensor<float> q = trace.read_q(layer, q_head, {pos, pos + 1});
      const RowSource source{q.view(), pos, keys, info.shape(layer).score_rule(),
                             info.window_of(layer)};
      visit_score_rows(source, std::span(&pos, 1), scratch,
                       [&](Index, std::span<double> scores, TokenRange visible) {
                         softmax_in_place(scores, info.sink_logit(layer, q_head));
                         std::copy(
                             scores.begin(), scores.end(),
                             out.begin() + static_cast<std::ptrdiff_t>(i) * n_keys + visible.begin);
                       });
    }
  }
  return owning(std::move(out), {positions.size(), static_cast<std::size_t>(n_keys)});
}

NumpyArray<float> logits(const TraceFile& trace, Index begin, Index end) {
  Tensor<float> rows;
  {
    const nb::gil_scoped_release released;
    rows = trace.read_logits({begin, end});
  }
  return owning(std::move(rows));
}

NumpyArray<std::int32_t> tokens(const TraceFile& trace) {
  std::vector<std::int32_t> ids;
  for (const TokenId id : trace.tokens()) ids.push_back(static_cast<std::int32_t>(id));
  return owning(std::move(ids));
}

nb::list token_bytes(const TraceFile& trace) {
  nb::list out;
  for (const std::string& text : trace.token_bytes())
    out.append(nb::bytes(text.data(), text.size()));
  return out;
}

/// [n_layers] the layers' windows, -1 where there is none.
std::vector<Index> windows(const TraceFile& trace) {
  std::vector<Index> out(static_cast<std::size_t>(trace.info().n_layers), -1);
  for (std::size_t i = 0; i < out.size(); ++i)
    out[i] = trace.info().window_of(static_cast<Index>(i)).value_or(-1);
  return out;
}

}  // namespace

void bind_trace(nb::module_& module) {
  nb::class_<TraceFile>(module, "Trace")
      .def_static("open", &open_trace, nb::arg("path"), nb::arg("allow_partial") = false)
      .def("read_q", &read_slice<&TraceSource::read_q>)
      .def("read_k", &read_slice<&TraceSource::read_k>)
      .def("read_v", &read_slice<&TraceSource::read_v>)
      .def("read_lse", &read_slice<&TraceSource::read_lse>)
      .def("read_logits", &logits)
      .def("attention_rows", &attention_rows)
      .def("tokens", &tokens)
      .def("token_bytes", &token_bytes)
      .def("windows", &windows)
      .def_prop_ro("layers", [](const TraceFile& t) { return t.info().layers; })
      .def_prop_ro("q_heads", [](const TraceFile& t) { return t.info().q_heads; })
      .def_prop_ro("kv_heads", [](const TraceFile& t) { return t.info().kv_heads; })
      .def_prop_ro("n_layers", [](const TraceFile& t) { return t.info().n_layers; })
      .def_prop_ro("n_q", [](const TraceFile& t) { return t.info().n_q; })
      .def_prop_ro("n_kv", [](const TraceFile& t) { return t.info().n_kv; })
      .def_prop_ro("d_head", [](const TraceFile& t) { return t.info().d_head; })
      .def("kv_heads_of",
           [](const TraceFile& t, Index layer) {
             t.info().layer_slot(layer);
             return t.info().kv_heads_of(layer);
           })
      .def("shape_of",
           [](const TraceFile& t, Index layer) {
             t.info().layer_slot(layer);
             const LayerShape shape = t.info().shape(layer);
             return nb::make_tuple(shape.n_kv, shape.d_head, shape.score_scale, shape.score_cap,
                                   shape.keys_of);
           })
      .def_prop_ro("n_tokens", [](const TraceFile& t) { return t.info().n_tokens; })
      .def_prop_ro("n_prompt", [](const TraceFile& t) { return t.info().n_prompt; })
      .def_prop_ro("rows",
                   [](const TraceFile& t) {
                     return std::vector<Index>{t.info().rows.begin, t.info().rows.end};
                   })
      .def_prop_ro("score_scale", [](const TraceFile& t) { return t.info().score_scale; })
      .def_prop_ro("score_cap", [](const TraceFile& t) { return t.info().score_cap; })
      .def_prop_ro(
          "sinks",
          [](const TraceFile& t) {
            const TraceInfo& info = t.info();
            std::vector<float> copy = info.sink_logits;
            return owning(std::move(copy),
                          info.sink_logits.empty()
                              ? std::vector<std::size_t>{0}
                              : std::vector<std::size_t>{static_cast<std::size_t>(info.n_layers),
                                                         static_cast<std::size_t>(info.n_q)});
          },
          nb::rv_policy::automatic)
      .def_prop_ro("model_config", [](const TraceFile& t) { return t.info().model_config; })
      .def_prop_ro("model", [](const TraceFile& t) { return t.info().model_name; })
      .def_prop_ro("family", [](const TraceFile& t) { return t.info().model_family; })
      .def_prop_ro("uuid", [](const TraceFile& t) { return t.info().uuid; })
      .def_prop_ro("writer", [](const TraceFile& t) { return t.info().writer; })
      .def_prop_ro("created", [](const TraceFile& t) { return t.info().created; })
      .def_prop_ro("text_source", [](const TraceFile& t) { return t.info().text_source; })
      .def_prop_ro("status",
                   [](const TraceFile& t) { return std::string(name_of(t.info().status)); })
      .def_prop_ro("file_bytes", [](const TraceFile& t) { return t.file_bytes(); })
      .def_prop_ro("warnings", [](const TraceFile& t) { return t.warnings(); })
      .def_prop_ro("where", [](const TraceFile& t) { return t.where(); });
}

}  // namespace kvscope::python
