#include "engine/config/deepspeed.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <charconv>
#include <cmath>
#include <map>
#include <nlohmann/json.hpp>
#include <optional>
#include <utility>

#include "engine/base/error.h"
#include "engine/base/units.h"
#include "engine/config/deepspeed_keys.h"
#include "engine/config/document.h"
#include "engine/config/field.h"
#include "engine/config/nearest.h"
#include "engine/config/read.h"
#include "engine/config/write.h"
#include "engine/zero/options.h"

namespace sluice::config {
namespace {

const Environment kNoEnvironment;

std::string spelled(const Value& value) {
  if (value.is_text()) return shown(value.text);
  if (value.kind != Value::Kind::kList) return shown(value);
  std::vector<std::string> items;
  for (const ValuePtr& item : value.items) items.push_back(spelled(*item));
  return shown(fmt::format("[{}]", fmt::join(items, ", ")));
}

std::optional<double> number_in(std::string_view text) {
  double x = 0;
  const auto [end, ec] = std::from_chars(text.data(), text.data() + text.size(), x);
  if (ec != std::errc{} || end != text.data() + text.size()) return std::nullopt;
  return x;
}

/// Numbers by value, words without case.
bool same(std::string_view a, std::string_view b) {
  const auto x = number_in(a);
  if (x && x == number_in(b)) return true;
  const auto lower = [](char c) { return c >= 'A' && c <= 'Z' ? char(c + ('a' - 'A')) : c; };
  return std::ranges::equal(a, b, {}, lower, lower);
}

/// 5e8 is whole. nullopt: no number that is, or none that doubles count exactly.
std::optional<Bytes> whole_in(std::string_view text) {
  constexpr double kMost = 9007199254740992.0;  // 2^53
  const auto x = number_in(text);
  if (!x || *x < 0 || *x > kMost || *x != std::floor(*x)) return std::nullopt;
  return static_cast<Bytes>(*x);
}

bool takes_auto(const Field& field) {
  return field.takes.starts_with("auto ") || field.takes.ends_with("| auto");
}

class Importer {
 public:
  explicit Importer(const std::string& file) : file_(file) {}

  /// Which keys there are, so that what one becomes may rest on another.
  void collect(const Value& map, const std::string& prefix) {
    for (const Entry& e : map.entries) {
      const std::string path = prefix + e.key;
      if (e.value->kind == Value::Kind::kNull) continue;
      if (row_of(e, path) != nullptr) {
        set_.emplace(path, spelled(*e.value));
      } else if (is_deepspeed_section(path) && e.value->kind == Value::Kind::kMap) {
        collect(*e.value, path + ".");
      }
    }
  }

  void section(const Value& map, const std::string& prefix) {
    for (const Entry& e : map.entries) {
      const std::string path = prefix + e.key;
      if (e.value->kind == Value::Kind::kNull) {
        check_known(e, path);
        done_.push_back({path, "null", Fate::kDropped, "", "null is a key that is not set"});
      } else if (const DeepSpeedKey* row = row_of(e, path)) {
        key(*row, e, path);
      } else if (is_deepspeed_section(path) && e.value->kind == Value::Kind::kMap) {
        section(*e.value, path + ".");
      } else if (is_deepspeed_section(path)) {
        refuse(e, path, "a section belongs here: {...}");
      } else {
        check_known(e, path);
      }
    }
  }

  /// Where DeepSpeed's defaults are not ours.
  void unset() {
    for (const DeepSpeedKey& row : deepspeed_keys()) {
      const auto there = set_.find(row.from);
      // auto of a key that has no place here says no more than its absence.
      if (there != set_.end() && !(row.to.empty() && there->second == "auto")) continue;
      const auto applies = std::ranges::find_if(row.unset, [&](const Unset& u) {
        const auto found = set_.find(u.where);
        if (u.where.empty() || found == set_.end()) return u.where.empty();
        return u.values.empty() || std::ranges::any_of(u.values, [&](const std::string& v) {
                 return same(v, found->second);
               });
      });
      if (applies == row.unset.end()) continue;
      if (!applies->note.empty()) notes_.push_back(applies->note);
      if (applies->ours.empty()) continue;
      const Entry e{row.from, file_, value_of(applies->ours, file_)};
      write(row, e, row.from, e.value, applies->theirs, "what DeepSpeed takes where it is not set");
    }
  }

  DeepSpeedImport finish() {
    check_together();
    SLUICE_CHECK(refused_.empty(), kConfig, refusal());
    return {done_, notes_, yaml()};
  }

 private:
  struct Setting {
    ValuePtr value;
    nlohmann::json written;
    std::string from;
    std::string comment;
  };

