/// Runs that succeed, by what they leave: the records of metrics.jsonl and the final weights.
#pragma once

#include <nlohmann/json.hpp>
#include <sstream>
#include <string>
#include <vector>

#include "tests/app/program.h"

namespace sluice::app {

using Records = std::vector<nlohmann::json>;

/// Of one key in every record.
inline std::vector<double> column(const Records& records, const std::string& key) {
  std::vector<double> values;
  for (const auto& record : records) values.push_back(record.at(key).get<double>());
  return values;
}

class RecordsTest : public ProgramTest {
 protected:
  /// kRunFile's samples: 16 tokens in, 16 targets, the last of which begins the next sample.
  static constexpr std::int64_t kSeqLen = 16;
  static constexpr std::int64_t kBatch = 2;
  static constexpr std::int64_t kSamples = 40;

  /// No two samples are alike.
  RecordsTest() { write_tokens(tokens_); }

  /// Trains under a name with these arguments; what it recorded.
  Records run(const std::string& name, const std::string& arguments) const {
    return started(name, "run.yaml " + arguments + " name=" + name);
  }
  Records started(const std::string& name, const std::string& arguments) const {
    const Ending ending = shell("$sluice train " + arguments);
    EXPECT_EQ(ending.code, 0) << ending.said;
    Records records;
    std::istringstream lines(text_of("runs/" + name + "/metrics.jsonl"));
    for (std::string line; std::getline(lines, line);) {
      records.push_back(nlohmann::json::parse(line));
    }
    return records;
  }
  std::string weights(const std::string& name) const {
    const std::string bytes = text_of("runs/" + name + "/final/model.safetensors");
    EXPECT_FALSE(bytes.empty()) << name;
    return bytes;
  }
  /// A file that holds sample `k` alone.
  std::string cut_to_sample(std::int64_t k) const {
    const auto first = tokens_.begin() + k * kSeqLen;
    const std::vector<std::uint16_t> sample(first, first + kSeqLen + 1);
    const std::string name = "sample" + std::to_string(k) + ".bin";
    write(name, {reinterpret_cast<const char*>(sample.data()), 2 * sample.size()});
    return name;
  }

 private:
  static std::vector<std::uint16_t> made_tokens() {
    std::vector<std::uint16_t> tokens(kSamples * kSeqLen + 1);
    std::uint32_t state = 1;
    for (std::uint16_t& token : tokens) {
      state = state * 1664525U + 1013904223U;
      token = static_cast<std::uint16_t>((state >> 16) % 50);
    }
    return tokens;
  }

  const std::vector<std::uint16_t> tokens_ = made_tokens();
};

}  // namespace sluice::app
