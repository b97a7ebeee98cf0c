/// A folder for one test, and what the tests of this room write there.
#pragma once

#include <gtest/gtest.h>
#include <unistd.h>

#include <atomic>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <set>
#include <string>

#include "engine/base/error.h"
#include "engine/shape/family.h"
#include "engine/shape/model.h"
#include "engine/zero/layout.h"

namespace sluice::checkpoint {

class Scratch {
 public:
  Scratch() {
    static std::atomic<int> count{0};
    path_ = std::filesystem::path(::testing::TempDir()) /
            ("sluice-checkpoint-" + std::to_string(::getpid()) + "-" + std::to_string(count++));
    std::filesystem::create_directories(path_);
  }
  ~Scratch() { std::filesystem::remove_all(path_); }
  Scratch(const Scratch&) = delete;
  Scratch& operator=(const Scratch&) = delete;

  const std::filesystem::path& path() const { return path_; }
  std::filesystem::path operator/(const std::string& name) const { return path_ / name; }
  std::set<std::string> names() const { return names_in(path_); }

  static std::set<std::string> names_in(const std::filesystem::path& folder) {
    std::set<std::string> names;
    for (const auto& entry : std::filesystem::directory_iterator(folder)) {
      names.insert(entry.path().filename().string());
    }
    return names;
  }

 private:
  std::filesystem::path path_;
};

inline std::string slurp(const std::filesystem::path& path) {
  std::ifstream in(path, std::ios::binary);
  return {std::istreambuf_iterator<char>(in), {}};
}

inline void spit(const std::filesystem::path& path, const std::string& bytes) {
  std::ofstream(path, std::ios::binary) << bytes;
}

/// Runs `action`; it must fail with `code`, and the message must hold every word.
template <class Action>
void expect_error(Errc code, const std::vector<std::string>& words, Action action) {
  try {
    action();
    FAIL() << "no error; expected one that says " << (words.empty() ? "" : words.front());
  } catch (const Error& e) {
    EXPECT_EQ(e.code, code) << e.what();
    for (const std::string& word : words) {
      EXPECT_NE(std::string(e.what()).find(word), std::string::npos) << word << ": " << e.what();
    }
  }
}

inline shape::Model small_model(std::string_view family) {
  shape::Decoder d = shape::find_family(family).base;
  d.vocab = 130;
  d.hidden = 24;
  d.layers = 2;
  d.heads = d.kv_heads = 2;
  d.head_dim = 12;
  d.intermediate = 50;
  d.max_positions = 33;
  d.tied_embeddings = family == "gpt2";
  return shape::make_model(d);
}

/// A number that says which element of the model it is: exact in fp32, not in bf16.
inline float value_of(std::size_t segment, std::uint64_t elem) {
  return static_cast<float>(segment * 100000 + elem) * 0.25F - 3000.0F;
}

inline std::vector<float> flat(const shape::Model& model, std::size_t segment) {
  std::vector<float> values(zero::make_layout(model.segments[segment]).elems);
  for (std::size_t i = 0; i < values.size(); ++i) values[i] = value_of(segment, i);
  return values;
}

}  // namespace sluice::checkpoint
