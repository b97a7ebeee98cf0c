#include "engine/config/load.h"

#include <fmt/format.h>
#include <yaml-cpp/eventhandler.h>
#include <yaml-cpp/exceptions.h>
#include <yaml-cpp/parser.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <istream>
#include <sstream>
#include <unordered_map>
#include <utility>

#include "engine/base/error.h"
#include "engine/base/file_kind.h"
#include "engine/config/read.h"
#include "engine/config/value.h"
#include "engine/config/write.h"

namespace sluice::config {
namespace {

constexpr std::size_t kLargestFile = std::size_t{1} << 20;
constexpr std::size_t kDeepest = 32;
constexpr std::size_t kMostNodes = 100'000;
constexpr const char* kCommandLine = "command line";

[[noreturn]] void fail(const std::string& where, const std::string& reason) {
  throw Error(Errc::kConfig, fmt::format("{}: {}", where, reason));
}

/// Builds Values from yaml-cpp's events. Its Node is not used: it keeps the first of two equal keys
/// and guesses types.
class Builder : public YAML::EventHandler {
 public:
  explicit Builder(const std::string& file) : file_(file) {}

  ValuePtr root() const { return root_; }

  void OnDocumentStart(const YAML::Mark&) override {}
  void OnDocumentEnd() override {}

  void OnNull(const YAML::Mark& mark, YAML::anchor_t anchor) override {
    Value v;
    v.where = place(mark);
    add(std::make_shared<const Value>(std::move(v)), anchor);
  }

  void OnAlias(const YAML::Mark& mark, YAML::anchor_t anchor) override {
    const auto found = anchors_.find(anchor);
    if (found == anchors_.end()) fail(place(mark), "an anchor cannot stand inside itself");
    // The place is the alias's; the content is shared.
    Value v = *found->second;
    v.where = place(mark);
    add(std::make_shared<const Value>(std::move(v)), 0);
  }

  void OnScalar(const YAML::Mark& mark, const std::string& tag, YAML::anchor_t anchor,
                const std::string& text) override {
    refuse_tag(mark, tag);
    Value v;
    v.kind = tag == "!" ? Value::Kind::kQuoted : Value::Kind::kPlain;
    v.where = place(mark);
    v.text = text;
    add(std::make_shared<const Value>(std::move(v)), anchor);
  }

  void OnSequenceStart(const YAML::Mark& mark, const std::string& tag, YAML::anchor_t anchor,
                       YAML::EmitterStyle::value) override {
    open(Value::Kind::kList, mark, tag, anchor);
  }
  void OnSequenceEnd() override { close(); }
  void OnMapStart(const YAML::Mark& mark, const std::string& tag, YAML::anchor_t anchor,
                  YAML::EmitterStyle::value) override {
    open(Value::Kind::kMap, mark, tag, anchor);
  }
  void OnMapEnd() override { close(); }

 private:
  struct Level {
    Value value;
    YAML::anchor_t anchor;
    std::optional<Entry> entry;                           // a key that waits for its value
    std::unordered_map<std::string, std::string> places;  // of the keys so far
  };

  std::string place(const YAML::Mark& mark) const {
    return fmt::format("{}:{}:{}", file_, mark.line + 1, mark.column + 1);
  }

  void refuse_tag(const YAML::Mark& mark, const std::string& tag) const {
    if (tag.empty() || tag == "?" || tag == "!") return;
    fail(place(mark), fmt::format("the tag {} is not read here; take it out", shown(tag)));
  }

  void open(Value::Kind kind, const YAML::Mark& mark, const std::string& tag,
            YAML::anchor_t anchor) {
    refuse_tag(mark, tag);
    if (open_.size() >= kDeepest) {
      fail(place(mark), fmt::format("nested more than {} deep; is this a run file?", kDeepest));
    }
    Level level{{}, anchor, {}, {}};
    level.value.kind = kind;
    level.value.where = place(mark);
    open_.push_back(std::move(level));
  }

  void close() {
    Level level = std::move(open_.back());
    open_.pop_back();
    add(std::make_shared<const Value>(std::move(level.value)), level.anchor);
  }

  void add(ValuePtr v, YAML::anchor_t anchor) {
    if (anchor != 0) anchors_[anchor] = v;
    if (open_.empty()) {
      root_ = std::move(v);
      return;
    }
    Level& level = open_.back();
    level.value.nodes += v->nodes;
    if (level.value.nodes > kMostNodes) {
      fail(v->where, fmt::format("more than {} values with aliases written out", kMostNodes));
    }
    if (level.value.kind == Value::Kind::kList) {
      level.value.items.push_back(std::move(v));
    } else if (level.entry) {
      level.entry->value = std::move(v);
      level.value.entries.push_back(*std::exchange(level.entry, std::nullopt));
    } else {
      add_key(level, *v);
    }
  }

  static void add_key(Level& level, const Value& key) {
    if (!key.is_text()) {
      fail(key.where, fmt::format("{}: no key; write one word and a colon", shown(key)));
    }
    if (key.kind == Value::Kind::kPlain && key.text == "<<") {
      fail(key.where, "<<: maps are not merged here; repeat the keys, or alias the whole section");
    }
    const auto [earlier, first] = level.places.emplace(key.text, key.where);
    if (!first) {
      fail(key.where, fmt::format("{}: duplicate key, set before at {}; keep one", shown(key.text),
                                  earlier->second));
    }
    level.entry = Entry{key.text, key.where, nullptr};
  }

