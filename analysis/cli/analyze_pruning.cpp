// kvscope analyze pruning: how many pages must be read to choose keys exactly.
#include "analysis/cli/analyze_one.hpp"
#include "analysis/kinds/pruning.hpp"

namespace kvscope::cli {

KVSCOPE_COMMAND(
    211, AnalyzeOne<PruningOptions>, analyze_pruning,
    AnalysisCard{
        .kind = "pruning",
        .summary = "Exact choosing without reading every key: pages that bounds leave",
        .columns = {{"quoka_read", "QuoKA reads"},
                    {"quoka_hold", "holds"},
                    {"quoka_page_size", "page"},
                    {"oracle_read", "oracle reads"},
                    {"oracle_hold", "holds"},
                    {"oracle_page_size", "page"},
                    {"sparq_read", "SparQ reads"},
                    {"sparq_hold", "holds"},
                    {"sparq_page_size", "page"}},
        .headline =
            "of the pages at the longest context must be read, for the exact keys: QuoKA "
            "{quoka_read:3}, exact scores {oracle_read:3}, SparQ {sparq_read:3}; with the boxes' "
            "own bytes {quoka_traffic:3}, {oracle_traffic:3} and {sparq_traffic:3} of the keys",
        .has_units = true})

}  // namespace kvscope::cli
