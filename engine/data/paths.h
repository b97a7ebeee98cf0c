/// What the name of a file ends in, and what stands under it.
#pragma once

#include <filesystem>
#include <string>

namespace sluice::data {

/// ".bin" of "a/B.BIN": in lower case, whatever the name has.
std::string ending_of(const std::filesystem::path& path);

/// What is really there, links followed; nothing, and a link to nothing, are "not found". Throws
/// kIo where nobody may look, and for links that lead in a circle.
std::filesystem::file_status status_of(const std::filesystem::path& path);

}  // namespace sluice::data
