/// File patterns to file names.
#pragma once

#include <string>
#include <vector>

namespace sluice::data {

/// The files that the patterns name: sorted by bytes, each once, `./a` and `a` being one.
///
/// `*`, `?` and `[a-z]` match inside one folder or file name, a part that is `**` any number of
/// folders: `engine/**/*.cpp`, `docs/**`. Names that begin with a dot must be written out, and `**`
/// does not follow links to folders, so that it ends. Folders, devices and the like are skipped. A
/// file whose own name holds such characters is found by it. Relative patterns start at the working
/// directory.
///
/// Throws  kConfig when there is no pattern, or one that matches no file (it says what that
///         matches); kIo for a folder that cannot be listed and for a link to nothing
std::vector<std::string> expand_globs(const std::vector<std::string>& globs);

}  // namespace sluice::data
