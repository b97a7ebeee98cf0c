/// A folder of its own for each test, with files of tokens.
#pragma once

#include <gtest/gtest.h>

#include <cstdint>
#include <string>
#include <type_traits>
#include <vector>

#include "tests/support/temp_folder.h"

namespace sluice::data {

class Folder : public ::testing::Test {
 protected:
  std::string path(const std::string& name) const { return folder_ / name; }
  std::string read(const std::string& name) const { return folder_.read(name); }
  std::string write(const std::string& name, const std::string& text) const {
    return folder_.write(name, text);
  }

  /// Little-endian, whatever the machine.
  template <class T>
  std::string write_ids(const std::string& name, const std::vector<T>& ids) const {
    std::string bytes;
    for (const T id : ids) {
      for (std::size_t i = 0; i < sizeof(T); ++i) {
        bytes += static_cast<char>(static_cast<std::make_unsigned_t<T>>(id) >> (8 * i) & 0xff);
      }
    }
    return write(name, bytes);
  }

 private:
  test::TempFolder folder_;
};

}  // namespace sluice::data
