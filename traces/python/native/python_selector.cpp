// Selectors that a Python function answers: put into the registry, so that replay, sweeps and live
// runs find them.
#include <fmt/format.h>
#include <nanobind/nanobind.h>
#include <nanobind/stl/shared_ptr.h>
#include <nanobind/stl/string.h>
#include <nanobind/stl/tuple.h>
#include <nanobind/stl/vector.h>

#include <algorithm>
#include <limits>
#include <map>

#include "core/base/error.hpp"
#include "core/selectors/candidates.hpp"
#include "core/selectors/registry.hpp"
#include "traces/python/native/arrays.hpp"
#include "traces/python/native/call.hpp"
#include "traces/python/native/errors.hpp"
#include "traces/python/native/kept_lists.hpp"
#include "traces/python/native/module.hpp"

namespace kvscope::python {

namespace nb = nanobind;

namespace {

/// What the decorator said. Never freed: the registry outlives the interpreter.
struct Definition {
  std::string name;
  SelectorCaps caps;
  // ask(call, options, state) -> None, a Selection, ("scores", array) or ("keys", [arrays]).
  nb::object ask;
  nb::object cost;  // cost(call) -> (flops, bytes, metadata bytes), or None
};

/// A method of kvscope that the function calls.
struct Builtin {
  std::unique_ptr<Selector> selector;
  SelectorCaps caps;
  std::vector<std::shared_ptr<SelectionHolder>> selections;  // for the running call, one per budget
};

class PythonSelector final : public Selector {
 public:
  /// With the GIL. options: a dict of the function's keyword arguments.
  PythonSelector(const Definition& definition, nb::object options)
      : definition_(definition), options_(std::move(options)), memory_(nb::dict()) {}
  ~PythonSelector() override {
    const nb::gil_scoped_acquire gil;
    options_.reset();
    memory_.reset();
  }

  std::string_view name() const override { return definition_.name; }
  SelectorCaps caps() const override { return definition_.caps; }

  void reset(const AttentionShape& shape) override {
    shape_ = shape;
    builtins_.clear();
    const nb::gil_scoped_acquire gil;
    memory_ = nb::dict();
  }

  std::vector<Selection> do_select_budgets(SelectCall call,
                                           std::span<const Budget> budgets) override {
    const nb::gil_scoped_acquire gil;
    const CalledBack called_back;
    for (auto& [spec, method] : builtins_) method.selections.clear();
    asked_builtin_ = nullptr;
    std::vector<Selection> selections;
    try {
      while (selections.size() < budgets.size()) add_selections(call, budgets, selections);
    } catch (nb::python_error& error) {
      const std::string words = fmt::format("selector {}: {}", definition_.name, one_line(error));
      keep_failure(std::move(error));
      throw ConfigError(words);
    }
    return selections;
  }

  SelectCost cost(const SelectCall& call, const Selection& selection) const override {
    if (asked_builtin_ != nullptr) return asked_builtin_->selector->cost(call, selection);
    constexpr double kNotKnown = std::numeric_limits<double>::quiet_NaN();
    if (selection.is_dense) return {};
    if (definition_.cost.is_none()) return {kNotKnown, kNotKnown, kNotKnown};
    const nb::gil_scoped_acquire gil;
    const CalledBack called_back;
    try {
      const auto state = std::make_shared<CallState>();
      state->call = &call;
      state->method = definition_.name;
      state->owner = definition_.caps.owner;
      const auto [flops, bytes, metadata] =
          nb::cast<std::tuple<double, double, double>>(definition_.cost(state));
      state->call = nullptr;
      return {flops, bytes, metadata};
    } catch (const nb::cast_error&) {
      throw ConfigError(
          "selector {}: its cost: expected three numbers (FLOPs of scoring, bytes read to score, "
          "bytes of metadata)",
          definition_.name);
    } catch (nb::python_error& error) {
      const std::string words =
          fmt::format("selector {}: its cost: {}", definition_.name, one_line(error));
      keep_failure(std::move(error));
      throw ConfigError(words);
    }
  }

