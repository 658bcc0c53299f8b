// kvscope pareto: which methods are not beaten by another in predicted time and measured loss.
#include "analysis/cost/pareto.hpp"

#include "analysis/base/checked_lines.hpp"
#include "analysis/base/column_table.hpp"
#include "analysis/cli/kit.hpp"
#include "analysis/cli/pareto_points.hpp"
#include "analysis/cli/unit_options.hpp"
#include "core/trace/result.hpp"

namespace kvscope::cli {

namespace {

class ParetoCommand final : public Command {
 public:
  CommandCard card() const override {
    return {"pareto",
            "which methods no other beats in predicted time and measured loss",
            "Reads the loss of methods from results of kvscope simulate (perplexity: the increase "
            "over full attention; accuracy: full attention's less the method's) or kvscope sweep "
            "(mass: what is not kept), and their predicted time on a card from the report of "
            "kvscope cost on a recording of the same model with the same methods and budgets "
            "(--costs), or from a sweep that was made with --hardware. A simulation cannot give "
            "the time itself, since its rows do not say in what runs the keys lay. A method is "
            "beaten only by one that takes no more time and whose interval of the loss lies wholly "
            "below; where intervals overlap it is undecided. Oracles and controls are shown and "
            "beat nobody; what left no key out is not shown. Losses are means over what the result "
            "holds (layers without a window, kinds, lengths). The time is of attention in one "
            "layer, has no interval and is a prediction (kvscope cost --ledger). kvscope figure "
            "pareto draws the result.",
            {{"kvscope cost trace.h5 --phase decode --selector full,quest,quoka --budget 256,512 "
              "--hardware h100-sxm --context 32768 --out cost.json",
              "the times, of a recording of the model"},
             {"kvscope pareto ppl.json --costs cost.json --hardware h100-sxm --context 32768 "
              "--metric perplexity --out pareto.json",
              "which method at 32k tokens for a loss of at most 1 %"},
             {"kvscope pareto sweep.csv --hardware h100-sxm --metric mass --loss 0.05",
              "a sweep that was made with --hardware h100-sxm"}}};
  }
  void declare(OptionSet& options) override {
    options.positional("RESULT", "results of kvscope sweep or simulate", request_.files,
                       /*required=*/true);
    options
        .add("hardware", "CARD",
             fmt::format("a profile: {}, or a file of kvscope bench machine",
                         fmt::join(hardware_names(), ", ")),
             hardware_)
        .needed(fmt::format("expected one of {}, or a file of kvscope bench machine",
                            fmt::join(hardware_names(), ", ")));
    options.add("metric", "WORD", "whose loss is meant", request_.metric);
    options.add("loss", "SHARE", "the largest loss that the sentence asks for: 0.01 is one percent",
                limit_, below(0, 1));
    options.add("costs", "FILE", "predicted times: what kvscope cost --out wrote", request_.costs);
    options.add("context", "N", "with --costs: the time at this context [the recording's own]",
                request_.context);
    options.add("batch", "N", "with --costs: sequences side by side", request_.batch);
    options.add("out", "FILE", "write the rows (.csv, .json or .h5)", out_).short_name = 'o';
    options.flag("overwrite", "replace an existing file", overwrite_);
    options.need({"context", "batch"}, {"costs"});
    declare_json(options, json_);
  }

  int run(const OptionSet& options, const std::string&) override {
    if (out_) check_table_output(*out_, overwrite_);
    request_.card = find_hardware(hardware_);
    input_ = read_pareto(request_);
    for (const std::string& sentence : input_.left_out) note("kvscope: left out: " + sentence);
    const ParetoFront front(std::move(input_.points));
    std::string answer = front.answer(
        limit_,
        fmt::format("At {} of at most {}{} on {} ({}time of attention {})",
                    loss_of(request_.metric), number_text(100.0 * limit_, 3),
                    unit_of(request_.metric), request_.card.title, input_.measured, input_.timed),
        unit_of(request_.metric));
    if (input_.is_far)
      answer +=
          " A budget in tokens is a smaller share of a longer context and may lose more there.";
    const Json report = report_of(front, answer, options.command_line(name(), kOptionsOfNoNumber));
    if (out_) write(report, table_of(front));
    json_ ? print_json(report)
          : print(text_of(front) + "\n" + report.at("answer").get<std::string>() + "\n");
    return kOk;
  }

