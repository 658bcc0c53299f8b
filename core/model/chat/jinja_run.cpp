// Statements of a running template.
#include "core/model/chat/jinja_run.hpp"

#include "core/base/error.hpp"

namespace kvscope::jinja {

/// One level of calls deeper while it lives; remembers the line for messages.
class Run::Deeper {
 public:
  Deeper(Run& run, int line) : run_(run) {
    run.line_ = line;
    run.pay(1);
    if (++run.depth_ <= kMostCalls) return;
    --run.depth_;
    throw FormatError("calls nest more than {} levels deep", kMostCalls);
  }
  ~Deeper() { --run_.depth_; }
  Deeper(const Deeper&) = delete;
  Deeper& operator=(const Deeper&) = delete;

 private:
  Run& run_;
};

const Value* Arguments::find(std::size_t place, std::string_view name) const {
  if (place < values.size()) return &values[place];
  for (const Entry& entry : named)
    if (entry.first == name) return &entry.second;
  return nullptr;
}

Run::Run(const Body& body, std::vector<Entry> globals, std::int64_t more_work)
    : body_(body), work_left_(kMostWork + more_work) {
  for (Entry& entry : globals) globals_.names[entry.first] = std::move(entry.second);
  for (const char* name : {"range", "namespace", "dict", "raise_exception", "strftime_now"})
    globals_.names[name] = Value(Value::Held(Function{nullptr, name}));
  root_.outer = &globals_;
}

Run::~Run() {
  for (const auto& space : namespaces_) space->fields.entries.clear();
}

std::string Run::write() {
  std::string out;
  try {
    execute(body_, root_, out);
  } catch (const FormatError& error) {
    throw FormatError("line {}: {}", line_, error.what());
  }
  return out;
}

void Run::pay(std::int64_t units) {
  if (units > work_left_)
    throw FormatError("it does more work than a chat template needs (an endless loop?)");
  work_left_ -= units;
}

Value Run::text(std::string text) {
  pay_text(text.size());
  return Value::text(std::move(text));
}

void Run::append(std::string& out, std::string_view text) {
  pay_text(text.size());
  out += text;
}

std::string Run::shown(const Value& value) {
  if (value.is_undefined()) return "";
  if (const std::string* text = value.as_text()) {
    pay_text(text->size());
    return *text;
  }
  return python_text(*this, value);
}

Run::Flow Run::execute(const Body& body, Scope& scope, std::string& out) {
  for (const Statement& statement : body) {
    const Flow flow = execute(statement, scope, out);
    if (flow != Flow::on) return flow;
  }
  return Flow::on;
}

Run::Flow Run::execute(const Statement& statement, Scope& scope, std::string& out) {
  const Deeper deeper(*this, statement.line);
  switch (statement.kind) {
    case StatementKind::text:
      append(out, statement.text);
      return Flow::on;
    case StatementKind::output:
      append(out, shown(evaluate(*statement.expression, scope)));
      return Flow::on;
    case StatementKind::condition:
      return execute(
          evaluate(*statement.expression, scope).is_true() ? statement.body : statement.other,
          scope, out);
    case StatementKind::loop:
      return execute_loop(statement, scope, out);
    case StatementKind::set:
      execute_set(statement, scope);
      return Flow::on;
    case StatementKind::set_block: {
      std::string body;
      Scope inner{{}, &scope};
      const Flow flow = execute(statement.body, inner, body);
      Value value = text(std::move(body));
      if (statement.filter) {
        inner.names["body"] = value;
        value = evaluate(*statement.filter, inner);
      }
      bind(statement.names, value, scope, *this);
      return flow;
    }
    case StatementKind::macro:
      scope.names[statement.macro->name] =
          Value(Value::Held(Function{statement.macro.get(), statement.macro->name}));
      return Flow::on;
    case StatementKind::leave:
      return Flow::leave;
    case StatementKind::next:
      return Flow::next;
    case StatementKind::group:
      return execute(statement.body, scope, out);
  }
  return Flow::on;
}

void Run::bind(const std::vector<std::string>& names, const Value& value, Scope& scope, Run& run) {
  if (names.size() == 1) {
    scope.names[names.front()] = value;
    return;
  }
  const std::vector<Value> parts = run.items_of(value);
  if (parts.size() != names.size())
    throw FormatError("expected {} values to name, found {}", names.size(), parts.size());
  for (std::size_t i = 0; i < names.size(); ++i) scope.names[names[i]] = parts[i];
}

void Run::execute_set(const Statement& set, Scope& scope) {
  const Value value = evaluate(*set.expression, scope);
  if (set.attribute.empty()) return bind(set.names, value, scope, *this);
  Namespace* space = look_up(set.names.front(), scope).as_namespace();
  if (space == nullptr)
    throw FormatError("{} is no namespace, so {} cannot be set in it", set.names.front(),
                      set.attribute);
  pay(static_cast<std::int64_t>(space->fields.entries.size()));
  for (Entry& entry : space->fields.entries) {
    if (entry.first != set.attribute) continue;
    entry.second = value;
    return;
  }
  space->fields.entries.emplace_back(set.attribute, value);
}

Run::Flow Run::execute_loop(const Statement& loop, Scope& scope, std::string& out) {
  std::vector<Value> items = items_of(evaluate(*loop.expression, scope));
  if (loop.filter) {
    std::vector<Value> kept;
    for (const Value& item : items) {
      Scope inner{{}, &scope};
      bind(loop.names, item, inner, *this);
      if (evaluate(*loop.filter, inner).is_true()) kept.push_back(item);
    }
    items = std::move(kept);
  }
  const auto n = static_cast<std::int64_t>(items.size());
  for (std::int64_t i = 0; i < n; ++i) {
    constexpr std::int64_t kStep = 10;  // the fields of `loop`
    pay(kStep);
    const auto at = static_cast<std::size_t>(i);
    Scope inner{{}, &scope};
    inner.names["loop"] = Value::mapping(
        {{"index0", Value::integer(i)},
         {"index", Value::integer(i + 1)},
         {"first", Value::truth(i == 0)},
         {"last", Value::truth(i + 1 == n)},
         {"length", Value::integer(n)},
         {"revindex0", Value::integer(n - 1 - i)},
         {"revindex", Value::integer(n - i)},
         {"previtem", at > 0 ? items[at - 1] : Value::undefined("loop.previtem")},
         {"nextitem", at + 1 < items.size() ? items[at + 1] : Value::undefined("loop.nextitem")}});
    bind(loop.names, items[at], inner, *this);
    if (execute(loop.body, inner, out) == Flow::leave) break;
  }
  return n == 0 ? execute(loop.other, scope, out) : Flow::on;
}

}  // namespace kvscope::jinja
