// Recording by a thread of its own: the same files, errors and guarantees as without.
#include "traces/queued_writer.hpp"

#include "core/base/data_dir.hpp"
#include "tests/support/test.hpp"
#include "tests/traces/synthetic.hpp"
#include "traces/reader.hpp"
#include "traces/recorder.hpp"
#include "traces/recover.hpp"
#include "traces/verify.hpp"

namespace kvscope::test::queued_writer_test {

WriterOptions with_queue(std::size_t bytes = 1 << 20, int n_threads = 3) {
  return WriterOptions{.queue_bytes = bytes, .n_threads = n_threads};
}

TEST_CASE("a file written by a thread of its own has the bytes of any other") {
  Plan plan = plan_of_many_calls();
  plan.dtype = GENERATE(DType::f32, DType::bf16);
  plan.q_heads = GENERATE(std::vector<Index>{0, 1, 2, 3}, std::vector<Index>{0, 3});
  const SyntheticTrace truth = make_trace(plan);
  const TempFolder folder;
  write_all(truth, *create_trace(folder / "a.h5", {}));
  for (const WriterOptions& options : {with_queue(), with_queue(1, 1)}) {  // 1 byte: one at a time
    WriterOptions again = options;
    again.overwrite = true;
    write_all(truth, *create_trace(folder / "b.h5", again));
    CHECK(slurp(folder / "a.h5") == slurp(folder / "b.h5"));
  }
}

TEST_CASE("several threads write the file of one") {
  Plan plan;
  plan.n_prompt = 600;  // rows of a call that are worth threads
  plan.n_decode = 1;
  plan.chunk = 600;
  plan.rows = {0, 601};
  plan.dtype = DType::bf16;
  plan.with_text = false;
  const SyntheticTrace truth = make_trace(plan);
  const TempFolder folder;
  write_all(truth, *create_trace(folder / "a.h5", {}));
  write_all(truth, *create_trace(folder / "b.h5", with_queue()));
  write_all(truth, *create_trace(folder / "c.h5", {.n_threads = 4}));
  CHECK(slurp(folder / "a.h5") == slurp(folder / "b.h5"));
  CHECK(slurp(folder / "a.h5") == slurp(folder / "c.h5"));
}

/// Rounds q, k and v to a storage dtype on their way, as a GPU does, in memory that stays.
class Rounding final : public PassingOn {
 public:
  Rounding(TraceReceiver& to, DType dtype) : PassingOn(to), dtype_(dtype) {}
  void write(const CallRows& rows) override {
    auto memory = std::make_shared<std::vector<Tensor<std::byte>>>();
    CallRows out = rows;
    for (ArrayRows& array : out.arrays) {
      TypedRows& given = std::get<TypedRows>(array.rows);
      if (given.empty()) continue;
      REQUIRE(given.is_contiguous());
      const DType dtype = array.name == std::string("lse") ? DType::f32 : dtype_;
      const Index n = given.shape().count();
      memory->push_back(Tensor<std::byte>::uninitialized({n * static_cast<Index>(size_of(dtype))}));
      std::byte* const to = memory->back().data();
      from_float(reinterpret_cast<const float*>(given.bytes().data()), dtype, to,
                 static_cast<std::size_t>(n));
      given = TypedRows(dtype, to, given.shape());
    }
    held.push_back(memory);
    out.memory = memory;
    to_.write(out);
  }
  std::vector<std::weak_ptr<void>> held;

