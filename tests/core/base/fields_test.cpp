// Options that stand once: what a type's list holds, and that its objects stay plain values.
#include "core/base/fields_json.hpp"
#include "tests/support/test.hpp"

namespace kvscope::test::fields_test {

enum class Colour { red, dark_blue };

struct Shared {
  Index seed = option(seed, "seed", 7, "names the draw", at_least(0));
  bool operator==(const Shared&) const = default;
};
struct Inner {
  double share = option(share, "share", 0.5, "of something", in(0.0, 1.0));
  bool operator==(const Inner&) const = default;
};
struct Options : Shared {
  using SharedOptions = Shared;
  Colour colour = option(colour, "colour", Colour::dark_blue, "of the lines");
  Index untold = 3;  // not an option
  Inner inner;
  std::string name = option(name, "the-name", "x", "a text");
  bool flag = option(flag, "flag", false, "on or off");
  // An object of a type with options that is only made along the way.
  std::vector<Inner> others = std::vector<Inner>(1);  // GCC 13 breaks on {Inner{}}
  int bits = option(bits, "bits", 4, "a small number", in(1, 8));
  bool operator==(const Options&) const = default;
};

TEST_CASE("options are read and set where they lie, in copies too") {
  const Options defaults;
  Options options = defaults;
  CHECK(options == defaults);
  visit_fields(options, [](const Field& field, auto& value) {
    if (field.name == "colour") parse_field(field, "red", value);
    if (field.name == "share") parse_field(field, "0.25", value);
    if (field.name == "seed") parse_field(field, "11", value);
  });
  CHECK(options.colour == Colour::red);
  CHECK(options.inner.share == 0.25);
  CHECK(options.seed == 11);
  CHECK(options.others.front().share == 0.5);
  CHECK(fields_to_json(options).dump() ==
        R"({"colour":"red","share":0.25,"the_name":"x","flag":false,"bits":4,"seed":11})");
  CHECK(fields_to_json(defaults)["colour"] == "dark_blue");
}

TEST_CASE("a value that does not fit is refused with the option's name") {
  Options options;
  const auto set = [&](std::string_view name, std::string_view text) {
    visit_fields(options, [&](const Field& field, auto& value) {
      if (field.name == name) parse_field(field, text, value);
    });
    check_fields(options);
  };
  CHECK_THROWS_AS(set("colour", "green"), ConfigError);
  CHECK_THROWS_AS(set("flag", "yes"), ConfigError);
  CHECK_THROWS_AS(set("bits", "4x"), ConfigError);
  CHECK_THROWS_AS(set("bits", "9"), ConfigError);
  CHECK_THROWS_AS(set("bits", "0"), ConfigError);
  set("bits", "8");
  CHECK_THROWS_AS(set("share", "nan"), ConfigError);
  CHECK_THROWS_AS(set("seed", "-1"), ConfigError);
}

}  // namespace kvscope::test::fields_test
