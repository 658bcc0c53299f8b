// A result that nobody wants: for runs that give their summary only, or keep arrays elsewhere.
#pragma once

#include "core/trace/result_writer.hpp"

namespace kvscope {

/// Drops everything.
class NullResult : public ResultWriter {
 public:
  void begin(const ResultInfo&) override {}
  void declare(const ResultArray&) override {}
  void add_plot(const ResultPlot&) override {}
  void finish(const nlohmann::ordered_json&) override {}

 protected:
  void write_raw(std::string_view, ResultType, Index, const void*, Index) override {}
};

}  // namespace kvscope
