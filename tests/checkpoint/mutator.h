/// Damage to files, the same for the same seed.
#pragma once

#include <cstdint>
#include <random>
#include <string>
#include <vector>

namespace sluice::checkpoint {

class Mutator {
 public:
  /// `others` are what is spliced in.
  Mutator(std::uint64_t seed, const std::vector<std::string>& others)
      : random_(seed), others_(others) {}

  std::size_t below(std::size_t n) { return random_() % n; }

  /// Of the two parts of a safetensors file each may change; its length mostly fits its text.
  std::string safetensors(const std::string& bytes);
  /// Of JSON.
  std::string text(std::string bytes);

 private:
  template <class T>
  const T& one_of(const std::vector<T>& all) {
    return all[below(all.size())];
  }
  void change(std::string& bytes);
  void change_token(std::string& bytes, bool (*begins)(char), bool (*goes_on)(char),
                    const std::vector<std::string>& to);

  std::mt19937_64 random_;
  const std::vector<std::string>& others_;
};

}  // namespace sluice::checkpoint
