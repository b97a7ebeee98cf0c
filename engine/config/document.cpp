#include "engine/config/document.h"

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
#include <nlohmann/json.hpp>
#include <optional>
#include <sstream>
#include <unordered_map>
#include <utility>

#include "engine/base/file_kind.h"

namespace sluice::config {
namespace {

constexpr std::size_t kLargestFile = std::size_t{1} << 20;
constexpr std::size_t kMostNodes = 100'000;

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
    if (open_.size() >= kDeepestDocument) {
      fail(place(mark),
           fmt::format("nested more than {} deep; is this the file you meant?", kDeepestDocument));
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

void refuse_no_document(std::string_view text, const std::string& file) {
  if (text.size() > kLargestFile) {
    fail(file, "larger than 1MiB; a few lines of text belong here. Is this a data file?");
  }
  if (const auto problem = not_text(text)) fail(file, *problem + "; text belongs here");
}

ValuePtr build(const std::string& text, const std::string& file, const char* what) {
  Builder builder(file);
  std::istringstream in{text};
  try {
    YAML::Parser parser(in);
    parser.HandleNextDocument(builder);
    ValuePtr root = builder.root();
    Builder rest(file);
    if (parser.HandleNextDocument(rest)) fail(file, "holds more than one document; keep one");
    return root;
  } catch (const YAML::Exception& e) {
    fail(fmt::format("{}:{}:{}", file, e.mark.line + 1, e.mark.column + 1),
         fmt::format("{}: {}", what, e.msg));
  }
}

std::string place_in(std::string_view text, std::size_t offset, const std::string& file) {
  const std::string_view before = text.substr(0, offset);
  const auto line = 1 + std::ranges::count(before, '\n');
  const std::size_t column = before.size() - (before.rfind('\n') + 1);  // npos + 1 is 0
  return fmt::format("{}:{}:{}", file, line, column + 1);
}

/// Throws where `text` is no JSON.
void refuse_no_json(std::string_view text, const std::string& file) {
  using nlohmann::json;
  try {
    const json none =
        json::parse(text, [](int, json::parse_event_t, const json&) { return false; });
  } catch (const json::parse_error& e) {
    const std::string said = e.what();
    const std::size_t reason = said.find("syntax error");
    const std::size_t end = std::min(said.find("; last read"), said.size());
    fail(place_in(text, std::max<std::size_t>(e.byte, 1) - 1, file),
         fmt::format("no JSON: {}", reason < end ? said.substr(reason, end - reason) : said));
  } catch (const json::out_of_range& e) {  // it has no place, only the number in quotes
    const std::string said = e.what();
    const std::size_t begin = std::min(said.find('\'') + 1, said.size());
    const std::string number = said.substr(begin, said.rfind('\'') - begin);
    fail(place_in(text, std::min(text.find(number), text.size()), file),
         fmt::format("{}: too large for a number", shown(number)));
  }
}

}  // namespace

ValuePtr parse_yaml(std::string_view text, const std::string& file) {
  refuse_no_document(text, file);
  refuse_tabs(text, file);
  return build(std::string(text), file, "no YAML");
}

ValuePtr parse_json(std::string_view text, const std::string& file) {
  refuse_no_document(text, file);
  refuse_no_json(text, file);
  return build(std::string(text), file, "JSON that is not read here");  // JSON is YAML too
}

std::string read_document(const std::string& file) {
  std::error_code none;
  const std::filesystem::file_status status = std::filesystem::status(file, none);
  if (is_directory(status)) {
    fail(file, "a folder; name the file in it");
  }
  if (exists(status) && !is_regular_file(status)) {  // opening a FIFO would wait for a writer
    fail(file, fmt::format("{}; only a file is read here", kind_of(status)));
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

}  // namespace sluice::config
