// Recorded traces: every read is one slice of the file, as the analyses read it.
#include <nanobind/nanobind.h>
#include <nanobind/stl/optional.h>
#include <nanobind/stl/pair.h>
#include <nanobind/stl/string.h>
#include <nanobind/stl/tuple.h>
#include <nanobind/stl/unique_ptr.h>
#include <nanobind/stl/vector.h>

#include <memory>

#include "analysis/base/mapped.hpp"
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
  return owning(released([&] { return (trace.*read)(layer, head, {begin, end}); }));
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
  return owning(released([&] { return trace.read_logits({begin, end}); }));
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

/// [n_layers, n_q], or [0, n_q].
NumpyArray<float> sinks_of(const TraceInfo& info) {
  const Index n_layers = info.sink_logits.empty() ? 0 : info.n_layers;
  return owning(std::vector<float>(info.sink_logits),
                {static_cast<std::size_t>(n_layers), static_cast<std::size_t>(info.n_q)});
}

/// Of a kvscope_recorder.schema.CaptureSet, whose fields carry the same names.
CaptureSet capture_of(nb::handle of) {
  const auto has = [&](const char* name) { return nb::cast<bool>(of.attr(name)); };
  const auto count = [&](const char* name) { return nb::cast<Index>(of.attr(name)); };
  return {.qkv = has("qkv"),
          .lse = has("lse"),
          .logits = has("logits"),
          .attn_dense = has("attn_dense"),
          .attn_topk = count("attn_topk"),
          .stats = has("stats"),
          .page_size = count("page_size"),
          .k_pre_rope = has("k_pre_rope")};
}

/// What lists of the header hold, as Python has it: tuples of their fields.
using ShapeFields = std::tuple<Index, Index, float, float, Index>;
using KindFields = std::tuple<Index, Index>;
using CallFields = std::tuple<Index, Index, bool>;
using IndexFields = std::tuple<std::vector<Index>, Index, Index, Index, bool, Index, Index, Index>;

nb::object capture_fields(const TraceInfo& info) {
  using namespace nb::literals;
  const CaptureSet& of = info.capture;
  return nb::module_::import_("types").attr("SimpleNamespace")(
      "qkv"_a = of.qkv, "lse"_a = of.lse, "logits"_a = of.logits, "attn_dense"_a = of.attn_dense,
      "attn_topk"_a = of.attn_topk, "stats"_a = of.stats, "page_size"_a = of.page_size,
      "k_pre_rope"_a = of.k_pre_rope);
}

IndexFields index_fields(const TraceInfo& info) {
  const IndexShape& of = info.index;
  return {of.layers,    of.n_heads, of.n_key_heads, of.width,
          of.has_gates, of.n_lists, of.n_selected,  of.block};
}

