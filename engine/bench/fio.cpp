#include "engine/bench/fio.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <spawn.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <chrono>
#include <cmath>
#include <csignal>
#include <cstdlib>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <nlohmann/json.hpp>
#include <thread>

#include "engine/base/error.h"
#include "engine/base/log.h"
#include "engine/base/stop_signal.h"

namespace sluice::bench {
namespace {

namespace fs = std::filesystem;

constexpr const char* kOutput = "output";
constexpr const char* kErrors = "errors";

std::string milliseconds(double seconds) {
  return fmt::format("{}ms", std::llround(seconds * 1e3));
}

/// How many jobs it takes to use the drive in one direction as `point` does.
unsigned jobs_of(const Point& point) {
  return point.engine == nvme::Engine::kThreads ? threads_of(point) : 1;
}

void add_engine(const FioJob& job, std::vector<std::string>& to) {
  const Point& point = job.point;
  switch (point.engine) {
    case nvme::Engine::kThreads:  // each job has a file of its own
      to.insert(to.end(),
                {"--ioengine=psync", "--iodepth=1", fmt::format("--numjobs={}", jobs_of(point))});
      return;
    case nvme::Engine::kLibaio:
      to.insert(to.end(), {"--ioengine=libaio", fmt::format("--iodepth={}", point.depth)});
      return;
    case nvme::Engine::kIoUring:
      // What belongs to an engine has to come after it.
      to.insert(to.end(), {"--ioengine=io_uring", "--registerfiles=1",
                           fmt::format("--iodepth={}", point.depth)});
      if (job.buffers == FioBuffers::kRegistered) to.emplace_back("--fixedbufs=1");
      return;
    case nvme::Engine::kAuto:
      break;
  }
  throw Error(Errc::kLogic, "fio: a point names its engine");
}

/// One direction. Every option is repeated for each, so that none hangs on how fio inherits them.
void add_job(const FioJob& job, Traffic direction, Bytes size, std::vector<std::string>& to) {
  const Bytes block = job.point.block;
  const Bytes part = round_down(size / jobs_of(job.point), block);
  SLUICE_CHECK(part > 0, kConfig,
               fmt::format("fio: {} of files are less than a block of {} for each of its jobs; "
                           "ask for more",
                           format_bytes(job.size), format_bytes(block)));
  const char* name = name_of(direction);
  to.insert(to.end(), {fmt::format("--name={}", name), fmt::format("--rw={}", name)});
  add_engine(job, to);
  to.insert(to.end(),
            {"--direct=1", fmt::format("--bs={}", block), fmt::format("--size={}", part)});
  if (job.into_new_files) {
    to.insert(to.end(), {"--fallocate=native", "--end_fsync=1"});
  } else {
    // A file that was only reserved is paid for at the first write.
    to.insert(to.end(), {"--time_based=1", "--runtime=" + milliseconds(job.seconds),
                         "--ramp_time=" + milliseconds(job.ramp_s), "--overwrite=1"});
  }
  // Ours writes what is there, so that fio may not spend its time on changing it.
  to.insert(to.end(),
            {"--refill_buffers=0", "--scramble_buffers=0", "--unlink=1", "--group_reporting=1"});
  if (direction != job.point.traffic) to.emplace_back("--new_group=1");
}

double percentile(const nlohmann::json& latency, const char* name) {
  return latency.at("percentile").at(name).get<double>() * 1e-9;
}

/// Of one direction of a group of jobs.
Latency latency_of(const nlohmann::json& direction) {
  const nlohmann::json& latency = direction.at("clat_ns");
  if (!latency.contains("percentile")) return {};  // no transfer, no percentiles
  return {percentile(latency, "50.000000"), percentile(latency, "99.000000"),
          percentile(latency, "99.900000")};
}

double seconds_of(const nlohmann::json& milliseconds) {
  return milliseconds.get<double>() * 1e-3;
}

/// Adds a group; `cpu_s` are its seconds of processors.
void add(const nlohmann::json& job, Measured& to, double& cpu_s) {
  const int error = job.at("error").get<int>();
  SLUICE_CHECK(error == 0, kIo,
               fmt::format("fio: its job {} failed: {}", job.at("jobname").get<std::string>(),
                           std::strerror(error)));
  const nlohmann::json& read = job.at("read");
  const nlohmann::json& write = job.at("write");
  if (const Bytes bytes = read.at("io_bytes"); bytes > 0) {
    to.read_bytes += bytes;
    to.read_rate += read.at("bw_bytes").get<double>();
    to.read_latency = latency_of(read);
  }
  if (const Bytes bytes = write.at("io_bytes"); bytes > 0) {
    to.written_bytes += bytes;
    to.write_rate += write.at("bw_bytes").get<double>();
    to.write_latency = latency_of(write);
  }
  to.seconds =
      std::max({to.seconds, seconds_of(read.at("runtime")), seconds_of(write.at("runtime"))});
  // Both are sums over the jobs of a group, so the share of one in the other is a mean.
  const double share = (job.at("usr_cpu").get<double>() + job.at("sys_cpu").get<double>()) / 100;
  cpu_s += share * seconds_of(job.at("job_runtime"));
}

/// A folder that goes with all it holds.
class Folder {
 public:
  explicit Folder(const std::string& parent) : path_(parent + "/sluice-fio-XXXXXX") {
    std::error_code error;
    fs::create_directories(parent, error);
    SLUICE_CHECK(!error && ::mkdtemp(path_.data()) != nullptr, kIo,
                 fmt::format("{}: no folder can be made there: {}", parent,
                             error ? error.message() : std::strerror(errno)));
  }
  Folder(const Folder&) = delete;
  Folder& operator=(const Folder&) = delete;
  ~Folder() {
    std::error_code ignored;
    fs::remove_all(path_, ignored);
  }

