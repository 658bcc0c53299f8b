// kvscope fit: what a method learns from a recording before it sees a sequence, as a file that runs
// load.
#include <fmt/format.h>

#include <filesystem>

#include "analysis/cli/frame/command.hpp"
#include "analysis/cli/frame/common_options.hpp"
#include "analysis/cli/frame/output.hpp"
#include "analysis/cli/frame/save_text.hpp"
#include "core/base/error.hpp"
#include "core/base/read_files.hpp"
#include "core/selectors/artifact.hpp"
#include "core/selectors/calibration_rows.hpp"
#include "core/selectors/learned.hpp"
#include "core/selectors/method_spec.hpp"
#include "core/trace/part.hpp"
#include "traces/reader.hpp"

namespace kvscope::cli {

namespace fs = std::filesystem;

namespace {

class FitCommand final : public Command {
 public:
  CommandCard card() const override {
    return {"fit",
            "calibrate a method on a recording, for runs to load",
            "Some methods learn something about a model before they see a sequence: Kascade its "
            "anchor layers and head map, DuoAttention the gates of its heads, Double Sparsity its "
            "channels, Loki its directions, the indexer its index vectors, ShadowKV how keys "
            "rotate with their positions. The file that fit writes says which recording it comes "
            "from; a run names it with an option of the method (kascade:map=FILE, "
            "duoattention:gates=FILE, doublesparsity:channels=FILE, loki:directions=FILE, "
            "indexer:index=FILE, shadowkv:rotation=FILE). What the indexer learns is good at the "
            "positions of its recording: take one at least as long as what will be run. A sweep "
            "over the same recording that a method learned from carries a warning.",
            {{"kvscope fit kascade:n-anchors=3 verifier.h5 --out anchors.json",
              "three anchors and a head map"},
             {"kvscope sweep other.h5 --selector quest,kascade:map=anchors.json --budget 128",
              "runs load it"}}};
  }
  void declare(OptionSet& options) override {
    options.positional("METHOD", "the method, with its options as NAME:option=value", method_,
                       /*required=*/true);
    options
        .positional("TRACE", "a recording of the model, all layers and heads", trace_,
                    /*required=*/true)
        .of({FileKind::trace});
    options.add("out", "FILE", "the file to write (JSON)", out_)
        .needed("expected a file for what the method learns")
        .short_name = 'o';
    options.flag("overwrite", "replace an existing file", overwrite_);
    work_.declare(options);
    declare_json(options, json_);
  }

  int run(const OptionSet&, const std::string&) override {
    const MethodSpec spec(method_);
    check_method(spec);
    if (out_->string().find_first_of(",+@") != std::string::npos) {
      throw UsageError(
          "--out: expected a name without , + and @, which part methods and options, found {}",
          out_->string());
    }
    // Says what contradicts a file.
    MethodSpec(spec).set(spec.stages().front().caps.artifact_option, out_->string());
    check_new_output(*out_, overwrite_, FileKind::own_json);
    const int n_threads = work_.n_threads();
    const TraceFile text = TraceFile::open(trace_, {});
    refuse_read_file(*out_);
    for (const auto& warning : text.warnings()) note("kvscope: {}: {}", trace_.string(), warning);
    const MethodSpec::Stage& stage = spec.stages().front();
    const std::unique_ptr<Selector> selector = spec.make();
    ThreadPool pool(n_threads);
    const std::vector<Index> layers = full_attention_layers(text, stage.method->name);
    const TracePart like = layers_like(text, layers.front());
    for (const Index layer : layers) {
      if (!like.info().has_layer(layer))
        throw ConfigError(
            "{}: layers {} and {} differ in KV heads, channels or scores, and a method learns from "
            "layers of one shape",
            trace_.string(), layers.front(), layer);
    }
    selector->calibrate(like, layers, pool);
    const Learned learned = selector->learned();
    write_new_file(*out_, artifact_text(stage.method->name, learned, text.info()), overwrite_);
    const std::string use =
        fmt::format("{}:{}={}", stage.name, stage.caps.artifact_option, out_->string());
    if (json_) {
      print_json({{"method", stage.method->name},
                  {"summary", learned.summary},
                  {"trace", {{"uuid", text.info().uuid}, {"hash", text.info().content_hash}}},
                  {"file", out_->string()},
                  {"use", use}});
    } else {
      print("{}: {}\nuse it as --selector {}\n", stage.method->name, learned.summary, use);
    }
    return kOk;
  }

 private:
  static void check_method(const MethodSpec& spec) {
    if (spec.stages().size() != 1) {
      throw ConfigError("fit {}: expected one method, found a stack: fit its stages one by one",
                        spec);
    }
    const MethodSpec::Stage& stage = spec.stages().front();
    const std::string_view option = stage.caps.artifact_option;
    if (option.empty()) {
      std::vector<std::string> able;
      for (const SelectorEntry& entry : selector_registry().entries()) {
        if (!entry.caps.artifact_option.empty()) able.push_back(entry.name);
      }
      throw ConfigError("fit: {} has nothing to learn; methods that have: {}", stage.name,
                        fmt::join(able, ", "));
    }
    if (stage.sets(option))
      throw ConfigError("fit {}: {} names the file that fit makes: leave it out", spec, option);
  }

  std::string method_;
  fs::path trace_;
  std::optional<fs::path> out_;
  bool overwrite_ = false;
  bool json_ = false;
  WorkOptions work_;
};

}  // namespace

KVSCOPE_COMMAND(330, FitCommand)

}  // namespace kvscope::cli
