#include "engine/bench/aio_block.h"

#include <fmt/format.h>

#include <algorithm>
#include <optional>
#include <utility>
#include <vector>

#include "engine/base/error.h"
#include "engine/bench/files.h"
#include "engine/bench/marked_yaml.h"

namespace sluice::bench {
namespace {

using Kind = MarkedYaml::Kind;

constexpr std::string_view kMark = "# sluice bench nvme, ";
constexpr std::string_view kByteOrderMark = "\xEF\xBB\xBF";

struct Setting {
  std::string key, value;
  std::vector<std::string> also = {};  // other names of the key, as config reads them
};
using Settings = std::vector<Setting>;

Settings settings_of(const Point& point) {
  Settings settings = {{"engine", name_of(point.engine)},
                       {"block_size", exact_size(point.block)},
                       {"queue_depth", fmt::format("{}", point.depth)}};
  if (point.engine == nvme::Engine::kThreads) {
    settings.push_back({"threads",
                        fmt::format("{}", threads_of(point)),
                        {"intra_op_parallelism", "thread_count"}});
  }
  return settings;
}

/// One line, whatever a device calls itself.
std::string comment_of(const AioChoice& choice) {
  std::string line = std::string(kMark) + choice.provenance;
  std::ranges::replace_if(
      line, [](char c) { return static_cast<unsigned char>(c) < 0x20; }, ' ');
  return line;
}

/// The lines of `text`, one after the other, by where they begin; without their line ends.
std::string_view line_at(std::string_view text, std::size_t at) {
  std::string_view line = text.substr(at, text.substr(at).find('\n'));
  if (line.ends_with('\r')) line.remove_suffix(1);
  return line;
}

std::size_t begin_of_line(std::string_view text, std::size_t at) {
  return at == 0 ? 0 : text.rfind('\n', at - 1) + 1;  // npos + 1 is 0
}

bool indented_by_tabs(std::string_view text) {
  for (std::size_t at = 0; at < text.size();) {
    const std::string_view line = line_at(text, at);
    const std::size_t word = std::min(line.find_first_not_of(" \t"), line.size());
    if (word < line.size() && line[word] != '#' && line.substr(0, word).find('\t') < word) {
      return true;
    }
    at = std::min(text.find('\n', at), text.size() - 1) + 1;
  }
  return false;
}

/// Nothing but spaces and a comment.
bool nothing_in(std::string_view rest) {
  const std::size_t word = rest.find_first_not_of(' ');
  return word == std::string_view::npos || (rest[word] == '#' && word > 0);
}

/// One merge: finds what has to change, and changes it from front to back.
class Merge {
 public:
  Merge(std::string_view text, const AioChoice& choice)
      : text_(text),
        settings_(settings_of(choice.point)),
        comment_(comment_of(choice)),
        newline_(line_at(text, 0).size() + 1 < text.size() && text[line_at(text, 0).size()] == '\r'
                     ? "\r\n"
                     : "\n") {}

  std::string result() {
    SLUICE_CHECK(!indented_by_tabs(text_), kConfig, "tabs indent its lines");
    const MarkedYaml root = parse_marked(text_);
    SLUICE_CHECK(root.kind == Kind::kNull || (root.kind == Kind::kMap && !root.flow), kConfig,
                 "it is no block of keys");
    const MarkedYaml* const key = only(root, "aio");
    if (key == nullptr) {
      append(root);
    } else {
      change(*key, *(key + 1));
    }
    std::string merged = edited();
    check(root, parse_marked(merged));
    return merged;
  }

 private:
  /// A piece of the text that becomes another one.
  struct Edit {
    std::size_t at, length;
    std::string text;
  };

  /// The key of that name, its value behind it; null when there is none.
  static const MarkedYaml* only(const MarkedYaml& map, std::string_view name) {
    const MarkedYaml* found = nullptr;
    for (std::size_t i = 0; i < map.items.size(); i += 2) {
      const MarkedYaml& key = map.items[i];
      SLUICE_CHECK(key.text != "<<", kConfig, "a << merges keys into it");
      if (key.kind != Kind::kScalar || key.text != name) continue;
      SLUICE_CHECK(found == nullptr, kConfig, fmt::format("{} stands there twice", name));
      SLUICE_CHECK(key.plain(), kConfig, fmt::format("{} has an anchor or a tag", name));
      found = &key;
    }
    return found;
  }

  /// Under the name that it has there.
  static const MarkedYaml* only(const MarkedYaml& map, const Setting& setting) {
    const MarkedYaml* found = only(map, setting.key);
    for (const std::string& name : setting.also) {
      const MarkedYaml* const other = only(map, name);
      SLUICE_CHECK(found == nullptr || other == nullptr, kConfig,
                   fmt::format("{} stands there as {} too", setting.key, name));
      if (other != nullptr) found = other;
    }
    return found;
  }

