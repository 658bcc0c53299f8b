# cmake -DSOURCES=LIST -DOUT=FILE -P code_version.cmake: the function code_version() of analysis/runs/store.hpp, from the contents of the
# files that LIST names. It runs when one of them has changed: what is not committed counts, too.
file(STRINGS "${SOURCES}" sources)
set(hashes "")
foreach(source IN LISTS sources)
  file(SHA256 "${source}" hash)
  string(APPEND hashes "${hash}")
endforeach()
string(SHA256 code "${hashes}")
string(SUBSTRING "${code}" 0 8 code)
file(WRITE "${OUT}"
"#include \"analysis/runs/store.hpp\"

namespace kvscope {
std::string_view code_version() {
  return \"${code}\";
}
}  // namespace kvscope
")
