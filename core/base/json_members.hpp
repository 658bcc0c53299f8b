// The members of a JSON object as texts: who needs two of them parses no list of thousands beside
// them.
#pragma once

#include <functional>
#include <string_view>

namespace kvscope {

/// Calls visit(name, value) for each member of the object that `text` is, in order; both are texts
/// as they stand there (a name without its quotes, a value with them). What is inside a value is
/// looked at for brackets and strings alone: parse_ordered_json() reads it. Throws FormatError that
/// begins with `where` if `text` is no object, or ends before it is closed.
void for_each_json_member(std::string_view text, std::string_view where,
                          const std::function<void(std::string_view, std::string_view)>& visit);

}  // namespace kvscope
