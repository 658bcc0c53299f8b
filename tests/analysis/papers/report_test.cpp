// The report: texts that are made safe.
#include "analysis/papers/report.hpp"

#include "tests/support/test.hpp"

namespace kvscope::papers::report_test {

struct Made {
  Item item;
  std::vector<ItemOutcome> outcomes;

  Made() {
    item.id = "quoka-made-up";
    item.paper = Paper::quoka;
    item.title = "Keys <of> & 50_percent";
    item.claim = "a claim";
    item.published = "0.737";
    item.note = "A note.";
    item.values = {
        {.key = "a", .label = "share of <b>", .run = "run", .column = "c", .unit = Unit::percent}};
    item.checks = {{Role::form, "a", Op::at_least, "0.9"}};
    Measured measured;
    measured.value = 0.5;
    measured.low = 0.4;
    measured.high = 0.6;
    measured.interval = "95 % interval";
    DrawnPicture figure;
    figure.svg =
        "<?xml version=\"1.0\"?>\n<svg><clipPath id=\"clip1\"/><g "
        "clip-path=\"url(#clip1)\"/></svg>";
    figure.pdf = "items/quoka-made-up/needle.pdf";
    const DrawnPicture table{
        .tex = "items/quoka-made-up/table.tex",
        .markdown = "|Method|64|\n|---|---|\n|QuoKA|**99%**|\n|&lt;i>|<u>98%</u>|\n"};
    ItemOutcome outcome{&item,
                        {measured},
                        {Verdict::in_form, "A reason."},
                        {"kvscope x"},
                        {"runs/x.h5"},
                        {figure, table, DrawnPicture{.failed = "there is no column"}},
                        "A remark.",
                        {"7 trials do not tell."}};
    outcome.judgement.checks.push_back({.check = &item.checks[0],
                                        .answer = Answer::no,
                                        .pairing = Pairing::prompt,
                                        .units = 20,
                                        .difference = -0.25,
                                        .low = -0.4,
                                        .high = -0.1,
                                        .power = 0.9});
    outcomes.push_back(outcome);
  }
};

TEST_CASE("the page is one file, with texts as texts") {
  const Made made;
  const std::string html = report_page({.model = "<script>"}, made.outcomes).html();
  CHECK_THAT(html, !has("<script>"));
  CHECK_THAT(html, !has("src="));
  CHECK_THAT(html, !has("http"));
  CHECK_HAS(html, "Keys &lt;of&gt; &amp; 50_percent", "<td><b>99%</b></td>", "<td><u>98%</u></td>",
            "Not drawn: there is no column.", "50 % [40 %, 60 %]",
            "Share of &lt;b&gt; reaches 90 %",
            "paired: -25.0 points [-40.0, -10.0] over 20 prompts", "7 trials do not tell.",
            "url(#p0-clip1)", "A note. A remark.");
  CHECK_HAS(report_page({.model = "m"}, made.outcomes).tex(), "A note. A remark.");
}

TEST_CASE("the TeX escapes what means something there") {
  Made made;
  made.item.note = "Without --quick " + std::string(50, 'x') + ".";
  const std::string tex = report_page({.model = "my_model"}, made.outcomes).tex();
  CHECK_HAS(tex, "my\\_model", "\\& 50\\_percent", "\\includegraphics",
            "\\input{items/quoka-made-up/table.tex}", "Without -{}-quick xx", "xx\\allowbreak{}xx");
}

}  // namespace kvscope::papers::report_test
