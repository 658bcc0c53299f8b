// Where a selector takes hold of the running model: who chooses the keys that a layer attends to.
#pragma once

#include <functional>
#include <optional>

#include "core/attention/list_plan.hpp"
#include "core/attention/question.hpp"
#include "core/attention/remote_rows.hpp"
#include "core/attention/selection.hpp"

namespace kvscope {

enum class ChosenAbout { nothing, counts, lists };

/// The keys that a backend chose by a plan, as far as they were asked for.
struct ChosenKeys {
  std::function<ListCounts()> counts;
  std::function<Selection()> lists;
};

/// Chooses keys in the layers that it takes; the model attends to them. Called in layer order
/// within a forward call.
class AttentionPolicy {
 public:
  virtual ~AttentionPolicy() = default;
  /// False leaves the layer to dense attention, and saves the rows of q that choose() looks at.
  virtual bool takes(Index layer) const = 0;
  /// False if choose() never looks at the values: a store of another dtype then need
  /// not widen them.
  virtual bool reads_values() const { return true; }
  /// The keys of every query, valid until the next call; is_dense: every visible one. Lists are
  /// taken as they are, up to a query's own position: a layer's sliding window does not cut them.
  virtual const Selection& choose(const AttentionQuestion& question) = 0;
  /// The plan by which choose() would answer, if a backend may follow it alone: it then chooses and
  /// attends without the rows of q and k, and on_planned() takes the place of choose() and
  /// on_attended(). Empty: choose() must be asked.
  virtual std::optional<ListPlan> plan(Index layer) {
    (void)layer;
    return std::nullopt;
  }
  /// What on_planned() asks about keys that were chosen by this plan.
  virtual ChosenAbout asks(const ListPlan& plan) const {
    (void)plan;
    return ChosenAbout::nothing;
  }
  /// Called in layer order: for lists when the layer has attended, which waits for it; else at the
  /// end of the call or before choose() of a later layer, so that no layer waits for the device.
  /// `question` has shapes and positions; its tensors have no data.
  virtual void on_planned(const AttentionQuestion& question, const ListPlan& plan,
                          const ChosenKeys& chosen) {
    (void)question, (void)plan, (void)chosen;
  }
  /// What choose() needs on the host of this layer; for the rest it asks the question's `remote`,
  /// where the backend has one.
  virtual HostRows host_rows(Index layer) {
    (void)layer;
    return HostRows::all;
  }
  /// Called after the layer attended, for bookkeeping: its time counts neither as selection nor as
  /// attention.
  virtual void on_attended(const AttentionQuestion& question, const Selection& selection) {
    (void)question;
    (void)selection;
  }
};

}  // namespace kvscope
