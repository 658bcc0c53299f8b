#include "analysis/simulate/protocol.hpp"

#include <fmt/format.h>

#include <algorithm>

#include "core/base/error.hpp"
#include "core/base/json_reader.hpp"
#include "core/base/lists.hpp"

namespace kvscope {

namespace {

std::string protocol_names() {
  std::vector<std::string> names;
  for (const ProtocolEntry& entry : protocol_entries()) names.push_back(entry.protocol.name);
  return fmt::format("{}", fmt::join(names, ", "));
}

[[noreturn]] void refuse_protocol(std::string_view text) {
  throw ConfigError(
      "protocol: expected one of {}, all of them as papers, or CONTEXT/QUESTION/ANSWER of dense "
      "and sparse with +unseen or +inside (dense/sparse/sparse+unseen), found {}",
      protocol_names(), quote(text));
}

bool is_sparse_word(const std::string& word, std::string_view text) {
  if (word != "dense" && word != "sparse") refuse_protocol(text);
  return word == "sparse";
}

}  // namespace

std::string Protocol::words() const {
  const auto word = [](bool is_sparse) { return is_sparse ? "sparse" : "dense"; };
  return fmt::format("context {}, question {} ({}), answer {}{}", word(sparse_context),
                     word(sparse_question),
                     fed      ? "one by one with the last tokens of the context"
                     : unseen ? "not seen while the context goes in"
                              : "seen",
                     word(sparse_answer), inside ? " inside the last chunk" : "");
}

const std::vector<ProtocolEntry>& protocol_entries() {
  static const std::vector<ProtocolEntry> entries = {
      {{"decode", false, true, true, false, false, true},
       "dense prefill; the prompt's last tokens and the answer one by one under the method",
       "quest"},
      {{"all", true, true, true},
       "the whole prompt by chunks and the answer token by token under the method",
       "quoka"},
      {{"inside", true, true, true, false, true},  // QuoKA, read strictly
       "the answer is in the last chunk: one list serves all its queries"},
      {{"prefill", true, true, false},  // prefill methods (MInference, SnapKV)
       "the prompt under the method with the question in view, a dense answer"},
      {{"answer", false, false, true},  // decode methods (SkyLight's setup A)
       "a dense prompt, the answer under the method"},
      {{"question", false, true, true, true},  // SkyLight's setup B
       "a dense context, question and answer token by token under the method"},
      {{"compress", true, true, true, true},
       "the context under the method before the question is known, question and answer too",
       "kvpress"},
      {{"context", true, false, false, true},  // the same with a dense reader
       "the context under the method before the question is known, the rest dense"},
  };
  return entries;
}

Protocol parse_protocol(std::string_view text) {
  for (const ProtocolEntry& entry : protocol_entries()) {
    const bool is_paper = !entry.paper.empty() && entry.paper == text;
    if (entry.protocol.name == text || is_paper) return entry.protocol;
  }
  const std::vector<std::string> words = split_words(std::string(text), '+');
  const std::vector<std::string> parts =
      words.empty() ? std::vector<std::string>() : split_words(words.front(), '/');
  if (parts.size() != 3) refuse_protocol(text);
  Protocol protocol;
  protocol.name = std::string(text);
  protocol.sparse_context = is_sparse_word(parts[0], text);
  protocol.sparse_question = is_sparse_word(parts[1], text);
  protocol.sparse_answer = is_sparse_word(parts[2], text);
  for (std::size_t i = 1; i < words.size(); ++i) {
    if (words[i] == "unseen") {
      protocol.unseen = true;
    } else if (words[i] == "inside") {
      protocol.inside = true;
    } else {
      refuse_protocol(text);
    }
  }
  if (!protocol.sparse_context && !protocol.sparse_question && !protocol.sparse_answer) {
    throw ConfigError("protocol {}: nothing runs under the method; expected sparse at least once",
                      text);
  }
  if (protocol.inside && (protocol.unseen || !protocol.sparse_question ||
                          protocol.sparse_question != protocol.sparse_answer)) {
    throw ConfigError(
        "protocol {}: an answer inside the last chunk shares its list with the question: expected "
        "question and answer sparse, and no +unseen",
        text);
  }
  return protocol;
}

std::vector<Protocol> parse_protocols(std::string_view text) {
  std::vector<Protocol> protocols;
  for (const std::string& word : split_words(std::string(text), ',')) {
    if (word == "papers") {
      for (const ProtocolEntry& entry : protocol_entries()) protocols.push_back(entry.protocol);
      continue;
    }
    protocols.push_back(parse_protocol(word));
  }
  if (protocols.empty()) refuse_protocol(text);
  for (std::size_t i = 0; i < protocols.size(); ++i) {
    for (std::size_t j = 0; j < i; ++j) {
      if (protocols[i].name == protocols[j].name)
        throw ConfigError("protocol: {} is given twice", protocols[i].name);
    }
  }
  return protocols;
}

}  // namespace kvscope
