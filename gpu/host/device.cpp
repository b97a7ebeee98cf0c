#include "gpu/device.h"

#include <unistd.h>

#include "engine/base/error.h"
#include "engine/base/host_memory.h"
#include "engine/base/machine.h"

namespace sluice::gpu {

namespace {

Device look_at_host() {
  const long pages = sysconf(_SC_PHYS_PAGES);
  const long page = sysconf(_SC_PAGESIZE);
  SLUICE_CHECK(pages > 0 && page > 0, kDevice, "the system does not say how much memory it has");
  return {.name = cpu_model().value_or("processor"),  // not every architecture gives its name
          .memory = static_cast<Bytes>(pages) * static_cast<Bytes>(page),
          .unified = true,
          .backend = Backend::kHost};
}

}  // namespace

Device device() {
  static const Device host = look_at_host();  // for its name the system asks every core
  return host;
}

Bytes free_memory() {
  return host_memory().available;
}

}  // namespace sluice::gpu
