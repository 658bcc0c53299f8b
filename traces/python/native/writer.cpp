// Writing a trace from Python: the recorder's rows go through the library's own writer.
#include <nanobind/nanobind.h>
#include <nanobind/stl/string.h>
#include <nanobind/stl/unique_ptr.h>
#include <nanobind/stl/vector.h>

#include <cmath>
#include <filesystem>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "core/base/error.hpp"
#include "core/base/new_file.hpp"
#include "traces/hash.hpp"
#include "traces/python/native/arrays.hpp"
#include "traces/python/native/module.hpp"
#include "traces/trace_writer.hpp"

namespace kvscope::python {

namespace nb = nanobind;

namespace {

template <class T>
T field(nb::handle object, const char* name) {
  const nb::object value = object.attr(name);
  try {
    return nb::cast<T>(value);
  } catch (const nb::cast_error&) {
    throw ConfigError("{}: a trace cannot hold {}", name, nb::repr(value).c_str());
  }
}

std::vector<float> floats(nb::handle object) {
  const auto array = nb::cast<InputArray<float>>(object);
  return {array.data(), array.data() + array.size()};
}

CaptureSet capture_of(nb::handle of) {
  CaptureSet capture;
  capture.qkv = field<bool>(of, "qkv");
  capture.lse = field<bool>(of, "lse");
  capture.logits = field<bool>(of, "logits");
  capture.attn_dense = field<bool>(of, "attn_dense");
  capture.attn_topk = field<Index>(of, "attn_topk");
  capture.stats = field<bool>(of, "stats");
  capture.page_size = field<Index>(of, "page_size");
  capture.k_pre_rope = field<bool>(of, "k_pre_rope");
  return capture;
}

IndexShape index_of(nb::handle of) {
  IndexShape index;
  if (of.is_none()) return index;
  index.layers = field<std::vector<Index>>(of, "layers");
  index.n_heads = field<Index>(of, "n_heads");
  index.n_key_heads = field<Index>(of, "n_key_heads");
  index.width = field<Index>(of, "width");
  index.has_gates = field<bool>(of, "has_gates");
  index.n_lists = field<Index>(of, "n_lists");
  index.n_selected = field<Index>(of, "n_selected");
  index.block = field<Index>(of, "block");
  return index;
}

void add_model(nb::handle of, TraceInfo& info) {
  info.model_name = field<std::string>(of, "model_name");
  info.model_family = field<std::string>(of, "model_family");
  const auto config = field<nb::bytes>(of, "model_config");
  info.model_config.assign(config.c_str(), config.size());
  info.n_layers = field<Index>(of, "n_layers");
  info.n_q = field<Index>(of, "n_q");
  info.n_kv = field<Index>(of, "n_kv");
  info.d_head = field<Index>(of, "d_head");
  info.d_model = field<Index>(of, "d_model");
  info.n_vocab = field<Index>(of, "n_vocab");
  info.score_scale = field<float>(of, "score_scale");
  info.score_cap = field<float>(of, "score_cap");
  for (const nb::handle shape : of.attr("layer_shapes"))
    info.layer_shapes.push_back({nb::cast<Index>(shape[0]), nb::cast<Index>(shape[1]),
                                 nb::cast<float>(shape[2]), nb::cast<float>(shape[3]),
                                 nb::cast<Index>(shape[4])});
  for (const Index window : field<std::vector<Index>>(of, "windows"))
    info.window.push_back(window > 0 ? std::optional(window) : std::nullopt);
  if (const nb::object sinks = of.attr("sinks"); !sinks.is_none()) info.sink_logits = floats(sinks);
  for (const auto& kind : field<std::vector<std::vector<Index>>>(of, "layer_kinds"))
    info.layer_kinds.push_back({kind.at(0) != 0, kind.at(1)});
  info.n_experts_per_token = field<Index>(of, "n_experts_per_token");
  info.rope_kind = field<std::string>(of, "rope_kind");
  info.rope_theta = field<double>(of, "rope_theta");
  info.rope_factor = field<double>(of, "rope_factor");
  if (const nb::object rotation = of.attr("rotation"); !rotation.is_none()) {
    info.rope_frequencies = floats(rotation.attr("frequencies"));
    info.rope_amplitudes = floats(rotation.attr("amplitudes"));
  }
  info.qk_norm = field<bool>(of, "qk_norm");
}

/// A kvscope_recorder.schema.TraceInfo, whose fields carry the same names.
TraceInfo info_of(nb::handle of) {
  TraceInfo info;
  add_model(of, info);
  info.capture = capture_of(of.attr("capture"));
  info.index = index_of(of.attr("index"));
  info.dtype = dtype_from_name(field<std::string>(of, "dtype")).value();
  info.layers = field<std::vector<Index>>(of, "layers");
  if (field<bool>(of, "is_rounded")) info.moved_scores.assign(info.layers.size(), NAN);
  info.q_heads = field<std::vector<Index>>(of, "q_heads");
  info.kv_heads = field<std::vector<Index>>(of, "kv_heads");
  const auto rows = field<std::vector<Index>>(of, "rows");
  info.rows = {rows.at(0), rows.at(1)};
  for (const auto& call : field<std::vector<std::vector<Index>>>(of, "calls"))
    info.calls.push_back({{call.at(0), call.at(1)}, call.at(2) != 0});
  info.n_tokens = field<Index>(of, "n_tokens");
  info.n_prompt = field<Index>(of, "n_prompt");
  info.chunk = field<Index>(of, "chunk");
  info.token_text_capacity = field<Index>(of, "token_text_capacity");
  info.created = field<std::string>(of, "created");
  info.writer = field<std::string>(of, "writer");
  info.command_line = field<std::string>(of, "command_line");
  info.host = field<std::string>(of, "host");
  info.text_source = field<std::string>(of, "text_source");
  info.tokenizer_hash = field<std::string>(of, "tokenizer_hash");
  info.seed = field<std::uint64_t>(of, "seed");
  return info;
}

std::unique_ptr<TraceWriter> make_writer(const nb::bytes& out, bool overwrite) {
  WriterOptions options;
  options.overwrite = overwrite;
  return std::make_unique<TraceWriter>(path_of(out), options);
}

/// Rows in the bits of their stored type; bf16 comes as uint16. ValueError for NaN and Inf.
void append_rows(TraceWriter& writer, const std::string& path,
                 const nb::ndarray<nb::ro, nb::c_contig, nb::device::cpu>& rows) {
  Shape shape;
  for (std::size_t a = 0; a < rows.ndim() && a < Shape::kMaxRank; ++a)
    shape.dim[static_cast<std::size_t>(shape.rank++)] = static_cast<Index>(rows.shape(a));
  const auto dtype = rows.dtype();
  const nb::gil_scoped_release released;
  try {
    if (dtype == nb::dtype<std::int32_t>()) {
      writer.append(path, TensorView<const std::int32_t>(
                              static_cast<const std::int32_t*>(rows.data()), shape));
    } else {
      const DType stored = dtype == nb::dtype<float>()           ? DType::f32
                           : dtype == nb::dtype<std::uint16_t>() ? DType::bf16
                                                                 : DType::f16;
      writer.append(path, TypedRows(stored, rows.data(), shape));
    }
  } catch (const FormatError& error) {
    throw std::invalid_argument(error.what());
  }
}

void write_tokens(TraceWriter& writer, const InputArray<TokenId>& ids,
                  const std::vector<nb::bytes>& texts) {
  std::vector<std::string> bytes;
  for (const nb::bytes& text : texts) bytes.emplace_back(text.c_str(), text.size());
  const nb::gil_scoped_release released;
  writer.write_tokens({ids.data(), ids.size()}, bytes);
}

/// (content hash, uuid) of the trace.
std::pair<std::string, std::string> finish(TraceWriter& writer, const std::string& status,
                                           nb::handle info) {
  const TraceInfo whole = info_of(info);
  const nb::gil_scoped_release released;
  writer.finish(trace_status_from_name(status).value(), whole);
  return {writer.info().content_hash, writer.info().uuid};
}

}  // namespace

void bind_writer(nb::module_& module) {
  nb::class_<TraceWriter>(module, "TraceWriter")
      .def(nb::new_(&make_writer))
      .def("begin",
           [](TraceWriter& writer, nb::handle info) {
             const TraceInfo plan = info_of(info);
             const nb::gil_scoped_release released;
             writer.begin(plan);
           })
      .def("replan",
           [](TraceWriter& writer, nb::handle info) {
             const TraceInfo plan = info_of(info);
             const nb::gil_scoped_release released;
             writer.replan(plan);
           })
      .def("append", &append_rows)
      .def("write_tokens", &write_tokens)
      .def("commit", &TraceWriter::commit_call, nb::call_guard<nb::gil_scoped_release>())
      .def("finish",
           [](TraceWriter& writer, const std::string& status, nb::handle info,
              const std::vector<float>& moved_scores) {
             writer.write_moved_scores(moved_scores);
             const auto [hash, uuid] = finish(writer, status, info);
             return nb::make_tuple(hash, uuid);
           })
      .def_prop_ro("recovery_hint", &TraceWriter::recovery_hint);
  module.def("check_trace_output", [](const nb::bytes& out, bool overwrite) {
    check_output(path_of(out), overwrite, FileKind::trace);
  });
  module.def("fingerprint", [](const nb::bytes& bytes) {
    return hash_text({bytes.c_str(), bytes.size()});
  });
}

}  // namespace kvscope::python
