/// A folder of its own for each test, removed afterwards.
#pragma once

#include <gtest/gtest.h>
#include <unistd.h>

#include <cstdint>
#include <filesystem>
#include <fstream>
#include <string>
#include <type_traits>
#include <vector>

#include "engine/base/error.h"

namespace sluice::data {

class Folder : public ::testing::Test {
 protected:
  Folder() { std::filesystem::create_directories(root_); }
  ~Folder() override { std::filesystem::remove_all(root_); }

  std::string path(const std::string& name) const { return (root_ / name).string(); }

  std::string write(const std::string& name, const std::string& text) const {
    const std::filesystem::path file = root_ / name;
    std::filesystem::create_directories(file.parent_path());
    std::ofstream(file, std::ios::binary) << text;
    return file.string();
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
  std::filesystem::path root_ = std::filesystem::path(::testing::TempDir()) /
                                ("sluice_data_" + std::to_string(::getpid()) + "_" +
                                 ::testing::UnitTest::GetInstance()->current_test_info()->name());
};

/// The error that `call` throws must be of this kind and say all of these words.
template <class Call>
void expect_error(Errc code, const std::vector<std::string>& words, Call call) {
  try {
    call();
    ADD_FAILURE() << "nothing was thrown";
  } catch (const Error& e) {
    EXPECT_EQ(e.code, code) << e.what();
    for (const std::string& word : words) {
      EXPECT_NE(std::string(e.what()).find(word), std::string::npos) << word << " in: " << e.what();
    }
  }
}

}  // namespace sluice::data
