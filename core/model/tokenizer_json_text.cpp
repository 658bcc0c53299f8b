// What tokenizer.json does to text before BPE (normalizer, pre-tokenizer) and behind it (decoder).
#include <charconv>
#include <nlohmann/json.hpp>
#include <system_error>

#include "core/base/error.hpp"
#include "core/model/tokenizer_json_parts.hpp"

namespace kvscope {

namespace {

constexpr std::size_t kMaxReplacement = 64;  // bytes; a word mark has 3
constexpr std::size_t kMaxSteps = 16;        // of a normalizer or decoder

// Replace of a plain string, in normalizers and decoders.
ReplaceStep read_replace(const JsonObject& component) {
  const JsonObject pattern = component.object("pattern");
  const auto from = pattern.string_if("String");
  if (!from) refuse_kind(component, "pattern", "a String");
  if (from->empty()) pattern.refuse("String", "at least one character");
  if (component.string("content").size() > kMaxReplacement) {
    refuse_kind(component, "content", fmt::format("at most {} bytes", kMaxReplacement));
  }
  return {*from, component.string("content")};
}

// Both fields are in use: prepend_scheme, and the add_prefix_space of older files.
MetaspaceStep read_metaspace(const JsonObject& component) {
  MetaspaceStep step;
  step.replacement = component.string("replacement");
  if (step.replacement.empty() || step.replacement.size() > kMaxReplacement) {
    component.refuse("replacement", "one character");
  }
  step.splits = component.boolean_or("split", true);
  const bool adds = component.boolean_or("add_prefix_space", true);
  const std::string scheme =
      component.string_if("prepend_scheme").value_or(adds ? "always" : "never");
  if (scheme == "always") {
    step.prepend = MetaspaceStep::Prepend::always;
  } else if (scheme == "first") {
    step.prepend = MetaspaceStep::Prepend::first;
  } else if (scheme == "never") {
    step.prepend = MetaspaceStep::Prepend::never;
  } else {
    component.refuse("prepend_scheme", "always, first or never");
  }
  return step;
}

SplitBehavior read_behavior(const JsonObject& split) {
  const std::string& name = split.string("behavior");
  if (name == "Removed") return SplitBehavior::removed;
  if (name == "Isolated") return SplitBehavior::isolated;
  if (name == "MergedWithPrevious") return SplitBehavior::merged_with_previous;
  if (name == "MergedWithNext") return SplitBehavior::merged_with_next;
  if (name == "Contiguous") return SplitBehavior::contiguous;
  split.refuse("behavior", "Removed, Isolated, MergedWithPrevious, MergedWithNext or Contiguous");
}

SplitStep read_split(const JsonObject& split) {
  SplitStep step;
  const JsonObject pattern = split.object("pattern");
  if (const auto text = pattern.string_if("String")) {
    if (text->empty()) pattern.refuse("String", "at least one character");
    step.pattern = *text;
  } else {
    step.pattern = Regex(pattern.string("Regex"), pattern.name_of("Regex"));
  }
  step.behavior = read_behavior(split);
  step.invert = split.boolean_or("invert", false);
  return step;
}

// The byte that a token like "<0x0A>" spells.
std::optional<char> byte_of(std::string_view token) {
  if (token.size() != 6 || !token.starts_with("<0x") || token.back() != '>') return std::nullopt;
  int value = 0;
  const auto [end, error] = std::from_chars(token.data() + 3, token.data() + 5, value, 16);
  if (error != std::errc{} || end != token.data() + 5) return std::nullopt;
  return static_cast<char>(value);
}

void bytes_of_byte_tokens(TokenizerParts& parts) {
  for (auto& [id, token] : parts.tokens) spell_byte(token.bytes);
}

// Decoders of vocabularies that spell characters: see read_decoder.
void read_character_decoder(const JsonObject& root, TokenizerParts& parts) {
  if (root.find("decoder") == nullptr) {
    refuse_kind(root, "decoder", "one of Sequence, Replace, ByteFallback, Fuse, Strip, Metaspace");
  }
  bool is_fused = false;
  std::size_t n_steps = 0;
  std::size_t n_bytes = 0;
  for (const auto& [id, token] : parts.tokens) n_bytes += token.bytes.size();
  const std::size_t most = 16 * n_bytes + 4096;
  const auto rewrite = [&](const auto& change) {
    std::size_t total = 0;
    for (auto& [id, token] : parts.tokens) {
      change(token.bytes);
      total += token.bytes.size();
      if (total > most)
        refuse_kind(root, "decoder", "one that keeps tokens about as long as they are");
    }
  };
  for_each_component(root.object("decoder"), "decoders", [&](const JsonObject& component) {
    const std::string& type = component.string("type");
    if (++n_steps > kMaxSteps) {
      refuse_kind(component, "type", fmt::format("at most {} decoders", kMaxSteps));
    }
    if (type == "Replace") {
      if (is_fused) refuse_kind(component, "type", "Replace before Fuse");
      const ReplaceStep step = read_replace(component);
      rewrite([&](std::string& bytes) { bytes = replace_all(bytes, step.from, step.to); });
    } else if (type == "ByteFallback") {
      bytes_of_byte_tokens(parts);
    } else if (type == "Fuse") {
      is_fused = true;
    } else if (type == "Strip") {
      if (!is_fused || component.string("content") != " " ||
          component.integer_or("stop", 0, 1 << 20, 0) != 0) {
        refuse_kind(component, "type", "Strip behind Fuse, of spaces at the beginning");
      }
      parts.decoding.n_stripped = component.integer_or("start", 0, 1 << 20, 0);
    } else if (type == "Metaspace") {
      const MetaspaceStep step = read_metaspace(component);
      rewrite([&](std::string& bytes) { bytes = replace_all(bytes, step.replacement, " "); });
      parts.decoding.first_token_has_no_space = step.prepend != MetaspaceStep::Prepend::never;
    } else {
      refuse_kind(component, "type", "Sequence, Replace, ByteFallback, Fuse, Strip or Metaspace");
    }
  });
}

}  // namespace

void spell_byte(std::string& text) {
  if (const auto byte = byte_of(text)) text.assign(1, *byte);
}

void read_normalizer(const JsonObject& root, TokenizerParts& parts) {
  if (root.find("normalizer") == nullptr) return;
  for_each_component(root.object("normalizer"), "normalizers", [&](const JsonObject& component) {
    const std::string& type = component.string("type");
    if (parts.normalizer.size() == kMaxSteps) {
      refuse_kind(component, "type", fmt::format("at most {} normalizers", kMaxSteps));
    }
    if (type == "NFC") {
      parts.normalizer.emplace_back(NfcStep{});
    } else if (type == "NFKC") {
      parts.normalizer.emplace_back(NfkcStep{});
    } else if (type == "Prepend") {
      parts.normalizer.emplace_back(PrependStep{component.string("prepend")});
    } else if (type == "Replace") {
      parts.normalizer.emplace_back(read_replace(component));
    } else {
      refuse_kind(component, "type", "NFC, NFKC, Prepend or Replace");
    }
  });
}

void read_pre_tokenizer(const JsonObject& root, TokenizerParts& parts) {
  bool is_byte_level = false;
  const auto read = [&](const JsonObject& component) {
    const std::string& type = component.string("type");
    if (is_byte_level) refuse_kind(component, "type", "nothing after ByteLevel");
    if (type == "Split") {
      parts.pre_tokenizer.emplace_back(read_split(component));
    } else if (type == "Digits") {
      const bool individual = component.boolean_or("individual_digits", false);
      parts.pre_tokenizer.emplace_back(
          SplitStep{Regex("\\p{N}", component.name_of("type")),
                    individual ? SplitBehavior::isolated : SplitBehavior::contiguous});
    } else if (type == "Metaspace") {
      parts.pre_tokenizer.emplace_back(read_metaspace(component));
    } else if (type == "ByteLevel") {
      is_byte_level = true;
      if (component.boolean_or("add_prefix_space", true)) {
        parts.pre_tokenizer.emplace_back(PrefixSpaceStep{});
      }
      if (component.boolean_or("use_regex", true)) {
        parts.pre_tokenizer.emplace_back(
            SplitStep{Regex(gpt2_pattern(), component.name_of("type")), SplitBehavior::isolated});
      }
    } else {
      refuse_kind(component, "type", "Sequence, Split, Digits, Metaspace or ByteLevel");
    }
  };
  if (root.find("pre_tokenizer") != nullptr) {
    for_each_component(root.object("pre_tokenizer"), "pretokenizers", read);
  }
  parts.bpe.symbols = is_byte_level ? BpeSymbols::bytes : BpeSymbols::characters;
}

void read_decoder(const JsonObject& root, TokenizerParts& parts) {
  if (parts.bpe.symbols == BpeSymbols::characters) {
    read_character_decoder(root, parts);
    return;
  }
  if (root.find("decoder") == nullptr) return;
  bool is_text = false;  // ByteLevel has made one text of the tokens
  for_each_component(root.object("decoder"), "decoders", [&](const JsonObject& component) {
    const std::string& type = component.string("type");
    if (type == "ByteFallback" && !is_text) {
      bytes_of_byte_tokens(parts);
    } else if (type != "ByteLevel" && type != "Fuse" && type != "ByteFallback") {
      refuse_kind(component, "type", "ByteLevel, ByteFallback or Fuse");
    }
    is_text = is_text || type == "ByteLevel";
  });
}

}  // namespace kvscope