  /// Behind a word or a quoted text without escapes, on one line.
  std::size_t end_of(const MarkedYaml& scalar) const {
    const bool quoted = text_.substr(scalar.at, 1).find_first_of("\"'") == 0;
    const std::string mark(quoted ? text_.substr(scalar.at, 1) : "");
    const std::string written = mark + scalar.text + mark;
    SLUICE_CHECK(text_.substr(scalar.at, written.size()) == written, kConfig,
                 fmt::format("{} is written in more than one line, or with escapes", scalar.text));
    return scalar.at + written.size();
  }

  /// Behind the colon of a key.
  std::size_t colon_of(const MarkedYaml& key) const {
    const std::size_t colon = text_.find_first_not_of(' ', end_of(key));
    SLUICE_CHECK(colon < text_.size() && text_[colon] == ':', kConfig,
                 fmt::format("no colon follows {}", key.text));
    return colon + 1;
  }

  std::size_t column_of(const MarkedYaml& value) const {
    return value.at - begin_of_line(text_, value.at);
  }

  void change(const MarkedYaml& key, const MarkedYaml& aio) {
    comment(key);
    SLUICE_CHECK(aio.plain() && aio.kind != Kind::kAlias, kConfig,
                 "aio has an anchor, an alias or a tag");
    SLUICE_CHECK(aio.kind == Kind::kMap || aio.kind == Kind::kNull, kConfig, "aio is no map");
    if (aio.flow) {
      change_braces(aio);
      return;
    }
    const std::size_t colon = colon_of(key);
    SLUICE_CHECK(nothing_in(line_at(text_, colon)), kConfig, "something stands behind aio:");
    const bool empty = aio.items.empty();
    const std::size_t indent = empty ? column_of(key) + 2 : column_of(aio.items.front());
    change_block(aio, colon, indent);
  }

  void change_block(const MarkedYaml& aio, std::size_t colon, std::size_t indent) {
    std::size_t after = colon;  // the last line that is ours
    std::string missing;
    for (const Setting& setting : settings_) {
      const MarkedYaml* const key = only(aio, setting);
      if (key == nullptr) {
        missing += newline_ + std::string(indent, ' ') + setting.key + ": " + setting.value;
        continue;
      }
      after = std::max(after, replace(*key, *(key + 1), setting.value));
    }
    // At the end of a line and not at the begin of the next, which the file need not have.
    const std::size_t end = after + line_at(text_, after).size();
    if (!missing.empty()) edits_.push_back({end, 0, std::move(missing)});
  }

  void change_braces(const MarkedYaml& aio) {
    std::size_t after = 0;
    std::string missing;
    for (const Setting& setting : settings_) {
      const MarkedYaml* const key = only(aio, setting);
      if (key == nullptr) {
        missing += ", " + setting.key + ": " + setting.value;
        continue;
      }
      after = std::max(after, replace(*key, *(key + 1), setting.value));
    }
    if (missing.empty()) return;
    if (after > 0) {
      edits_.push_back({after, 0, std::move(missing)});
    } else if (aio.items.empty()) {
      edits_.push_back({aio.at + 1, 0, missing.substr(2)});
    } else {
      edits_.push_back({aio.items.front().at, 0, missing.substr(2) + ", "});
    }
  }

  /// Returns where the value ends in the old text.
  std::size_t replace(const MarkedYaml& key, const MarkedYaml& value, const std::string& with) {
    const std::size_t colon = colon_of(key);
    if (value.kind == Kind::kNull && nothing_in(line_at(text_, colon))) {
      edits_.push_back({colon, 0, " " + with});
      return colon;
    }
    SLUICE_CHECK(value.kind == Kind::kScalar && value.plain(), kConfig,
                 fmt::format("{} is no plain value", key.text));
    const std::size_t end = end_of(value);
    edits_.push_back({value.at, end - value.at, with});
    return end;
  }

  /// Above the key: in place of an earlier one among the comments there, else right above.
  void comment(const MarkedYaml& key) {
    const std::size_t begin = begin_of_line(text_, key.at);
    SLUICE_CHECK(text_.substr(begin, key.at - begin).find_first_not_of(' ') == std::string::npos,
                 kConfig, "aio does not begin its line");
    for (std::size_t at = begin; at > 0;) {
      at = begin_of_line(text_, at - 1);
      const std::string_view line = line_at(text_, at);
      const std::size_t word = line.find_first_not_of(' ');
      if (word == std::string_view::npos) continue;
      if (line.substr(word).starts_with(kMark)) {
        edits_.push_back({at + word, line.size() - word, comment_});
        return;
      }
      if (line[word] != '#') break;
    }
    edits_.push_back({begin, 0, std::string(key.at - begin, ' ') + comment_ + newline_});
  }