 private:
  /// Asks the function about the next budget and adds what follows: one selection, or those for all
  /// budgets if it gave scores without a look at the budget.
  void add_selections(SelectCall& call, std::span<const Budget> budgets,
                      std::vector<Selection>& selections) {
    const std::size_t at = selections.size();
    call.budget = budgets[at];
    const auto state = std::make_shared<CallState>();
    state->call = &call;
    state->method = definition_.name;
    state->owner = definition_.caps.owner;
    state->page_size = definition_.caps.page_size;
    state->builtin = [&](const std::string& spec) { return ask_builtin(spec, call, budgets, at); };
    struct End {
      CallState& state;
      ~End() {
        state.call = nullptr;
        state.builtin = nullptr;
      }
    } end{*state};
    nb::object view = nb::cast(state);
    {
      const nb::object said = definition_.ask(view, options_, memory_);
      if (said.is_none()) {
        selections.push_back(dense_selection(call, definition_.caps.owner));
      } else if (nb::isinstance<SelectionHolder>(said)) {
        selections.push_back(taken(nb::cast<SelectionHolder&>(said), call));
      } else if (nb::cast<std::string>(said[0]) == "scores") {
        const auto scores = nb::cast<InputArray<double>>(said[1]);
        const auto n_rows = static_cast<Index>(scores.shape(0));
        const std::size_t n_selections = state->read_budget ? at + 1 : budgets.size();
        for (std::size_t b = at; b < n_selections; ++b) {
          call.budget = budgets[b];
          selections.push_back(best_keys(definition_.name, call, state->owner, state->page_size,
                                         std::span(scores.data(), scores.size()), n_rows,
                                         static_cast<Index>(scores.shape(1))));
        }
      } else {
        selections.push_back(
            stated_keys(definition_.name, call, state->owner, state->page_size, lists_of(said[1])));
      }
    }
    // The engine's memory must not be seen again: whoever keeps an array of the call
    // keeps its view.
    if (Py_REFCNT(view.ptr()) > 1) {
      throw ConfigError(
          "selector {}: the function keeps the call or one of its arrays beyond the call, where "
          "its memory is used for other things: expected a copy (call.k.copy()); {}",
          definition_.name, words_of(call));
    }
  }

  static std::vector<std::vector<Index>> lists_of(const nb::object& arrays) {
    std::vector<std::vector<Index>> lists;
    for (const nb::handle array : arrays) {
      const auto keys = nb::cast<InputArray<Index>>(array);
      lists.emplace_back(keys.data(), keys.data() + keys.size());
    }
    return lists;
  }

  Selection taken(SelectionHolder& holder, const SelectCall& call) const {
    if (holder.is_gone) {
      throw ConfigError("selector {}: it returned the same selection twice, expected a new one; {}",
                        definition_.name, words_of(call));
    }
    if (holder.selection.n_tok != call.n_tok) {
      throw ConfigError("selector {}: it returned a selection of {} queries, expected {}; {}",
                        definition_.name, holder.selection.n_tok, call.n_tok, words_of(call));
    }
    holder.is_gone = true;
    return std::move(holder.selection);
  }

  std::shared_ptr<SelectionHolder> ask_builtin(const std::string& spec, const SelectCall& call,
                                               std::span<const Budget> budgets, std::size_t at) {
    const nb::gil_scoped_release released;
    Builtin& method = builtin_of(spec);
    asked_builtin_ = &method;
    if (method.selections.empty()) method.selections.resize(budgets.size());
    if (method.selections[at] == nullptr) {
      const auto hold = [](Selection selection) {
        auto holder = std::make_shared<SelectionHolder>();
        holder->selection = std::move(selection);
        return holder;
      };
      if (call.layer < method.caps.dense_layers || !method.caps.is_defined(call.phase)) {
        method.selections[at] = hold(dense_selection(call, method.caps.owner));
      } else if (budgets.size() == 1) {
        method.selections[at] = hold(method.selector->select(call));
      } else {
        auto all = method.selector->select_budgets(call, budgets);
        for (std::size_t b = 0; b < all.size(); ++b) method.selections[b] = hold(std::move(all[b]));
      }
    }
    return method.selections[at];
  }

