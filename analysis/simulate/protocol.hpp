// Protocols of retrieval: which of context, question and answer run under the method, how the
// question enters, and where the answer stands.
//
// A word names a protocol; PARTS says any: context/question/answer, each dense or sparse, and what
// follows by +: "unseen" (the context's last call ends before the question, which then enters token
// by token: what was evicted or voted on never saw it), "inside" (the answer is teacher-forced in
// the prompt's last chunk: one list for all of it). "dense/sparse/sparse+unseen".
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "core/selectors/selector.hpp"

namespace kvscope {

struct Protocol {
  std::string name;  // as it was asked for; rows carry it
  bool sparse_context = false;
  bool sparse_question = false;
  bool sparse_answer = false;
  bool unseen = false;  // the question is fed token by token after the context is done
  bool inside = false;  // the answer is teacher-forced inside the last chunk
  bool fed = false;     // the prompt's last n_fed tokens, not the question, go one by one (Quest)

  /// The phase that a method must be defined for.
  Phase phase() const {
    return sparse_context || (sparse_question && !unseen && !fed) ? Phase::prefill : Phase::decode;
  }
  /// "context dense, question sparse (seen), answer sparse": the matrix in words.
  std::string words() const;
};

/// A named protocol, what it measures, and the paper or program whose it is, which names it too.
struct ProtocolEntry {
  Protocol protocol;
  std::string_view meaning;
  std::string_view paper = {};
};

/// Every named protocol.
const std::vector<ProtocolEntry>& protocol_entries();

/// A name or parts. Throws ConfigError with the names that there are.
Protocol parse_protocol(std::string_view text);

/// Several between commas; "papers" stands for every named one. Throws ConfigError as
/// parse_protocol does, and for one given twice.
std::vector<Protocol> parse_protocols(std::string_view text);

}  // namespace kvscope
