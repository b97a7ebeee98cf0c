#include "engine/train/disks.h"

#include <fmt/format.h>

#include <algorithm>
#include <string>
#include <vector>

#include "engine/base/error.h"
#include "nvme/filesystem.h"

namespace sluice::train {
namespace {

/// Room for what a run writes beside its weights: log, metrics, config.json.
constexpr Bytes kSmallFiles = 1_MiB;

/// Of final weights, but for its header: a tensor is never cut.
Bytes largest_file(const Job& job, const shape::Model& model) {
  Bytes largest = job.shard_size;
  for (const shape::Segment& segment : model.segments) {
    for (const shape::TensorSpec& tensor : segment.tensors) {
      largest = std::max(largest, tensor.numel() * size_of(job.final_dtype));
    }
  }
  return largest;
}

/// Of a checkpoint that nobody has to ask for; 0: the run makes none.
Bytes checkpoint_file(const Job& job, const schedule::Setup& setup) {
  if (!job.saves || (!job.checkpoint.every && !job.checkpoint.save_on_signal)) return 0;
  Bytes state = 0;
  for (const zero::Layout& layout : setup.layouts) state += layout.elems * zero::kStateBytesPerElem;
  return std::min(state, job.shard_size);
}

}  // namespace

nvme::AllowRam allow_ram(const Job& job) {
  return job.tiers.nvme.allow_ram_path ? nvme::AllowRam::kYes : nvme::AllowRam::kNo;
}

void check_disks(const Job& job, const schedule::Setup& setup, Bytes stored) {
  const nvme::Filesystem disk = nvme::filesystem_of(job.folder);
  Bytes shared = 0;  // of the nvme tier, on the disk that the weights go to
  if (stored > 0) {
    const auto& paths = job.tiers.nvme.paths;
    const std::vector<Bytes> shares = nvme::check_folders(paths, stored, allow_ram(job));
    for (std::size_t i = 0; i < paths.size(); ++i) {
      if (nvme::filesystem_of(paths[i]).device == disk.device) shared += shares[i];
    }
  }
  const Bytes weights = job.saves ? setup.model->parameters() * size_of(job.final_dtype) : 0;
  nvme::check_file_size(job.folder, std::min(weights, largest_file(job, *setup.model)));
  nvme::check_file_size(job.folder, checkpoint_file(job, setup));
  const Bytes need = weights + kSmallFiles + shared;
  SLUICE_CHECK(
      need <= disk.free, kBudget,
      fmt::format("{}: {} needed for weights{}, {} free; free space there, or choose "
                  "another output_dir",
                  job.folder, format_bytes(weights),
                  shared > 0 ? fmt::format(" and {} for the nvme tier", format_bytes(shared)) : "",
                  format_bytes(disk.free)));
}

}  // namespace sluice::train
