#include "engine/app/report.h"

#include <fmt/format.h>

#include <new>

#include "engine/base/error.h"
#include "engine/base/log.h"

namespace sluice::app {

int report(const std::exception& error) {
  if (const auto* known = dynamic_cast<const Error*>(&error)) {
    log::error(text_of(*known));
    return exit_code(known->code);
  }
  if (dynamic_cast<const std::bad_alloc*>(&error) != nullptr) {
    log::error(
        "this machine has no memory left for the run; lower tiers.cpu.limit, "
        "train.train_micro_batch_size_per_gpu or data.seq_len, or use a smaller model");
    return exit_code(Errc::kEnv);
  }
  log::error(fmt::format("{} (internal error; please report it)", error.what()));
  return exit_code(Errc::kLogic);
}

}  // namespace sluice::app
