/// Names for addresses in code, for people.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

namespace sluice {

/// The functions of this program by its own symbol table, which has the ones of unnamed namespaces
/// too; those of libraries by what they export. A program that was stripped has places only.
///
/// Thread  any; allocates, so not in a signal handler
class Symbols {
 public:
  /// Reads the program's file.
  Symbols();

  /// "sluice+0x2a10 sluice::train::place_of(...)": the file with the offset in it, as addr2line
  /// takes it, and the function.
  std::string describe(const void* address) const;

 private:
  struct Function {
    std::uintptr_t begin;  // in the program as it was loaded
    std::uintptr_t bytes;
    std::string name;  // mangled
  };
  std::vector<Function> functions_;  // in order of address
};

}  // namespace sluice