  const std::string& path() const { return path_; }
  std::string read(const char* name) const {
    std::ifstream file(path_ + "/" + name, std::ios::binary);
    return {std::istreambuf_iterator<char>(file), {}};
  }

 private:
  std::string path_;
};

/// Where a new process works and what it prints into: files, so that no pipe can fill up. It leads
/// a group of its own, so that Ctrl-C reaches us alone and we end it.
class Surroundings {
 public:
  explicit Surroundings(const std::string& folder) {
    ::posix_spawn_file_actions_init(&actions_);
    ::posix_spawn_file_actions_addchdir_np(&actions_, folder.c_str());
    ::posix_spawn_file_actions_addopen(&actions_, STDIN_FILENO, "/dev/null", O_RDONLY, 0);
    constexpr int kNew = O_WRONLY | O_CREAT | O_TRUNC;
    ::posix_spawn_file_actions_addopen(&actions_, STDOUT_FILENO, kOutput, kNew, 0600);
    ::posix_spawn_file_actions_addopen(&actions_, STDERR_FILENO, kErrors, kNew, 0600);
    ::posix_spawnattr_init(&attributes_);
    ::posix_spawnattr_setflags(&attributes_, POSIX_SPAWN_SETPGROUP);
    ::posix_spawnattr_setpgroup(&attributes_, 0);
  }
  Surroundings(const Surroundings&) = delete;
  Surroundings& operator=(const Surroundings&) = delete;
  ~Surroundings() {
    ::posix_spawn_file_actions_destroy(&actions_);
    ::posix_spawnattr_destroy(&attributes_);
  }

  /// As posix_spawnp() returns.
  int spawn(pid_t& child, char* const* argv) const {
    return ::posix_spawnp(&child, argv[0], &actions_, &attributes_, argv, environ);
  }

