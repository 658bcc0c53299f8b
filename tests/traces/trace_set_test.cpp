// A trace set against the single file of the same recording: equal numbers, equal hash, equal
// recovery, and one sentence for each way in which the files of a set can be wrong.
#include "traces/trace_set.hpp"

#include <nlohmann/json.hpp>
#include <stop_token>

#include "tests/support/test.hpp"
#include "tests/traces/synthetic.hpp"
#include "traces/hash.hpp"
#include "traces/reader.hpp"
#include "traces/recover.hpp"
#include "traces/verify.hpp"
#include "traces/writer.hpp"

namespace kvscope::test::trace_set_test {

bool equal(const Tensor<float>& a, const Tensor<float>& b) {
  return a.shape() == b.shape() && std::equal(a.flat().begin(), a.flat().end(), b.flat().begin());
}

/// Every number that the one gives, the other gives too.
void require_equal(const TraceFile& one, const TraceFile& other) {
  const TraceInfo& info = one.info();
  REQUIRE(other.info().layers == info.layers);
  REQUIRE(other.info().n_tokens == info.n_tokens);
  REQUIRE(other.info().units == info.units);
  REQUIRE(other.info().capture == info.capture);
  REQUIRE(other.info().content_hash == info.content_hash);
  REQUIRE(std::ranges::equal(one.tokens(), other.tokens()));
  REQUIRE(one.token_bytes() == other.token_bytes());
  const TokenRange all = {0, info.n_tokens};
  for (const Index i : info.layers) {
    for (Index h = 0; h < info.n_kv; ++h) {
      REQUIRE(equal(one.read_k(i, h, all), other.read_k(i, h, all)));
      REQUIRE(equal(one.read_v(i, h, all), other.read_v(i, h, all)));
      REQUIRE(equal(one.read_k_norm(i, h, all), other.read_k_norm(i, h, all)));
      REQUIRE(equal(one.read_page_min(i, h), other.read_page_min(i, h)));
    }
    for (Index h = 0; h < info.n_q; ++h) {
      REQUIRE(equal(one.read_q(i, h, all), other.read_q(i, h, all)));
      REQUIRE(equal(one.read_lse(i, h, all), other.read_lse(i, h, all)));
      REQUIRE(equal(one.read_attn(i, h, all), other.read_attn(i, h, all)));
      REQUIRE(equal(one.read_topk(i, h, all).prob, other.read_topk(i, h, all).prob));
    }
  }
  REQUIRE(equal(one.read_logits(all), other.read_logits(all)));
}

TEST_CASE("a trace set reads as the single file does, bit for bit, and has its content hash") {
  const SyntheticTrace truth = make_trace(plan_of_many_units());
  const TempFolder folder;
  write_all(truth, *create_trace(folder / "t.h5", {}));
  const TraceFile single = TraceFile::open(folder / "t.h5");
  for (const Index per_part : {1, 2, 7}) {
    const fs::path out = folder / ("t" + std::to_string(per_part) + ".kvset");
    auto receiver = create_trace_set(out, {}, per_part);
    write_all(truth, *receiver);
    CHECK(receiver->content_hash() == single.info().content_hash);
    CHECK_FALSE(fs::exists(out.string() + ".part"));
    CHECK(read_set_manifest(out).parts.size() ==
          static_cast<std::size_t>((3 + per_part - 1) / per_part));
    const TraceFile set = TraceFile::open(out);
    require_equal(single, set);
    CHECK(set.info().uuid == single.info().uuid);
    CHECK(set.where() == out.string());
    check_verifies(out);
  }
  // Each part is a trace of its layers by itself.
  const TraceFile part = TraceFile::open(folder / "t2.layers-0-1.h5");
  CHECK(part.info().layers == std::vector<Index>{0, 1});
  CHECK_FALSE(part.info().capture.logits);
  check_verifies(folder / "t2.layer-2.h5");
}

TEST_CASE("a set of compressed parts, and of some layers and heads, reads as well") {
  Plan plan;
  plan.layers = {0, 2};
  plan.q_heads = {2, 3};
  plan.kv_heads = {1};
  plan.rows = {10, 24};
  plan.dtype = DType::bf16;
  const SyntheticTrace truth = make_trace(plan);
  const TempFolder folder;
  write_all(truth, *create_trace(folder / "t.h5", {}));
  write_all(truth, *create_trace_set(folder / "t.kvset", {.gzip_level = 3}, 1));
  const TraceFile single = TraceFile::open(folder / "t.h5");
  const TraceFile set = TraceFile::open(folder / "t.kvset");
  CHECK(set.info().content_hash == single.info().content_hash);
  CHECK(set.is_chunked());
  CHECK(equal(set.read_q(2, 3, {10, 24}), single.read_q(2, 3, {10, 24})));
  CHECK_SAYS(set.read_q(1, 3, {10, 24}), "layer");
}

TEST_CASE("an interrupted set keeps its whole units, as the single file does") {
  const SyntheticTrace truth = make_trace(plan_of_many_units());
  const TempFolder folder;
  const auto record = [&](TraceReceiver& receiver) {
    write_begun(truth, receiver, 5);
    receiver.finish(TraceStatus::interrupted);
  };
  record(*create_trace(folder / "t.h5", {}));
  record(*create_trace_set(folder / "t.kvset", {}, 1));
  const TraceFile set = TraceFile::open(folder / "t.kvset");
  CHECK(set.info().status == TraceStatus::interrupted);
  require_equal(TraceFile::open(folder / "t.h5"), set);
}

TEST_CASE("a set whose recording ended with an error is recovered like the single file") {
  const SyntheticTrace truth = make_trace(plan_of_many_units());
  const TempFolder folder;
  for (const std::size_t n : {1u, 3u, 17u}) {
    const std::string name = "t" + std::to_string(n);
    {
      const auto single = create_trace(folder / (name + ".h5"), {});
      const auto set = create_trace_set(folder / (name + ".kvset"), {}, 1);
      for (TraceReceiver* receiver : {single.get(), set.get()}) write_begun(truth, *receiver, n);
      CHECK_HAS(set->recovery_hint(), name + ".kvset.part");
      CHECK_SAYS(recover_trace(folder / (name + ".kvset.part"), folder / "no.kvset", false),
                 "being recorded");
      const TraceFile growing =
          TraceFile::open(folder / (name + ".kvset.part"), {.allow_partial = true});
      CHECK(growing.info().status == TraceStatus::recording);
      CHECK(growing.info().units.size() == n);
      CHECK(growing.planned().units.size() == truth.info.units.size());
    }
    CHECK_SAYS(TraceFile::open(folder / (name + ".kvset.part")), "kvscope recover");
    const RecoverReport one =
        recover_trace(folder / (name + ".h5.part"), folder / (name + ".h5"), false);
    const RecoverReport other =
        recover_trace(folder / (name + ".kvset.part"), folder / (name + ".kvset"), false);
    CHECK(other.n_units == one.n_units);
    CHECK(other.n_tokens == one.n_tokens);
    CHECK(other.n_planned_tokens == one.n_planned_tokens);
    CHECK(other.n_damaged_units == 0);
    CHECK(other.content_hash == one.content_hash);
    const TraceFile set = TraceFile::open(folder / (name + ".kvset"));
    CHECK(set.info().status == TraceStatus::recovered);
    require_equal(TraceFile::open(folder / (name + ".h5")), set);
  }
}

TEST_CASE("a recovery of a set that ends early leaves no part behind") {
  const SyntheticTrace truth = make_trace(plan_of_many_units());
  const TempFolder folder;
  write_begun(truth, *create_trace_set(folder / "t.kvset", {}, 1), 3);
  const fs::path growing = folder / "t.kvset.part";
  spill(folder / "r.layer-2.h5", "precious");
  CHECK_THROWS_AS(recover_trace(growing, folder / "r.kvset", false), IoError);
  std::stop_source stopped;
  stopped.request_stop();
  CHECK_THROWS_AS(recover_trace(growing, folder / "s.kvset", false, {}, stopped.get_token()),
                  Interrupted);
  CHECK_THROWS_AS(recover_trace(growing, folder / "s.h5", false), ConfigError);
  for (const char* name : {"r.kvset", "r.layer-0.h5", "r.layer-1.h5", "s.kvset", "s.layer-0.h5"})
    CHECK_FALSE(fs::exists(folder / name));
  CHECK(slurp(folder / "r.layer-2.h5") == "precious");
  CHECK(recover_trace(growing, folder / "t.kvset", false).n_units == 3);
}

/// A set of three parts, and the means to spoil it.
struct SpoiledSet {
  TempFolder folder;
  fs::path manifest = folder / "t.kvset";
  SpoiledSet() { write_all(make_trace(plan_of_many_units()), *create_trace_set(manifest, {}, 1)); }
  fs::path part(int layer) const { return folder / ("t.layer-" + std::to_string(layer) + ".h5"); }
  std::string said() const {
    const std::string words = message_of([&] {
      const TraceFile set = TraceFile::open(manifest);
      for (const Index layer : set.info().layers) set.read_k(layer, 0, {0, 80});
    });
    CHECK(words.find('\n') == std::string::npos);
    return words;
  }
  /// The manifest with another text in place of `from`, and the checksum as it was.
  void edit(const std::string& from, const std::string& to) const {
    std::string text = slurp(manifest);
    const std::size_t at = text.find(from);
    REQUIRE(at != std::string::npos);
    spill(manifest, text.replace(at, from.size(), to));
  }
};

TEST_CASE("a missing, cut, foreign or damaged part of a set is one sentence") {
  {
    const SpoiledSet set;
    fs::remove(set.part(1));
    CHECK_HAS(set.said(), "t.layer-1.h5", "is missing");
  }
  {
    const SpoiledSet set;
    fs::resize_file(set.part(2), fs::file_size(set.part(2)) - 100);
    CHECK_HAS(set.said(), "bytes, expected", "layer-2");
  }
  {  // of another recording of the same size
    const SpoiledSet set;
    const TempFolder other;
    write_all(make_trace(plan_of_many_units(), 2), *create_trace_set(other / "t.kvset", {}, 1));
    fs::copy_file(other / "t.layer-1.h5", set.part(1), fs::copy_options::overwrite_existing);
    CHECK_HAS(set.said(), "is not its part with layers 1", "content hash");
    CHECK_FALSE(verified(set.manifest).ok);
  }
  {  // another layer's part
    const SpoiledSet set;
    fs::copy_file(set.part(0), set.part(1), fs::copy_options::overwrite_existing);
    CHECK_HAS(set.said(), "it has layers 0");
  }
  {
    const SpoiledSet set;
    damage(set.part(1), make_trace(plan_of_many_units()).layers[1].k(0, 22, 4));
    CHECK_HAS(set.said(), "/layers/1/k: unit 5");
    const VerifyReport report = verified(set.manifest);
    REQUIRE_FALSE(report.ok);
    CHECK_HAS(report.problems.front(), "t.layer-1.h5: ");
  }
}

TEST_CASE("a part is opened when its layer is read, not before") {
  const SpoiledSet set;
  const auto n_bytes = fs::file_size(set.part(2));
  spill(set.part(2), std::string(n_bytes, 'x'));
  const TraceFile file = TraceFile::open(set.manifest);
  CHECK(file.read_k(0, 0, {0, 80}).dim(0) == 80);
  CHECK(file.read_k(1, 0, {0, 80}).dim(0) == 80);
  CHECK_THROWS_AS(file.read_k(2, 0, {0, 80}), Error);
  CHECK_THROWS_AS(file.read_logits({0, 80}), Error);  // which lie in the last part
}

TEST_CASE("a set opens without parts that nobody reads, and names them when somebody does") {
  const SpoiledSet set;
  const TraceFile whole = TraceFile::open(set.manifest);
  for (const int there : {0, 1, 2}) {
    const SpoiledSet cut;
    for (const int layer : {0, 1, 2}) {
      if (layer != there) fs::remove(cut.part(layer));
    }
    const TraceFile file = TraceFile::open(cut.manifest);
    CHECK(file.info().layers == std::vector<Index>{0, 1, 2});
    CHECK(file.info().content_hash == whole.info().content_hash);
    CHECK(file.info().capture.logits);
    CHECK(file.file_bytes() == whole.file_bytes());
    CHECK(std::ranges::equal(file.tokens(), whole.tokens()));
    CHECK(equal(file.read_k(there, 0, {0, 80}), whole.read_k(there, 0, {0, 80})));
    const int other = (there + 1) % 3;
    const std::string name = cut.part(other).filename().string();
    CHECK_SAYS_AS(IoError, file.read_q(other, 0, {0, 80}), name + " (layers ", "is missing");
    if (there != 2) CHECK_SAYS(file.read_logits({0, 80}), "t.layer-2.h5");
    CHECK_SAYS(verified(cut.manifest), "is missing");
    // A part that comes later is found.
    fs::copy_file(set.part(other), cut.part(other));
    CHECK(equal(file.read_q(other, 0, {0, 80}), whole.read_q(other, 0, {0, 80})));
  }
  for (const int layer : {0, 1, 2}) fs::remove(set.part(layer));
  CHECK_SAYS(TraceFile::open(set.manifest), "none of its parts is there");
}

TEST_CASE("a manifest that is damaged or malicious is one sentence") {
  const auto said_after = [](const std::string& from, const std::string& to) {
    const SpoiledSet set;
    set.edit(from, to);
    return set.said();
  };
  CHECK_HAS(said_after("kvscope-trace-set", "something-else"), "not the manifest of a trace set");
  CHECK_HAS(said_after("\"1.0\"", "\"2.0\""), "version");
  CHECK_HAS(said_after("\"complete\"", "\"done\""), "status");
  CHECK_HAS(said_after("t.layer-1.h5", "../t.layer-1.h5"),
            "the name of a file in the manifest's folder");
  CHECK_HAS(said_after("t.layer-1.h5", "t.layer-0.h5"), "every file once");
  for (const char* name : {"t.kvset", "u.kvset", "u.kvset.part"})
    CHECK_HAS(said_after("t.layer-1.h5", name), "no set of its own");
  CHECK_HAS(said_after("t.layer-1.h5", "t.layer-9.h5"), "checksum");
  CHECK_HAS(said_after("\"parts\"", "\"pieces\""), "parts");
  const SpoiledSet set;
  const std::string text = slurp(set.manifest);
  for (std::size_t n = 0; n < text.size() - 2; n += 61) {
    spill(set.manifest, text.substr(0, n));
    CHECK(set.said() != "no error");
  }
  fs::remove(set.manifest);
  CHECK_HAS(set.said(), "t.kvset");
  auto json = nlohmann::json::parse(text);
  json["parts"][1]["layers"] = {0};
  spill(set.manifest, json.dump());
  CHECK_HAS(set.said(), "every layer in one part");
  for (const char* layers : {"[]", "[-1]", "[1.5]", "[\"1\"]", "[2,1]", "\"1\"", "[99999999]"}) {
    json["parts"][1]["layers"] = nlohmann::json::parse(layers);
    spill(set.manifest, json.dump());
    CHECK_HAS(set.said(), "parts[1].layers");
  }
}

TEST_CASE("a manifest that names itself ends a verify with a sentence") {
  const SpoiledSet set;
  SetManifest manifest = read_set_manifest(set.manifest);
  manifest.parts[1].file = "t.kvset";
  manifest.parts[1].bytes = 0;
  spill(set.manifest, set_manifest_text(manifest));
  const VerifyReport report = verified(set.manifest);
  REQUIRE(report.problems.size() == 1);
  CHECK_HAS(report.problems.front(), "no set of its own");
}

TEST_CASE("a manifest of a later 1.x is read, with fields that this program does not know") {
  const SpoiledSet set;
  auto json = nlohmann::ordered_json::parse(slurp(set.manifest));
  json["version"] = "1.7";
  json.erase("checksum");
  const std::string checksum = "xxh128:" + hash_text(json.dump());
  json["novelty"] = {1, 2};
  json["parts"][0]["place"] = "elsewhere";
  json["checksum"] = checksum;
  spill(set.manifest, json.dump());
  CHECK(set.said() == "no error");
  check_verifies(set.manifest);
}

TEST_CASE("layers of the manifest that the parts do not have are seen by verify, and when opened") {
  const auto with_layers = [](const SpoiledSet& set, Index of_part_1, Index of_part_2) {
    SetManifest manifest = read_set_manifest(set.manifest);
    manifest.parts[1].layers = {of_part_1};
    manifest.parts[2].layers = {of_part_2};
    spill(set.manifest, set_manifest_text(manifest));
  };
  {
    const SpoiledSet set;
    with_layers(set, 2, 1);  // exchanged: every array is in some part
    const VerifyReport report = verified(set.manifest);
    REQUIRE_FALSE(report.ok);
    CHECK_HAS(report.problems.front(), "it has layers 1, expected 2");
  }
  {
    const SpoiledSet set;
    with_layers(set, 1, 70'000);
    CHECK_SAYS(TraceFile::open(set.manifest), "layer 70000", "has 3 layers");
    CHECK_FALSE(verified(set.manifest).ok);
  }
}

TEST_CASE("writing a set refuses what is there, and takes its place if asked to") {
  const SyntheticTrace truth = make_trace(plan_of_many_units());
  const TempFolder folder;
  const fs::path out = folder / "t.kvset";
  CHECK_SAYS(create_trace_set(folder / "t.h5", {}, 1)->begin(truth.info), ".kvset");
  CHECK_THROWS_AS(create_trace_set(out, {}, 0)->begin(truth.info), ConfigError);
  {
    auto receiver = create_trace_set(out, {}, 2);
    receiver->begin(truth.info);
    CHECK_SAYS(create_trace_set(out, {.overwrite = true}, 2)->begin(truth.info), "being recorded");
  }
  CHECK_FALSE(fs::exists(out.string() + ".part"));  // no unit was whole
  CHECK_FALSE(fs::exists(folder / "t.layer-2.h5.part"));
  write_begun(truth, *create_trace_set(out, {}, 2), 2);
  CHECK_SAYS(create_trace_set(out, {}, 2)->begin(truth.info), "left over");
  write_all(truth, *create_trace_set(out, {.overwrite = true}, 2));
  CHECK_THROWS_AS(create_trace_set(out, {}, 2), IoError);
  fs::remove(out);
  CHECK_THROWS_AS(create_trace_set(out, {}, 2)->begin(truth.info), IoError);  // a part is there
  write_all(truth, *create_trace_set(out, {.overwrite = true}, 2));
  CHECK(TraceFile::open(out).info().n_tokens == 80);
}

TEST_CASE("a set behind a symbolic link opens, and its parts are beside the real manifest") {
  const SpoiledSet set;
  fs::create_directory(set.folder / "elsewhere");
  fs::create_symlink(set.manifest, set.folder / "elsewhere/l.kvset");
  CHECK(TraceFile::open(set.folder / "elsewhere/l.kvset").read_k(1, 0, {0, 80}).dim(0) == 80);
}

}  // namespace kvscope::test::trace_set_test
