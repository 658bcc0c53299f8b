// The files of a trace set when something is in the way: an older set under the same name, parts of
// which some have their names already, parts that differ by a unit, a kill between two renames.
// What was whole stays whole, or what was recorded can be recovered.
#include <stop_token>

#include "tests/support/test.hpp"
#include "tests/traces/synthetic.hpp"
#include "traces/reader.hpp"
#include "traces/recover.hpp"
#include "traces/set_files.hpp"
#include "traces/trace_set.hpp"
#include "traces/verify.hpp"

namespace kvscope::test::set_files_test {

const SyntheticTrace& new_text() {
  static const SyntheticTrace trace = make_trace(plan_of_many_units(), 1);
  return trace;
}
const SyntheticTrace& old_text() {
  static const SyntheticTrace trace = make_trace(plan_of_many_units(), 2);
  return trace;
}

/// A recording of which `n_units` units are whole and which then ended without finish().
void record_killed(const fs::path& out, std::size_t n_units, Index per_part = 1) {
  write_begun(new_text(), *create_trace_set(out, {.overwrite = true}, per_part), n_units);
}

void record_interrupted(const fs::path& out, std::size_t n_units) {
  const auto set = create_trace_set(out, {}, 1);
  write_begun(new_text(), *set, n_units);
  set->finish(TraceStatus::interrupted);
}

void record_whole(const SyntheticTrace& text, const fs::path& out, Index per_part = 1) {
  write_all(text, *create_trace_set(out, {.overwrite = true}, per_part));
}

bool holds(const fs::path& file, const SyntheticTrace& text, Index n_tokens) {
  if (!verified(file).ok) return false;
  const TraceFile trace = TraceFile::open(file);
  return trace.info().n_tokens == n_tokens &&
         std::equal(trace.tokens().begin(), trace.tokens().end(), text.tokens.begin());
}

// ---- parts that differ -----------------------------------------------------------------------

TEST_CASE("the text of a set of which one part has a unit more is that of the common units") {
  const TempFolder folder, other;
  record_killed(folder / "t.kvset", 3);
  record_killed(other / "t.kvset", 9);
  fs::copy_file(other / "t.layer-0.h5.part", folder / "t.layer-0.h5.part",
                fs::copy_options::overwrite_existing);
  const TraceFile growing = TraceFile::open(folder / "t.kvset.part", {.allow_partial = true});
  CHECK(growing.info().units.size() == 3);
  const std::vector<std::string> texts = growing.token_bytes();
  REQUIRE(texts.size() == 12);
  CHECK(std::equal(texts.begin(), texts.end(), new_text().texts.begin()));
  CHECK(growing.read_k(0, 0, {0, 12}).dim(0) == 12);
}

TEST_CASE("a set of which an interrupted recording has named some parts opens and is recovered") {
  const TempFolder folder, other;
  record_killed(folder / "t.kvset", 5);
  record_interrupted(other / "t.kvset", 5);
  fs::copy_file(other / "t.layer-0.h5", folder / "t.layer-0.h5");
  fs::remove(folder / "t.layer-0.h5.part");
  {
    const TraceFile growing = TraceFile::open(folder / "t.kvset.part", {.allow_partial = true});
    CHECK(growing.info().units.size() == 5);
    CHECK(growing.token_bytes().size() == 20);
    for (const Index layer : {0, 1, 2}) CHECK(growing.read_k(layer, 1, {0, 20}).dim(0) == 20);
  }
  CHECK(recover_trace(folder / "t.kvset.part", folder / "t.kvset", false).n_units == 5);
  CHECK(holds(folder / "t.kvset", new_text(), 20));
}

TEST_CASE("a growing set with a part of another recording is refused when it is opened") {
  const TempFolder folder, other;
  record_killed(folder / "t.kvset", 3);
  write_begun(old_text(), *create_trace_set(other / "t.kvset", {}, 1), 3);
  fs::copy_file(other / "t.layer-1.h5.part", folder / "t.layer-1.h5.part",
                fs::copy_options::overwrite_existing);
  CHECK_SAYS(TraceFile::open(folder / "t.kvset.part", {.allow_partial = true}),
             "t.layer-1.h5.part is not its part", "another recording");
}

TEST_CASE("a set that grows beside an older one of its name shows its own parts") {
  const TempFolder folder;
  record_whole(old_text(), folder / "t.kvset");
  record_killed(folder / "t.kvset", 2);
  const TraceFile growing = TraceFile::open(folder / "t.kvset.part", {.allow_partial = true});
  CHECK(growing.info().n_tokens == 8);
  CHECK(std::ranges::equal(growing.tokens(), std::span(new_text().tokens).first(8)));
  CHECK(holds(folder / "t.kvset", old_text(), 80));
}

// ---- recovery --------------------------------------------------------------------------------

TEST_CASE("a recovery never takes the place of a part that it reads") {
  // The recorder was killed when part 0 had its name, and part 1 is damaged: 5 units are common,
  // part 0 has all 35, and it is the only copy of them.
  const TempFolder folder, other;
  record_killed(folder / "t.kvset", 20);
  record_whole(new_text(), other / "t.kvset");
  fs::copy_file(other / "t.layer-0.h5", folder / "t.layer-0.h5");
  fs::remove(folder / "t.layer-0.h5.part");
  damage(folder / "t.layer-1.h5.part", new_text().layers[1].k(1, 22, 4));  // of unit 5
  const std::string only_copy = slurp(folder / "t.layer-0.h5");
  for (const bool overwrite : {false, true}) {
    CHECK_SAYS(recover_trace(folder / "t.kvset.part", folder / "t.kvset", overwrite),
               "t.layer-0.h5", "another name");
    CHECK((slurp(folder / "t.layer-0.h5") == only_copy));  // bytes are nothing to print
  }
  CHECK(recover_trace(folder / "t.kvset.part", folder / "r.kvset", /*overwrite=*/false).n_units ==
        5);
  CHECK(holds(folder / "r.kvset", new_text(), 20));
  CHECK((slurp(folder / "t.layer-0.h5") == only_copy));
}

TEST_CASE("a recovery over an older set that is stopped leaves that set whole") {
  const TempFolder folder;
  record_whole(old_text(), folder / "t.kvset");
  record_killed(folder / "t.kvset", 3);
  const std::size_t n_before = folder.n_files();
  std::stop_source stop;
  int n_stages = 0;
  const auto in_second_part = [&](const Progress& progress) {
    if (progress.stage == "copy" && progress.done == progress.total && ++n_stages == 1)
      stop.request_stop();  // the first part's copy is whole
  };
  CHECK_THROWS_AS(recover_trace(folder / "t.kvset.part", folder / "t.kvset", /*overwrite=*/true,
                                in_second_part, stop.get_token()),
                  Interrupted);
  CHECK(n_stages == 1);
  CHECK(holds(folder / "t.kvset", old_text(), 80));
  CHECK(folder.n_files() == n_before);
  CHECK(recover_trace(folder / "t.kvset.part", folder / "t.kvset", true).n_units == 3);
  CHECK(holds(folder / "t.kvset", new_text(), 12));
  CHECK(folder.n_files() == n_before);
}

TEST_CASE("a recovery that cannot name a part leaves no set of two recordings") {
  const bool has_older = GENERATE(false, true);
  const TempFolder folder;
  const fs::path taken = folder / "t.layer-1.h5";
  if (has_older) record_whole(old_text(), folder / "t.kvset");
  record_killed(folder / "t.kvset", 3);
  int n_copied = 0;
  const auto take_name = [&](const Progress& progress) {  // by a folder, when its copy is whole
    if (progress.stage != "copy" || progress.done < progress.total || ++n_copied != 2) return;
    fs::remove(taken);
    fs::create_directories(taken / "in the way");
  };
  CHECK_THROWS_AS(recover_trace(folder / "t.kvset.part", folder / "t.kvset", has_older, take_name),
                  IoError);
  CHECK_FALSE(fs::exists(folder / "t.kvset"));
  // Part 0 has its name. What replaced something is not deleted; what did not would be in the way.
  CHECK(fs::exists(folder / "t.layer-0.h5") == has_older);
  fs::remove_all(taken);
  CHECK(recover_trace(folder / "t.kvset.part", folder / "t.kvset", has_older).n_units == 3);
  CHECK(holds(folder / "t.kvset", new_text(), 12));
}

TEST_CASE("a recovery whose manifest gets no name leaves no parts in the way of the next try") {
  const TempFolder folder;
  record_killed(folder / "t.kvset", 3);
  const std::size_t n_before = folder.n_files();
  const auto take_name = [&](const Progress& progress) {
    if (progress.stage == "copy" && progress.done == progress.total)
      fs::create_directories(folder / "t.kvset" / "in the way");
  };
  CHECK_THROWS_AS(recover_trace(folder / "t.kvset.part", folder / "t.kvset", false, take_name),
                  IoError);
  fs::remove_all(folder / "t.kvset");
  CHECK(folder.n_files() == n_before);
  CHECK(recover_trace(folder / "t.kvset.part", folder / "t.kvset", false).n_units == 3);
}

TEST_CASE("a set none of whose parts gets its name leaves the older one as it was") {
  const TempFolder folder;
  record_whole(old_text(), folder / "t.kvset");
  const SetManifest manifest = read_set_manifest(folder / "t.kvset");
  CHECK_THROWS_AS(publish_set(folder / "t.kvset", manifest, /*overwrite=*/true, {},
                              [] { throw IoError("the disk is full"); }),
                  IoError);
  CHECK(holds(folder / "t.kvset", old_text(), 80));
}

TEST_CASE("a recovery gives a set the name of a set, and a file that of a file") {
  const TempFolder folder;
  record_killed(folder / "t.kvset", 3);
  write_begun(new_text(), *create_trace(folder / "t.h5", {}), 3);
  CHECK_THROWS_AS(recover_trace(folder / "t.kvset.part", folder / "r.h5", false), ConfigError);
  CHECK_SAYS(recover_trace(folder / "t.h5.part", folder / "r.kvset", false), "r.kvset",
             "trace set");
  CHECK_FALSE(fs::exists(folder / "r.kvset"));
}

TEST_CASE("a recovery over its own input is refused, also with overwrite") {
  const TempFolder folder;
  write_all(new_text(), *create_trace(folder / "t.h5", {}));
  record_whole(new_text(), folder / "t.kvset");
  CHECK_SAYS(recover_trace(folder / "t.h5", folder / "t.h5", true), "is the input");
  CHECK_SAYS(recover_trace(folder / "t.kvset", folder / "t.kvset", true), "is the input");
  CHECK(holds(folder / "t.kvset", new_text(), 80));
}

// ---- recording over an older set -------------------------------------------------------------

TEST_CASE("a set whose parts cannot all be finished leaves the older one whole") {
  const TempFolder folder;
  record_whole(old_text(), folder / "t.kvset");
  const auto set = create_trace_set(folder / "t.kvset", {.overwrite = true}, 1);
  write_begun(new_text(), *set, 5);
  fs::rename(folder / "t.layer-1.h5.part", folder / "gone");
  CHECK_THROWS_AS(set->finish(TraceStatus::interrupted), IoError);
  CHECK(holds(folder / "t.kvset", old_text(), 80));
}

TEST_CASE("a set of which a part gets no name is no mixture with the older one, and is recovered") {
  const TempFolder folder;
  record_whole(old_text(), folder / "t.kvset");
  {
    const auto set = create_trace_set(folder / "t.kvset", {.overwrite = true}, 1);
    write_begun(new_text(), *set, new_text().info.units.size());
    fs::remove(folder / "t.layer-1.h5");
    fs::create_directories(folder / "t.layer-1.h5" / "in the way");
    CHECK_THROWS_AS(set->finish(TraceStatus::complete), IoError);
  }
  CHECK_FALSE(fs::exists(folder / "t.kvset"));
  fs::remove_all(folder / "t.layer-1.h5");
  CHECK(recover_trace(folder / "t.kvset.part", folder / "t.kvset", true).n_tokens == 80);
  CHECK(holds(folder / "t.kvset", new_text(), 80));
}

TEST_CASE("a set in the place of one with another split leaves none of its files") {
  const TempFolder folder;
  record_whole(old_text(), folder / "t.kvset", 1);
  record_whole(new_text(), folder / "t.kvset", 2);
  CHECK(holds(folder / "t.kvset", new_text(), 80));
  CHECK(folder.n_files() == 3);  // the manifest, layers 0 and 1, layer 2
  record_killed(folder / "t.kvset", 3, 1);
  CHECK(recover_trace(folder / "t.kvset.part", folder / "t.kvset", true).n_units == 3);
  CHECK_FALSE(fs::exists(folder / "t.layers-0-1.h5"));
  record_whole(old_text(), folder / "t.kvset", 7);  // over the rest of another split, too
  CHECK(folder.n_files() == 2);
  CHECK(holds(folder / "t.kvset", old_text(), 80));
}

TEST_CASE("files that an older manifest names, but that are not of its making, stay") {
  const TempFolder folder;
  record_whole(old_text(), folder / "t.kvset");
  fs::copy_file(folder / "t.kvset", folder / "u.kvset");  // a second name of the same parts
  record_whole(new_text(), folder / "u.kvset", 2);
  CHECK(holds(folder / "t.kvset", old_text(), 80));
  CHECK(holds(folder / "u.kvset", new_text(), 80));
  spill(folder / "t.layer-0.h5", "mine");
  record_whole(new_text(), folder / "t.kvset", 2);
  CHECK(slurp(folder / "t.layer-0.h5") == "mine");
}

}  // namespace kvscope::test::set_files_test
