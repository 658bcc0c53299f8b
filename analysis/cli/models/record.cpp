// kvscope record: runs a model over a text and writes what its attention layers saw.
#include <fmt/format.h>
#include <sys/ioctl.h>
#include <unistd.h>

#include <algorithm>
#include <filesystem>

#include "analysis/base/number_formats.hpp"
#include "analysis/cli/frame/command.hpp"
#include "analysis/cli/frame/common_options.hpp"
#include "analysis/cli/frame/output.hpp"
#include "analysis/cli/frame/save_text.hpp"
#include "analysis/cli/frame/signals.hpp"
#include "analysis/cli/models/capture_options.hpp"
#include "analysis/cli/models/chat_prompt.hpp"
#include "analysis/cli/models/model_advice.hpp"
#include "analysis/cli/models/model_source.hpp"
#include "analysis/cli/models/prompt.hpp"
#include "core/base/error.hpp"
#include "core/base/json.hpp"
#include "core/base/number_text.hpp"
#include "core/base/read_files.hpp"
#include "core/base/shell_word.hpp"
#include "core/base/version.hpp"
#include "traces/kept_recording.hpp"
#include "traces/raw_file.hpp"
#include "traces/score_rounding.hpp"
#include "traces/writer.hpp"

namespace kvscope::cli {

namespace fs = std::filesystem;

namespace {

constexpr double kDenseWarningBytes = 1024.0 * 1024.0 * 1024.0;

// Bytes of the dense attention maps: [layers, q_heads, rows, n_tokens] floats.
double dense_bytes(const TraceInfo& plan) {
  if (!plan.capture.attn_dense) return 0;
  return 4.0 * static_cast<double>(plan.layers.size()) * static_cast<double>(plan.q_heads.size()) *
         static_cast<double>(plan.rows.size()) * static_cast<double>(plan.n_tokens);
}

fs::path folder_of(const fs::path& file) {
  return file.has_parent_path() ? file.parent_path() : fs::path(".");
}

class RecordCommand final : public Command {
 public:
  CommandCard card() const override {
    return {
        "record",
        "run a model and record q, k, v and more to an HDF5 trace",
        "Runs the model over the prompt in chunks (prefill), then --decode greedy steps, and "
        "writes what each attention layer saw: q and k after RoPE, v, and the log-sum-exp of "
        "the scores. Without arguments other than the output: the embedded verifier on the "
        "embedded book.\n"
        "The file grows as FILE.part and gets its name at the end. Ctrl-C leaves a valid file "
        "marked as interrupted; after a kill, kvscope recover FILE.part keeps what was "
        "written. With --resume nothing is begun anew: after a kill, a full disk or Ctrl-C the "
        "same command goes on behind the last whole chunk, and the trace is what it would have "
        "been; of a whole trace it says that it is complete. It needs the keys and values of all "
        "layers and heads as the model computes them: "
        "--dtype f32, or on a GPU --kv-dtype bf16 --dtype bf16.",
        {{"kvscope record trace.h5", "the embedded verifier on 4096 tokens of the embedded book"},
         {"kvscope record --model ~/models/Qwen3-0.6B --text essay.txt --decode 32 --dtype bf16 -o "
          "essay.h5",
          "a checkpoint folder from the Hugging Face hub, stored as bfloat16"},
         {"kvscope record --model draft --tokens trace.h5 -o draft.h5",
          "another model on exactly the tokens of a trace (for analyze layer-map)"},
         {"kvscope record small.h5 --max-tokens 512 --capture attn,logits --layers 0,4-7",
          "dense attention maps and logits of some layers"},
         {"kvscope record --plan --text long.txt --dtype bf16 -o long.h5",
          "how large it would get; nothing is run"},
         {"kvscope record --resume --text long.txt -o long.h5",
          "on a machine that may take it away: start the same command until it ends well"}}};
  }
  void declare(OptionSet& options) override {
    options.positional("OUT", "the trace to write (the same as --out)", out_argument_,
                       /*required=*/false);
    options.add("out", "FILE", "the trace to write", out_option_).short_name = 'o';
    options.exclude({"OUT", "out"}, ": the output is named twice");
    options.add("model", "MODEL", kModelHelp, model_).kind = ValueKind::model;
    prompt_.declare(options);
    options.add("decode", "N",
                "greedy decode steps after the prompt; with --chat, up to the end of the answer",
                n_decode_, at_least(0));
    options.flag("past-end", "with --chat: decode on behind the end of the answer", past_end_);
    options.need({"past-end"}, {"chat"});
    capture_.declare(options);
    options.add("seed", "N", "recorded as provenance; greedy decoding draws no numbers", seed_);
    options.flag("plan", "say what would be recorded and how many bytes it takes, and end", plan_);
    options.flag("overwrite", "replace an existing file", overwrite_);
    options.flag("strict",
                 "refuse a model with settings or tensors that nothing here reads, instead of "
                 "naming them",
                 strict_);
    options.flag("resume",
                 "go on with the OUT.part of an earlier run of the same command, if there is one; "
                 "Ctrl-C then leaves it for the next run",
                 resume_);
    options.flag("yes",
                 "write even if the size is alarming (full disk, dense attention beyond 1 GiB)",
                 yes_);
    engine_.declare_for_recording(options);
    work_.declare(options);
    declare_json(options, json_);
  }