  const std::string& file_;
  ValuePtr root_;
  std::vector<Level> open_;
  std::unordered_map<YAML::anchor_t, ValuePtr> anchors_;
};

/// Tabs in front of a line: yaml-cpp takes some for spaces and is puzzled by others.
void refuse_tabs(std::string_view text, const std::string& file) {
  std::size_t line = 1;
  for (std::size_t from = 0; from < text.size(); ++line) {
    const std::size_t end = std::min(text.find('\n', from), text.size());
    const std::string_view row = text.substr(from, end - from);
    const std::size_t word = std::min(row.find_first_not_of(" \t\r"), row.size());
    const std::size_t tab = row.find('\t');
    if (word < row.size() && row[word] != '#' && tab < word) {
      fail(fmt::format("{}:{}:{}", file, line, tab + 1), "a tab indents this line; use spaces");
    }
    from = end + 1;
  }
}

ValuePtr parse(std::string_view text, const std::string& file) {
  if (text.size() > kLargestFile) {
    fail(file, "larger than 1MiB; a run file is a few lines of YAML. Is this a data file?");
  }
  if (const auto problem = not_text(text)) fail(file, *problem + "; a run file is YAML");
  refuse_tabs(text, file);
  Builder builder(file);
  std::istringstream in{std::string(text)};
  try {
    YAML::Parser parser(in);
    parser.HandleNextDocument(builder);
    ValuePtr root = builder.root();
    Builder rest(file);
    if (parser.HandleNextDocument(rest)) fail(file, "holds more than one document; keep one");
    return root;
  } catch (const YAML::Exception& e) {
    fail(fmt::format("{}:{}:{}", file, e.mark.line + 1, e.mark.column + 1), "no YAML: " + e.msg);
  }
}

/// An override's value. Only what begins like YAML is read as YAML, so that *.txt needs no quotes.
ValuePtr override_value(const std::string& path, const std::string& text) {
  if (text.find_first_of("[{\"'") == 0) {
    return parse(text, fmt::format("{} {}", kCommandLine, path));
  }
  Value v;
  v.kind = text == "null" || text == "~" ? Value::Kind::kNull : Value::Kind::kPlain;
  v.where = kCommandLine;
  v.text = text;
  return std::make_shared<const Value>(std::move(v));
}

ValuePtr with_override(const ValuePtr& root, const std::string& text) {
  const std::size_t equals = text.find('=');
  const std::string path = text.substr(0, equals);
  if (equals == std::string::npos) {
    fail(kCommandLine,
         fmt::format("{}: no value; write key=value, as train.steps=50", shown(text)));
  }
  if (not_text(text)) fail(kCommandLine, fmt::format("{}: no UTF-8 text", shown(path)));
  if (equals + 1 == text.size()) {
    fail(kCommandLine, fmt::format("{}: no value after '='; null unsets a key", shown(path)));
  }
  const bool whole = !path.empty() && path.front() != '.' && path.back() != '.' &&
                     path.find("..") == std::string::npos;
  const auto depth = static_cast<std::size_t>(std::ranges::count(path, '.'));
  if (!whole || depth >= kDeepest) {
    fail(kCommandLine, fmt::format("{}: no key; write key=value, as train.steps=50", shown(text)));
  }
  return replaced(root, path, override_value(path, text.substr(equals + 1)));
}

/// At most one byte more than a run file may have: enough to see that it is too large.
std::string read_file(const std::string& file) {
  std::error_code none;
  const std::filesystem::file_status status = std::filesystem::status(file, none);
  if (is_directory(status)) {
    fail(file, "a folder; name the run file in it, as " + file + "/run.yaml");
  }
  if (exists(status) && !is_regular_file(status)) {  // opening a FIFO would wait for a writer
    fail(file, fmt::format("{}; a run file is read from a file only", kind_of(status)));
  }
  errno = 0;
  std::ifstream in(file, std::ios::binary);
  if (!in)
    fail(file.empty() ? "''" : file, fmt::format("cannot be opened: {}", std::strerror(errno)));
  std::string text(kLargestFile + 1, '\0');
  in.read(text.data(), static_cast<std::streamsize>(text.size()));
  if (in.bad()) fail(file, "cannot be read");
  text.resize(static_cast<std::size_t>(in.gcount()));
  return text;
}

}  // namespace

Config from_text(std::string_view text, std::span<const std::string> overrides,
                 const Environment& environment, const std::string& file) {
  ValuePtr root = parse(text, file);
  const bool empty = !root || root->kind == Value::Kind::kNull;
  if (empty && overrides.empty()) {
    fail(file, "is empty; a run file names at least a model and data");
  }
  if (!empty && root->kind != Value::Kind::kMap) {
    fail(root->where,
         fmt::format("{}: a run file is a map of keys, as `seed: 1337`", shown(*root)));
  }
  for (const std::string& text : overrides) root = with_override(root, text);
  return read_config(*root, environment, file);
}

Config load(const std::string& file, std::span<const std::string> overrides,
            const Environment& environment) {
  return from_text(read_file(file), overrides, environment, file);
}

Config with_name(Config config, const std::string& name) {
  config.name = name;
  Config named = from_text(to_yaml(config), {}, {}, "the run's name");
  named.warnings = std::move(config.warnings);
  return named;
}

}  // namespace sluice::config