  Builtin& builtin_of(const std::string& spec) {
    const auto known = builtins_.find(spec);
    if (known != builtins_.end()) return known->second;
    Builtin method;
    method.selector = selector_registry().make(spec);
    method.caps = method.selector->caps();
    if (method.caps.permanent || method.caps.needs_probs || method.caps.needs_calibration ||
        method.caps.needs_draft) {
      throw ConfigError(
          "selector {}: {} evicts, votes with softmax weights, learns from a text or needs a draft "
          "model, so that a function cannot ask it: expected a method that answers each call by "
          "itself",
          definition_.name, spec);
    }
    method.selector->reset(shape_);
    return builtins_.emplace(spec, std::move(method)).first->second;
  }

  static std::string one_line(nb::python_error& error) {
    std::string text = nb::cast<std::string>(nb::str(error.value()));
    std::replace(text.begin(), text.end(), '\n', ' ');
    return text;
  }

  const Definition& definition_;
  nb::object options_;
  nb::object memory_;  // the function's own, empty at the start of a sequence
  std::map<std::string, Builtin> builtins_;
  const Builtin* asked_builtin_ = nullptr;  // in the running call
};

/// Adds a function to the registry. `options`: (name, help, default, expected) each; `parse` makes
/// the dict of keyword arguments from assigned texts, and raises for a bad one.
void put_selector(const std::string& name, const std::string& title, const std::string& idea,
                  const std::vector<std::string>& phases, const std::string& owner,
                  const std::vector<std::string>& budgets, Index dense_layers, Index page_size,
                  bool needs_values, const nb::list& options, const nb::object& parse,
                  const nb::object& ask, const nb::object& cost) {
  auto* const definition = new Definition;  // leaked, see above
  definition->name = name;
  definition->ask = ask;
  definition->cost = cost;
  SelectorCaps& caps = definition->caps;
  caps.prefill = caps.decode = caps.verify = false;
  for (const std::string& word : phases) {
    const auto phase = enum_of<Phase>("phases", word);
    (phase == Phase::prefill  ? caps.prefill
     : phase == Phase::decode ? caps.decode
                              : caps.verify) = true;
  }
  caps.owner = enum_of<ListOwner>("owner", owner);
  for (const std::string& kind : budgets)
    caps.budgets.push_back(enum_of<Budget::Kind>("budgets", kind));
  caps.dense_layers = dense_layers;
  caps.page_size = page_size;
  caps.needs_values = needs_values;
  SelectorEntry entry;
  entry.name = name;
  entry.title = title;
  entry.source = "own, in Python";
  entry.idea = idea;
  entry.caps = caps;
  for (const nb::handle option : options) {
    const auto words = nb::cast<std::vector<std::string>>(option);
    entry.options.push_back({words.at(0), words.at(1), words.at(2), words.at(3)});
  }
  entry.make = [definition,
                parse = nb::object(parse).release()](const SelectorOptions& assignments) {
    const nb::gil_scoped_acquire gil;
    nb::dict texts;
    for (const auto& [option, value] : assignments) texts[option.c_str()] = value;
    try {
      return std::unique_ptr<Selector>(
          std::make_unique<PythonSelector>(*definition, nb::object(parse(texts))));
    } catch (nb::python_error& error) {
      throw ConfigError(nb::cast<std::string>(nb::str(error.value())));
    }
  };
  put_own_selector(std::move(entry));
}

}  // namespace

void bind_selectors(nb::module_& module) {
  module.def("put_selector", &put_selector, nb::arg("name"), nb::arg("title"), nb::arg("idea"),
             nb::arg("phases"), nb::arg("owner"), nb::arg("budgets"), nb::arg("dense_layers"),
             nb::arg("page_size"), nb::arg("needs_values"), nb::arg("options"), nb::arg("parse"),
             nb::arg("ask"), nb::arg("cost").none());
}

}  // namespace kvscope::python