  int run(const OptionSet&, const std::string& command_line) override {
    const fs::path out = output_file();
    RecordOptions options = capture_.record_options();
    const WriterOptions writer_options = capture_.writer_options(overwrite_);
    const int n_threads = work_.n_threads();
    engine_.check();  // refuses what there is not before anything is loaded

    // The prompt
    const fs::path dir = model_dir(model_);
    const ModelConfig config = load_config(dir);
    std::optional<Tokenizer> tokenizer;
    load_tokenizer_if_needed(dir, tokenizer);
    const Prompt prompt = prompt_.load(tokenizer ? &*tokenizer : nullptr, dir);
    check_prompt(prompt, config);
    refuse_read_file(out);

    // The plan, and whether there is room for it
    options.n_decode = n_decode_;
    if (prompt_.chat && !past_end_) options.end_ids = end_of_turn_ids(dir, config, *tokenizer);
    if (n_decode_ > 0) tell_unapplied(dir);
    options.origin.seed = seed_;
    options.origin.model_name = model_name(dir);
    options.origin.model_config = config_json_of(dir);
    options.origin.text_source = prompt.source;
    options.origin.command_line = command_line;
    options.origin.writer = writer_name();
    const NumberFormats formats = engine_.number_formats();
    if (!formats.are_f32()) {
      options.origin.matmul = formats.matmul;
      options.origin.kv_dtype = formats.kv_dtype;
    }
    const TraceInfo plan = plan_recording(config, static_cast<Index>(prompt.ids.size()), options);
    if (resume_ && capture_.is_auto())
      throw UsageError("--resume: needs a --dtype by name, found auto");
    if (const std::string reason = why_not_resumable(plan); resume_ && !reason.empty())
      throw UsageError("--resume: this recording could not be gone on with: {}", reason);
    const std::int64_t estimate = estimated_file_bytes(plan);
    announce(plan, prompt, estimate, out);
    if (plan_) return tell_plan(plan, estimate);
    check_size(plan, estimate, out);

    // The run
    const Transformer model = load_transformer(dir, engine_, strict_);
    // On a GPU the keys may not fit: that is found before a file is begun.
    if (engine_.is_on_gpu()) model.make_store(plan.n_tokens);
    options.origin.model_hash = hash_of_model(dir, model);
    Working run(work_);
    if (capture_.is_auto() && options.capture.qkv)
      options.dtype = chosen_dtype(model, prompt, plan, run.pool);
    WriterOptions stopping = writer_options;
    stopping.stop = run.stop;
    std::optional<KeptRecording> kept;
    if (resume_) {
      kept.emplace(out, run.progress, run.stop, /*or_whole=*/!overwrite_);
      options.kept = &*kept;
      stopping.kept_calls = kept->n_calls();
      stopping.overwrite = stopping.overwrite || kept->is_complete();  // nothing is written then
      if (kept->n_calls() > 0 && !kept->is_complete())
        note("going on behind the {} tokens of {}", kept->n_tokens(), part_path(out).string());
    }
    if (engine_.is_on_gpu()) stopping.write_beside(n_threads);
    const auto receiver = create_trace(out, stopping);
    const RecordReport report = record_trace(model, tokenizer ? &*tokenizer : nullptr, prompt.ids,
                                             options, *receiver, run.pool, run.progress, run.stop);
    if (kept && kept->is_complete()) {
      note("{} is complete: nothing was left to record", out.string());
      return json_ ? tell(report, plan, out, n_threads) : kOk;
    }
    if (writer_options.gzip_level && run.stop.stop_requested())
      note("stopped: what is kept is not compressed");
    if (report.has_ended && report.n_kept + report.n_prompt + report.n_decoded < plan.n_tokens)
      note("the answer ended before {} decode steps; --past-end goes on", n_decode_);
    tell_rounding(report, plan, options.dtype);
    return tell(report, plan, out, n_threads);
  }

