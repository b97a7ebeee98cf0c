/// A folder of its own for each test, with files of tokens.
#pragma once

#include <gtest/gtest.h>

#include <string>
#include <vector>

#include "tests/support/temp_folder.h"
#include "tests/support/token_set.h"

namespace sluice::data {

class Folder : public ::testing::Test {
 protected:
  std::string path(const std::string& name) const { return folder_ / name; }
  std::string read(const std::string& name) const { return folder_.read(name); }
  std::string write(const std::string& name, const std::string& text) const {
    return folder_.write(name, text);
  }

  template <class T>
  std::string write_ids(const std::string& name, const std::vector<T>& ids) const {
    return write(name, test::bytes_of(ids));
  }

 private:
  test::TempFolder folder_;
};

}  // namespace sluice::data
