#include "engine/base/file_kind.h"

namespace sluice {

std::string_view kind_of(std::filesystem::file_status status) {
  using std::filesystem::file_type;
  switch (status.type()) {
    case file_type::regular:
      return "a file";
    case file_type::directory:
      return "a folder";
    case file_type::symlink:
      return "a link";
    case file_type::block:
    case file_type::character:
      return "a device";
    case file_type::fifo:
      return "a FIFO";
    case file_type::socket:
      return "a socket";
    case file_type::none:
    case file_type::not_found:
      return "nothing";
    case file_type::unknown:
      break;
  }
  return "no file";
}

}  // namespace sluice
