#include "analysis/cli/inspect/info_describe.hpp"

#include "analysis/base/describe_trace.hpp"
#include "analysis/base/number_formats.hpp"
#include "core/base/error.hpp"
#include "core/base/json.hpp"
#include "core/trace/result.hpp"
#include "traces/reader.hpp"
#include "traces/result_file.hpp"

namespace kvscope::cli {

namespace {

namespace fs = std::filesystem;

// Nothing if the file is not a result either.
std::optional<Json> describe_result(const fs::path& file) {
  try {
    const ResultFile result = ResultFile::open(file);
    const ResultInfo& info = result.info();
    Json json = {{"what", "result"},
                 {"file", file.string()},
                 {"file_bytes", fs::file_size(file)},
                 {"kind", info.kind}};
    json["inputs"] = inputs_of(info);
    json["traces"] = info.trace_files;
    json["trace_uuids"] = info.trace_uuids;
    json["trace_hashes"] = info.trace_hashes;
    if (const NumberFormats formats = NumberFormats::of(info.config); !formats.are_f32())
      json["formats"] = formats.sentence();
    json["config"] = info.config;
    json["config_hash"] = info.config_hash;
    json["created"] = info.created;
    json["writer"] = info.writer;
    json["command_line"] = info.command_line;
    json["arrays"] = Json::array();
    for (const auto& array : result.arrays()) {
      json["arrays"].push_back({{"name", array.name},
                                {"shape", to_string(array.shape)},
                                {"axes", array.axes},
                                {"units", array.units},
                                {"long_name", array.long_name}});
    }
    json["plots"] = Json::array();
    for (const auto& plot : result.plots()) json["plots"].push_back(plot.name);
    json["summary"] = result.summary();
    return json;
  } catch (const Error&) {
    return std::nullopt;
  }
}

}  // namespace

Json describe_file(const fs::path& file) {
  try {
    const TraceFile trace = TraceFile::open(file, {.allow_partial = true});
    return describe_trace(
        {trace.info(), trace.planned(), file.string(), trace.file_bytes(), trace.warnings()});
  } catch (const FormatError&) {
    const auto result = describe_result(file);
    if (result) return *result;
    throw;  // what is wrong with it as a trace says more
  }
}

}  // namespace kvscope::cli
