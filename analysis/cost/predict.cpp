#include "analysis/cost/predict.hpp"

#include <algorithm>
#include <cmath>
#include <numeric>

namespace kvscope {

namespace {

/// Kernels of a layer besides attention's own: two norms, q, k and v as one, RoPE, the append to
/// the cache, o, gate and up as one, their product, down.
constexpr double kLaunchesPerLayer = 9.0;

/// One kernel that does the FLOPs and reads the bytes at the same time.
double stage_seconds(const HardwareProfile& hardware, double flops, double compute_share,
                     double bytes, double memory_share) {
  const double compute = flops / (compute_share * hardware.peak_flops());
  const double memory = bytes > 0.0 ? bytes / (memory_share * hardware.bandwidth.at(bytes)) : 0.0;
  return hardware.launch.value + std::max(compute, memory);
}

/// The share of the peak that scoring reaches. Vectors that meet each key (FLOPs per byte of
/// two-byte elements) decide whether it is a pass over memory or a product of matrices: where a
/// profile has measured many of them ("score-many", kManyVectors), it lies between, over the
/// logarithm.
double score_share(const HardwareProfile& hardware, double flops, double bytes) {
  constexpr double kFewVectors = 4.0;  // of the profile's `score`
  constexpr double kManyVectors = 64.0;
  const auto many = hardware.kernels.find("score-many");
  if (many == hardware.kernels.end() || !(bytes > 0.0)) return hardware.score.value;
  const double x = std::clamp(flops / bytes, kFewVectors, kManyVectors);
  const double t = std::log(x / kFewVectors) / std::log(kManyVectors / kFewVectors);
  return hardware.score.value + t * (many->second.value - hardware.score.value);
}

/// Seconds of memory of attending to keys and values. A card keeps the union of a KV head's lists
/// near its processors, and reads a dense cache in one go. A processor's kernel reaches the share
/// of the bandwidth that belongs to its runs, dense attention too; lists that have their own rows
/// are gathered one by one, and what an earlier list of the KV head has brought comes from the
/// nearest cache (the first point of the bandwidth).
double attend_memory_seconds(const LayerWork& work, const HardwareProfile& hardware,
                             const CostSetting& setting) {
  const AttendWork& attend = work.attend;
  const double row_bytes = work.shape.d_head * setting.kv_bytes;  // of one key, or one value
  const double key_bytes = setting.batch * 2.0 * row_bytes;
  const bool is_cpu = hardware.kind == "cpu";
  const double granule = attend.runs > 0.0 ? attend.keys / attend.runs * row_bytes : row_bytes;
  const double share = work.is_dense && !is_cpu ? 1.0 : hardware.gather.at(granule);
  const double bytes = key_bytes * attend.keys;
  double seconds = bytes > 0.0 ? bytes / (share * hardware.bandwidth.at(bytes)) : 0.0;
  if (is_cpu && !work.is_dense && attend.rows > 0.0)
    seconds += key_bytes * std::max(attend.pairs / attend.rows - attend.keys, 0.0) /
               hardware.bandwidth.points.front().second;
  return seconds;
}

}  // namespace

double StageTimes::total() const {
  return std::accumulate(seconds.begin(), seconds.end(), 0.0);
}

StageTimes& StageTimes::operator+=(const StageTimes& other) {
  for (std::size_t i = 0; i < seconds.size(); ++i) seconds[i] += other.seconds[i];
  return *this;
}

StageTimes StageTimes::scaled(double factor) const {
  StageTimes out = *this;
  for (double& one : out.seconds) one *= factor;
  return out;
}

StageTimes predict_layer(const LayerWork& work, const HardwareProfile& hardware,
                         const CostSetting& setting) {
  const CallShape& shape = work.shape;
  const double scale = setting.kv_bytes / 2.0;  // SelectCost counts elements of two bytes
  const double attend = setting.attend.value_or(hardware.attend.value);
  const double row_bytes = shape.d_head * setting.kv_bytes;  // of one key, or one value
  StageTimes times;
  if (work.append_bytes > 0.0) {
    const double keys = shape.n_kv * shape.n_tok * row_bytes;  // read again
    times.of(CostStage::append) =
        stage_seconds(hardware, 0.0, 1.0, setting.batch * (work.append_bytes * scale + keys), 1.0);
  }
  if (work.score_flops > 0.0 || work.score_bytes > 0.0) {
    times.of(CostStage::score) =
        stage_seconds(hardware, setting.batch * work.score_flops,
                      score_share(hardware, work.score_flops, work.score_bytes),
                      setting.batch * work.score_bytes * scale, 1.0);
  }
  if (work.ranked > 0.0)
    times.of(CostStage::topk) =
        hardware.launch.value + setting.batch * work.ranked * hardware.topk.value;
  if (work.attend.pairs > 0.0) {
    const double compute =
        setting.batch * 4.0 * shape.d_head * work.attend.pairs /
        (attend * hardware.attend_rows.at(work.attend.rows) * hardware.peak_flops());
    times.of(CostStage::attend) =
        hardware.launch.value + std::max(compute, attend_memory_seconds(work, hardware, setting));
  }
  if (work.summaries > 0.0) {
    const double pairs = work.summaries * shape.group() * shape.n_tok;
    times.of(CostStage::estimate) =
        stage_seconds(hardware, setting.batch * 4.0 * shape.d_head * pairs,
                      attend * hardware.attend_rows.at(shape.group() * shape.n_tok),
                      setting.batch * 2.0 * work.summaries * row_bytes, 1.0);
  }
  return times;
}

RestOfModel rest_of_model(double n_parameters, double n_layers, double weight_bits) {
  return {n_parameters * weight_bits / 8.0, 2.0 * n_parameters, n_layers * kLaunchesPerLayer};
}

RestOfModel rest_of_model(const ModelConfig& config, double weight_bits) {
  double n = static_cast<double>(config.n_active_parameters());
  // one row of an embedding is read; a tied one is the output projection too
  if (!config.tied_embeddings)
    n -= static_cast<double>(config.n_vocab) * static_cast<double>(config.d_model);
  n -= static_cast<double>(config.n_layer_vocab) *
       static_cast<double>(config.n_layers * config.d_layer_input);
  RestOfModel rest = rest_of_model(n, static_cast<double>(config.n_layers), weight_bits);
  const auto n_experts = static_cast<double>(config.moe.n_experts);
  const auto n_picked = static_cast<double>(config.moe.n_picked);
  if (n_experts > n_picked) {
    const auto unused = static_cast<double>(config.n_parameters() - config.n_active_parameters());
    rest.expert_bytes = unused * n_experts / (n_experts - n_picked) * weight_bits / 8.0;
    rest.expert_share = n_picked / n_experts;
  }
  return rest;
}

double predict_rest(const RestOfModel& rest, double n_tok, const HardwareProfile& hardware,
                    const CostSetting& setting) {
  const double compute = rest.flops_per_token * n_tok * setting.batch /
                         (hardware.matmul.value * hardware.peak_flops());
  double bytes = rest.weight_bytes;
  if (rest.expert_bytes > 0.0) {  // of one token they are among the weights
    const double read = 1.0 - std::pow(1.0 - rest.expert_share, n_tok * setting.batch);
    bytes += rest.expert_bytes * (read - rest.expert_share);
  }
  const double memory = bytes / hardware.bandwidth.at(bytes);
  return rest.n_launches * hardware.launch.value + std::max(compute, memory);
}

LayerWork at_context(const LayerWork& work, double n_ctx, bool keeps_count) {
  CallShape shape = work.shape;
  shape.n_ctx = n_ctx;
  if (work.is_dense) return dense_work(shape);
  const double growth = n_ctx / work.shape.n_ctx;
  LayerWork out = work;
  out.shape = shape;
  // What is scored are the keys before the call; a first call has none.
  const double past = work.shape.n_ctx - work.shape.n_tok;
  const double of_past = past > 0.0 ? std::max(0.0, n_ctx - work.shape.n_tok) / past : growth;
  out.score_flops *= of_past;
  out.score_bytes *= of_past;
  out.ranked *= growth;
  out.summaries *= growth;
  if (!keeps_count) {
    out.attend.pairs *= growth;
    out.attend.keys *= growth;
    out.attend.runs *= growth;
  }
  const AttendWork dense = dense_work(shape).attend;  // no list holds more than there is
  if (out.attend.keys > dense.keys) {
    out.attend.runs = std::min(out.attend.runs, dense.keys);
    out.attend.keys = dense.keys;
  }
  out.attend.pairs = std::min(out.attend.pairs, dense.pairs);
  return out;
}

}  // namespace kvscope