/// The header of a trace: read of a file, or filled by a recorder, once.
void bind_info(nb::module_& module) {
  nb::class_<TraceInfo>(module, "TraceInfo")
      .def(nb::init<>())
      .def_rw("model_name", &TraceInfo::model_name)
      .def_rw("model_family", &TraceInfo::model_family)
      .def_prop_rw(
          "model_config", [](const TraceInfo& t) { return t.model_config; },
          [](TraceInfo& t, const nb::bytes& text) {
            t.model_config.assign(text.c_str(), text.size());
          })
      .def_rw("n_layers", &TraceInfo::n_layers)
      .def_rw("n_q", &TraceInfo::n_q)
      .def_rw("n_kv", &TraceInfo::n_kv)
      .def_rw("d_head", &TraceInfo::d_head)
      .def_rw("d_model", &TraceInfo::d_model)
      .def_rw("n_vocab", &TraceInfo::n_vocab)
      .def_rw("score_scale", &TraceInfo::score_scale)
      .def_rw("score_cap", &TraceInfo::score_cap)
      .def_prop_rw(
          "layer_shapes",
          [](const TraceInfo& t) {
            return mapped<ShapeFields>(t.layer_shapes, [](const LayerShape& s) {
              return ShapeFields{s.n_kv, s.d_head, s.score_scale, s.score_cap, s.keys_of};
            });
          },
          [](TraceInfo& t, const std::vector<ShapeFields>& shapes) {
            t.layer_shapes.clear();
            for (const auto& [n_kv, d_head, scale, cap, keys_of] : shapes)
              t.layer_shapes.push_back({n_kv, d_head, scale, cap, keys_of});
          })
      .def_rw("window", &TraceInfo::window)
      .def("window_of", &TraceInfo::window_of)
      .def_prop_rw(
          "sinks", &sinks_of,
          [](TraceInfo& t, const InputArray<float>& sinks) {
            t.sink_logits.assign(sinks.data(), sinks.data() + sinks.size());
          },
          nb::for_getter(nb::rv_policy::automatic))
      .def_prop_rw(
          "layer_kinds",
          [](const TraceInfo& t) {
            return mapped<KindFields>(t.layer_kinds, [](const LayerKind& kind) {
              return KindFields{kind.has_rope ? 1 : 0, kind.n_experts};
            });
          },
          [](TraceInfo& t, const std::vector<KindFields>& kinds) {
            t.layer_kinds.clear();
            for (const auto& [has_rope, n_experts] : kinds)
              t.layer_kinds.push_back({has_rope != 0, n_experts});
          })
      .def_rw("n_experts_per_token", &TraceInfo::n_experts_per_token)
      .def_rw("rope_kind", &TraceInfo::rope_kind)
      .def_rw("rope_theta", &TraceInfo::rope_theta)
      .def_rw("rope_factor", &TraceInfo::rope_factor)
      .def_rw("rope_frequencies", &TraceInfo::rope_frequencies)
      .def_rw("rope_amplitudes", &TraceInfo::rope_amplitudes)
      .def_rw("qk_norm", &TraceInfo::qk_norm)
      .def_prop_rw("capture", &capture_fields,
                   [](TraceInfo& t, nb::handle of) { t.capture = capture_of(of); })
      .def_prop_rw("index", &index_fields,
                   [](TraceInfo& t, const IndexFields& of) {
                     std::apply([&](const auto&... one) { t.index = IndexShape{one...}; }, of);
                   })
      .def_prop_rw(
          "dtype", [](const TraceInfo& t) { return std::string(enum_name(t.dtype)); },
          [](TraceInfo& t, const std::string& name) {
            t.dtype = enum_from_name<DType>(name).value();
          })
      .def_rw("moved_scores", &TraceInfo::moved_scores)
      .def_rw("layers", &TraceInfo::layers)
      .def_rw("q_heads", &TraceInfo::q_heads)
      .def_rw("kv_heads", &TraceInfo::kv_heads)
      .def_prop_rw(
          "rows", [](const TraceInfo& t) { return std::pair(t.rows.begin, t.rows.end); },
          [](TraceInfo& t, std::pair<Index, Index> rows) {
            t.rows = {rows.first, rows.second};
          })
      .def_rw("n_tokens", &TraceInfo::n_tokens)
      .def_rw("token_text_capacity", &TraceInfo::token_text_capacity)
      .def_rw("n_prompt", &TraceInfo::n_prompt)
      .def_rw("chunk", &TraceInfo::chunk)
      .def_prop_rw(
          "calls",
          [](const TraceInfo& t) {
            return mapped<CallFields>(t.calls, [](const ForwardCall& call) {
              return CallFields{call.tokens.begin, call.tokens.end, call.is_decode};
            });
          },
          [](TraceInfo& t, const std::vector<CallFields>& calls) {
            t.calls.clear();
            for (const auto& [begin, end, is_decode] : calls)
              t.calls.push_back({{begin, end}, is_decode});
          })
      .def_ro("uuid", &TraceInfo::uuid)
      .def_ro("content_hash", &TraceInfo::content_hash)
      .def_prop_ro("status", [](const TraceInfo& t) { return std::string(enum_name(t.status)); })
      .def_rw("created", &TraceInfo::created)
      .def_rw("writer", &TraceInfo::writer)
      .def_rw("tokenizer_hash", &TraceInfo::tokenizer_hash)
      .def_rw("command_line", &TraceInfo::command_line)
      .def_rw("host", &TraceInfo::host)
      .def_rw("text_source", &TraceInfo::text_source)
      .def_rw("seed", &TraceInfo::seed);
}

}  // namespace

void bind_trace(nb::module_& module) {
  bind_info(module);
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
      .def_prop_ro("info", &TraceFile::info)
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
      .def_prop_ro("file_bytes", [](const TraceFile& t) { return t.file_bytes(); })
      .def_prop_ro("warnings", [](const TraceFile& t) { return t.warnings(); })
      .def_prop_ro("where", [](const TraceFile& t) { return t.where(); });
}

}  // namespace kvscope::python
