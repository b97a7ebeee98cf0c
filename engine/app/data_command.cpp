#include <fmt/core.h>

#include <algorithm>

#include "engine/app/commands.h"
#include "engine/app/environment.h"
#include "engine/app/job_of.h"
#include "engine/base/error.h"
#include "engine/config/load.h"
#include "engine/data/inspect.h"

namespace sluice::app {

void print_samples(const std::string& file, const std::vector<std::string>& overrides,
                   std::int64_t first, std::int64_t count) {
  const config::Config config = config::load(file, overrides, environment());
  const train::Job job = job_of(config, config.output_dir);
  const data::Dataset data(job.data, job.data.train, job.decoder.vocab);
  SLUICE_CHECK(first >= 0 && first < data.samples(), kConfig,
               fmt::format("--from {}: data.train has samples 0 to {}", first, data.samples() - 1));
  fmt::print("{}\n", data::describe_json(data));
  const std::int64_t end = std::min(data.samples(), first + std::max<std::int64_t>(count, 0));
  for (std::int64_t k = first; k < end; ++k) fmt::print("{}\n", data::sample_json(data, k));
}

}  // namespace sluice::app
