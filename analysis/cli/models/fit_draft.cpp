// kvscope fit draft: a draft model from a verifier's own first layers, and how often the verifier
// takes what it proposes.
#include <fmt/format.h>

#include <filesystem>

#include "analysis/cli/frame/command.hpp"
#include "analysis/cli/frame/common_options.hpp"
#include "analysis/cli/frame/filled_text.hpp"
#include "analysis/cli/frame/output.hpp"
#include "analysis/cli/models/model_source.hpp"
#include "analysis/cli/models/prompt.hpp"
#include "analysis/fit/draft_folder.hpp"
#include "core/base/error.hpp"
#include "core/base/json.hpp"
#include "core/base/version.hpp"

namespace kvscope::cli {

namespace fs = std::filesystem;

namespace {

constexpr std::string_view kWhat =
    "early exit: the verifier's first layers, and a head fitted by "
    "ridge regression to its final states (no training)";

class FitDraftCommand final : public Command {
 public:
  CommandCard card() const override {
    return {
        "fit draft",
        "a draft for speculative decoding from a model's own first layers",
        "SpecAttn and speculative decoding need a draft with the verifier's tokenizer. This one "
        "is an early exit: the verifier's embedding and first --layers layers, and a head that "
        "is the verifier's times one matrix, fitted in closed form (ridge regression of the "
        "last layer's normed state on that of layer N; the ridge is chosen on held-out "
        "windows). Nothing is trained. The folder is an ordinary model of the same family; its "
        "config.json says under kvscope_draft what it is. Printed is how often the verifier "
        "takes what the draft proposes on tokens behind those that were read, for the fitted "
        "draft and for the plain early exit with the verifier's own norm and head: greedy "
        "(same likeliest token) and sampled (the sum of min(p, q) at temperature 1). kvscope "
        "simulate speculative --draft DIR measures whole runs.",
        {{"kvscope fit draft --model ~/models/SmolLM2-135M --n-layers 4 --out smol-draft",
          "the first four layers"},
         {"kvscope simulate speculative --model ~/models/SmolLM2-135M --draft smol-draft "
          "--selector full,specattn --budget p=0.97",
          "what it is worth"}}};
  }
  void declare(OptionSet& options) override {
    options.add("model", "MODEL", kModelHelp, model_).kind = ValueKind::model;
    options.add("n-layers", "N", "layers of the draft, fewer than the model has", fit_.n_layers);
    options.add("text", "FILE", "UTF-8 text to fit and to measure on [embedded book]", text_);
    options.add("max-tokens", "N", "tokens of it to fit on", n_fit_, at_least(1));
    options.add("held-out", "N", "tokens behind those to measure on", n_held_out_, at_least(2));
    options.add("window", "N", "tokens that are read at a time, each stretch from position 0",
                fit_.window, at_least(2));
    options.add("out", "DIR", "the folder to write", out_)
        .needed("expected a folder for the draft")
        .short_name = 'o';
    options.flag("overwrite", "replace the files of an existing folder", overwrite_);
    work_.declare(options);
    declare_json(options, json_);
  }

  int run(const OptionSet&, const std::string& command_line) override {
    check();
    const fs::path dir = model_dir(model_);
    const Transformer verifier = load_transformer(dir, {});
    const Tokenizer tokenizer = load_tokenizer(dir);
    as_usage([&] { return first_layers(verifier.config(), fit_.n_layers); });
    PromptOptions source{.text = text_, .max_tokens = n_fit_ + n_held_out_, .no_special = true};
    const Prompt text = source.load(&tokenizer);
    if (static_cast<Index>(text.ids.size()) < n_fit_ + n_held_out_) {
      throw UsageError(
          "{} has {} tokens: expected {} to fit on (--max-tokens) and {} to measure "
          "on (--held-out)",
          text.source, text.ids.size(), n_fit_, n_held_out_);
    }
    const std::span<const TokenId> ids(text.ids);
    const auto to_fit = ids.first(static_cast<std::size_t>(n_fit_));
    const auto held_out = ids.subspan(static_cast<std::size_t>(n_fit_));

    Working run(work_);
    const DraftFit fit = fit_draft(dir, to_fit, fit_, run.pool, run.progress, run.stop);
    const DraftAcceptance plain = measure_acceptance(verifier, plain_exit(dir, verifier.config()),
                                                     held_out, fit_.window, run.pool, run.stop);
    const Json about = {{"what", kWhat},
                        {"of", model_name(dir)},
                        {"model_hash", hash_of_model(dir, verifier)},
                        {"layers", fit_.n_layers},
                        {"text", text.source},
                        {"tokens", fit.n_tokens},
                        {"ridge", fit.ridge},
                        {"command_line", command_line},
                        {"writer", writer_name()}};
    write_draft(dir, fit_.n_layers, fit, json_text(about), *out_, overwrite_);
    // What was written is what is measured.
    const DraftAcceptance fitted = measure_acceptance(verifier, load_transformer(*out_, {}),
                                                      held_out, fit_.window, run.pool, run.stop);
    tell(about, fit, plain, fitted);
    return kOk;
  }

 private:
  void check() const {
    if (fs::exists(*out_) && !overwrite_)
      throw IoError("{} exists: --overwrite replaces the files of a draft in it", out_->string());
  }

  /// The same layers with the verifier's own norm and head.
  Transformer plain_exit(const fs::path& dir, const ModelConfig& config) const {
    return {first_layers(config, fit_.n_layers), WeightFiles::open(dir)};
  }

  void tell(const Json& about, const DraftFit& fit, const DraftAcceptance& plain,
            const DraftAcceptance& fitted) const {
    const auto row = [](const char* name, const DraftAcceptance& acceptance, double error) {
      return Json{{"draft", name},
                  {"greedy", acceptance.greedy},
                  {"sampled", acceptance.sampled},
                  {"relative_error", error}};
    };
    const Json rows = {row("fitted head", fitted, fit.fitted_error),
                       row("plain early exit", plain, fit.plain_error)};
    if (json_) {
      print_json({{"folder", out_->string()},
                  {"draft", about},
                  {"held_out_tokens", fitted.n_tokens},
                  {"fitted", rows[0]},
                  {"plain_exit", rows[1]}});
      return;
    }
    print(
        "{}fit draft: {} of {} in {} (ridge {}, {} tokens read, {} measured)\n",
        filled_table(rows, {{"draft", "{draft}"},
                            {"accepted, greedy", "{greedy:%}"},
                            {"accepted, sampled", "{sampled:%}"},
                            {"error of the final state", "{relative_error:%}"}}),
        fit_.n_layers == 1 ? "the first layer" : fmt::format("the first {} layers", fit_.n_layers),
        about.at("of").get<std::string>(), out_->string(), fit.ridge, fit.n_tokens,
        fitted.n_tokens);
  }

  std::string model_ = "verifier";
  DraftFitOptions fit_;
  std::optional<fs::path> text_;
  std::optional<fs::path> out_;
  Index n_fit_ = 8192;
  Index n_held_out_ = 1024;
  bool overwrite_ = false;
  bool json_ = false;
  WorkOptions work_;
};

}  // namespace

KVSCOPE_COMMAND(470, FitDraftCommand)

}  // namespace kvscope::cli