 private:
  /// What --dtype auto means for this text, which it says.
  static DType chosen_dtype(const Transformer& model, const Prompt& prompt, const TraceInfo& plan,
                            ThreadPool& pool) {
    const ChosenDType chosen = choose_dtype(model, prompt.ids, plan, pool);
    note(
        "--dtype auto: {} (f16 moves scores of the first chunk by at most {:.2g} nats, bf16 by "
        "{:.2g}; {} are allowed)",
        enum_name(chosen.dtype), chosen.moved_f16, chosen.moved_bf16, kMostMoved);
    return chosen.dtype;
  }
  /// Settings of generation that are not applied.
  void tell_unapplied(const fs::path& dir) const {
    const std::string not_applied = unapplied_generation(dir);
    if (not_applied.empty()) return;
    const std::string remark = fmt::format(
        "{}: generation_config.json has {}, which is not applied here: tokens are the likeliest "
        "ones, and may be others elsewhere",
        model_name(dir), not_applied);
    if (strict_) throw FormatError("{}; without --strict this is a remark", remark);
    note("kvscope: {}", remark);
  }

  /// Given ids, a tokenizer only gives the trace its tokens' texts.
  void load_tokenizer_if_needed(const fs::path& dir, std::optional<Tokenizer>& tokenizer) const {
    try {
      tokenizer.emplace(load_tokenizer(dir));
    } catch (const Error& error) {
      if (!prompt_.has_ids()) throw;
      if (!has_tokenizer(dir)) return;
      note("no token texts in the trace: {}", error.what());
    }
  }

  fs::path output_file() const {
    if (!out_argument_ && !out_option_)
      throw UsageError("no output: name the file to write, as in kvscope record trace.h5");
    const fs::path out = out_argument_ ? *out_argument_ : *out_option_;
    if (out == "-") throw UsageError("a trace cannot go to standard output; name a file");
    if (fs::is_directory(out))
      throw IoError("{} is a folder, expected the name of a file", out.string());
    if (!fs::is_directory(folder_of(out))) {
      throw IoError("no folder {} to write {} into", folder_of(out).string(),
                    out.filename().string());
    }
    // With --resume a whole trace may be there: the model's hash tells whether it is this one.
    check_new_output(out, overwrite_ || (resume_ && !fs::exists(part_path(out))), FileKind::trace);
    if (out.extension() != ".h5")
      throw UsageError(
          "OUT: expected the name of a trace, which ends in .h5, found {}; a model is named by "
          "--model, a text's file by --text, a text itself by --prompt",
          shell_word(out.string()));
    return out;
  }

  void check_prompt(const Prompt& prompt, const ModelConfig& config) const {
    for (std::size_t i = 0; i < prompt.ids.size(); ++i) {
      if (prompt.ids[i] < 0 || prompt.ids[i] >= config.n_vocab) {
        throw FormatError("{}: token {} has id {}, but the model {} knows ids 0 to {}",
                          prompt.source, i, prompt.ids[i], model_, config.n_vocab - 1);
      }
    }
    const auto n = static_cast<Index>(prompt.ids.size());
    if (n + n_decode_ > config.max_positions) {
      const std::string decode =
          n_decode_ > 0 ? fmt::format(" and {} decode steps", n_decode_) : "";
      throw UsageError(
          "{} tokens of {}{} exceed the model's context of {} positions; --max-tokens "
          "{} cuts the prompt",
          n, prompt.source, decode, config.max_positions,
          std::max<Index>(config.max_positions - n_decode_, 1));
    }
  }

  void announce(const TraceInfo& plan, const Prompt& prompt, std::int64_t estimate,
                const fs::path& out) const {
    if (prompt.embedded && !prompt_.max_tokens && plan.n_prompt < prompt.n_available) {
      note("using the first {} of {} tokens of the embedded book {} (--max-tokens changes that)",
           plan.n_prompt, prompt.n_available, prompt.source);
    }
    int n_waiting = 0;
    if (prompt.embedded && has_standard_input() &&
        ::ioctl(STDIN_FILENO, FIONREAD, &n_waiting) == 0 && n_waiting > 0)
      note("kvscope: standard input is not read: --text - takes it in place of the embedded book");
    note("{}: {} layers, {} query heads, {} KV head{}, {} tokens + {} decode steps; about {} in {}",
         plan.model_name, plan.layers.size(), plan.q_heads.size(), plan.kv_heads.size(),
         plan.kv_heads.size() == 1 ? "" : "s", plan.n_prompt, n_decode_,
         bytes_text(static_cast<double>(estimate)), out.string());
  }