 private:
  ColumnTable table_of(const ParetoFront& front) const {
    ColumnTable table{.text_names = {"hardware", "metric", "selector", "budget_kind", "on_front"}};
    table.number_names = {"budget",       "predicted_us", "predicted_dense_us", "predicted_speedup",
                          "call_speedup", "loss",         "loss_low",           "loss_high",
                          "break_even"};
    for (std::size_t i = 0; i < front.points().size(); ++i) {
      const ParetoPoint& point = front.points()[i];
      table.rows.push_back(
          {{request_.card.name, std::string(enum_name(request_.metric)), point.selector,
            point.budget_kind, std::string(enum_name(front.on_front(i)))},
           {point.budget, point.us, point.dense_us, point.speedup(), point.call_speedup, point.loss,
            point.low, point.high, point.break_even}});
    }
    return table;
  }

  Json report_of(const ParetoFront& front, const std::string& answer,
                 const std::string& command_line) const {
    Json config = {{"metric", enum_name(request_.metric)},
                   {"hardware", hardware_json(request_.card)},
                   {"loss", limit_},
                   {"model", input_.model},
                   {"where", input_.timed},
                   {"results", Json::array()}};
    for (const fs::path& file : request_.files)
      config["results"].push_back(file.filename().string());
    config["costs"] = request_.costs ? Json(request_.costs->filename().string()) : Json(nullptr);
    const std::string hash = config_checksum(config);
    return {{"kind", "pareto"},           {"config_hash", hash},
            {"config", config},           {"command_line", command_line},
            {"version", writer_name()},   {"answer", answer},
            {"skipped", input_.left_out}, {"rows", table_json(table_of(front), hash)}};
  }

  void write(const Json& report, const ColumnTable& table) const {
    const auto write_arrays = [&](ResultWriter& output) {
      ResultInfo info;
      info.kind = "pareto";
      info.config = report["config"];
      info.command_line = report["command_line"];
      info.writer = writer_name();
      output.begin(info);
      const Json categories = write_table(table, output);
      output.finish(
          {{"answer", report["answer"]}, {"skipped", input_.left_out}, {"categories", categories}});
    };
    write_table_output({[&] { return table_csv(table, report["config_hash"].get<std::string>()); },
                        [&] { return report; }, write_arrays},
                       *out_, overwrite_);
  }

  std::string text_of(const ParetoFront& front) const {
    TextTable table(
        {"method", "us", "speedup", "whole call", "loss", "interval", "on front", "pays from"});
    for (std::size_t i = 0; i < front.points().size(); ++i) {
      const ParetoPoint& point = front.points()[i];
      const auto percent = [](double share) { return number_text(100.0 * share, 3); };
      table.add_row({point.text(), number_text(point.us, 3), number_text(point.speedup(), 3),
                     number_text(point.call_speedup, 3), percent(point.loss),
                     fmt::format("[{}, {}]", percent(point.low), percent(point.high)),
                     std::string(enum_name(front.on_front(i))), number_text(point.break_even, 7)});
    }
    return fmt::format("{}time of attention {}; {}, times 100\n{}", input_.measured, input_.timed,
                       loss_of(request_.metric), table.text());
  }

  ParetoRequest request_;
  ParetoInput input_;
  std::string hardware_;
  double limit_ = 0.01;
  std::optional<fs::path> out_;
  bool overwrite_ = false;
  bool json_ = false;
};

}  // namespace

KVSCOPE_COMMAND(620, ParetoCommand)

}  // namespace kvscope::cli
