// "Did you mean": the known word nearest to an unknown one.
#pragma once

#include <optional>
#include <string>
#include <string_view>
#include <vector>

namespace kvscope {

/// The nearest of `known` if it is near enough to be meant: at most `most_edits` away (a third of
/// the length unless given), or one begins with the other.
std::optional<std::string> nearest(std::string_view word, const std::vector<std::string>& known,
                                   std::optional<int> most_edits = std::nullopt);

/// ". Did you mean X?" or nothing.
std::string did_you_mean(std::string_view word, const std::vector<std::string>& known,
                         std::string_view prefix = "");

}  // namespace kvscope
