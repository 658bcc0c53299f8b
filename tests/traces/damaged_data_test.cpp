// One flipped bit anywhere in the numbers of a trace: whoever reads them gets a sentence,
// not other numbers.
#include <cstring>
#include <functional>

#include "tests/support/test.hpp"
#include "tests/traces/synthetic.hpp"
#include "traces/copy.hpp"
#include "traces/layout.hpp"
#include "traces/reader.hpp"
#include "traces/writer.hpp"

namespace kvscope::test::damaged_data_test {

Plan full_plan() {
  Plan plan;
  plan.capture.attn_dense = true;
  plan.capture.attn_topk = 4;
  plan.capture.logits = true;
  plan.capture.stats = true;
  return plan;
}

/// Flips one bit of an array's stored bytes.
void flip(const fs::path& file, const std::string& array, std::size_t at_byte,
          bool of_checksums = false) {
  std::uint64_t offset = 0;
  {
    const TraceLayout layout = open_layout(h5::File::open(file));
    const std::size_t i = layout.find(array).value();
    offset = (of_checksums ? layout.checksums(i) : layout.data(i)).file_offset().value();
  }
  std::string bytes = slurp(file);
  bytes[offset + at_byte] ^= 4;
  spill(file, bytes);
}

TEST_CASE("a flipped bit in the data of a trace is found by whoever reads it") {
  const SyntheticTrace truth = make_trace(full_plan());
  struct Case {
    const char* array;
    std::function<void(const TraceFile&)> read;
    std::function<void(const TraceFile&)> read_elsewhere;  // another head or layer: good data
  };
  const TokenRange all{0, 24};
  const Case cases[] = {
      {"/layers/1/q", [&](const TraceFile& t) { t.read_q(1, 0, all); },
       [&](const TraceFile& t) { t.read_q(1, 1, all); }},
      {"/layers/1/k", [&](const TraceFile& t) { t.read_k(1, 0, all); },
       [&](const TraceFile& t) { t.read_k(1, 1, all); }},
      {"/layers/2/v", [&](const TraceFile& t) { t.read_v(2, 0, all); },
       [&](const TraceFile& t) { t.read_v(1, 0, all); }},
      {"/layers/0/lse", [&](const TraceFile& t) { t.read_lse(0, 0, all); },
       [&](const TraceFile& t) { t.read_lse(0, 3, all); }},
      {"/layers/0/attn", [&](const TraceFile& t) { t.read_attn(0, 0, all); },
       [&](const TraceFile& t) { t.read_attn(0, 1, all); }},
      {"/layers/0/topk_pos", [&](const TraceFile& t) { t.read_topk(0, 0, all); },
       [&](const TraceFile& t) { t.read_topk(0, 1, all); }},
      {"/layers/0/topk_prob", [&](const TraceFile& t) { t.read_topk(0, 0, all); },
       [&](const TraceFile& t) { t.read_topk(0, 1, all); }},
      {"/layers/0/stats/q_norm", [&](const TraceFile& t) { t.read_stat("q_norm", 0, 0, all); },
       [&](const TraceFile& t) { t.read_stat("q_norm", 0, 1, all); }},
      {"/layers/0/stats/k_norm", [&](const TraceFile& t) { t.read_stat("k_norm", 0, 0, all); },
       [&](const TraceFile& t) { t.read_stat("k_norm", 0, 1, all); }},
      {"/logits", [&](const TraceFile& t) { t.read_logits(all); },
       [&](const TraceFile& t) { t.read_q(0, 0, all); }},
  };
  for (const Case& c : cases) {
    INFO(c.array);
    const TempFolder folder;
    const fs::path file = folder / "t.h5";
    write_all(truth, *create_trace(file, {}));
    flip(file, c.array, /*at_byte=*/0);
    const TraceFile trace = TraceFile::open(file);
    CHECK_NOTHROW(c.read_elsewhere(trace));
    const std::string said = message_of<FormatError>([&] { c.read(trace); });
    CHECK_THAT(said,
               has(c.array) && has(file.string()) &&
                   (has("call 0 (tokens 0 to 8), head slot 0: the data do not have the recorded "
                        "checksum") ||
                    has("which it cannot see")));
    CHECK(message_of<FormatError>([&] { c.read(trace); }) == said);  // and again
    const TraceFile careless = TraceFile::open(file, {.check_data = false});
    if (std::string(c.array) != "/layers/0/topk_pos") CHECK_NOTHROW(c.read(careless));
  }
}

TEST_CASE("a read of a few rows finds damage in the piece that they belong to, and only in it") {
  const TempFolder folder;
  const fs::path file = folder / "t.h5";
  write_all(make_trace(full_plan()), *create_trace(file, {}));
  flip(file, "/layers/1/k", /*at_byte=*/9 * 8 * 4);  // KV head 0, token 9: call 1, tokens 8 to 16
  const TraceFile trace = TraceFile::open(file);
  CHECK_NOTHROW(trace.read_k(1, 0, {0, 8}));
  CHECK_NOTHROW(trace.read_k(1, 0, {3, 5}));
  CHECK_NOTHROW(trace.read_k(1, 0, {16, 24}));
  CHECK_NOTHROW(trace.read_k(1, 0, {20, 23}));
  for (const TokenRange range :
       {TokenRange{9, 10}, {12, 13}, {7, 9}, {15, 17}, {0, 24}, {8, 16}, {10, 22}}) {
    INFO(range.begin << " to " << range.end);
    CHECK_HAS(message_of<FormatError>([&] { trace.read_k(1, 0, range); }),
              "call 1 (tokens 8 to 16)");
  }
}

TEST_CASE(
    "damage to tokens, their text, checksums and the numbers of the header is found when a trace "
    "is used") {
  const SyntheticTrace truth = make_trace(full_plan());
  const auto damaged = [&](const std::function<void(const fs::path&)>& damage,
                           const std::function<void(const TraceFile&)>& use) {
    const TempFolder folder;
    const fs::path file = folder / "t.h5";
    write_all(truth, *create_trace(file, {}));
    damage(file);
    return message_of<FormatError>([&] { use(TraceFile::open(file)); });
  };
  const auto nothing = [](const TraceFile&) {};
  const auto read_k = [](const TraceFile& t) { t.read_k(0, 0, {0, 24}); };
  CHECK_HAS(damaged([](const fs::path& f) { flip(f, "/tokens", 4); }, nothing), "/tokens: call 0");
  CHECK_HAS(
      damaged([](const fs::path& f) { flip(f, "/layers/0/k", 0, /*of_checksums=*/true); }, read_k),
      "content hash");
  const auto edit = [](const char* name, auto value) {
    return [=](const fs::path& file) {
      h5::File opened = h5::File::open(file, h5::File::Access::write);
      if constexpr (std::is_same_v<decltype(value), std::vector<std::int64_t>>) {
        opened.open_dataset(name).write({0}, {static_cast<Index>(value.size())}, value.data());
      } else {
        opened.open_dataset(name).write({0}, {1}, &value);
      }
      opened.close();
    };
  };
  CHECK_HAS(damaged(edit(schema::kWindows, std::vector<std::int64_t>{0, 7, 0}), read_k),
            "content hash");
  CHECK_HAS(damaged(edit(schema::kTokenBytes, std::uint8_t{'#'}),
                    [](const TraceFile& t) { t.token_bytes(); }),
            "token text of call 0");
  CHECK(damaged([](const fs::path&) {}, read_k) == "no error");
}

TEST_CASE("a compressed trace and a recording that goes on are compared too") {
  const TempFolder folder;
  const SyntheticTrace truth = make_trace(full_plan());
  write_all(truth, *create_trace(folder / "c.h5", {.gzip_level = 1}));
  const TraceFile compressed = TraceFile::open(folder / "c.h5");
  CHECK(compressed.read_k(2, 1, {10, 11})(0, 3) == truth.layers[2].k(1, 10, 3));

  const auto receiver = create_trace(folder / "g.h5", {});
  write_begun(truth, *receiver, 2);
  const fs::path part = folder / "g.h5.part";
  CHECK(TraceFile::open(part, {.allow_partial = true}).read_k(1, 0, {0, 16})(9, 3) ==
        truth.layers[1].k(0, 9, 3));
  flip(part, "/layers/1/k", 0);
  const TraceFile growing = TraceFile::open(part, {.allow_partial = true});
  CHECK_NOTHROW(growing.read_k(1, 0, {8, 16}));
  CHECK_HAS(message_of<FormatError>([&] { growing.read_k(1, 0, {0, 16}); }), "call 0");
}

TEST_CASE("a trace that becomes shorter while it is read is a read error, not zeros") {
  const TempFolder folder;
  const auto file = folder / "t.h5";
  write_all(make_trace(Plan{}), *create_trace(file, {}));
  for (const std::uintmax_t left : {fs::file_size(file) / 2, fs::file_size(file) / 4}) {
    const auto cut = folder / ("cut" + std::to_string(left));
    fs::copy_file(file, cut);
    const TraceFile trace = TraceFile::open(cut);
    fs::resize_file(cut, left);
    const auto read = [&] {
      for (const Index layer : trace.info().layers) {
        for (const Index head : trace.info().kv_heads) {
          trace.read_k(layer, head, {0, trace.info().n_tokens});
          trace.read_v(layer, head, {0, trace.info().n_tokens});
        }
        for (const Index head : trace.info().q_heads)
          trace.read_lse(layer, head, trace.info().rows);
      }
    };
    CHECK_HAS(message_of<IoError>(read), "it was cut while it was read", cut.string());
  }
}

}  // namespace kvscope::test::damaged_data_test