  /// None where the entry is a section whose keys have rows of their own.
  static const DeepSpeedKey* row_of(const Entry& e, const std::string& path) {
    const bool section = e.value->kind == Value::Kind::kMap && is_deepspeed_section(path);
    return section ? nullptr : find_deepspeed_key(path);
  }

  bool is_true(const std::string& path) const {
    const auto found = set_.find(path);
    return found != set_.end() && same("true", found->second);
  }

  void refuse(const Entry& e, std::string_view path, const std::string& reason) {
    refused_.push_back(
        fmt::format("{} {}: {}: {}", e.where, shown(path), spelled(*e.value), reason));
  }

  void check_known(const Entry& e, const std::string& path) {
    if (find_deepspeed_key(path) != nullptr || is_deepspeed_section(path)) return;
    std::vector<std::string> known;
    for (const DeepSpeedKey& row : deepspeed_keys()) {
      known.push_back(row.from.ends_with(".*") ? row.from.substr(0, row.from.size() - 2)
                                               : row.from);
    }
    refused_.push_back(fmt::format("{} {}: unknown key; {}", e.where, shown(path),
                                   hint_for(path, *e.value, known, "DeepSpeed")));
  }

  static ValuePtr value_of(const std::string& text, const std::string& where) {
    Value v = *parse_yaml(text, where);
    v.where = where;
    return std::make_shared<const Value>(std::move(v));
  }

  void key(const DeepSpeedKey& row, const Entry& e, const std::string& path) {
    const Value& value = *e.value;
    const std::string theirs = spelled(value);
    if (!row.only_with.empty() && !is_true(row.only_with)) {
      const std::string off = fmt::format("{} is not true", row.only_with);
      done_.push_back({path, theirs, Fate::kDropped, "", off});
      return;
    }
    const auto word = std::ranges::find_if(
        row.words, [&](const Word& w) { return value.is_text() && same(w.theirs, value.text); });
    if (word != row.words.end()) {
      if (word->ours.empty() || is_true(word->unless)) {
        const std::string why = row.to.empty() ? "as it is here" : row.note;
        done_.push_back({path, theirs, Fate::kDropped, "", why});
      } else {
        write(row, e, path, value_of(word->ours, value.where), theirs, row.note);
      }
    } else if (value.is_text() && value.text == "auto") {
      automatic(row, e, path);
    } else if (row.conversion == Conversion::kDropped) {
      done_.push_back({path, theirs, Fate::kDropped, "", row.note});
    } else {
      convert(row, e, path, theirs);
    }
  }

  void automatic(const DeepSpeedKey& row, const Entry& e, const std::string& path) {
    const Field* field = row.to.empty() ? nullptr : find_field(row.to);
    if (field == nullptr) {
      done_.push_back({path, "auto", Fate::kDropped, "", row.note});
    } else if (takes_auto(*field)) {
      write(row, e, path, e.value, "auto", "");
    } else {
      done_.push_back({path, "auto", Fate::kLeft, row.to,
                       fmt::format("the script that calls DeepSpeed decides; {} is {} unless set",
                                   row.to, field->write(Config{}).dump())});
    }
  }

  void convert(const DeepSpeedKey& row, const Entry& e, const std::string& path,
               const std::string& theirs) {
    const Value& value = *e.value;
    switch (row.conversion) {
      case Conversion::kSame:
        write(row, e, path, e.value, theirs, row.note);
        return;
      case Conversion::kFolder:
        add_folder(row, e, path);
        return;
      case Conversion::kWords:
      case Conversion::kDropped: {
        std::vector<std::string> known;
        for (const Word& w : row.words) known.push_back(w.theirs);
        const std::string why = row.to.empty() ? row.note : "has no counterpart here";
        refuse(e, path,
               known.empty() ? why : fmt::format("{}; takes {}", why, fmt::join(known, ", ")));
        return;
      }
      case Conversion::kCount:
      case Conversion::kElements:
      case Conversion::kBytes:
        break;
    }
    const auto n = value.kind == Value::Kind::kPlain ? whole_in(value.text) : std::nullopt;
    if (!n) {
      refuse(e, path, "a whole number belongs here");
    } else if (row.conversion == Conversion::kCount) {
      write(row, e, path, value_of(fmt::to_string(*n), value.where), theirs, row.note);
    } else if (row.conversion == Conversion::kBytes) {
      write(row, e, path, value_of(exact_size(*n), value.where), theirs,
            fmt::format("{} bytes", *n));
    } else {
      const Bytes bytes = *n * zero::kStateBytesPerElem;
      write(row, e, path, value_of(exact_size(bytes), value.where), theirs,
            fmt::format("{} elements x {} bytes of state = {} bytes", theirs,
                        zero::kStateBytesPerElem, bytes));
    }
  }

