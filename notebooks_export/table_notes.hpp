// Sentences below a table: what its cells are means of, what was left out, what is not ranked.
#pragma once

#include <string>
#include <vector>

#include "notebooks_export/table_fields.hpp"
#include "notebooks_export/table_marks.hpp"
#include "notebooks_export/table_pivot.hpp"

namespace kvscope {

/// "Of verifier, task perplexity, budget tokens=256; n = 43 scored tokens.": what all rows agree
/// in and no field says, and how much was measured for a row of the result.
std::string subject_sentence(const Table& table, const RowSlots& rows,
                             const std::vector<TableField>& fields);

/// "Each cell is the mean of 8 rows; in brackets: the recorded interval."; `dense`: of
/// dense_methods.
std::string mean_sentence(const TablePivot& pivot, Spread spread, const std::string& dense);

/// "Quest: 2 of 8, ..." for methods that leave rows of the result dense; empty if none does.
std::string dense_methods(const Table& table, const RowSlots& rows,
                          const std::vector<TableField>& fields);

/// "† Another cost than density=0.05, hence not marked: vattention (0.194; not reached: ...).";
/// empty if every method met it. `targets`: costs of these rows. Full attention costs what it
/// costs.
std::string missed_sentence(const Table& table, const MatchedRows& matched, const KeyTexts& targets,
                            const RowSlots& rows, const std::vector<TableField>& fields);

/// "Prompts that the dense model does not answer are left out: common_words (512, 1024). Averaged
/// over the kinds passkey and multi_key."
std::string prompts_sentence(const LeftOut& left_out);

/// "Not marked, since gates doubt it: too-few-trials (3 rows of the result), ..."; empty
/// if none does. `doubt`: null if the result has no such column.
std::string doubts_sentence(const TableColumn* doubt, const RowSlots& rows);

/// "Not marked, since it keeps every key: ThinK."; empty without such a method.
std::string whole_sentence(const Table& table, const RowSlots& rows,
                           const std::vector<TableField>& fields);

/// "Bold: apart from every other value by the 95 % interval of the paired difference over heads;
/// underlined: from all but the bold one. ..."; empty if what is shown decided.
/// `units`: of unit_word.
std::string marks_sentence(const MarkedBy& by, const std::string& units);

/// NumberFormats::sentence of the rows that are not of f32, and how many these are.
std::string formats_sentence(const Table& table, const RowSlots& rows);

}  // namespace kvscope
