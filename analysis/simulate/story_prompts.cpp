// A journey in chapters, after the story tasks of The Sparse Frontier (arXiv 2504.17768):
// retrieval, multi-hop and filtering in a narrative that is made, not found, so that nobody has
// read it before.
#include <fmt/format.h>

#include <algorithm>
#include <cmath>

#include "analysis/simulate/prompt_kit.hpp"
#include "core/base/error.hpp"

namespace kvscope {

namespace {

/// The people and places are the last and the first of the things; what is bought is in between.
constexpr std::size_t kPlaces = 11;
constexpr std::size_t kPeople = 7;

struct Chapter {
  Index number = 0;
  std::string_view person, other, place, item;  // item empty: nothing was bought
};

std::string chapter_text(const Chapter& chapter) {
  return fmt::format(
      " Chapter {}. The {} went to the {} and met the {} there. The {} bought {}.", chapter.number,
      chapter.person, chapter.place, chapter.other, chapter.person,
      chapter.item.empty() ? std::string("nothing") : fmt::format("a {}", chapter.item));
}

/// As many chapters as fit. In about one of eight nothing is bought; a thing is bought once in any
/// ten chapters.
std::vector<Chapter> write_chapters(PromptDesk& desk, Index room) {
  constexpr std::string_view kPlaceNames[kPlaces] = {"castle", "bridge", "forest", "island",
                                                     "market", "harbor", "meadow", "valley",
                                                     "garden", "river",  "orchard"};
  const auto things = prompt_things();
  const auto people = things.last(kPeople);
  std::vector<std::string_view> goods;
  for (const std::string_view thing : things.first(things.size() - kPeople)) {
    if (std::find(std::begin(kPlaceNames), std::end(kPlaceNames), thing) == std::end(kPlaceNames))
      goods.push_back(thing);
  }
  std::vector<std::size_t> order = desk.draws.choose(goods.size(), goods.size());
  std::vector<Chapter> chapters;
  desk.fit(room, [&](Index i) {
    Chapter chapter;
    chapter.number = i + 1;
    const auto who = desk.draws.choose(kPeople, 2);
    chapter.person = people[who[0]];
    chapter.other = people[who[1]];
    chapter.place =
        kPlaceNames[static_cast<std::size_t>(desk.draws.below(static_cast<Index>(kPlaces)))];
    if (desk.draws.below(8) != 0)
      chapter.item = goods[order[static_cast<std::size_t>(i) % order.size()]];
    chapters.push_back(chapter);
    return chapter_text(chapter);
  });
  chapters.pop_back();  // the one that did not fit
  return chapters;
}

void ask_places(const std::vector<Chapter>& chapters, std::size_t first, PromptDraws& draws,
                Index n_turns, PromptContent& content) {
  const auto ask = [&](const Chapter& chapter) {
    content.questions.push_back(
        {fmt::format(" Where did the {} go in chapter {}? In chapter {} the {} went to the",
                     chapter.person, chapter.number, chapter.number, chapter.person),
         {std::string(chapter.place)}});
  };
  ask(chapters[first]);
  for (const std::size_t at : draws.choose(chapters.size(), chapters.size())) {
    if (static_cast<Index>(content.questions.size()) >= n_turns) break;
    if (at != first) ask(chapters[at]);
  }
}

/// What was bought in the last chapter with a purchase before the one that stands at `first`.
void ask_before(const std::vector<Chapter>& chapters, std::size_t first, PromptContent& content) {
  std::vector<std::size_t> bought;
  for (std::size_t i = 0; i < chapters.size(); ++i) {
    if (!chapters[i].item.empty()) bought.push_back(i);
  }
  auto at = static_cast<std::size_t>(std::lower_bound(bought.begin(), bought.end(), first) -
                                     bought.begin());
  at = std::clamp<std::size_t>(at, 1, bought.size() - 1);
  const Chapter& later = chapters[bought[at]];
  content.questions = {
      {fmt::format(" What was bought right before the {} of chapter {}? Right before the {} of "
                   "chapter {} somebody bought a",
                   later.item, later.number, later.item, later.number),
       {std::string(chapters[bought[at - 1]].item)}}};
}

}  // namespace

PromptContent story_content(PromptDesk& desk) {
  constexpr Index kQuestion = 64;  // tokens, more than any question below
  const PromptSpec& spec = desk.spec;
  const Index room = spec.length - static_cast<Index>(spec.leading.size()) - kQuestion;
  std::vector<Chapter> chapters = write_chapters(desk, room);
  if (chapters.size() < static_cast<std::size_t>(std::max<Index>(4, spec.n_turns))) {
    throw ConfigError(
        "prompt: {} tokens are too few for a {} prompt: {} chapters fit, expected at least {}",
        spec.length, enum_name(spec.kind), chapters.size(), std::max<Index>(4, spec.n_turns));
  }
  const auto first =
      static_cast<std::size_t>(std::llround(spec.depth * static_cast<double>(chapters.size() - 1)));
  PromptContent content;
  if (spec.kind == PromptKind::story_filtering) {
    // three chapters, fixed: the one at the depth and two others
    std::vector<std::size_t> empty = {first};
    for (const std::size_t at : desk.draws.choose(chapters.size(), chapters.size())) {
      if (empty.size() < 3 && at != first) empty.push_back(at);
    }
    std::sort(empty.begin(), empty.end());
    PromptQuestion question{
        " In which chapters was nothing bought? Nothing was bought in the chapters", {}};
    for (std::size_t i = 0; i < chapters.size(); ++i) {
      const bool is_empty = std::find(empty.begin(), empty.end(), i) != empty.end();
      if (is_empty) {
        chapters[i].item = {};
        question.answers.push_back(fmt::format("{}", chapters[i].number));
      } else if (chapters[i].item.empty()) {
        chapters[i].item = "lantern";
      }
    }
    content.questions = {std::move(question)};
    content.n_answer_tokens = 24;
  } else if (spec.kind == PromptKind::story_multihop) {
    for (Chapter& chapter : chapters) {
      if (chapter.number <= 2 && chapter.item.empty()) chapter.item = "lantern";
    }
    ask_before(chapters, first, content);
  } else {
    ask_places(chapters, first, desk.draws, spec.n_turns, content);
  }
  Index used = 0;  // what was changed above may be longer than what was counted
  std::vector<std::string> items;
  for (const Chapter& chapter : chapters) {
    items.push_back(chapter_text(chapter));
    used += desk.count(items.back());
  }
  if (used > room + kQuestion - desk.count(content.questions.front().text)) {
    throw ConfigError("prompt: {} tokens are too few for a {} prompt, expected some more",
                      spec.length, enum_name(spec.kind));
  }
  add_items(std::move(items), content);
  return content;
}

}  // namespace kvscope
