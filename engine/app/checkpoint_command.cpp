#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <cstdint>
#include <exception>
#include <filesystem>
#include <optional>
#include <string>
#include <system_error>
#include <vector>

#include "cpu_adam/workers.h"
#include "engine/app/commands.h"
#include "engine/app/resume.h"
#include "engine/base/clock.h"
#include "engine/base/cores.h"
#include "engine/base/error.h"
#include "engine/base/log.h"
#include "engine/checkpoint/checkpoints.h"
#include "engine/checkpoint/companions.h"
#include "engine/checkpoint/state_reader.h"
#include "engine/checkpoint/state_scan.h"
#include "engine/checkpoint/state_writer.h"
#include "engine/checkpoint/writer.h"

namespace sluice::app {
namespace {

namespace fs = std::filesystem;
using checkpoint::Found;
using checkpoint::Manifest;
using checkpoint::Record;
using checkpoint::StateReader;

/// Sums and rounding by all cores.
class Threads {
 public:
  checkpoint::Each each() const {
    return [this](std::size_t count, const auto& work) { workers_.for_grains(count, work); };
  }

 private:
  cpu_adam::Workers workers_{core_count()};
};

/// Of the folder of a run; nullopt: it is none.
std::optional<std::vector<Found>> checkpoints_of(const fs::path& named) {
  std::error_code none;
  SLUICE_CHECK(fs::is_directory(named, none), kConfig,
               fmt::format("{} is no folder; name a checkpoint, or a run", named.string()));
  const fs::path checkpoints = named / "checkpoints";
  if (!fs::is_directory(checkpoints, none)) return std::nullopt;
  return checkpoint::list_checkpoints(checkpoints);
}

/// The checkpoint that is named, or the newest complete one of the run that is.
StateReader open_one(const fs::path& named) {
  if (!checkpoints_of(named)) return {named, {}};
  const std::string newest = last_checkpoint(named.string());
  SLUICE_CHECK(!newest.empty(), kCheckpoint,
               fmt::format("{}: has no complete checkpoint", named.string()));
  return {newest, {}};
}

/// Of all files below; what goes meanwhile counts nothing.
Bytes size_of(const fs::path& folder) {
  Bytes bytes = 0;
  std::error_code none;
  for (auto at = fs::recursive_directory_iterator(folder, none);
       at != fs::recursive_directory_iterator(); at.increment(none)) {
    const auto size = at->is_regular_file(none) ? at->file_size(none) : 0;
    if (!none) bytes += size;
  }
  return bytes;
}

Bytes bytes_of(const std::vector<Record>& records) {
  Bytes bytes = 0;
  for (const Record& record : records) bytes += record.bytes();
  return bytes;
}

/// "5 MiB in 3 records of 1 files".
std::string summary_of(const std::vector<Record>& records) {
  const std::size_t files = records.empty() ? 0 : records.back().file + 1 - records.front().file;
  return fmt::format("{} in {} records of {} files", format_bytes(bytes_of(records)),
                     records.size(), files);
}

/// Of an update that is still to come; empty: there is none.
std::string what_is_pending(const checkpoint::Position& position) {
  using Pending = checkpoint::Position::Pending;
  if (position.pending == Pending::kNone) return {};
  return fmt::format("the update of step {} is pending{}", position.step,
                     position.pending == Pending::kSkipped ? ", and will be skipped" : "");
}

/// Whether it is complete, as far as can be said without reading its state.
std::string completeness(const fs::path& checkpoint) {
  try {
    const StateReader reader(checkpoint, {});
    (void)reader.model();
    const std::string pending = what_is_pending(reader.manifest().position);
    return pending.empty() ? "complete" : "complete; " + pending;
  } catch (const Error& e) {
    return fmt::format("not complete: {}", e.what());
  }
}

/// Says what it finds; whether all is as it was written.
bool verify(const fs::path& folder, const Threads& threads) {
  bool whole = true;
  const auto damaged = [&](const Error& e) {
    log::error(e.what());
    whole = false;
  };
  try {
    const StateReader reader(folder, {});
    (void)reader.model();
    const Nanos begin = now_ns();
    checkpoint::scan_state(reader, threads.each(), {[](const auto&) {}, damaged});
    const double seconds = to_seconds(now_ns() - begin);
    const Manifest& m = reader.manifest();
    const Bytes bytes = bytes_of(m.records) + bytes_of(m.gradients);
    fmt::print("{}: {}; {} records, {} read at {:.2f} GB/s\n", folder.string(),
               whole ? "whole" : "damaged", m.records.size() + m.gradients.size(),
               format_bytes(bytes), static_cast<double>(bytes) / 1e9 / seconds);
  } catch (const Error& e) {
    if (e.code != Errc::kCheckpoint && e.code != Errc::kIo) throw;
    damaged(e);
  }
  return whole;
}

void show_state(const Manifest& m) {
  fmt::print("\nsegments, and their tensors from which element on\n");
  for (const auto& segment : m.segments) {
    fmt::print("  {}: {} elements\n", segment.name, segment.elems);
    for (const auto& tensor : segment.tensors) {
      fmt::print("    {} [{}] from {}\n", tensor.name, fmt::join(tensor.shape, ", "),
                 tensor.offset_elems);
    }
  }
  const auto show_record = [&](const Record& r) {
    fmt::print("  {} {} {:>12} {:>10}  {}[{}:{}]", checkpoint::hex(r.sum), m.files[r.file],
               r.offset, r.bytes(), m.segments[static_cast<std::size_t>(r.segment)].name,
               r.first_elem, r.end_elem());
  };
  fmt::print("\nrecords: XXH3, file, byte, bytes; master, m and v of which elements\n");
  for (const Record& r : m.records) {
    show_record(r);
    fmt::print("\n");
  }
  if (m.gradients.empty()) return;
  fmt::print("\ngradients: the same; dtype, and what the update multiplies them by\n");
  for (const Record& r : m.gradients) {
    show_record(r);
    fmt::print(" {} {}\n", name_of(r.dtype), r.factor);
  }
}

}  // namespace

void export_weights(const std::string& checkpoint, const std::string& out,
                    const ExportFlags& flags) {
  const StateReader reader = open_one(checkpoint);
  const Threads threads;
  checkpoint::Writer writer(reader.model(), flags.dtype, out, flags.shard_size,
                            checkpoint::read_companions(reader.folder() / checkpoint::kModelFolder),
                            threads.each());
  checkpoint::scan_state(reader, threads.each(),
                         {[&](const checkpoint::StatePiece& piece) {
                            writer.write(piece.segment, piece.first_elem, piece.master);
                          },
                          [](const Error& e) { throw Error(e); }});
  writer.finish();
  fmt::print("{}: {} weights of step {}, from {}\n", out, name_of(flags.dtype),
             reader.manifest().position.step, reader.folder().string());
  const std::string pending = what_is_pending(reader.manifest().position);
  if (!pending.empty()) fmt::print("{}: the weights are without it\n", pending);
}

void list_checkpoints(const std::string& run) {
  const auto all = checkpoints_of(run);
  SLUICE_CHECK(all, kConfig,
               fmt::format("{}: has no folder checkpoints, so it is no run that saved one", run));
  fmt::print("{:>8}  {:>10}  {}\n", "step", "size", "folder");
  for (const Found& found : *all) {
    fmt::print("{:>8}  {:>10}  {}  {}\n", found.step, format_bytes(size_of(found.folder)),
               found.folder.string(), completeness(found.folder));
  }
}

int verify_checkpoints(const std::string& named) {
  std::vector<fs::path> folders;
  if (const auto all = checkpoints_of(named)) {
    SLUICE_CHECK(!all->empty(), kCheckpoint, fmt::format("{}: has no checkpoint", named));
    for (const Found& found : *all) folders.push_back(found.folder);
  } else {
    folders.emplace_back(named);
  }
  const Threads threads;
  const auto damaged = std::ranges::count_if(
      folders, [&](const fs::path& folder) { return !verify(folder, threads); });
  return damaged == 0 ? 0 : exit_code(Errc::kCheckpoint);
}

void show_checkpoint(const std::string& named) {
  const StateReader reader = open_one(named);
  const Manifest& m = reader.manifest();
  fmt::print("{}: format {}, of sluice {}\n", reader.folder().string(), m.version(), m.sluice);
  fmt::print("position: step {}, {} updates applied, {} skipped in a row, {} written to drives\n",
             m.position.step, m.position.applied, m.position.skipped_in_row,
             format_bytes(m.position.nvme_written));
  if (m.position.loss_scale > 0) {
    fmt::print("loss scale: {}, held for {} updates\n", m.position.loss_scale,
               m.position.scale_held);
  }
  fmt::print("state: {}\n", summary_of(m.records));
  if (reader.has_gradients()) {
    fmt::print("gradient: {}; {}\n", summary_of(m.gradients), what_is_pending(m.position));
  }
  fmt::print("model: {} parameters in {} segments (model/config.json)\n",
             reader.model().parameters(), m.segments.size());
  fmt::print(
      "goes on with: this model, wherever its state lives and however it is cut "
      "(zero_optimization, tiers, aio)\n\n"
      "settings; * frozen: the numbers of every step rest on it, another value needs --change\n");
  for (const auto& [key, value] : m.settings) {
    fmt::print("  {} {}: {}\n", is_frozen(key) ? '*' : ' ', key, value);
  }
  show_state(m);
}

}  // namespace sluice::app
