// Methods that come at run time: found by name, replaced by their own name alone, never in the
// place of a built-in one.
#include "core/selectors/candidates.hpp"
#include "core/selectors/method_spec.hpp"
#include "core/selectors/registry.hpp"
#include "tests/support/planted_trace.hpp"
#include "tests/support/test.hpp"

namespace kvscope::test::own_selectors_test {

class Dense final : public Selector {
 public:
  std::string_view name() const override { return "mine"; }
  SelectorCaps caps() const override { return {}; }
  Selection do_select(const SelectCall& call) override {
    return dense_selection(call, ListOwner::kv_head);
  }
};

SelectorEntry entry(std::string name, std::string title = "one") {
  SelectorEntry own{.name = std::move(name),
                    .title = std::move(title),
                    .make = [](const SelectorOptions&) { return std::make_unique<Dense>(); }};
  return own;
}

class BuiltIn final : public Selector {
 public:
  SelectorCaps caps() const override { return {}; }
  Selection do_select(const SelectCall& call) override {
    return dense_selection(call, ListOwner::kv_head);
  }
};

// A registry of its own: others walk over selector_registry().
SelectorRegistry with_a_builtin() {
  SelectorRegistry registry;
  registry.add<BuiltIn>("built-in", "", "", "").presets["built-in-paper"] = {};
  return registry;
}

TEST_CASE("a method that came at run time is found, and replaced under its name") {
  SelectorRegistry registry = with_a_builtin();
  registry.put(entry("mine"));
  const SelectorEntry& first = registry.find("mine");
  CHECK(first.is_own);
  CHECK_FALSE(registry.find("built-in").is_own);
  for (int i = 0; i < 100; ++i) registry.put(entry("other-" + std::to_string(i)));
  CHECK(&registry.find("mine") == &first);  // specs hold its address
  registry.put(entry("mine", "two"));
  CHECK(registry.entries().size() == 102);
  CHECK(registry.find("mine").title == "two");
  CHECK(MethodSpec::parse(registry, "mine").make()->name() == "mine");
}

TEST_CASE("names of this build and odd names are refused") {
  SelectorRegistry registry = with_a_builtin();
  for (const char* name :
       {"built-in", "built-in-paper", "", "Mine", "my method", "a:b", "a+b", "a@b", "-a", "a,b"}) {
    INFO(name);
    CHECK_THROWS_AS(registry.put(entry(name)), ConfigError);
  }
  CHECK(registry.entries().size() == 1);
}

}  // namespace kvscope::test::own_selectors_test
