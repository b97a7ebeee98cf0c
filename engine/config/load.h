/// From a run file and command line overrides to a checked Config.
#pragma once

#include <map>
#include <span>
#include <string>
#include <string_view>

#include "engine/config/config.h"

namespace sluice::config {

/// What ${env:VARIABLE} may name. Given from outside, so that a load depends on its arguments only.
using Environment = std::map<std::string, std::string, std::less<>>;

/// Reads a run file; then each override, "train.steps=50", replaces what the file says. An override
/// is taken as it stands, without YAML's rules, unless it begins with [ { " or '.
///
/// Throws kConfig: "file:line:col key: value: reason; fix". A bad file never yields half a Config.
Config load(const std::string& file, std::span<const std::string> overrides,
            const Environment& environment);

/// The same for a text in memory; `file` is what messages call it.
Config from_text(std::string_view text, std::span<const std::string> overrides = {},
                 const Environment& environment = {}, const std::string& file = "run.yaml");

/// `config` under the name that the run has got: ${name} is filled in wherever it was left.
/// Throws kConfig when `name` is no name for a folder.
Config with_name(Config config, const std::string& name);

}  // namespace sluice::config
