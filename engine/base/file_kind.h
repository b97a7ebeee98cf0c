/// What stands under a name where a file was asked for.
#pragma once

#include <filesystem>
#include <string_view>

namespace sluice {

/// "a folder", "a device", "a FIFO", ..., for messages; a file of bytes is "a file".
std::string_view kind_of(std::filesystem::file_status status);

}  // namespace sluice
