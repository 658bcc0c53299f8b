// What the files of the module kvscope._native add to it, one function each.
#pragma once

#include <nanobind/nanobind.h>

#include <filesystem>

namespace kvscope::python {

/// Of the bytes of a name (os.fsencode), which may be no UTF-8.
std::filesystem::path path_of(const nanobind::bytes& name);

/// Errors of C++ become those of kvscope.errors.
void bind_errors();
void bind_program(nanobind::module_& module);    // run(), main(): the commands; check_trace_output
void bind_trace(nanobind::module_& module);      // Trace, TraceInfo
void bind_result(nanobind::module_& module);     // Result, read_rows(), column_title()
void bind_call(nanobind::module_& module);       // Call, CallBudget, Selection, top(), projection
void bind_selectors(nanobind::module_& module);  // put_selector(), caps
void bind_run(nanobind::module_& module);        // Run: one selector through a sequence; attended()
void bind_writer(nanobind::module_& module);     // TraceWriter, fingerprint()

}  // namespace kvscope::python
