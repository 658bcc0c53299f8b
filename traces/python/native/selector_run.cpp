// One selector on its way through a sequence whose tensors Python holds: the call protocol of
// core/selectors/selector.hpp, for the conformance suite and for models that run in Python.
#include <nanobind/nanobind.h>
#include <nanobind/stl/optional.h>
#include <nanobind/stl/shared_ptr.h>
#include <nanobind/stl/string.h>
#include <nanobind/stl/vector.h>

#include <algorithm>
#include <array>
#include <functional>
#include <map>
#include <span>
#include <utility>

#include "core/attention/remote_rows.hpp"
#include "core/base/error.hpp"
#include "core/base/parallel.hpp"
#include "core/selectors/candidates.hpp"
#include "core/selectors/method_spec.hpp"
#include "core/sim/attended.hpp"
#include "core/sim/model_projection.hpp"
#include "core/sim/protocol.hpp"
#include "core/sim/rotations.hpp"
#include "traces/python/native/arrays.hpp"
#include "traces/python/native/call.hpp"
#include "traces/python/native/errors.hpp"
#include "traces/python/native/module.hpp"

namespace kvscope::python {

namespace nb = nanobind;

namespace {

/// Keys or values that come a few at a time.
class GrowingRows {
 public:
  /// rows [n_heads, n, d]: those before position n_keys that are not there yet.
  void append(TensorView<const float> rows, Index n_keys, const AttentionShape& shape) {
    const Shape expected{shape.n_kv, n_keys - n_, shape.d_head};
    if (rows.shape() != expected) {
      throw ShapeError(
          "keys or values that the run does not have yet: expected the shape {}, found {}",
          to_string(expected), to_string(rows.shape()));
    }
    if (rows_.count() == 0 || n_keys > rows_.dim(1)) {
      auto more = Tensor<float>::uninitialized(
          {rows.dim(0), std::max(n_keys + n_keys / 4, Index{64}), rows.dim(2)});
      if (n_ > 0) copy(view(), more, 0);
      rows_ = std::move(more);
    }
    copy(rows, rows_, n_);
    n_ = n_keys;
  }
  void truncate(Index n_keys) { n_ = std::min(n_, n_keys); }
  Index n_rows() const { return n_; }
  /// [n_heads, n, d]
  TensorView<const float> view() const { return std::as_const(rows_).view().range(1, 0, n_); }

 private:
  static void copy(TensorView<const float> from, Tensor<float>& to, Index at) {
    for (Index head = 0; head < from.dim(0); ++head) {
      for (Index t = 0; t < from.dim(1); ++t)
        std::ranges::copy(from.sub(head).row(t), &to(head, at + t, Index{0}));
    }
  }

  Tensor<float> rows_;
  Index n_ = 0;
};

/// Rows that a Python object has, on whatever device: what methods ask about them goes to it.
/// `object` has methods of the same names (kvscope/torch_rows.py): lists arrive as arrays of
/// positions, one per KV head or none at all; answers are one array of f64 per row. May be asked
/// without the GIL, from any thread. Its exceptions pass through; answers of another size than was
/// asked for are ShapeErrors.
class PythonRows final : public RemoteRows {
 public:
  /// n_keys: of the context.
  PythonRows(nb::object object, const AttentionShape& shape, Index n_keys)
      : object_(std::move(object)), shape_(shape), n_keys_(n_keys) {}

