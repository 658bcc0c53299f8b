// Writing a trace from Python: the recorder's rows go through the library's own writer.
#include <nanobind/nanobind.h>
#include <nanobind/stl/string.h>
#include <nanobind/stl/unique_ptr.h>
#include <nanobind/stl/vector.h>

#include <memory>
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

}  // namespace

void bind_writer(nb::module_& module) {
  nb::class_<TraceWriter>(module, "TraceWriter")
      .def(nb::new_(&make_writer))
      .def("begin", &TraceWriter::begin, nb::call_guard<nb::gil_scoped_release>())
      .def("replan", &TraceWriter::replan, nb::call_guard<nb::gil_scoped_release>())
      .def("append", &append_rows)
      .def("write_tokens", &write_tokens)
      .def("commit", &TraceWriter::commit_call, nb::call_guard<nb::gil_scoped_release>())
      .def("finish",
           [](TraceWriter& writer, const std::string& status, const TraceInfo& info,
              const std::vector<float>& moved_scores) {
             const nb::gil_scoped_release released;
             writer.write_moved_scores(moved_scores);
             writer.finish(enum_from_name<TraceStatus>(status).value(), info);
             return writer.info();
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