  /// Behind everything, a blank line between.
  void append(const MarkedYaml& root) {
    std::string lines;
    if (!text_.empty() && !text_.ends_with('\n')) lines += newline_;
    const std::size_t last = text_.empty() ? 0 : begin_of_line(text_, text_.size() - 1);
    if (!text_.empty() && !line_at(text_, last).empty()) lines += newline_;
    const std::string indent(root.items.empty() ? 0 : column_of(root.items.front()), ' ');
    lines += indent + comment_ + newline_ + indent + "aio:" + newline_;
    for (const Setting& setting : settings_) {
      lines += indent + "  " + setting.key + ": " + setting.value + newline_;
    }
    edits_.push_back({text_.size(), 0, std::move(lines)});
  }

  std::string edited() {
    std::ranges::stable_sort(edits_, {}, &Edit::at);
    std::string out;
    std::size_t from = 0;
    for (const Edit& edit : edits_) {
      out.append(text_.substr(from, edit.at - from)).append(edit.text);
      from = edit.at + edit.length;
    }
    return out.append(text_.substr(from));
  }

  /// The document must say what it said, and in aio what was chosen.
  void check(const MarkedYaml& before, const MarkedYaml& after) const {
    const bool good = same_without(before, after, [](const std::string& k) { return k == "aio"; });
    const MarkedYaml* const key = only(after, "aio");
    SLUICE_CHECK(good && key != nullptr && (key + 1)->kind == Kind::kMap, kConfig,
                 "the keys around aio would change");
    const MarkedYaml* const old = only(before, "aio");
    const auto ours = [this](const std::string& k) {
      return std::ranges::any_of(settings_, [&](const Setting& setting) {
        return setting.key == k || std::ranges::find(setting.also, k) != setting.also.end();
      });
    };
    SLUICE_CHECK(same_without(old == nullptr ? MarkedYaml{} : *(old + 1), *(key + 1), ours),
                 kConfig, "the other keys of aio would change");
    for (const Setting& setting : settings_) {
      const MarkedYaml* const set = only(*(key + 1), setting);
      SLUICE_CHECK(set != nullptr && (set + 1)->text == setting.value, kConfig,
                   fmt::format("{} would not be set", setting.key));
    }
  }

  /// Whether two maps hold the same keys and values in the same order, but for some.
  template <class Skip>
  static bool same_without(const MarkedYaml& a, const MarkedYaml& b, Skip skip) {
    const auto rest = [&](const MarkedYaml& map) {
      MarkedYaml kept;
      for (std::size_t i = 0; i + 1 < map.items.size(); i += 2) {
        if (skip(map.items[i].text)) continue;
        kept.items.push_back(map.items[i]);
        kept.items.push_back(map.items[i + 1]);
      }
      return kept;
    };
    return rest(a).same(rest(b));
  }

  std::string_view text_;
  Settings settings_;
  std::string comment_, newline_;
  std::vector<Edit> edits_;
};

std::string merged(std::string_view text, const AioChoice& choice) {
  if (!text.starts_with(kByteOrderMark)) return Merge(text, choice).result();
  return std::string(kByteOrderMark) + Merge(text.substr(kByteOrderMark.size()), choice).result();
}

}  // namespace

AioChoice aio_choice(const Context& context, const Summary& chosen) {
  constexpr std::size_t kDay = 10;  // of an ISO date
  return {chosen.point,
          fmt::format("{}, {}, {} {:.2f} GB/s", context.date.substr(0, kDay), context.device,
                      name_of(chosen.point.traffic), chosen.rate() * 1e-9)};
}

std::string aio_lines(const AioChoice& choice) {
  std::string lines = comment_of(choice) + "\naio:\n";
  for (const Setting& setting : settings_of(choice.point)) {
    lines += fmt::format("  {}: {}\n", setting.key, setting.value);
  }
  return lines;
}

std::string aio_line(const Point& point) {
  std::string line;
  for (const Setting& setting : settings_of(point)) {
    line += fmt::format("{}{}: {}", line.empty() ? "" : ", ", setting.key, setting.value);
  }
  return "aio: {" + line + "}";
}

std::string with_aio(std::string_view text, const AioChoice& choice, const std::string& file) {
  try {
    return merged(text, choice);
  } catch (const Error& e) {
    std::string lines = aio_lines(choice);
    lines.pop_back();
    throw Error(e.code, fmt::format("{}: {}, so it is left as it is; put this in by hand:\n{}",
                                    file, e.what(), lines));
  }
}

void require_aio_file(const std::filesystem::path& file) {
  const std::string text = read_small_file(file);
  try {
    merged(text, {.point = {.engine = nvme::Engine::kThreads}, .provenance = {}});
  } catch (const Error& e) {
    throw Error(e.code, fmt::format("{}: {}, so no values can be put into it; name another file",
                                    file.string(), e.what()));
  }
}

AioMerge write_aio(const std::filesystem::path& file, const AioChoice& choice) {
  AioMerge merge;
  merge.before = read_small_file(file);
  merge.after = with_aio(merge.before, choice, file.string());
  if (merge.changed()) replace_file(file, merge.after);
  return merge;
}

}  // namespace sluice::bench