  std::vector<std::vector<double>> softmax_votes(std::span<const std::span<const KeyPos>> lists,
                                                 Index first_row, Index end_row) const override {
    const nb::gil_scoped_acquire acquired;
    return by_list(object_.attr("softmax_votes")(arrays_of(lists), first_row, end_row), lists);
  }
  void scores(Index q_head, Index first_row, Index end_row, std::span<double> out) const override {
    const nb::gil_scoped_acquire acquired;
    fill(object_.attr("scores")(q_head, first_row, end_row), std::array{out});
  }
  std::vector<std::vector<double>> mean_cosines(std::span<const std::span<const KeyPos>> lists,
                                                bool takes_unit, double eps) const override {
    const nb::gil_scoped_acquire acquired;
    return by_list(object_.attr("mean_cosines")(arrays_of(lists), takes_unit, eps), lists);
  }
  std::vector<std::vector<double>> inverse_norms(std::span<const std::span<const KeyPos>> lists,
                                                 double eps) const override {
    const nb::gil_scoped_acquire acquired;
    return by_list(object_.attr("inverse_norms")(arrays_of(lists), eps), lists);
  }
  void linear_scores(std::span<const double> vectors, TokenRange keys,
                     std::span<const std::span<double>> out) const override {
    if (out.empty() || keys.size() == 0) return;
    const nb::gil_scoped_acquire acquired;
    fill(object_.attr("linear_scores")(array_of(vectors, out.size()), keys.begin, keys.end), out);
  }
  void largest_scores(std::span<const double> vectors, TokenRange keys,
                      std::span<const std::span<double>> out) const override {
    if (out.empty() || keys.size() == 0) return;
    const nb::gil_scoped_acquire acquired;
    fill(object_.attr("largest_scores")(array_of(vectors, out.size()), keys.begin, keys.end), out);
  }
  std::vector<std::vector<double>> value_sums(TokenRange keys) const override {
    const nb::gil_scoped_acquire acquired;
    std::vector<std::vector<double>> sums;
    for (const nb::handle& row :
         rows_of(object_.attr("value_sums")(keys.begin, keys.end), shape_.n_kv))
      sums.push_back(row_of(row, static_cast<std::size_t>(shape_.d_head)));
    return sums;
  }

 private:
  using Numbers = nb::ndarray<const double, nb::c_contig, nb::device::cpu>;

  static nb::list arrays_of(std::span<const std::span<const KeyPos>> lists) {
    nb::list out;
    for (const auto list : lists) out.append(owning(std::vector<KeyPos>(list.begin(), list.end())));
    return out;
  }
  static std::span<const double> numbers_of(const nb::handle& answer, std::size_t n) {
    const auto numbers = nb::cast<Numbers>(answer);
    if (numbers.size() != n) {
      throw ShapeError("an answer of rows in Python: expected {} numbers, found {}", n,
                       numbers.size());
    }
    return {numbers.data(), n};
  }
  static std::vector<double> row_of(const nb::handle& answer, std::size_t n) {
    const std::span<const double> numbers = numbers_of(answer, n);
    return {numbers.begin(), numbers.end()};
  }
  /// The answer's items: as many as there are KV heads.
  static nb::list rows_of(const nb::object& answer, Index n_kv) {
    nb::list rows(answer);
    if (static_cast<Index>(nb::len(rows)) != n_kv) {
      throw ShapeError("an answer of rows in Python: expected {} rows, found {}", n_kv,
                       nb::len(rows));
    }
    return rows;
  }
  static void fill(const nb::object& answer, std::span<const std::span<double>> out) {
    const std::size_t n_keys = out.front().size();
    const std::span<const double> numbers = numbers_of(answer, out.size() * n_keys);
    for (std::size_t i = 0; i < out.size(); ++i)
      std::ranges::copy(numbers.subspan(i * n_keys, n_keys), out[i].begin());
  }
  static NumpyArray<double> array_of(std::span<const double> vectors, std::size_t n_rows) {
    return owning(std::vector<double>(vectors.begin(), vectors.end()),
                  {n_rows, vectors.size() / n_rows});
  }
  std::vector<std::vector<double>> by_list(const nb::object& answer,
                                           std::span<const std::span<const KeyPos>> lists) const {
    const nb::list rows = rows_of(answer, shape_.n_kv);
    std::vector<std::vector<double>> out;
    for (Index i = 0; i < shape_.n_kv; ++i) {
      const auto at = static_cast<std::size_t>(i);
      out.push_back(
          row_of(rows[at], lists.empty() ? static_cast<std::size_t>(n_keys_) : lists[at].size()));
    }
    return out;
  }

