// kvscope analyze attention-map: the attention map of one head, pooled to a size that can be drawn.
#include <filesystem>

#include "analysis/cli/frame/command.hpp"
#include "analysis/cli/frame/common_options.hpp"
#include "analysis/cli/frame/output.hpp"
#include "analysis/cli/frame/save_text.hpp"
#include "analysis/kinds/attention_map.hpp"
#include "core/base/json.hpp"
#include "core/base/version.hpp"
#include "traces/reader.hpp"
#include "traces/result_file.hpp"

namespace kvscope::cli {

namespace fs = std::filesystem;

namespace {

class AttentionMapCommand final : public Command {
 public:
  CommandCard card() const override {
    return {"analyze attention-map",
            "the attention map of one head, pooled for a figure",
            "Recomputes the softmax rows of one query head from the recorded q and k, block by "
            "block, and keeps the largest (or mean) weight of each cell. kvscope figure "
            "attention-map draws it.",
            {{"kvscope analyze attention-map trace.h5 --layers 2 --heads 6 --out map.h5",
              "at most 512 x 512 cells"}}};
  }
  void declare(OptionSet& options) override {
    options.positional("TRACE", "the recorded trace", trace_, /*required=*/true);
    options.fields(options_);
    options.add("out", "FILE", "the result to write (.h5)", out_)
        .needed("the map goes to a file")
        .short_name = 'o';
    options.flag("overwrite", "replace an existing file", overwrite_);
    work_.declare(options);
    declare_json(options, json_);
  }

  int run(const OptionSet&, const std::string& command_line) override {
    check_new_output(*out_, overwrite_, "--overwrite");
    const TraceFile trace = TraceFile::open(trace_);
    const auto output = create_result_file(*out_, overwrite_);
    Working run(work_);
    const auto summary = analyze_attention_map(
        trace, options_,
        {*output, run.pool, run.progress, run.stop, {command_line, writer_name(), ""}});
    if (json_) {
      print_json(summary);
    } else {
      print("layer {}, query head {}: {} tokens in {} x {} cells of {} x {} weights ({})\n",
            options_.layer, options_.head, summary["tokens"].get<Index>(),
            summary["cells"].get<Index>(), summary["cells"].get<Index>(),
            summary["block"].get<Index>(), summary["block"].get<Index>(),
            enum_name(options_.pooling));
    }
    return kOk;
  }

 private:
  fs::path trace_;
  AttentionMapOptions options_;
  std::optional<fs::path> out_;
  WorkOptions work_;
  bool overwrite_ = false;
  bool json_ = false;
};

}  // namespace

KVSCOPE_COMMAND(208, AttentionMapCommand)

}  // namespace kvscope::cli
