/// Files that a user names, read and written. A private header of this room.
#pragma once

#include <filesystem>
#include <string>
#include <string_view>
#include <vector>

namespace sluice::bench {

/// All of a file of at most 1 MiB. Throws kConfig when it is not a file, or larger; kIo.
std::string read_small_file(const std::filesystem::path& file);

/// Writes a new file beside it and renames that, both synced: a reader, or the machine after a
/// power loss, has the old text or the new one. Keeps the mode, follows links. Throws kIo, and then
/// the old text is still there.
void replace_file(const std::filesystem::path& file, std::string_view text);

/// Throws kIo when the file that an option names cannot be written: so that minutes of measuring
/// are not lost to a name. Makes nothing. No option given: nothing to do.
void require_writable(std::string_view option, const std::string& file);
struct Named {
  std::string_view option;
  std::string file;  ///< empty: not given
};
/// Throws kConfig when two options name the same file.
void require_different(const std::vector<Named>& outputs);
/// What it holds then, as a whole or not at all where it is a file. Throws kIo.
void write_result(std::string_view option, const std::string& file, std::string_view text);

}  // namespace sluice::bench
