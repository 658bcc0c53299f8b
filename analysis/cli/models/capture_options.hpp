// What to record and how to store it: the options of `record`.
#pragma once

#include <string>
#include <vector>

#include "analysis/options/options.hpp"
#include "traces/recorder.hpp"
#include "traces/writer.hpp"

namespace kvscope::cli {

/// --capture, --dtype, --layers, --heads, --rows, --page-size, --compression, --chunk.
struct CaptureOptions {
  std::vector<std::string> capture;
  std::string dtype = "f32";
  std::string layers;
  std::string heads;
  std::string rows;
  Index page_size = 16;
  std::string compression = "none";
  Index chunk = 512;

  void declare(OptionSet& options);
  /// The recorder chooses, once it has the model (choose_dtype).
  bool is_auto() const { return dtype == "auto"; }
  /// Checked and put into the recorder's terms, f32 for auto; throws UsageError.
  RecordOptions record_options() const;
  WriterOptions writer_options(bool overwrite) const;
};

}  // namespace kvscope::cli
