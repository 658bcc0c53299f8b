// What a dropped key cost the answer, where it is known: a method that loses keys of one head.
#include "analysis/kinds/explain_answer.hpp"

#include <set>

#include "core/base/data_dir.hpp"
#include "tests/support/planted_trace.hpp"
#include "tests/support/test.hpp"

namespace kvscope::test::explain_answer_test {

/// Drops some keys of one head of one layer, in every call.
class LosingSelector final : public Selector {
 public:
  LosingSelector(Index layer, Index head, std::set<Index> lost)
      : layer_(layer), head_(head), lost_(std::move(lost)) {}
  SelectorCaps caps() const override {
    return SelectorCaps{.verify = false, .owner = ListOwner::q_head};
  }
  Selection do_select(const SelectCall& call) override {
    Selection out(ListOwner::q_head, call.n_tok, call.n_tok);
    if (call.layer != layer_) {
      out.owner = ListOwner::layer;
      out.is_dense = true;
      return out;
    }
    for (Index head = 0; head < call.q.dim(0); ++head) {
      KeyList list;
      for (Index key = 0; key < call.pos_begin + call.n_tok; ++key) {
        if (head != head_ || !lost_.contains(key)) list.scored.push_back(static_cast<KeyPos>(key));
      }
      out.add(list);
    }
    return out;
  }

 private:
  Index layer_, head_;
  std::set<Index> lost_;
};

struct World {
  Transformer model = Transformer::load(embedded_verifier());
  Tokenizer tokenizer = Tokenizer::load(embedded_verifier());
  ThreadPool pool{2};
  std::vector<TokenId> prompt = [this] {
    auto ids = tokenizer.encode(testing::read_file(embedded_text()).substr(0, 4000));
    ids.resize(200);
    return ids;
  }();

