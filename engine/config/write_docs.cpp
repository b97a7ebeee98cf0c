/// Prints docs/config.md, or with the argument `deepspeed` docs/deepspeed.md.
#include <iostream>
#include <string_view>

#include "engine/config/deepspeed_keys.h"
#include "engine/config/write.h"

int main(int argc, char** argv) {
  const bool deepspeed = argc > 1 && std::string_view(argv[1]) == "deepspeed";
  std::cout << (deepspeed ? sluice::config::deepspeed_markdown()
                          : sluice::config::reference_markdown());
  return std::cout.flush() ? 0 : 1;
}
