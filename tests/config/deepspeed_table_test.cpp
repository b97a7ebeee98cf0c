// Every row of the table of DeepSpeed's keys, in a file of its own: it does what it says.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <nlohmann/json.hpp>
#include <set>
#include <string>
#include <vector>

#include "engine/base/error.h"
#include "engine/config/deepspeed.h"
#include "engine/config/deepspeed_keys.h"
#include "engine/config/field.h"
#include "engine/config/load.h"

namespace sluice::config {
namespace {

using nlohmann::json;
using testing::HasSubstr;

/// "a.b" -> "/a/b"; of a section that has one row for all of it, some key.
std::string pointer_of(std::string path) {
  if (path.ends_with('*')) path.replace(path.size() - 1, 1, "some_key");
  std::ranges::replace(path, '.', '/');
  return "/" + path;
}

std::string path_of(const DeepSpeedKey& row) {
  std::string path = pointer_of(row.from).substr(1);
  std::ranges::replace(path, '/', '.');
  return path;
}

/// A file with the row's key alone, but for what it needs: a bf16 gradient bf16, a loss scale fp16.
json file_with(const DeepSpeedKey& row, const json& value) {
  const bool fp16 = row.from.starts_with("fp16.");
  json file = {{fp16 ? "fp16" : "bf16", {{"enabled", true}}}};
  file[json::json_pointer(pointer_of(row.from))] = value;
  return file;
}

const Imported* find(const DeepSpeedImport& import, const std::string& path) {
  const auto found = std::ranges::find(import.keys, path, &Imported::from);
  return found == import.keys.end() ? nullptr : &*found;
}

/// What the run file has at the row's key, once it has a model.
json written(const DeepSpeedImport& import, const DeepSpeedKey& row) {
  const std::vector<std::string> model = {"model.preset=tiny"};
  return find_field(row.to)->write(from_text(import.yaml, model));
}

void expect_dropped(const DeepSpeedKey& row, const json& value, const std::string& why) {
  const DeepSpeedImport import = import_deepspeed(file_with(row, value).dump(), "ds.json");
  const Imported* key = find(import, path_of(row));
  ASSERT_NE(key, nullptr);
  EXPECT_EQ(key->fate, Fate::kDropped);
  EXPECT_EQ(key->why, why);
  EXPECT_THAT(import.yaml, HasSubstr("# - " + path_of(row) + ": "));
}

void expect_written(const DeepSpeedKey& row, const json& value, const json& ours) {
  const DeepSpeedImport import = import_deepspeed(file_with(row, value).dump(), "ds.json");
  const Imported* key = find(import, path_of(row));
  ASSERT_NE(key, nullptr);
  EXPECT_EQ(key->fate, Fate::kWritten);
  EXPECT_EQ(key->to, row.to);
  EXPECT_EQ(written(import, row), ours);
  EXPECT_THAT(import.yaml, testing::Not(HasSubstr("# - " + path_of(row) + ": ")));
  EXPECT_THAT(import.yaml, HasSubstr("# " + path_of(row) + ": "));
}

void expect_refused(const DeepSpeedKey& row, const json& value) {
  try {
    import_deepspeed(file_with(row, value).dump(), "ds.json");
    ADD_FAILURE() << "accepted";
  } catch (const Error& e) {
    EXPECT_EQ(e.code, Errc::kConfig);
    EXPECT_THAT(e.what(), testing::StartsWith("ds.json:1:"));
    EXPECT_THAT(e.what(), HasSubstr(path_of(row) + ": "));
    const std::string why = row.to.empty() ? row.note : "";
    EXPECT_THAT(e.what(), HasSubstr(why));
  }
}

/// A value that a key of the run file takes as DeepSpeed would spell it: its default, else 1.
json some_value(const DeepSpeedKey& row) {
  json value = find_field(row.to)->write(Config{});
  return value.is_null() || value == "auto" ? json(1) : value;
}

void expect_conversion(const DeepSpeedKey& row) {
  switch (row.conversion) {
    case Conversion::kSame:
      return expect_written(row, some_value(row), some_value(row));
    case Conversion::kCount:
      expect_written(row, 8192, 8192);
      expect_written(row, 8.192e3, 8192);
      return expect_refused(row, 0.5);
    case Conversion::kElements:
      expect_written(row, 1e6, "12000000B");
      return expect_refused(row, -1);
    case Conversion::kBytes:
      expect_written(row, 65536, "64KiB");
      return expect_refused(row, "64KiB");
    case Conversion::kFolder:
      return expect_written(row, "/mnt/some drive", json::array({"/mnt/some drive"}));
    case Conversion::kWords:
      expect_refused(row, "no such word");
      return expect_refused(row, json::array({1}));
    case Conversion::kDropped:
      for (const json& value : {json(true), json(3), json("word"), json::array({1, 2})}) {
        expect_dropped(row, value, row.note);
      }
  }
}

/// JSON's spelling of a word of the table.
json json_of(const std::string& word) {
  const json value = json::parse(word, nullptr, false);
  return value.is_discarded() ? json(word) : value;
}

TEST(DeepSpeedTable, EveryRowDoesWhatItSays) {
  for (const DeepSpeedKey& row : deepspeed_keys()) {
    SCOPED_TRACE(row.from);
    for (const Word& word : row.words) {
      SCOPED_TRACE(word.theirs);
      if (word.ours.empty()) {
        expect_dropped(row, json_of(word.theirs), row.to.empty() ? "as it is here" : row.note);
      } else {
        expect_written(row, json_of(word.theirs), json_of(word.ours));
      }
    }
    expect_conversion(row);
  }
}

TEST(DeepSpeedTable, AutoIsTakenEverywhere) {
  for (const DeepSpeedKey& row : deepspeed_keys()) {
    SCOPED_TRACE(row.from);
    const DeepSpeedImport import = import_deepspeed(file_with(row, "auto").dump(), "ds.json");
    const Imported* key = find(import, path_of(row));
    ASSERT_NE(key, nullptr);
    if (key->fate == Fate::kWritten) {
      EXPECT_THAT(import.yaml, HasSubstr("# " + path_of(row) + ": auto\n"));
    } else {
      EXPECT_EQ(key->fate, row.to.empty() ? Fate::kDropped : Fate::kLeft);
      EXPECT_THAT(import.yaml, HasSubstr("# - " + path_of(row) + ": auto"));
    }
  }
}

TEST(DeepSpeedTable, NullIsAKeyThatIsNotSet) {
  for (const DeepSpeedKey& row : deepspeed_keys()) {
    SCOPED_TRACE(row.from);
    const DeepSpeedImport import = import_deepspeed(file_with(row, nullptr).dump(), "ds.json");
    const auto key = std::ranges::find_if(import.keys, [&](const Imported& k) {
      return k.from == path_of(row) && k.theirs == "null";
    });
    ASSERT_NE(key, import.keys.end());
    EXPECT_EQ(key->fate, Fate::kDropped);
  }
}

TEST(DeepSpeedTable, WhatDeepSpeedTakesWhereAKeyIsNotSetIsWritten) {
  for (const DeepSpeedKey& row : deepspeed_keys()) {
    for (const Unset& unset : row.unset) {
      SCOPED_TRACE(row.from + " without, with " + unset.where);
      json file = json::object();
      std::vector<std::string> values = unset.values;
      if (values.empty()) values.emplace_back("AdamW");
      for (const std::string& value : values) {
        if (!unset.where.empty()) file[json::json_pointer(pointer_of(unset.where))] = value;
        const DeepSpeedImport import = import_deepspeed(file.dump(), "ds.json");
        const Imported* key = find(import, row.from);
        const auto noted = std::ranges::find(import.notes, unset.note);
        EXPECT_EQ(noted == import.notes.end(), unset.note.empty());
        if (unset.ours.empty()) {
          EXPECT_EQ(key, nullptr);
          continue;
        }
        ASSERT_NE(key, nullptr);
        EXPECT_EQ(key->fate, Fate::kWritten);
        EXPECT_EQ(key->theirs, unset.theirs);
        EXPECT_THAT(key->why, HasSubstr("not set"));
        EXPECT_NO_THROW(written(import, row));
      }
    }
  }
}

TEST(DeepSpeedTable, KeysAreUniqueAndLeadToKeysThatExist) {
  std::set<std::string> seen;
  for (const DeepSpeedKey& row : deepspeed_keys()) {
    SCOPED_TRACE(row.from);
    EXPECT_TRUE(seen.insert(row.from).second);
    EXPECT_EQ(find_deepspeed_key(path_of(row)), &row);
    EXPECT_TRUE(row.to.empty() || find_field(row.to) != nullptr);
    EXPECT_FALSE(row.to.empty() && row.note.empty());
  }
}

}  // namespace
}  // namespace sluice::config