  AnswerBlame blame(const AnswerQuestion& question) {
    return blame_answer(model, prompt, question, pool, {}, {});
  }
};

AnswerQuestion asking(std::string_view selector, std::string_view budget) {
  AnswerQuestion question{
      .selector = MethodSpec(selector), .budget = Budget::parse(budget), .chunk = 64, .n_new = 4};
  return question;
}

TEST_CASE("the layer, head and key that a method loses are the ones that are blamed") {
  static constexpr Index kLayer = 5;
  static constexpr Index kHead = 6;
  World world;
  SelectorRegistry registry;
  SelectorEntry entry;
  entry.name = entry.title = "losing";
  entry.make = [](const SelectorOptions&) {
    return std::make_unique<LosingSelector>(kLayer, kHead, std::set<Index>{0, 150, 198, 199, 200});
  };
  entry.caps = entry.make({})->caps();
  registry.put(std::move(entry));
  AnswerQuestion question{
      .selector = MethodSpec::parse(registry, "losing"), .chunk = 64, .n_new = 3, .token = 2};
  for (const bool every_call : {false, true}) {
    INFO(every_call);
    question.every_call = every_call;
    const AnswerBlame blame = world.blame(question);
    CHECK(blame.step == 2);
    CHECK(blame.position == 201);
    REQUIRE(blame.layers.size() == 1);
    CHECK(blame.layers[0].what.layer == kLayer);
    REQUIRE(blame.heads.size() == static_cast<std::size_t>(world.model.config().n_q));
    // one head is all there is to put back
    for (const Restored& head : blame.heads) {
      const double expected = head.what.q_head == kHead ? blame.everything.recovered : 0.0;
      CHECK_THAT(head.recovered, WithinAbs(expected, 1e-3));
    }
    CHECK_THAT(blame.layers[0].recovered, WithinAbs(blame.everything.recovered, 1e-3));
    if (every_call) CHECK_THAT(blame.everything.recovered, WithinAbs(1.0, 1e-3));
    CHECK(ranked(blame.heads)[0]->what.q_head == kHead);
    // its five keys, each once, with the weight that the head puts there densely
    std::set<Index> keys;
    double weight = 0.0;
    for (const Restored& key : blame.keys) {
      CHECK(key.what.q_head == kHead);
      keys.insert(key.what.key);
      weight += key.weight;
    }
    CHECK(keys == std::set<Index>{0, 150, 198, 199, 200});
    CHECK(weight > 0.0);
    CHECK(weight <= 1.0);
    CHECK(blame.n_runs == 1 + 1 + world.model.config().n_q + 5);
    CHECK(blame.all_heads);
  }
}

TEST_CASE("what goes back, what is copied and what runs anew say the same of the same call") {
  World world;
  world.prompt.resize(60);  // one call: put back in it or in every call is the same
  for (const char* method : {"quest:dense-layers=0", "quoka", "tova", "h2o"}) {
    AnswerQuestion question = asking(method, "tokens=16");
    question.n_new = 1;
    question.token = 0;
    question.n_keys = 1;
    const AnswerBlame one = world.blame(question);
    question.every_call = true;
    const AnswerBlame all = world.blame(question);
    INFO(method);
    REQUIRE(one.heads.size() == all.heads.size());
    for (std::size_t i = 0; i < one.heads.size(); ++i)
      CHECK(one.heads[i].surprise == all.heads[i].surprise);
    CHECK(one.everything.surprise == all.everything.surprise);
    CHECK(one.steps[0].sparse_surprise == all.steps[0].sparse_surprise);
  }
}

TEST_CASE("put back in every call, everything is full attention") {
  World world;
  for (const char* method : {"quoka", "snapkv", "h2o"}) {
    AnswerQuestion question = asking(method, "tokens=16");
    question.every_call = true;
    question.most_runs = 9;  // everything and the layers
    const AnswerBlame blame = world.blame(question);
    INFO(method);
    const AnswerStep& step = blame.steps[blame.step];
    CHECK_THAT(blame.everything.surprise, WithinAbs(step.dense_surprise, 1e-4));
    CHECK(blame.everything.says == step.dense);
    CHECK(blame.heads.empty());
    CHECK(!blame.all_heads);
  }
}

TEST_CASE("fewer runs try the heads of the layers that matter most") {
  World world;
  AnswerQuestion question = asking("quest:dense-layers=0", "tokens=32");
  question.token = 1;
  const AnswerBlame whole = world.blame(question);
  question.most_runs = 40;
  const AnswerBlame part = world.blame(question);
  CHECK(part.n_runs <= 40);
  CHECK(!part.all_heads);
  CHECK(part.heads.size() == 16);  // two layers
  for (const Restored& head : part.heads) {
    const auto same = std::ranges::find_if(whole.heads, [&](const Restored& one) {
      return one.what.layer == head.what.layer && one.what.q_head == head.what.q_head;
    });
    REQUIRE(same != whole.heads.end());
    CHECK(same->surprise == head.surprise);
  }
}

TEST_CASE("summaries leave no head alone, and the sentence says so") {
  World world;
  AnswerQuestion question = asking("retroinfer", "tokens=16");
  question.token = 1;
  const AnswerBlame blame = world.blame(question);
  CHECK(!blame.layers.empty());
  CHECK(blame.heads.empty());
  CHECK_HAS(blame.why_no_heads, "summaries");
}

TEST_CASE("keys that are put back say at the explained token what blaming said") {
  World world;
  for (const bool every_call : {false, true}) {
    const char* method = every_call ? "tova" : "quest:dense-layers=0";
    AnswerQuestion question = asking(method, "tokens=16");
    question.token = 1;
    question.every_call = every_call;
    question.n_keys = 1;
    const AnswerBlame blame = world.blame(question);
    INFO(method << every_call);
    const auto mend = [&](std::vector<PutBack> back) {
      AnswerQuestion asked = question;
      asked.back = std::move(back);
      return world.blame(asked);
    };
    for (const Restored* one : {&blame.everything, &blame.layers[2], ranked(blame.heads)[0]}) {
      const AnswerBlame mended = mend({one->what});
      CHECK(mended.step == 1);
      CHECK_THAT(mended.steps[1].mended_surprise, WithinAbs(one->surprise, 1e-4));
      CHECK(mended.steps[1].mended == one->says);
      CHECK(mended.steps[1].sparse_surprise == blame.steps[1].sparse_surprise);
      // Tokens before it are as without.
      if (!every_call) CHECK(mended.steps[0].mended_kl == mended.steps[0].kl);
    }
    // Nothing back is the method, every layer back in every call is the dense model.
    const AnswerBlame none = mend({});
    CHECK(none.mended_alone == none.sparse_alone);
    CHECK(none.steps[3].mended_surprise == none.steps[3].sparse_surprise);
    if (!every_call) continue;
    const AnswerBlame whole = mend({PutBack{}});
    for (std::size_t i = 0; i < whole.steps.size(); ++i)
      CHECK(whole.mended_alone[i] == whole.steps[i].dense);
  }
  AnswerQuestion beyond = asking("quoka", "tokens=16");
  beyond.back = {PutBack{99, -1, -1}};
  CHECK_SAYS(world.blame(beyond), "8 layers");
}

}  // namespace kvscope::test::explain_answer_test
