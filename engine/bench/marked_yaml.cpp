#include "engine/bench/marked_yaml.h"

#include <fmt/format.h>
#include <yaml-cpp/eventhandler.h>
#include <yaml-cpp/exceptions.h>
#include <yaml-cpp/mark.h>
#include <yaml-cpp/parser.h>

#include <algorithm>
#include <sstream>
#include <utility>

#include "engine/base/error.h"

namespace sluice::bench {
namespace {

class Builder : public YAML::EventHandler {
 public:
  const MarkedYaml& root() const { return root_; }

  void OnDocumentStart(const YAML::Mark& /*mark*/) override {}
  void OnDocumentEnd() override {}
  void OnNull(const YAML::Mark& mark, YAML::anchor_t anchor) override {
    add(node(MarkedYaml::Kind::kNull, mark, "", anchor));
  }
  void OnAlias(const YAML::Mark& mark, YAML::anchor_t anchor) override {
    add(node(MarkedYaml::Kind::kAlias, mark, "", anchor));
  }
  void OnScalar(const YAML::Mark& mark, const std::string& tag, YAML::anchor_t anchor,
                const std::string& value) override {
    MarkedYaml scalar = node(MarkedYaml::Kind::kScalar, mark, tag, anchor);
    scalar.text = value;
    add(std::move(scalar));
  }
  void OnSequenceStart(const YAML::Mark& mark, const std::string& tag, YAML::anchor_t anchor,
                       YAML::EmitterStyle::value style) override {
    open(MarkedYaml::Kind::kList, mark, tag, anchor, style);
  }
  void OnSequenceEnd() override { close(); }
  void OnMapStart(const YAML::Mark& mark, const std::string& tag, YAML::anchor_t anchor,
                  YAML::EmitterStyle::value style) override {
    open(MarkedYaml::Kind::kMap, mark, tag, anchor, style);
  }
  void OnMapEnd() override { close(); }

 private:
  static MarkedYaml node(MarkedYaml::Kind kind, const YAML::Mark& mark, const std::string& tag,
                         YAML::anchor_t anchor) {
    MarkedYaml made;
    made.kind = kind;
    made.at = static_cast<std::size_t>(std::max(mark.pos, 0));
    made.tag = tag;
    made.anchor = anchor;
    return made;
  }

  void open(MarkedYaml::Kind kind, const YAML::Mark& mark, const std::string& tag,
            YAML::anchor_t anchor, YAML::EmitterStyle::value style) {
    open_.push_back(node(kind, mark, tag, anchor));
    open_.back().flow = style == YAML::EmitterStyle::Flow;
  }

  void close() {
    MarkedYaml done = std::move(open_.back());
    open_.pop_back();
    add(std::move(done));
  }

  void add(MarkedYaml value) {
    if (open_.empty()) {
      root_ = std::move(value);
    } else {
      open_.back().items.push_back(std::move(value));
    }
  }

  MarkedYaml root_;
  std::vector<MarkedYaml> open_;
};

}  // namespace

bool MarkedYaml::same(const MarkedYaml& other) const {
  return kind == other.kind && text == other.text && tag == other.tag && anchor == other.anchor &&
         std::ranges::equal(items, other.items,
                            [](const MarkedYaml& a, const MarkedYaml& b) { return a.same(b); });
}

MarkedYaml parse_marked(std::string_view text) {
  std::istringstream in{std::string(text)};
  try {
    YAML::Parser parser(in);
    Builder first;
    Builder rest;
    parser.HandleNextDocument(first);
    SLUICE_CHECK(!parser.HandleNextDocument(rest), kConfig, "holds more than one document");
    return first.root();
  } catch (const YAML::Exception& e) {
    throw Error(Errc::kConfig, fmt::format("line {}: no YAML: {}", e.mark.line + 1, e.msg));
  }
}

}  // namespace sluice::bench