  int tell_plan(const TraceInfo& plan, std::int64_t estimate) const {
    if (json_)
      print_json({{"kind", "record-plan"},
                  {"model", plan.model_name},
                  {"n_layers", plan.layers.size()},
                  {"n_tokens", plan.n_tokens},
                  {"bytes", estimate}});
    return kOk;
  }

  void check_size(const TraceInfo& plan, std::int64_t estimate, const fs::path& out) const {
    if (yes_) return;
    const double dense = dense_bytes(plan);
    if (dense > kDenseWarningBytes) {
      throw UsageError(
          "dense attention of {} tokens takes {:.1f} GiB; --yes writes it, --capture "
          "attn-topk=N keeps the largest N of each row",
          plan.n_tokens, dense / kDenseWarningBytes);
    }
    std::error_code error;
    const fs::space_info space = fs::space(folder_of(out), error);
    const bool is_begun = resume_ && fs::exists(part_path(out));  // and has some of its room
    if (!error && !is_begun &&
        static_cast<double>(estimate) > static_cast<double>(space.available)) {
      throw WriteRefused("the trace needs about {} and {} has {} left; --yes tries all the same",
                         bytes_text(static_cast<double>(estimate)), folder_of(out).string(),
                         bytes_text(static_cast<double>(space.available)));
    }
  }

  int tell(const RecordReport& report, const TraceInfo& plan, const fs::path& out,
           int n_threads) const {
    const bool interrupted = report.status == TraceStatus::interrupted;
    const double seconds = report.prefill_seconds + report.decode_seconds;
    if (json_) {
      print_json({{"file", out.string()},
                  {"status", std::string(enum_name(report.status))},
                  {"model", plan.model_name},
                  {"n_kept", report.n_kept},
                  {"n_prompt", report.n_prompt},
                  {"n_decoded", report.n_decoded},
                  {"n_layers", plan.layers.size()},
                  {"prefill_seconds", report.prefill_seconds},
                  {"decode_seconds", report.decode_seconds},
                  {"prefill_tokens_per_second", rate(report.n_prompt, report.prefill_seconds)},
                  {"decode_tokens_per_second", rate(report.n_decoded, report.decode_seconds)},
                  {"bytes_written", report.bytes_written},
                  {"threads", n_threads},
                  {"content_hash", report.content_hash}});
    } else {
      const std::string before =
          report.n_kept > 0 ? fmt::format("{} tokens of before + ", report.n_kept) : "";
      note("{} {}: {}{} tokens + {} decoded in {}, {}", interrupted ? "interrupted, kept" : "wrote",
           out.string(), before, report.n_prompt, report.n_decoded, seconds_text(seconds),
           bytes_text(static_cast<double>(report.bytes_written)));
    }
    if (!interrupted) return kOk;
    const int code = StopOnSignal::exit_code();
    return code != 0 ? code : static_cast<int>(kInterrupted);
  }

  /// Names the layer whose scores storing may have moved most, where that is much.
  void tell_rounding(const RecordReport& report, const TraceInfo& plan, DType dtype) const {
    constexpr float kMuch = 1.0F;  // nats; the bound is some times what happens
    const std::vector<float>& moved = report.moved_scores;
    const auto most = std::ranges::max_element(moved);
    if (most == moved.end() || !(*most > kMuch)) return;
    note(
        "layer {}: storing in {} may move scores by up to {:.2g} nats; f32 moves none, and --dtype "
        "auto chooses a type that moves none by more than {}",
        plan.layers[static_cast<std::size_t>(most - moved.begin())], enum_name(dtype), *most,
        kMostMoved);
  }

  static Json rate(Index n, double seconds) {
    if (n == 0 || !(seconds > 0)) return nullptr;
    return static_cast<double>(n) / seconds;
  }

  std::optional<fs::path> out_argument_;
  std::optional<fs::path> out_option_;
  std::string model_ = "verifier";
  PromptOptions prompt_;
  CaptureOptions capture_;
  Index n_decode_ = 0;
  std::int64_t seed_ = 0;
  bool plan_ = false;
  bool overwrite_ = false;
  bool past_end_ = false;
  bool resume_ = false;
  bool strict_ = false;
  bool yes_ = false;
  bool json_ = false;
  EngineOptions engine_;
  WorkOptions work_;
};

}  // namespace

KVSCOPE_COMMAND(110, RecordCommand)

}  // namespace kvscope::cli
