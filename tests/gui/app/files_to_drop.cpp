// files_to_drop of random_user.hpp: one file of every kind, good and broken, that somebody may
// drop.
#include <filesystem>
#include <fstream>
#include <string>
#include <vector>

#include "tests/gui/app/random_user.hpp"

namespace kvscope::gui::test {

namespace fs = std::filesystem;

std::vector<fs::path> files_to_drop(const fs::path& folder) {
  std::vector<fs::path> files;
  const auto put = [&](const char* name, const std::string& bytes) {
    std::ofstream(folder / name, std::ios::binary) << bytes;
    files.push_back(folder / name);
  };
  const std::string verifier = testing::read_file(embedded_trace(/*draft=*/false));
  put("verifier.h5", verifier);
  put("draft.h5", testing::read_file(embedded_trace(/*draft=*/true)));
  put("short.h5", testing::read_file(embedded_trace(/*draft=*/false, 96, 4)));
  put("cut.h5", verifier.substr(0, verifier.size() / 2));
  std::string damaged = verifier;
  for (std::size_t i = damaged.size() / 3; i < damaged.size(); i += 997) damaged[i] = '\xff';
  put("damaged.h5", damaged);
  put("empty.h5", "");
  put("noise.h5", std::string(5000, '\x89'));
  const std::string sweep =
      "trace,phase,selector,budget_kind,layer,q_head,budget,dense,window,kept,mass_mean\n"
      "t,prefill,quest,tokens,1,0,16,0,0,16,0.5\nt,prefill,quest,tokens,1,1,16,0,0,16,0.6\n";
  put("sweep.csv", sweep);
  put("odd.csv", "a,b\n1,nan\n\"x\ny\",1e999\n,,,\n");
  put("cut.csv", sweep.substr(0, 130));
  put("list.json", "[1, 2, {\"a\": null}]");
  put("session.json",
      R"({"kind": "kvscope-session", "version": 1, "traces": [{"path": "verifier.h5"}, {"path": "draft.h5"}],)"
      R"("layout": "budget"})");
  put("hostile.json", R"({"kind": "kvscope-session", "traces": 7, "selection": {"layer": -9e99}})");
  put("words.txt", "It was the best of times, it was the worst of times.\n\xff\xfe\n");
  fs::create_directory(folder / "folder.h5");
  files.push_back(folder / "folder.h5");
  files.push_back(folder / "missing.h5");
  return files;
}

}  // namespace kvscope::gui::test
