#include "core/model/pre_tokenizer.hpp"

#include <algorithm>
#include <utility>

#include "core/model/normalizer.hpp"

namespace kvscope {

namespace {

// Joins neighbouring stretches as the behaviour says; `out` receives the cuts in order.
// Behaviours as in the tokenizers library: a run of several matches is not joined to one.
class Joiner {
 public:
  explicit Joiner(SplitBehavior behavior) : behavior_(behavior) {}

  // Stretches arrive from left to right, for merged_with_next from right to left.
  void add(ByteRange range, bool is_match) {
    const bool joins = behavior_ == SplitBehavior::contiguous ? is_match == last_was_match_
                                                              : is_match && !last_was_match_;
    if (joins && !cuts_.empty()) {
      cuts_.back().begin = std::min(cuts_.back().begin, range.begin);
      cuts_.back().end = std::max(cuts_.back().end, range.end);
    } else {
      cuts_.push_back(range);
    }
    last_was_match_ = is_match;
  }

  std::vector<ByteRange>& cuts() { return cuts_; }

 private:
  SplitBehavior behavior_;
  bool last_was_match_ = false;
  std::vector<ByteRange> cuts_;
};

}  // namespace

std::string_view gpt2_pattern() {
  return R"('s|'t|'re|'ve|'m|'ll|'d| ?\p{L}+| ?\p{N}+| ?[^\s\p{L}\p{N}]+|\s+(?!\S)|\s+)";
}

PreTokenizer::PreTokenizer(const std::vector<PreTokenizerStep>& steps, std::size_t n_bytes)
    : steps_(steps) {
  for (const PreTokenizerStep& step : steps) {
    const auto* split = std::get_if<SplitStep>(&step);
    if (split == nullptr) continue;
    if (const auto* regex = std::get_if<Regex>(&split->pattern))
      matchers_.emplace_back(*regex, n_bytes);
  }
}

const std::vector<std::string_view>& PreTokenizer::split(std::string_view text, bool begins_text) {
  pieces_.clear();
  if (!text.empty()) pieces_.push_back(text);
  auto matcher = matchers_.begin();
  for (const PreTokenizerStep& step : steps_) {
    next_.clear();
    if (const auto* split = std::get_if<SplitStep>(&step)) {
      RegexMatcher* m = std::holds_alternative<Regex>(split->pattern) ? &*matcher++ : nullptr;
      for (std::string_view piece : pieces_) apply(*split, m, piece);
    } else if (const auto* prefix = std::get_if<PrefixSpaceStep>(&step)) {
      for (std::string_view piece : pieces_) apply(*prefix, piece);
    } else {
      for (std::size_t i = 0; i < pieces_.size(); ++i) {
        apply(std::get<MetaspaceStep>(step), pieces_[i], begins_text && i == 0);
      }
    }
    std::swap(pieces_, next_);
  }
  return pieces_;
}

void PreTokenizer::apply(const PrefixSpaceStep&, std::string_view piece) {
  if (piece.front() == ' ') {
    next_.push_back(piece);
  } else {
    std::string& prefixed = owned_.emplace_back(1, ' ');
    next_.push_back(prefixed.append(piece));
  }
}

void PreTokenizer::apply(const MetaspaceStep& step, std::string_view piece, bool begins_text) {
  std::string text = replace_all(piece, " ", step.replacement);
  const bool prepends = step.prepend == MetaspaceStep::Prepend::always ||
                        (step.prepend == MetaspaceStep::Prepend::first && begins_text);
  if (prepends && !text.starts_with(step.replacement)) text.insert(0, step.replacement);
  const std::string& owned = owned_.emplace_back(std::move(text));
  if (step.splits) {
    apply(SplitStep{step.replacement, SplitBehavior::merged_with_next}, nullptr, owned);
  } else {
    next_.push_back(owned);
  }
}

// Fills stretches_ with alternating unmatched and matched stretches that cover the piece.
void PreTokenizer::find_matches(const SplitStep& step, RegexMatcher* matcher,
                                std::string_view piece) {
  stretches_.clear();
  std::size_t covered = 0;
  const auto add = [&](ByteRange match) {
    if (covered != match.begin) stretches_.push_back({{covered, match.begin}, false});
    stretches_.push_back({match, true});
    covered = match.end;
  };

  if (const auto* text = std::get_if<std::string>(&step.pattern)) {
    for (std::size_t at = piece.find(*text); at != std::string_view::npos;
         at = piece.find(*text, covered)) {
      add({at, at + text->size()});
    }
  } else {
    std::size_t pos = 0;
    std::optional<std::size_t> last_end;
    while (const auto match = matcher->find(piece, pos)) {
      if (match->begin == match->end && match->end == last_end) {
        // An empty match right behind a match does not count: search on from the next character.
        if (pos >= piece.size()) break;
        ++pos;
        while (pos < piece.size() && (static_cast<unsigned char>(piece[pos]) & 0xc0) == 0x80) ++pos;
        continue;
      }
      add(*match);
      pos = match->end;
      last_end = match->end;
    }
  }
  if (covered != piece.size()) stretches_.push_back({{covered, piece.size()}, false});
  if (step.invert) {
    for (Stretch& stretch : stretches_) stretch.is_match = !stretch.is_match;
  }
}

void PreTokenizer::apply(const SplitStep& step, RegexMatcher* matcher, std::string_view piece) {
  find_matches(step, matcher, piece);
  const auto emit = [&](ByteRange range) {
    if (range.begin != range.end)
      next_.push_back(piece.substr(range.begin, range.end - range.begin));
  };
  switch (step.behavior) {
    case SplitBehavior::isolated:
      for (const Stretch& s : stretches_) emit(s.range);
      return;
    case SplitBehavior::removed:
      for (const Stretch& s : stretches_) {
        if (!s.is_match) emit(s.range);
      }
      return;
    case SplitBehavior::contiguous:
    case SplitBehavior::merged_with_previous: {
      Joiner joiner(step.behavior);
      for (const Stretch& s : stretches_) joiner.add(s.range, s.is_match);
      for (ByteRange range : joiner.cuts()) emit(range);
      return;
    }
    case SplitBehavior::merged_with_next: {
      Joiner joiner(step.behavior);
      for (auto s = stretches_.rbegin(); s != stretches_.rend(); ++s)
        joiner.add(s->range, s->is_match);
      for (auto range = joiner.cuts().rbegin(); range != joiner.cuts().rend(); ++range)
        emit(*range);
      return;
    }
  }
}

}  // namespace kvscope