  nb::object object_;
  const AttentionShape& shape_;
  Index n_keys_;
};

using Selections = std::vector<std::shared_ptr<SelectionHolder>>;

class Run {
 public:
  Run(const std::string& spec, Index n_layers, Index n_q, Index n_kv, Index d_head,
      Index max_tokens, float score_scale, const std::vector<std::string>& budgets,
      std::optional<Index> dense_layers, bool f32, int n_threads, float score_cap,
      const std::vector<bool>& has_window, const std::string& model_config,
      const std::shared_ptr<OutputProjection>& projection)
      : pool_(std::make_shared<ThreadPool>(n_threads)) {
    AttentionShape shape;
    shape.n_layers = n_layers;
    shape.n_q = n_q;
    shape.n_kv = n_kv;
    shape.d_head = d_head;
    shape.max_tokens = max_tokens;
    shape.score_scale = score_scale;
    shape.score_cap = score_cap;
    shape.has_window = has_window;
    TraceInfo info;
    info.model_config = model_config;
    shape.rotations = rotations_of(info);
    shape.projection = projection;
    if (n_layers < 1 || n_kv < 1 || n_q < n_kv || n_q % n_kv != 0 || d_head < 1) {
      throw ShapeError(
          "a run of {} layers, {} query heads, {} KV heads and {} channels: expected at least one "
          "of each, and query heads a multiple of KV heads",
          n_layers, n_q, n_kv, d_head);
    }
    std::vector<Budget> parsed;
    for (const std::string& text : budgets) parsed.push_back(Budget::parse(text));
    MethodSpec method(spec);
    if (dense_layers) method.fill("dense-layers", *dense_layers);
    make_ = [=, precision = f32 ? ScorePrecision::f32 : ScorePrecision::f64] {
      return std::make_unique<SelectorRun>(method.make(), shape, parsed, dense_layers, precision);
    };
    run_ = make_();
  }
  /// Goes on as `other` by itself. Of the rows of next_call() it has none yet.
  Run(const Run& other)
      : make_(other.make_), pool_(other.pool_), run_(make_()), verified_(other.verified_) {
    run_->go_on_from(*other.run_);
  }

  void begin_call(const std::string& phase, Index n_tok) {
    run_->begin_call(enum_of<Phase>("phase", phase), n_tok);
  }

  /// q [n_q, n_tok, d_head], k and v [n_kv, n_ctx, d_head]: rank 3, C order. Returns one
  /// selection per budget.
  Selections layer_call(Index layer, const InputArray<float>& q, const InputArray<float>& k,
                        const std::optional<InputArray<float>>& v,
                        const std::vector<float>& sink_logits) {
    AttentionQuestion call{.layer = layer, .q = view_of(q), .k = view_of(k)};
    call.sink_logits = sink_logits;
    if (v) call.v = view_of(*v);
    return selections_to(call);
  }

  /// The same with k and v [n_kv, n, d_head] of the keys that the run does not have yet, the call's
  /// last; for runs that are asked about one layer.
  Selections next_call(Index layer, const InputArray<float>& q, const InputArray<float>& k,
                       const std::optional<InputArray<float>>& v) {
    k_.append(view_of(k), run_->n_keys(), run_->shape());
    AttentionQuestion call{.layer = layer, .q = view_of(q), .k = k_.view()};
    if (v) {
      v_.append(view_of(*v), run_->n_keys(), run_->shape());
      call.v = v_.view();
    }
    return selections_to(call);
  }