 private:
  DType dtype_;
};

TEST_CASE("rows that come in the trace's dtype give the file of the floats, and are let go") {
  Plan plan;
  plan.dtype = GENERATE(DType::f32, DType::bf16, DType::f16);
  plan.rows = {3, 22};
  const SyntheticTrace truth = make_trace(plan);
  const TempFolder folder;
  write_all(truth, *create_trace(folder / "a.h5", {}));
  for (const std::size_t queue_bytes : {0u, 1000u}) {
    const auto file =
        create_trace(folder / "b.h5", {.overwrite = true, .queue_bytes = queue_bytes});
    Rounding rounding(*file, plan.dtype);
    write_all(truth, rounding);
    CHECK(slurp(folder / "a.h5") == slurp(folder / "b.h5"));
    for (const auto& memory : rounding.held) CHECK(memory.expired());
  }
}

TEST_CASE("a value that the storage type does not hold is refused when it comes rounded, too") {
  Plan plan;
  plan.dtype = DType::f16;
  SyntheticTrace truth = make_trace(plan);
  truth.layers[1].k(1, 10, 3) = 70000.0f;
  const TempFolder folder;
  const auto file = create_trace(folder / "t.h5", {});
  Rounding rounding(*file, DType::f16);
  CHECK_HAS(message_of([&] { write_all(truth, rounding); }),
            "/layers/1/k: head slot 1, position 10, element 3 is Inf, or a value "
            "which does not fit f16");
}

TEST_CASE("a number that bf16 rounds to infinity is refused") {
  Plan plan;
  plan.dtype = DType::bf16;
  SyntheticTrace truth = make_trace(plan);
  truth.layers[0].v(0, 2, 1) = std::numeric_limits<float>::max();
  const TempFolder folder;
  CHECK_HAS(message_of([&] { write_all(truth, *create_trace(folder / "t.h5", {})); }),
            "/layers/0/v: head slot 0, position 2, element 1 is 3.4",
            "does not fit bf16: record in f32");
}

TEST_CASE("an error while a thread writes is a later call's, with its sentence, and keeps calls") {
  SyntheticTrace truth = make_trace(plan_of_many_calls());
  truth.layers[1].k(1, 17, 3) = NAN;  // in call 4
  const TempFolder folder;
  const fs::path out = folder / "t.h5";
  {
    const auto receiver = create_trace(out, with_queue());
    const std::string said = message_of([&] { write_all(truth, *receiver); });
    CHECK_HAS(said, "/layers/1/k: head slot 1, position 17, element 3 is NaN");
    CHECK(message_of([&] { receiver->finish(TraceStatus::interrupted); }) == said);
    CHECK_HAS(receiver->recovery_hint(), "the 4 calls recorded before are safe", "kvscope recover");
  }
  CHECK_FALSE(fs::exists(out));
  const fs::path kept = folder / "r.h5";
  const RecoverReport report = recover_trace(out.string() + ".part", kept, false);
  CHECK(report.n_calls == 4);
  CHECK(report.n_tokens == 16);
  CHECK(report.n_damaged_calls == 0);
}

TEST_CASE("an error before the first call is whole leaves nothing behind a thread either") {
  SyntheticTrace truth = make_trace(plan_of_many_calls());
  truth.layers[2].v(0, 1, 0) = INFINITY;
  const TempFolder folder;
  const fs::path out = folder / "t.h5";
  {
    const auto receiver = create_trace(out, with_queue());
    CHECK_THROWS_AS(write_all(truth, *receiver), Error);
    CHECK(receiver->recovery_hint() == "no call was whole yet, so nothing is kept");
  }
  for (const char* name : {"t.h5", "t.h5.part"}) CHECK_FALSE(fs::exists(folder / name));
}

TEST_CASE("a recording by a thread says of no call too early that it is safe") {
  const Transformer model = Transformer::load(embedded_draft());
  std::vector<TokenId> prompt;
  for (TokenId t = 0; t < 60; ++t) prompt.push_back(t * 7 % 50);
  const TempFolder folder;
  ThreadPool pool(1);
  RecordOptions options{.chunk = 5, .n_decode = 4};
  const auto record = [&](const fs::path& out, const WriterOptions& writer,
                          const ProgressFn& progress, std::stop_token stop) {
    return record_trace(model, nullptr, prompt, options, *create_trace(out, writer), pool, progress,
                        stop);
  };
  std::int64_t last = 0;
  const auto look = [&](const Progress& p) {
    const fs::path part = folder / "q.h5.part";
    if (fs::exists(part))
      CHECK(TraceFile::open(part, {.allow_partial = true}).info().n_tokens >= p.done);
    last = p.done;
  };
  const RecordReport report = record(folder / "q.h5", with_queue(), look, {});
  CHECK(last == 64);
  CHECK(report.content_hash == record(folder / "s.h5", {}, {}, {}).content_hash);

  // Stopped while rows wait: all that was computed is kept. Long enough for the word to arrive
  // before the model is done.
  options.n_decode = 500;
  std::stop_source stop;
  const RecordReport stopped = record(
      folder / "i.h5", with_queue(),
      [&](const Progress& p) {
        if (p.done >= 20) stop.request_stop();
      },
      stop.get_token());
  CHECK(stopped.status == TraceStatus::interrupted);
  const TraceFile kept = TraceFile::open(folder / "i.h5");
  CHECK(kept.info().n_tokens == stopped.n_prompt + stopped.n_decoded);
  CHECK(kept.info().n_tokens >= 20);
  check_verifies(folder / "i.h5");
}

}  // namespace kvscope::test::queued_writer_test