  void add_folder(const DeepSpeedKey& row, const Entry& e, const std::string& path) {
    Value list;
    list.kind = Value::Kind::kList;
    list.where = e.value->where;
    const auto earlier = settings_.find(find_field(row.to));
    if (earlier != settings_.end()) list = *earlier->second.value;
    const bool there = std::ranges::any_of(
        list.items, [&](const ValuePtr& item) { return item->text == e.value->text; });
    if (!there) list.items.push_back(e.value);
    if (earlier != settings_.end()) settings_.erase(earlier);
    write(row, e, path, std::make_shared<const Value>(std::move(list)), spelled(*e.value),
          row.note);
  }

  void write(const DeepSpeedKey& row, const Entry& e, const std::string& path,
             const ValuePtr& value, const std::string& theirs, const std::string& why) {
    const Field* field = find_field(row.to);
    Setting setting{value, {}, path, fmt::format("{}: {}", path, theirs)};
    if (!why.empty()) setting.comment += fmt::format(" ({})", why);
    try {
      Config alone;
      field->read(alone, *value, Context{row.to, field->takes, &kNoEnvironment, {}});
      setting.written = field->write(alone);
    } catch (const Error& error) {
      refused_.emplace_back(error.what());
      return;
    }
    const auto [earlier, first] = settings_.emplace(field, setting);
    if (!first && earlier->second.written != setting.written) {
      refuse(Entry{e.key, e.where, value}, path,
             fmt::format("contradicts {}, and both are {} here; write the same in both",
                         earlier->second.comment, row.to));
      return;
    }
    done_.push_back({path, theirs, Fate::kWritten, row.to, why});
  }

  /// What only a whole run file can tell, at the places of this file. The model is a stand-in.
  void check_together() {
    ValuePtr root;
    for (const auto& [field, setting] : settings_) {
      root = replaced(root, field->path, setting.value);
    }
    root = replaced(root, "model.preset", value_of("tiny", file_));
    try {
      read_config(*root, kNoEnvironment, file_);
    } catch (const Error& error) {
      refused_.emplace_back(error.what());
    }
  }

  std::string refusal() const {
    if (refused_.size() == 1) return refused_.front();
    return fmt::format("{}: {} keys are refused, and nothing is written:\n  {}", file_,
                       refused_.size(), fmt::join(refused_, "\n  "));
  }

  std::string yaml() const {
    std::vector<Line> lines = {
        {find_field("version"), 1},
        {find_field("model.path"), nullptr,
         "a Hugging Face folder; DeepSpeed has it in the script"},
        {find_field("data.train"), nlohmann::json::array(), "the files to train on, as well"},
    };
    for (const auto& [field, setting] : settings_) {
      lines.push_back({field, setting.written, setting.comment});
    }
    std::string out = comment_lines(fmt::format(
        "From {} by sluice config import-deepspeed. It lacks a model and data: write them here, or "
        "name them at the start: sluice train run.yaml model.path=FOLDER data.train=FILE\n"
        "Above each key: where it comes from.",
        shown(file_)));
    for (const std::string& note : notes_) out += comment_lines("Note: " + note);
    out += to_yaml(std::move(lines));
    out += listed("Left at the default here:", Fate::kLeft);
    out += listed("Not carried over:", Fate::kDropped);
    return out;
  }

  std::string listed(const std::string& title, Fate fate) const {
    std::string out;
    for (const Imported& key : done_) {
      if (key.fate != fate) continue;
      if (out.empty()) out = comment_lines("\n" + title);
      out += comment_lines(
          fmt::format("- {}: {}{}{}", key.from, key.theirs, key.why.empty() ? "" : ": ", key.why));
    }
    return out;
  }

  const std::string& file_;
  std::map<std::string, std::string, std::less<>> set_;  // path -> value
  std::map<const Field*, Setting> settings_;
  std::vector<Imported> done_;
  std::vector<std::string> notes_;
  std::vector<std::string> refused_;
};

}  // namespace

DeepSpeedImport import_deepspeed(std::string_view text, const std::string& file) {
  const ValuePtr root = parse_json(text, file);
  SLUICE_CHECK(root && root->kind == Value::Kind::kMap, kConfig,
               fmt::format("{}: {}: DeepSpeed's configuration is a map of keys: {{...}}",
                           root ? root->where : file, root ? shown(*root) : "nothing"));
  Importer importer(file);
  importer.collect(*root, "");
  importer.section(*root, "");
  importer.unset();
  return importer.finish();
}

}  // namespace sluice::config
