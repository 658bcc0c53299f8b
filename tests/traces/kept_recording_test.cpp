// Recordings that are killed and gone on with: the file that would have been, or a sentence.
#include "traces/kept_recording.hpp"

#include <catch2/catch_test_macros.hpp>
#include <catch2/generators/catch_generators.hpp>
#include <catch2/matchers/catch_matchers_string.hpp>
#include <chrono>
#include <cstdlib>
#include <memory>
#include <optional>
#include <random>

#include "core/base/error.hpp"
#include "support/golden.hpp"
#include "tests/traces/synthetic.hpp"
#include "traces/raw_file.hpp"
#include "traces/reader.hpp"
#include "traces/recorder.hpp"
#include "traces/recover.hpp"
#include "traces/verify.hpp"
#include "traces/writer.hpp"

namespace kvscope::test::kept_recording_test {

/// Equal runs give equal bytes.
class FixedTime {
 public:
  FixedTime() { ::setenv("SOURCE_DATE_EPOCH", "1700000000", 1); }
  ~FixedTime() { ::unsetenv("SOURCE_DATE_EPOCH"); }
};

/// A recording that can be killed: its receiver goes away after so many calls, as a process does.
struct Recording {
  std::shared_ptr<const Transformer> shared;
  const Transformer& model = *shared;
  std::vector<TokenId> tokens;
  RecordOptions options;
  std::size_t queue_bytes = 0;
  std::optional<int> gzip_level;

