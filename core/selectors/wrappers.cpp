#include "core/selectors/wrappers.hpp"

#include <fmt/format.h>

#include <algorithm>

#include "core/base/error.hpp"
#include "core/selectors/coarsen.hpp"
#include "core/selectors/every.hpp"

namespace kvscope {

namespace {

struct EveryOptions {
  Index n = option(n, "n", 4, "steps that one choice serves", in(1, 1 << 20));
};

constexpr std::string_view kEvery = "every";
constexpr std::string_view kCoarsen = "coarsen";

std::string_view name_in(std::string_view word) {
  return word.substr(0, word.find_first_of(":,=@"));
}

template <class Options>
Options read_options(const WrapperSpec& wrapper) {
  Options options;
  assign_options(wrapper.name, {wrapper.options.begin(), wrapper.options.end()},
                 options_of<Options>(), &options);
  return options;
}

template <class Options>
WrapperEntry entry_for(std::string_view name, std::string idea) {
  Options defaults;
  return {std::string(name), std::move(idea), option_texts(options_of<Options>(), &defaults)};
}

}  // namespace

std::string WrapperSpec::text() const {
  if (name == kEvery)
    return fmt::format("{}={}", name, options.empty() ? "4" : options.front().second);
  std::string all = name;
  for (const auto& [option, value] : options) {
    all += fmt::format("{}{}={}", all.size() == name.size() ? ':' : ',', option, value);
  }
  return all;
}

const std::vector<WrapperEntry>& wrapper_entries() {
  static const std::vector<WrapperEntry> all = {
      entry_for<CoarsenOptions>(
          kCoarsen, "shares lists among heads, in whole pages, by rounded scores or a mean query"),
      entry_for<EveryOptions>(
          kEvery, "chooses at each n-th step and reuses the list between; written every=4")};
  return all;
}

bool is_wrapper(std::string_view word) {
  const std::string_view name = name_in(word);
  return name == kEvery || name == kCoarsen;
}

WrapperSpec parse_wrapper(std::string_view word) {
  WrapperSpec wrapper{std::string(name_in(word)), {}};
  if (const std::size_t at = word.find('@'); at != std::string_view::npos) {
    throw ConfigError(
        "{} takes no budget, found \"{}\": the method before it does, as "
        "keydiff@tokens=1024+quest+{}",
        wrapper.name, word.substr(at), wrapper.name == kEvery ? "every=4" : wrapper.name);
  }
  std::string_view rest = word.substr(wrapper.name.size());
  if (wrapper.name == kEvery && rest.starts_with('=')) {
    wrapper.options.emplace_back("n", rest.substr(1));
    rest = {};
  }
  if (!rest.empty()) rest.remove_prefix(1);
  while (!rest.empty()) {
    const std::size_t comma = std::min(rest.find(','), rest.size());
    const std::string_view item = rest.substr(0, comma);
    const std::size_t equals = item.find('=');
    if (equals == std::string_view::npos)
      throw ConfigError("{}: expected option=value, found \"{}\"", wrapper.name, item);
    const std::string option(item.substr(0, equals));
    const auto known =
        std::ranges::find(wrapper.options, option, &std::pair<std::string, std::string>::first);
    if (known != wrapper.options.end()) {
      known->second = item.substr(equals + 1);
    } else {
      wrapper.options.emplace_back(option, item.substr(equals + 1));
    }
    rest.remove_prefix(std::min(comma + 1, rest.size()));
  }
  if (wrapper.name == kEvery) {
    read_options<EveryOptions>(wrapper);
  } else {
    read_options<CoarsenOptions>(wrapper);
  }
  return wrapper;
}

std::unique_ptr<Selector> wrap(const WrapperSpec& wrapper, std::unique_ptr<Selector> method) {
  if (wrapper.name == kEvery)
    return make_every(read_options<EveryOptions>(wrapper).n, std::move(method));
  return make_coarsen(read_options<CoarsenOptions>(wrapper), std::move(method));
}

}  // namespace kvscope
