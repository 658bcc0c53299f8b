// Rendering of chat templates by Python's jinja2, which defines what they mean, in a process of its
// own.
//
// A template comes with a model that somebody else made. It runs in jinja2's sandbox with limits of
// time and memory (render.py); the process is killed where these do not reach, and believed nothing
// beside a text of at most 64 MiB.
#pragma once

#include <memory>
#include <nlohmann/json_fwd.hpp>
#include <string>

namespace kvscope {

/// Safe to use from several threads at once; one process renders for all of them.
class TemplateRenderer {
 public:
  TemplateRenderer();
  ~TemplateRenderer();
  TemplateRenderer(const TemplateRenderer&) = delete;
  TemplateRenderer& operator=(const TemplateRenderer&) = delete;

  /// What the template {"template": SOURCE, "values": {NAME: VALUE, ...}} writes. The process is
  /// started when it is first asked: the Python that KVSCOPE_PYTHON names, else the first of
  /// python3 in PATH and /usr/bin/python3 that has jinja2. Throws ConfigError if there is none,
  /// FormatError with the line if the template is none, fails or goes beyond a limit, and for text
  /// that is no UTF-8, and IoError if the process does not do as it should. `where` names the
  /// template.
  std::string render(const nlohmann::ordered_json& asked, const std::string& where);

 private:
  struct State;
  std::unique_ptr<State> state_;
};

}  // namespace kvscope