  explicit Recording(const std::string& name)
      : shared(std::make_shared<const Transformer>(Transformer::load(golden_dir() / name))),
        tokens(read_golden_tokens(golden_dir() / name / "golden.h5")) {
    options.chunk = 5;
  }
  std::unique_ptr<TraceReceiver> receiver(const fs::path& out, const WriterOptions& writer) const {
    return create_trace(out, writer);
  }
  /// Stops after n calls, in the way of a kill: nothing is finished.
  RecordReport run(const fs::path& out, std::optional<Index> n_calls = {}) const {
    const KeptRecording kept(out);
    RecordOptions with = options;
    with.kept = &kept;
    WriterOptions writer{
        .kept_calls = kept.n_calls(), .gzip_level = gzip_level, .queue_bytes = queue_bytes};
    const auto to = receiver(out, writer);
    ThreadPool pool(2);
    std::stop_source stop;
    const auto progress = [&](const Progress& at) {
      if (n_calls && at.done >= tokens_of(*n_calls)) stop.request_stop();
    };
    if (n_calls == 0) stop.request_stop();
    return record_trace(model, nullptr, tokens, with, *to, pool, progress, stop.get_token());
  }
  void kill(const fs::path& out, Index n_calls) const {
    CHECK_THROWS_AS(run(out, n_calls), Interrupted);
  }
  Index tokens_of(Index n_calls) const {
    const TraceInfo plan =
        plan_recording(model.config(), static_cast<Index>(tokens.size()), options);
    return n_calls == 0 ? 0 : plan.calls[n_calls - 1].tokens.end;
  }
  Index n_calls() const {
    return static_cast<Index>(
        plan_recording(model.config(), static_cast<Index>(tokens.size()), options).calls.size());
  }
};

/// True if both folders have the same files with the same bytes, which are nothing to print.
bool are_equal(const TempFolder& a, const TempFolder& b) {
  if (a.n_files() != b.n_files()) return false;
  for (const auto& entry : fs::directory_iterator(a / "")) {
    const std::string name = entry.path().filename().string();
    if (!fs::exists(b / name) || slurp(entry.path()) != slurp(b / name)) return false;
  }
  return true;
}

bool is_same(const fs::path& file, const std::string& bytes) {
  return slurp(file) == bytes;
}

TEST_CASE("a recording that is killed again and again becomes the file of one that is not") {
  const FixedTime time;
  Recording recording(GENERATE("llama3_gqa", "mistral_window", "gpt_oss", "gemma2", "qwen3_moe"));
  const std::size_t queue_bytes = GENERATE(0, 1 << 20);
  recording.options.n_decode = 4;
  recording.options.capture.stats = recording.options.capture.logits = true;
  recording.options.capture.k_pre_rope = recording.model.config().rope.theta > 0;
  recording.options.capture.attn_topk = 3;
  const TempFolder folder, whole;
  recording.run(whole / "t.h5");
  const fs::path out = folder / "t.h5";
  std::mt19937 random(7);
  int n_kills = 0;
  // With a thread that writes, the model is ahead of what is known to be safe.
  for (Index at = 1; at < recording.n_calls() && !fs::exists(out);
       at += 1 + static_cast<Index>(random() % 3)) {
    recording.queue_bytes = n_kills % 2 == 0 ? 0 : queue_bytes;
    try {
      recording.run(out, at);
    } catch (const Interrupted&) {
      ++n_kills;
    }
  }
  CHECK(n_kills > 0);
  if (!fs::exists(out)) {
    const RecordReport report = recording.run(out);
    CHECK(report.n_kept > 0);
    CHECK(report.n_kept + report.n_prompt + report.n_decoded ==
          recording.tokens_of(recording.n_calls()));
  }
  CHECK(are_equal(folder, whole));
}

TEST_CASE("every place at which a recording may have been killed") {
  const FixedTime time;
  Recording recording("llama3_gqa");
  recording.options.n_decode = 3;
  if (GENERATE(false, true)) recording.gzip_level = 1;
  const TempFolder folder;
  recording.run(folder / "whole.h5");
  const std::string whole = slurp(folder / "whole.h5");
  for (Index n = 1; n < recording.n_calls(); ++n) {
    INFO(n << " calls");
    recording.kill(folder / "cut.h5", n);
    recording.run(folder / "cut.h5");
    CHECK(is_same(folder / "cut.h5", whole));
    fs::remove(folder / "cut.h5");
  }
  if (recording.gzip_level) return;
  // After the last one.
  fs::rename(folder / "whole.h5", folder / "cut.h5.part");
  CHECK(recording.run(folder / "cut.h5").n_prompt == 0);
  CHECK(is_same(folder / "cut.h5", whole));
}

TEST_CASE("calls that a kill has damaged are recorded again") {
  const FixedTime time;
  Recording recording("llama3_gqa");
  const TempFolder folder;
  recording.run(folder / "whole.h5");
  recording.kill(folder / "cut.h5", 3);
  const auto k = TraceFile::open(folder / "whole.h5").read_k(1, 0, {11, 12});  // of the third call
  damage(folder / "cut.h5.part", k(Index{0}, Index{0}));
  CHECK(KeptRecording(folder / "cut.h5").n_calls() == 2);
  recording.run(folder / "cut.h5");
  CHECK(is_same(folder / "cut.h5", slurp(folder / "whole.h5")));
}

TEST_CASE("what another model, text, option or program began is refused, and stays") {
  Recording recording("llama3_gqa");
  recording.options.origin.model_hash = "xxh128:of this one";
  const TempFolder folder;
  const fs::path out = folder / "cut.h5";
  recording.kill(out, 2);
  const std::string before = slurp(part_path(out));
  const auto refused = [&](const std::function<void(Recording&)>& change, const std::string& says) {
    Recording other = recording;
    change(other);
    const std::string said = message_of<ConfigError>([&] { other.run(out); });
    CHECK_HAS(said, says);
    CHECK(said.find('\n') == std::string::npos);
    CHECK(is_same(part_path(out), before));
  };
  refused([](Recording& r) { r.options.origin.model_hash = "xxh128:of another"; }, "of the model");
  refused([](Recording& r) { r.options.origin.writer = "kvscope 0.0.1 (another)"; }, "written by");
  refused([](Recording& r) { r.options.chunk = 6; }, "in chunks of 5, and this is 6");
  refused([](Recording& r) { r.options.n_decode = 1; }, "tokens");
  refused([](Recording& r) { r.options.capture.stats = true; }, "of other arrays");
  refused([](Recording& r) { r.options.rows = TokenRange{1, 4}; }, "--rows");
  refused([](Recording& r) { r.options.origin.matmul = "bf16"; }, "computed in");
  refused([](Recording& r) { r.tokens.back() = (r.tokens.back() + 1) % 7; }, "of another text");
  refused([](Recording& r) { r.tokens.front() = (r.tokens.front() + 1) % 7; }, "of another text");
  refused([](Recording& r) { r.options.dtype = DType::bf16; }, "rounded");
  refused([](Recording& r) { r.options.layers = {0}; }, "some layers");
  refused([](Recording& r) { r.options.capture.qkv = false; }, "no keys and values");
  spill(part_path(out), "a text of somebody else's");
  CHECK(message_of([&] { recording.run(out); }) != "no error");
  CHECK(slurp(part_path(out)) == "a text of somebody else's");
}

TEST_CASE("a file that is being recorded is not gone on with") {
  Recording recording("llama3_gqa");
  const TempFolder folder;
  recording.kill(folder / "cut.h5", 2);
  RawFile other = RawFile::open(folder / "cut.h5.part");
  other.lock_as_recorder();
  CHECK_HAS(message_of([&] { recording.run(folder / "cut.h5"); }),
            "is being recorded by another process");
}

TEST_CASE("what a kill left of a layout goes with a later recording") {
  const Recording recording("llama3_gqa");
  const TempFolder folder;
  const fs::path left = folder / "r.h5.0123456789abcdef.part";
  spill(left, "half a layout");
  fs::last_write_time(left, fs::last_write_time(left) - std::chrono::hours(2));
  recording.run(folder / "r.h5");
  CHECK(!fs::exists(left));
}

}  // namespace kvscope::test::kept_recording_test