  /// The same about rows that a Python object has (PythonRows); q where the method needs it.
  /// Throws ConfigError where it looks at more than it is given.
  Selections remote_call(Index layer, const nb::object& object,
                         const std::optional<InputArray<float>>& q) {
    const HostRows needed = run_->host_rows();
    if (needed == HostRows::all || (needed == HostRows::queries && !q)) {
      throw ConfigError(
          "a call about rows in Python: {} looks at {} itself (expected one budget, f32=True, and "
          "q where caps() say host_rows=queries)",
          run_->selector().name(), needed == HostRows::all ? "keys" : "queries");
    }
    const PythonRows rows(object, run_->shape(), run_->n_keys());
    std::optional<PythonRows> accepted;  // of the layer's last verification
    if (const Index n = run_->n_verified(layer); n > 0)
      accepted.emplace(verified_.at(layer).attr("first")(n), run_->shape(), run_->pos_begin());
    AttentionQuestion call = shapes_of_call(layer);
    if (q) call.q = view_of(*q);
    call.remote = &rows;
    Selections selections = selections_to(call, accepted ? &*accepted : nullptr);
    verified_.erase(layer);
    if (run_->waits(layer)) verified_.emplace(layer, object);
    return selections;
  }

  /// Takes the place of a call that the method is not asked in.
  void skip_call(Index layer) {
    const AttentionQuestion call = shapes_of_call(layer);
    Selection dense(ListOwner::layer, call.q.dim(1), call.q.dim(1));
    dense.is_dense = true;
    run_->planned_call(call, std::move(dense));
  }

  /// While closed the method is not asked.
  void set_open(bool is_open) { run_->set_open(is_open); }
  void rollback(Index n_keys) {
    run_->rollback(n_keys);
    k_.truncate(n_keys);
    v_.truncate(n_keys);
  }
  const SelectorRun& run() const { return *run_; }
  Index n_held() const { return k_.n_rows(); }

 private:
  AttentionQuestion shapes_of_call(Index layer) const {
    const AttentionShape& shape = run_->shape();
    const Index n_tok = run_->n_keys() - run_->pos_begin();
    const TensorView<const float> kv(nullptr, Shape{shape.n_kv, run_->n_keys(), shape.d_head});
    return {
        .layer = layer, .q = {nullptr, Shape{shape.n_q, n_tok, shape.d_head}}, .k = kv, .v = kv};
  }
  Selections selections_to(const AttentionQuestion& call, const RemoteRows* verified = nullptr) {
    return with_python_failures([&] {
      std::vector<std::shared_ptr<SelectionHolder>> out;
      for (const Selection& selection : released([&] {
             return run_->layer_call(call, {.pool = pool_.get(), .verified = verified});
           })) {
        auto holder = std::make_shared<SelectionHolder>();
        holder->selection = selection.clone();
        out.push_back(std::move(holder));
      }
      return out;
    });
  }

