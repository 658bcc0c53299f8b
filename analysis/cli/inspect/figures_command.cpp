// kvscope figures: which figures there are, what they need, and which command makes that.
#include <fmt/format.h>

#include "analysis/cli/frame/command.hpp"
#include "analysis/cli/frame/common_options.hpp"
#include "analysis/cli/frame/filled_text.hpp"
#include "analysis/cli/frame/output.hpp"
#include "analysis/figures/figure_kind.hpp"
#include "core/base/json.hpp"

namespace kvscope::cli {
namespace {

class FiguresCommand final : public Command {
 public:
  CommandCard card() const override {
    return {"figures",
            "list the figures and what they are drawn from",
            "",
            {{"kvscope figures", "all of them, one line each"},
             {"kvscope figures budget", "what one needs, and the command that makes it"}}};
  }
  void declare(OptionSet& options) override {
    options.positional("NAME", "one figure, in detail", figure_, /*required=*/false);
    declare_json(options, json_);
  }
  int run(const OptionSet&, const std::string&) override {
    if (figure_) {
      const FigureKind kind = as_usage([&] { return find_figure_kind(*figure_); });
      if (json_) {
        print_json(json_of(kind));
      } else {
        print("{}: {}\n\nneeds    {}\nmade by  {}\noptions  {}\n", kind.name, kind.shows,
              kind.needs, kind.command,
              kind.options.empty() ? "only --title"
                                   : fmt::format("--{}", fmt::join(kind.options, ", --")));
      }
      return kOk;
    }
    Json list = Json::array();
    for (const FigureKind& kind : figure_kinds()) list.push_back(json_of(kind));
    if (json_)
      print_json({{"figures", list}});
    else
      print(filled_table(list, {{"figure", "{name}"}, {"shows", "{shows}"}, {"needs", "{needs}"}}));
    return kOk;
  }

 private:
  static Json json_of(const FigureKind& kind) {
    return {{"name", kind.name},       {"shows", kind.shows}, {"needs", kind.needs},
            {"command", kind.command}, {"kinds", kind.kinds}, {"options", kind.options}};
  }
  std::optional<std::string> figure_;
  bool json_ = false;
};

}  // namespace

KVSCOPE_COMMAND(630, FiguresCommand)

}  // namespace kvscope::cli
