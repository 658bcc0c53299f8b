// The ledger: published speeds beside what the cost model predicts for their settings, without
// tuning per row.
//
// A row's SETTING is what its source says (or what is assumed, and said). Its ROLE: "predicts"; or
// "calibrates", where a constant of a profile was taken from this very row, so that its error says
// nothing; or "bound", where the published time is an upper limit (research code); or "untold",
// where the source names too little for a prediction; or "variant": the figure of another row under
// another assumption, which does not count a second time. A row that predicts is in one GROUP,
// since errors of different groups say different things: "calibration", of a source from which
// another row gave a constant; "stated", its source names every setting; "assumed", it does not
// (the note says what is assumed); "own", measured with this program's kernels.
#pragma once

#include <nlohmann/json_fwd.hpp>

#include "analysis/cost/predict.hpp"
#include "core/base/vocabulary.hpp"

namespace kvscope {

/// decode: `queries` queries at the end of the context. prefill: all of it in one call. chunks: the
/// same in calls of `chunk` queries, each keeping its own keys.
enum class LedgerMode { decode, prefill, chunks };

struct LedgerSetting {
  LedgerMode mode = LedgerMode::decode;
  double n_q = 32, n_kv = 8, d_head = 128;
  double context = 32768;  // tokens
  double queries = 1;      // decode
  double chunk = 128;      // chunks
  double batch = 1;
  double kv_bytes = 2;
  bool causal = true;
  std::string kernel;  // of HardwareProfile::kernels, for dense attention; empty: the profile's
  double layers = 1;   // attention layers
  double dense_layers = 0;   // of them: left dense
  double anchor_layers = 0;  // of them: dense, and scored and ranked for the others
  double keys = 0;           // that a query's list holds; 0: see share
  double share = 1;          // of the keys that a query sees
  double run = 1;            // adjacent keys
  double rows = 0;       // query rows that share what is loaded; 0: all of a KV head's in the call
  double list_rows = 0;  // queries of a list; 0: all of the call
  double score_flops = 0;  // per query head, query and key
  double score_bytes = 0;  // per KV head and key, in elements of two bytes
  double ranked = 0;       // scores per KV head, list and key
  double parameters = 0;   // of the model; 0: attention alone
  double weight_bits = 16;
};

struct LedgerRow {
  std::string id;
  std::string source;    // who published it, and where
  std::string figure;    // what was published, in words
  std::string hardware;  // of a profile; empty: untold
  std::string quantity;  // see predict_quantity
  std::string role;
  std::string group;  // of a row that predicts; else empty
  double published = 0.0;
  std::string unit;
  std::string note;  // what is assumed, or why nothing is predicted
  LedgerSetting setting;
  std::string headline;           // of the three papers: how the claim is called; else empty
  std::vector<std::string> vary;  // headline: what is turned to see what would have to be true
};

/// All rows in the order of ledger.json. Throws FormatError for a file of that form with a fault, a
/// row whose group is not what its source, its note and the rows that calibrate say among them.
std::vector<LedgerRow> parse_ledger(std::string_view text, const std::string& where);
std::vector<LedgerRow> ledger_rows();

/// dense_ms, sparse_ms: attention of all layers. dense_tflops, sparse_tflops, dense_gbs: rates of
/// attending. attention_speedup. dense_tokens, sparse_tokens: tokens/s with the rest of the model.
/// model_speedup: a whole call (decode) or prompt (prefill, chunks). Throws ConfigError for a word
/// that is none of these.
double predict_quantity(const LedgerSetting& setting, std::string_view quantity,
                        const HardwareProfile& hardware);

/// What one setting would have to be for the prediction to meet the published value; nothing if no
/// value between `low` and `high` does. name: context, batch, keys, share, or attend (the share of
/// peak of dense attention).
std::optional<double> needed_value(const LedgerRow& row, const std::string& name,
                                   const HardwareProfile& hardware);

/// One row with its prediction and error (predicted / published - 1); both null where
/// nothing is predicted.
nlohmann::ordered_json ledger_json(const LedgerRow& row);

/// {"kind": "cost-ledger", "groups", "rows", "headlines", "median_error" of all, ...}.
nlohmann::ordered_json ledger_report();

}  // namespace kvscope
