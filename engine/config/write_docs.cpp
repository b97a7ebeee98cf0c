/// Prints docs/config.md.
#include <iostream>

#include "engine/config/write.h"

int main() {
  std::cout << sluice::config::reference_markdown();
  return std::cout.flush() ? 0 : 1;
}
