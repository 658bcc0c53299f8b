// kvscope version: what exactly this program is, for bug reports and provenance.
#include <fmt/format.h>

#include "analysis/cli/frame/command.hpp"
#include "analysis/cli/frame/common_options.hpp"
#include "analysis/cli/frame/output.hpp"
#include "core/base/cpu.hpp"
#include "core/base/json.hpp"
#include "core/base/version.hpp"
#include "traces/hdf5_library.hpp"

namespace kvscope::cli {
namespace {

class VersionCommand final : public Command {
 public:
  CommandCard card() const override {
    return {"version", "version, commit, compiler, HDF5 filters, vector targets"};
  }
  void declare(OptionSet& options) override { declare_json(options, json_); }

  int run(const OptionSet&, const std::string&) override {
    if (json_) {
      print_json({{"version", version()},
                  {"commit", commit()},
                  {"compiler", compiler()},
                  {"hdf5_version", hdf5_version()},
                  {"hdf5_filters", hdf5_filters()},
                  {"vector_targets", vector_targets()},
                  {"cpu", cpu_name()},
                  {"cores", available_cores()}});
    } else {
      print(
          "{}\ncompiler: {}\nHDF5: {} (filters: {})\nvector targets: {}\ncpu: {}, {} "
          "cores usable\n",
          writer_name(), compiler(), hdf5_version(), fmt::join(hdf5_filters(), ", "),
          fmt::join(vector_targets(), ", "), cpu_name(), available_cores());
    }
    return kOk;
  }

 private:
  bool json_ = false;
};

}  // namespace

KVSCOPE_COMMAND(910, VersionCommand)

}  // namespace kvscope::cli