 private:
  posix_spawn_file_actions_t actions_{};
  posix_spawnattr_t attributes_{};
};

/// Its status as waitpid() gives it. A signal in `stop` ends it, with all that it has started.
int run(std::vector<std::string> words, const std::string& folder, const std::atomic<int>& stop) {
  std::vector<char*> argv;
  for (std::string& word : words) argv.push_back(word.data());
  argv.push_back(nullptr);
  pid_t child = 0;
  const int error = Surroundings(folder).spawn(child, argv.data());
  SLUICE_CHECK(error != ENOENT, kEnv, "fio is not installed; scripts/install.sh fio installs it");
  SLUICE_CHECK(error == 0, kEnv, fmt::format("fio cannot be started: {}", std::strerror(error)));
  for (int status = 0;;) {
    const pid_t ended = ::waitpid(child, &status, WNOHANG);
    if (ended == child) return status;
    SLUICE_CHECK(ended == 0 || errno == EINTR, kIo,
                 fmt::format("waiting for fio: {}", std::strerror(errno)));
    if (stop != 0) ::kill(-child, SIGKILL);
    std::this_thread::sleep_for(std::chrono::milliseconds(10));
  }
}

std::string how_it_ended(int status) {
  if (WIFSIGNALED(status)) return fmt::format("was ended by signal {}", WTERMSIG(status));
  return fmt::format("ended with exit code {}", WEXITSTATUS(status));
}

/// The first lines of what it said, in one.
std::string said(const Folder& folder) {
  constexpr std::size_t kEnough = 400;
  std::string text = folder.read(kErrors);
  // Notes come before the JSON on the same stream.
  const std::string output = folder.read(kOutput);
  text += output.substr(0, output.find('{'));
  text.resize(std::min(text.size(), kEnough));
  while (!text.empty() && text.back() == '\n') text.pop_back();
  std::ranges::replace(text, '\n', ' ');
  return text.empty() ? "it said nothing" : text;
}

}  // namespace

std::vector<std::string> fio_arguments(const FioJob& job) {
  std::vector<std::string> arguments = {"--output-format=json"};
  if (job.point.traffic == Traffic::kMixed) {
    add_job(job, Traffic::kRead, job.size / 2, arguments);
    add_job(job, Traffic::kWrite, job.size / 2, arguments);
  } else {
    add_job(job, job.point.traffic, job.size, arguments);
  }
  return arguments;
}

Measured measured_by_fio(std::string_view output, const Point& point) {
  const std::size_t begin = std::min(output.find('{'), output.size());
  Measured measured;
  measured.point = point;
  double cpu_s = 0;
  try {
    const nlohmann::json root = nlohmann::json::parse(output.substr(begin));
    for (const nlohmann::json& job : root.at("jobs")) add(job, measured, cpu_s);
  } catch (const nlohmann::json::exception& e) {
    throw Error(Errc::kFormat, fmt::format("fio: not the JSON that version 3 prints ({}); sluice "
                                           "was tried with fio 3.33",
                                           e.what()));
  }
  const Bytes moved = measured.read_bytes + measured.written_bytes;
  SLUICE_CHECK(moved > 0, kIo, "fio: it moved nothing; give it more seconds");
  measured.cpu_s_per_gb = cpu_s / (static_cast<double>(moved) * 1e-9);
  return measured;
}

void require_fio() {
  const Folder own(std::filesystem::temp_directory_path());
  run({"fio", "--version"}, own.path(), stop_signal());
}

std::optional<Measured> run_fio(const FioJob& job, const std::string& folder,
                                const std::atomic<int>& stop) {
  std::vector<std::string> words = fio_arguments(job);
  words.insert(words.begin(), "fio");
  const Folder own(folder);
  const int status = run(std::move(words), own.path(), stop);
  if (stop != 0) return std::nullopt;
  if (status == 0) return measured_by_fio(own.read(kOutput), job.point);
  const std::string why = said(own);
  if (job.point.engine == nvme::Engine::kIoUring && job.buffers == FioBuffers::kRegistered &&
      why.find(std::strerror(ENOMEM)) != std::string::npos) {
    log::info("fio could not register its buffers (ulimit -l) and runs without");
    FioJob ordinary = job;
    ordinary.buffers = FioBuffers::kOrdinary;
    return run_fio(ordinary, folder, stop);
  }
  throw Error(Errc::kIo, fmt::format("fio {} in {}: {}", how_it_ended(status), folder, why));
}

}  // namespace sluice::bench
