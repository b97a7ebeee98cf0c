#include "engine/config/read.h"

#include <fmt/format.h>

#include <algorithm>
#include <utility>

#include "engine/config/checks.h"
#include "engine/config/field.h"
#include "engine/config/nearest.h"

namespace sluice::config {
namespace {

class Reader {
 public:
  explicit Reader(const Environment& environment) : environment_(environment) {}

  /// The name first: paths may hold it.
  void name(const Value& root) {
    for (const Entry& e : root.entries) {
      if (e.key == "name") field(*find_field("name"), e, e.key);
    }
    name_ = config_.name;
  }

  void section(const Value& map, const std::string& prefix) {
    for (const Entry& e : map.entries) {
      const std::string path = prefix + e.key;
      if (e.key.find('.') != std::string::npos) {
        refuse(e, path,
               "dotted keys are for the command line; write the sections one below another");
      }
      if (const Field* f = find_field(path)) {
        if (path != "name") field(*f, e, path);
      } else if (is_section(path)) {
        if (e.value->kind != Value::Kind::kMap) {
          refuse(e, path,
                 fmt::format("{}: this is a section; indent its keys below it, or take it out",
                             shown(*e.value)));
        }
        section(*e.value, path + ".");
      } else {
        unknown(e, path);
      }
    }
  }

  Config finish(const std::string& file) {
    // The default is a path like any other.
    if (!places_.contains("output_dir")) {
      const Field& f = *find_field("output_dir");
      Value standard;
      standard.kind = Value::Kind::kPlain;
      standard.where = file;
      standard.text = config_.output_dir;
      f.read(config_, standard, Context{f.path, f.takes, &environment_, name_});
    }
    check_together(config_, places_, file);
    return std::move(config_);
  }

 private:
  [[noreturn]] static void refuse(const Entry& e, std::string_view path,
                                  const std::string& reason) {
    fail(fmt::format("{} {}", e.where, shown(path)), reason);
  }

  [[noreturn]] static void unknown(const Entry& e, std::string_view path) {
    const std::string hint = e.key.find(':') != std::string::npos
                                 ? "write a space after the colon"
                                 : hint_for(path, *e.value, known_paths(), "a run file");
    refuse(e, path, fmt::format("unknown key; {}", hint));
  }

  void field(const Field& f, const Entry& e, const std::string& path) {
    if (path != f.path) {
      config_.warnings.push_back(fmt::format("{} {}: is called {} here", e.where, path, f.path));
    }
    const bool null = e.value->kind == Value::Kind::kNull;
    const auto [place, first] = places_.emplace(f.path, null ? e.where : e.value->where);
    if (!first) {
      refuse(e, path,
             fmt::format("another name of {}, set at {}; keep one", f.path, place->second));
    }
    const Context at{path, f.takes, &environment_, name_};
    if (!null) {
      f.read(config_, *e.value, at);
      return;
    }
    Value here = *e.value;  // the place of nothing is the key's
    here.where = e.where;
    f.read(config_, here, at);
  }

  const Environment& environment_;
  std::optional<std::string> name_;
  Config config_;
  Places places_;
};

}  // namespace

Config read_config(const Value& root, const Environment& environment, const std::string& file) {
  Reader reader(environment);
  reader.name(root);
  reader.section(root, "");
  return reader.finish(file);
}

}  // namespace sluice::config