  std::function<std::unique_ptr<SelectorRun>()> make_;
  std::shared_ptr<ThreadPool> pool_;
  std::unique_ptr<SelectorRun> run_;
  std::map<Index, nb::object> verified_;  // the rows of a layer that waits
  GrowingRows k_, v_;                     // of next_call()
};

/// Throws ConfigError for a budget that the method does not understand.
nb::dict caps_of(const std::string& spec, const std::optional<std::string>& budget) {
  const SelectorCaps caps = MethodSpec(spec).caps();
  if (budget) {
    const Budget parsed = Budget::parse(*budget);
    if (!caps.budgets.empty()) check_budget_kind(spec, caps, parsed);
  }
  nb::dict out;
  nb::list phases;
  for (const Phase phase : {Phase::prefill, Phase::decode, Phase::verify}) {
    if (caps.is_defined(phase)) phases.append(std::string(enum_name(phase)));
  }
  nb::list budgets;
  for (const Budget::Kind kind : caps.budgets) budgets.append(std::string(enum_name(kind)));
  out["phases"] = phases;
  out["budgets"] = budgets;
  out["owner"] = std::string(enum_name(caps.owner));
  out["permanent"] = caps.permanent;
  out["needs_probs"] = caps.needs_probs;
  out["needs_calibration"] = caps.needs_calibration;
  out["needs_draft"] = caps.needs_draft;
  out["needs_values"] = caps.needs_values;
  out["needs_rotation"] = caps.needs_rotation;
  out["needs_projection"] = caps.needs_projection;
  out["artifact_option"] = std::string(caps.artifact_option);
  out["cross_layer"] = caps.cross_layer;
  out["steps_per_choice"] = caps.steps_per_choice;
  const std::unique_ptr<Selector> selector = MethodSpec(spec).make();
  out["host_rows"] = std::string(enum_name(selector->host_rows()));
  out["remembers"] = selector->remembers();
  out["page_size"] = caps.page_size;
  out["dense_layers"] = caps.dense_layers;
  return out;
}

/// out [d_model, n_q * d_head]; group: query heads per KV head.
std::shared_ptr<OutputProjection> projection(const InputArray<float>& out, Index group) {
  Tensor<float> values = Tensor<float>::uninitialized(
      {static_cast<Index>(out.shape(0)), static_cast<Index>(out.shape(1))});
  std::copy_n(out.data(), out.size(), values.data());
  return std::const_pointer_cast<OutputProjection>(projection_of(Matrix(std::move(values)), group));
}

/// The keys that query `row` of a call from pos_begin on attends to under a selection, ascending.
NumpyArray<KeyPos> attended(const SelectionHolder& holder, Index group, Index q_head,
                            Index pos_begin, Index row) {
  return owning(attended_keys(holder.get(), group, q_head, pos_begin, row, std::nullopt));
}

}  // namespace

void bind_run(nb::module_& module) {
  nb::class_<OutputProjection>(module, "Projection");
  module.def("projection", &projection, nb::arg("out"), nb::arg("group"));
  nb::class_<Run>(module, "Run")
      .def(nb::init<const std::string&, Index, Index, Index, Index, Index, float,
                    const std::vector<std::string>&, std::optional<Index>, bool, int, float,
                    const std::vector<bool>&, const std::string&,
                    const std::shared_ptr<OutputProjection>&>(),
           nb::arg("spec"), nb::arg("n_layers"), nb::arg("n_q"), nb::arg("n_kv"), nb::arg("d_head"),
           nb::arg("max_tokens"), nb::arg("score_scale"), nb::arg("budgets"),
           nb::arg("dense_layers") = nb::none(), nb::arg("f32") = false, nb::arg("n_threads") = 1,
           nb::arg("score_cap") = 0.0f, nb::arg("has_window") = std::vector<bool>{},
           nb::arg("model_config") = "", nb::arg("projection") = nb::none())
      .def("begin_call", &Run::begin_call, nb::arg("phase"), nb::arg("n_tok"))
      .def("layer_call", &Run::layer_call, nb::arg("layer"), nb::arg("q"), nb::arg("k"),
           nb::arg("v") = nb::none(), nb::arg("sinks") = std::vector<float>{})
      .def("next_call", &Run::next_call, nb::arg("layer"), nb::arg("q"), nb::arg("k"),
           nb::arg("v") = nb::none())
      .def_prop_ro("n_held", &Run::n_held)
      .def("remote_call", &Run::remote_call, nb::arg("layer"), nb::arg("rows"),
           nb::arg("q") = nb::none())
      .def("skip_call", &Run::skip_call, nb::arg("layer"))
      .def("__copy__", [](const Run& run) { return new Run(run); })
      .def("set_open", &Run::set_open, nb::arg("is_open"))
      .def("rollback", &Run::rollback, nb::arg("n_keys"))
      .def("n_alive", [](const Run& r, Index layer,
                         Index kv_head) { return r.run().alive(layer).n_alive(kv_head); })
      .def_prop_ro("n_keys", [](const Run& r) { return r.run().n_keys(); })
      .def("selects_in", [](const Run& r, Index layer) { return r.run().selects_in(layer); })
      .def("cost", [](const Run& r, std::size_t budget) {
        const SelectCost cost = r.run().cost(budget);
        return nb::make_tuple(cost.score_flops, cost.score_bytes, cost.metadata_bytes);
      });
  module.def("caps", &caps_of, nb::arg("spec"), nb::arg("budget") = nb::none());
  module.def("attended", &attended);
}

}  // namespace kvscope::python
