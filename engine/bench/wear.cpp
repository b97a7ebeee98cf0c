#include "engine/bench/wear.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <linux/nvme_ioctl.h>
#include <sys/ioctl.h>
#include <unistd.h>

#include <algorithm>
#include <cstdint>

namespace sluice::bench {
namespace {

// Offsets and numbers of the specification.
constexpr std::size_t kPercentUsed = 5;
constexpr std::size_t kUnitsWritten = 48, kUnitsBytes = 16;
constexpr double kUnit = 512'000;
constexpr std::uint8_t kGetLogPage = 0x02;
constexpr std::uint32_t kHealth = 0x02;
constexpr std::uint32_t kAllNamespaces = 0xffffffff;

double little_endian(const HealthPage& page, std::size_t at, std::size_t bytes) {
  double value = 0;
  for (std::size_t i = bytes; i-- > 0;) {
    value = 256 * value + static_cast<double>(std::to_integer<unsigned>(page[at + i]));
  }
  return value;
}

}  // namespace

Wear wear_in(const HealthPage& page) {
  return {.percent_used = std::to_integer<unsigned>(page[kPercentUsed]),
          .written = kUnit * little_endian(page, kUnitsWritten, kUnitsBytes)};
}

std::optional<Wear> wear_of(const std::string& drive) {
  if (!drive.starts_with("nvme")) return std::nullopt;
  const int fd = ::open(("/dev/" + drive).c_str(), O_RDONLY | O_CLOEXEC);
  if (fd < 0) return std::nullopt;
  HealthPage page{};
  nvme_admin_cmd command{};
  command.opcode = kGetLogPage;
  command.nsid = kAllNamespaces;
  command.addr = reinterpret_cast<std::uintptr_t>(page.data());
  command.data_len = page.size();
  command.cdw10 = kHealth | static_cast<std::uint32_t>(page.size() / 4 - 1) << 16;
  const int status = ::ioctl(fd, NVME_IOCTL_ADMIN_CMD, &command);
  ::close(fd);
  if (status != 0) return std::nullopt;
  return wear_in(page);
}

double endurance_left(const Wear& wear) {
  if (wear.percent_used == 0) return 0;
  const double whole = wear.written * 100 / (wear.percent_used + 1);
  return std::max(whole - wear.written, 0.0);
}

std::string text_of(const Wear& wear) {
  return fmt::format("{}% used, {:.4g} TB written", wear.percent_used, wear.written * 1e-12);
}

}  // namespace sluice::bench
