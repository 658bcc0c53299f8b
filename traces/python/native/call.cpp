#include "traces/python/native/call.hpp"

#include <fmt/format.h>
#include <nanobind/nanobind.h>
#include <nanobind/stl/optional.h>
#include <nanobind/stl/shared_ptr.h>
#include <nanobind/stl/string.h>
#include <nanobind/stl/vector.h>

#include "core/attention/topk.hpp"
#include "core/base/error.hpp"
#include "core/selectors/candidates.hpp"
#include "core/selectors/list_owner.hpp"
#include "traces/python/native/arrays.hpp"
#include "traces/python/native/kept_lists.hpp"
#include "traces/python/native/module.hpp"

namespace kvscope::python {

namespace nb = nanobind;

const Selection& SelectionHolder::get() const {
  if (is_gone)
    throw ConfigError(
        "this selection was returned to kvscope, which took its lists: expected to be asked "
        "before");
  return selection;
}

const SelectCall& CallState::get() const {
  if (call == nullptr)
    throw ConfigError("selector {}: the call that this object belongs to is over", method);
  return *call;
}

namespace {

using StatePtr = std::shared_ptr<CallState>;
using HolderPtr = std::shared_ptr<SelectionHolder>;

/// A window of the call's tensor. `self` (the Python object) is its owner, by which kept
/// arrays are noticed.
template <TensorView<const float> AttentionQuestion::*tensor>
nb::object array_of(nb::handle_t<CallState> self) {
  const SelectCall& call = nb::cast<const CallState&>(self).get();
  if ((call.*tensor).empty() && tensor == &SelectCall::v) return nb::none();
  return nb::cast(window<float>(call.*tensor, self));
}

/// [n_kv, n_keys]: true where a key is still there.
NumpyArray<bool> alive_array(const CallState& state) {
  const SelectCall& call = state.get();
  const Index n_kv = call.k.dim(0);
  const Index n_keys = call.k.dim(1);
  Tensor<bool> alive = Tensor<bool>::uninitialized(Shape{n_kv, n_keys});
  for (Index head = 0; head < n_kv; ++head) {
    const bool all = all_alive(call, head);
    for (Index pos = 0; pos < n_keys; ++pos) alive(head, pos) = all || is_alive(call, head, pos);
  }
  return owning(std::move(alive));
}

CallBudget budget_of(const StatePtr& state) {
  state->get();
  state->read_budget = true;
  return {state};
}

HolderPtr top_of_call(const CallBudget& budget, const InputArray<double>& scores) {
  CallState& state = *budget.state;
  const bool is_row = scores.ndim() == 1;
  if (scores.ndim() != 1 && scores.ndim() != 2) {
    throw ConfigError("selector {}: its scores have {} axes, expected [owners, keys]", state.method,
                      scores.ndim());
  }
  auto holder = std::make_shared<SelectionHolder>();
  holder->selection = best_keys(state.method, state.get(), state.owner, state.page_size,
                                std::span(scores.data(), scores.size()),
                                is_row ? 1 : static_cast<Index>(scores.shape(0)),
                                static_cast<Index>(scores.shape(is_row ? 0 : 1)));
  return holder;
}

/// The k best of each row, ascending, equal scores by index.
nb::list top_rows(const InputArray<double>& scores, Index k) {
  nb::list out;
  const std::size_t width = scores.shape(1);
  for (std::size_t r = 0; r < scores.shape(0); ++r) {
    out.append(owning(top_k_sorted_by_index(std::span(scores.data() + r * width, width), k)));
  }
  return out;
}

nb::object list_array(nb::handle_t<SelectionHolder> self, Index index) {
  const auto& holder = nb::cast<const SelectionHolder&>(self);
  const Selection& selection = holder.get();
  if (index < 0 || index >= selection.n_lists()) throw nb::index_error("no such list");
  const std::span<const KeyPos> keys = selection.at(index).keys;
  return nb::cast(owning(std::vector<KeyPos>(keys.begin(), keys.end())));
}

template <class T>
NumpyArray<T> copied(std::span<const T> values) {
  return owning(std::vector<T>(values.begin(), values.end()));
}

void bind_selection(nb::module_& module) {
  nb::class_<SelectionHolder>(module, "Selection")
      .def_prop_ro("owner",
                   [](const SelectionHolder& h) { return std::string(enum_name(h.get().owner)); })
      .def_prop_ro("is_dense", [](const SelectionHolder& h) { return h.get().is_dense; })
      .def_prop_ro("n_tok", [](const SelectionHolder& h) { return h.get().n_tok; })
      .def_prop_ro("rows_per_list", [](const SelectionHolder& h) { return h.get().rows_per_list; })
      .def_prop_ro("n_lists", [](const SelectionHolder& h) { return h.get().n_lists(); })
      .def_prop_ro("has_summaries",
                   [](const SelectionHolder& h) { return !h.get().summaries.empty(); })
      .def_prop_ro(
          "keys", [](const SelectionHolder& h) { return copied(h.get().keys()); },
          nb::rv_policy::automatic)
      .def_prop_ro(
          "begins", [](const SelectionHolder& h) { return copied(h.get().begins()); },
          nb::rv_policy::automatic)
      .def_prop_ro(
          "is_forced", [](const SelectionHolder& h) { return copied(h.get().forced_flags()); },
          nb::rv_policy::automatic)
      .def_prop_ro(
          "log_weights", [](const SelectionHolder& h) { return copied(h.get().log_weights()); },
          nb::rv_policy::automatic)
      .def("__len__", [](const SelectionHolder& h) { return h.get().n_lists(); })
      .def("__getitem__", &list_array);
}

}  // namespace

void bind_call(nb::module_& module) {
  bind_selection(module);
  nb::class_<CallBudget>(module, "CallBudget")
      .def_prop_ro("text", [](const CallBudget& b) { return b.state->get().budget.to_string(); })
      .def_prop_ro("value", [](const CallBudget& b) { return b.state->get().budget.value; })
      .def_prop_ro(
          "kind",
          [](const CallBudget& b) { return std::string(enum_name(b.state->get().budget.kind)); })
      .def(
          "keys",
          [](const CallBudget& b, Index owner) {
            const CallState& state = *b.state;
            if (owner < 0 || owner >= n_owners(state.get(), state.owner))
              throw nb::index_error("no such owner");
            return n_keep(state.get(), state.owner, owner, state.page_size);
          },
          nb::arg("owner") = 0)
      .def("top", &top_of_call, nb::arg("scores"));
  nb::class_<CallState>(module, "Call", nb::is_weak_referenceable())
      .def_prop_ro("q", &array_of<&SelectCall::q>)
      .def_prop_ro("k", &array_of<&SelectCall::k>)
      .def_prop_ro("v", &array_of<&SelectCall::v>)
      .def_prop_ro("alive", &alive_array, nb::rv_policy::automatic)
      .def_prop_ro("budget", &budget_of)
      .def_prop_ro("layer", [](const CallState& s) { return s.get().layer; })
      .def_prop_ro("phase",
                   [](const CallState& s) { return std::string(enum_name(s.get().phase)); })
      .def_prop_ro("step", [](const CallState& s) { return s.get().step; })
      .def_prop_ro("pos_begin", [](const CallState& s) { return s.get().pos_begin; })
      .def_prop_ro("n_tok", [](const CallState& s) { return s.get().n_tok; })
      .def_prop_ro("n_keys", [](const CallState& s) { return s.get().k.dim(1); })
      .def_prop_ro("n_q", [](const CallState& s) { return s.get().q.dim(0); })
      .def_prop_ro("n_kv", [](const CallState& s) { return s.get().k.dim(0); })
      .def_prop_ro("d_head", [](const CallState& s) { return s.get().k.dim(2); })
      .def_prop_ro("group", [](const CallState& s) { return s.get().q.dim(0) / s.get().k.dim(0); })
      .def_prop_ro("score_scale", [](const CallState& s) { return s.get().score_scale; })
      .def_prop_ro("score_cap", [](const CallState& s) { return s.get().score_cap; })
      .def_prop_ro(
          "sinks", [](const CallState& s) { return copied(s.get().sink_logits); },
          nb::rv_policy::automatic)
      .def(
          "builtin",
          [](const CallState& s, const std::string& spec) {
            s.get();
            return s.builtin(spec);
          },
          nb::arg("spec"))
      .def("__repr__", [](const CallState& s) {
        return s.call == nullptr ? std::string("<kvscope call, over>")
                                 : fmt::format("<kvscope call: {}>", words_of(*s.call));
      });
  module.def("top", &top_rows, nb::arg("scores"), nb::arg("k"));
}

}  // namespace kvscope::python
