// A method inside a running model with somebody beside it, who sees every question and what
// the method selects, and may change that.
#pragma once

#include <functional>
#include <vector>

#include "core/selectors/method_spec.hpp"
#include "core/selectors/selector.hpp"

namespace kvscope {

/// The method's selection for a question, or another one in its place.
using WatchMethod = std::function<Selection(Selector& method, const SelectCall& call)>;

/// A method for LiveOptions that `watch` stands beside; both must outlive the sequence. Nothing of
/// it is left to a backend, which would choose unseen.
class WatchedMethod {
 public:
  WatchedMethod(const MethodSpec& method, WatchMethod watch);
  WatchedMethod(const WatchedMethod&) = delete;
  WatchedMethod& operator=(const WatchedMethod&) = delete;
  const MethodSpec& spec() const { return spec_; }

 private:
  WatchMethod watch_;
  SelectorRegistry registry_;
  MethodSpec spec_;
};

/// Dense softmax weights of a query head's last query of the call over all keys up to its own,
/// [pos_begin + n_tok], in f64; an attention sink takes its part.
std::vector<double> last_row_weights(const SelectCall& call, Index q_head);

}  // namespace kvscope
