// Geometry on synthetic traces: against loops, planted axes, the spread that RoPE makes.
#include "analysis/kinds/geometry.hpp"

#include "core/trace/result.hpp"
#include "tests/analysis/kinds/on_pool.hpp"
#include "tests/support/planted_trace.hpp"
#include "tests/support/test.hpp"

namespace kvscope::geometry_test {

using Vector = std::vector<double>;

constexpr test::OnPool run{analyze_geometry};

Vector at(TensorView<const float> rows, Index i) {
  return {rows.row(i).begin(), rows.row(i).end()};
}
double dot(const Vector& a, const Vector& b) {
  double sum = 0.0;
  for (std::size_t c = 0; c < a.size(); ++c) sum += a[c] * b[c];
  return sum;
}
double cosine(const Vector& a, const Vector& b) {
  return dot(a, b) / std::sqrt(dot(a, a) * dot(b, b));
}
Vector mean_row(const std::vector<Vector>& rows) {
  Vector mean(rows[0].size(), 0.0);
  for (const auto& row : rows) {
    for (std::size_t c = 0; c < row.size(); ++c)
      mean[c] += row[c] / static_cast<double>(rows.size());
  }
  return mean;
}
std::vector<Vector> all_rows(const Tensor<float>& rows) {
  std::vector<Vector> list;
  for (Index i = 0; i < rows.dim(0); ++i) list.push_back(at(rows.view(), i));
  return list;
}

TEST_CASE("geometry: axes, projections, cosines and norms equal the loops") {
  test::PlantOptions plant{.n_tokens = 37, .sink = 2.0};
  const MemoryTrace trace = test::planted_trace(plant);
  const Index d = plant.d_head, n = plant.n_tokens;
  GeometryOptions options;
  options.basis = GENERATE(GeometryBasis::group, GeometryBasis::head, GeometryBasis::keys);
  MemoryResult result;
  run(trace, options, result);
  const auto variance = result.values<double>("variance");
  const auto explained = result.values<double>("explained");
  const auto center = result.values<double>("center");
  const auto directions = result.values<double>("directions");
  const auto q_projection = result.values<float>("queries/projection");
  const auto k_projection = result.values<float>("keys/projection");
  const Index n_bases = options.basis == GeometryBasis::head ? plant.n_q : plant.n_kv;

  for (Index layer = 0; layer < plant.n_layers; ++layer) {
    for (Index basis = 0; basis < n_bases; ++basis) {
      const bool of_head = options.basis == GeometryBasis::head;
      const Index kv_head = of_head ? basis / 2 : basis;
      const auto keys = all_rows(trace.read_k(layer, kv_head, {0, n}));
      std::vector<Vector> fitted = keys;
      for (Index head = 0; head < plant.n_q; ++head) {
        const bool fits = options.basis == GeometryBasis::group ? head / 2 == kv_head
                          : of_head                             ? head == basis
                                                                : false;
        if (!fits) continue;
        for (const auto& row : all_rows(trace.read_q(layer, head, {0, n}))) fitted.push_back(row);
      }
      const Vector mean = mean_row(fitted);
      const Index slot = layer * n_bases + basis;
      double total = 0.0;
      for (Index c = 0; c < d; ++c) {
        const auto channel = static_cast<std::size_t>(c);
        CHECK(center[slot * d + c] == Approx(mean[channel]).margin(1e-12));
        for (const auto& row : fitted)
          total += std::pow(row[channel] - mean[channel], 2) / static_cast<double>(fitted.size());
      }
      double sum = 0.0;
      for (Index c = 0; c < d; ++c) sum += variance[slot * d + c];
      CHECK(sum == Approx(total));

      for (Index axis = 0; axis < 3; ++axis) {
        const auto first = directions.begin() + (slot * 3 + axis) * d;
        const Vector direction(first, first + d);
        CHECK(dot(direction, direction) == Approx(1.0));
        double along = 0.0;  // variance along the axis, from its definition
        for (const auto& row : fitted) {
          along += std::pow(dot(row, direction) - dot(mean, direction), 2) /
                   static_cast<double>(fitted.size());
        }
        const auto component = static_cast<std::size_t>(slot * d + axis);
        CHECK(variance[component] == Approx(along));
        CHECK(explained[component] == Approx(along / total));
        for (Index i = 0; i < n; ++i) {
          const double expected = dot(keys[i], direction) - dot(mean, direction);
          CHECK(k_projection[(slot * n + i) * 3 + axis] == Approx(expected).margin(1e-5));
        }
        for (Index head = 0; head < plant.n_q; ++head) {
          if (of_head ? head != basis : head / 2 != kv_head) continue;
          const Tensor<float> q = trace.read_q(layer, head, {0, n});
          for (Index i = 0; i < n; ++i) {
            const double expected = dot(at(q.view(), i), direction) - dot(mean, direction);
            CHECK(q_projection[((layer * plant.n_q + head) * n + i) * 3 + axis] ==
                  Approx(expected).margin(1e-5));
          }
        }
      }
    }
  }

  const auto s_q = result.values<float>("queries/s_q");
  const auto q_cos = result.values<float>("queries/cos_mean");
  const auto k_cos = result.values<float>("keys/cos_mean");
  const auto q_norm = result.values<float>("queries/norm");
  const auto k_norm = result.values<float>("keys/norm");
  const auto clustering = result.values<double>("clustering/queries");
  const auto means = result.values<double>("clustering/means");
  const auto k_clustering = result.values<double>("clustering/keys");
  for (Index layer = 0; layer < plant.n_layers; ++layer) {
    for (Index head = 0; head < plant.n_q; ++head) {
      const auto queries = all_rows(trace.read_q(layer, head, {0, n}));
      const auto keys = all_rows(trace.read_k(layer, head / 2, {0, n}));
      const Vector mean_q = mean_row(queries), mean_k = mean_row(keys);
      const Index slot = layer * plant.n_q + head;
      const Index kv_slot = layer * plant.n_kv + head / 2;
      double sum_q = 0.0, sum_k = 0.0;
      for (Index i = 0; i < n; ++i) {
        const auto& query = queries[i];
        const auto& key = keys[i];
        const auto q_at = static_cast<std::size_t>(slot * n + i);
        const auto k_at = static_cast<std::size_t>(kv_slot * n + i);
        CHECK(q_cos[q_at] == Approx(cosine(query, mean_q)).margin(1e-6));
        CHECK(s_q[q_at] == -q_cos[q_at]);
        CHECK(k_cos[k_at] == Approx(cosine(key, mean_k)).margin(1e-6));
        CHECK(q_norm[q_at] == Approx(std::sqrt(dot(query, query))));
        CHECK(k_norm[k_at] == Approx(std::sqrt(dot(key, key))));
        sum_q += cosine(query, mean_q) / static_cast<double>(n);
        sum_k += cosine(key, mean_k) / static_cast<double>(n);
      }
      CHECK(clustering[slot] == Approx(sum_q));
      CHECK(k_clustering[kv_slot] == Approx(sum_k));
      CHECK(means[slot] == Approx(cosine(mean_q, mean_k)));
    }
  }
}

TEST_CASE("geometry: planted axes and clusters are found") {
  // keys spread by 5 along channel 2, queries far away along channel 5; noise elsewhere
  const Index n = 200;
  MemoryTrace trace(make_trace_info(1, 2, 1, 8, n, 50));
  test::Random random(3);
  for (Index t = 0; t < n; ++t) {
    for (Index c = 0; c < 8; ++c) {
      trace.k(0)(0, t, c) = static_cast<float>(0.1 * random.normal());
      for (Index head = 0; head < 2; ++head)
        trace.q(0)(head, t, c) = static_cast<float>(0.1 * random.normal());
    }
    trace.k(0)(0, t, 2) += static_cast<float>(5.0 * random.normal());
    trace.k(0)(0, t, 0) += 20.0f;
    for (Index head = 0; head < 2; ++head) trace.q(0)(head, t, 5) += 30.0f;
    trace.v(0)(0, t, 0) = static_cast<float>(t);  // norms 0, 1, ..., 199
  }
  MemoryResult result;
  const auto summary = run(trace, GeometryOptions{.basis = GeometryBasis::keys}, result);
  CHECK(result.values<double>("directions")[2] == Approx(1.0).margin(1e-3));
  CHECK(summary["layers"][0]["explained_first"].get<double>() > 0.99);
  CHECK(summary["layers"][0]["axes_for_90_percent"] == 1.0);
  CHECK(summary["layers"][0]["query_clustering"].get<double>() > 0.999);
  CHECK(summary["layers"][0]["key_clustering"].get<double>() > 0.9);
  CHECK(std::abs(summary["layers"][0]["mean_query_mean_key"].get<double>()) < 0.01);
  CHECK(summary["layers"][0]["v_norm_mean"].get<double>() == Approx(99.5));
  CHECK(result.values<double>("norms/v_p05")[0] == Approx(9.95));
  CHECK(result.values<double>("norms/v_p95")[0] == Approx(189.05));

  // in the joint basis the first axis is the gap between queries and keys, (20, -30) of channels
  // 0 and 5, with the largest element positive
  MemoryResult joint;
  run(trace, {}, joint);
  const auto gap = joint.values<double>("directions");
  const double length = std::sqrt(20.0 * 20.0 + 30.0 * 30.0);
  CHECK(gap[5] == Approx(30.0 / length).margin(0.01));
  CHECK(gap[0] == Approx(-20.0 / length).margin(0.01));
}

TEST_CASE("geometry: the share of the keys' spread that RoPE makes") {
  // Four keys at -20, -10, 10 and 20 degrees before, at -60, -30, 30 and 60 after.
  TraceInfo info = make_trace_info(1, 1, 1, 2, 4, 4);
  info.capture.k_pre_rope = true;
  MemoryTrace trace(info);
  const auto put = [&](TensorView<float> rows, std::initializer_list<double> degrees) {
    Index t = 0;
    for (const double angle : degrees) {
      rows(0, t, 0) = static_cast<float>(std::cos(angle * M_PI / 180.0));
      rows(0, t++, 1) = static_cast<float>(std::sin(angle * M_PI / 180.0));
    }
  };
  put(trace.side(SideTensor::k_pre_rope, 0), {-20, -10, 10, 20});
  put(trace.k(0), {-60, -30, 30, 60});
  put(trace.q(0), {0, 0, 0, 0});
  MemoryResult result;
  const auto summary = run(trace, {}, result);
  const auto mean_cosine = [](double a, double b) {
    return (std::cos(a * M_PI / 180.0) + std::cos(b * M_PI / 180.0)) / 2.0;
  };
  const double before = mean_cosine(10, 20);
  const double after = mean_cosine(30, 60);
  CHECK(result.values<double>("clustering/keys_before_rope")[0] == Approx(before));
  CHECK(result.values<double>("clustering/keys")[0] == Approx(after));
  CHECK(summary["totals"]["rope_share"].get<double>() == Approx((before - after) / (1.0 - after)));
  MemoryResult without;
  CHECK_FALSE(run(test::planted_trace({}), {}, without)["totals"].contains("rope_share"));
}

}  // namespace kvscope::geometry_test
