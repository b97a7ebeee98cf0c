#include "engine/checkpoint/state_writer.h"

#include <fmt/format.h>

#include <nlohmann/json.hpp>
#include <system_error>
#include <utility>

#include "engine/base/error.h"

namespace sluice::checkpoint {
namespace {

namespace fs = std::filesystem;

// Of the manifest and what the file system keeps for itself.
constexpr Bytes kSpareOfFolder = 4_MiB;
constexpr Bytes kSpareOfRecord = 512;

/// The sum of a whole small file.
std::uint64_t sum_of_file(const fs::path& path) {
  constexpr Bytes kMost = 1_GiB;
  return sum_of_text(read_text(path, kMost));
}

}  // namespace

Bytes bytes_of(const Manifest& manifest) {
  Bytes bytes = 0;
  for (const RecordKind kind : kRecordKinds) {
    for (const Record& record : manifest.of(kind)) bytes += record.bytes() + kSpareOfRecord;
  }
  return bytes;
}

StateWriter::StateWriter(Manifest manifest, const fs::path& folder, const Companions& companions,
                         const nvme::Options& queue)
    : manifest_(std::move(manifest)), folder_(folder) {
  check_free_space(folder_.path(), bytes_of(manifest_) + size_of(companions) + kSpareOfFolder,
                   "a checkpoint");
  const fs::path model = folder_.path() / kModelFolder;
  std::error_code error;
  fs::create_directory(model, error);
  SLUICE_CHECK(!error, kIo,
               fmt::format("{}: making it failed: {}", model.string(), error.message()));
  copy_files(companions, model);
  write_text(model / "config.json", companions.config->dump(2) + "\n");
  for (const auto& entry : fs::directory_iterator(model)) {
    const std::string name = entry.path().filename().string();
    manifest_.beside[name] = sum_of_file(entry.path());
  }
  sync_folder(model);
  const std::vector<Bytes> sizes = file_sizes(manifest_);
  for (std::size_t i = 0; i < manifest_.files.size(); ++i) {
    const std::string header = header_of(manifest_, i);
    File& file = files_.emplace_back(File::create(folder_.path() / manifest_.files[i]));
    file.reserve(sizes[i]);
    file.write(0, std::as_bytes(std::span(header)));
  }
  drive_.emplace(paths_of(files_), nvme::Access::kReadWrite, as_it_works_in(folder_.path(), queue));
}

Ticket StateWriter::write(std::size_t record, std::span<const std::byte> state) const {
  return write(manifest_.records.at(record), state);
}

Ticket StateWriter::write_gradient(std::size_t record, std::span<const std::byte> gradient) const {
  return write(manifest_.gradients.at(record), gradient);
}

Ticket StateWriter::write(const Record& record, std::span<const std::byte> bytes) const {
  SLUICE_CHECK(bytes.size() == record.bytes(), kLogic,
               fmt::format("a record of segment {} has {} bytes, {} were given", record.segment,
                           record.bytes(), bytes.size()));
  // A range is where reads go to as well; this one is only read.
  auto* const room = const_cast<std::byte*>(bytes.data());
  return drive_->write({record.file, record.offset, record.bytes(), room});
}

void StateWriter::seal(const Position& position, std::span<const std::uint64_t> sums,
                       std::span<const GradientSum> gradients) {
  SLUICE_CHECK(
      gradients.size() == manifest_.gradients.size(), kLogic,
      fmt::format("{} sums of {} gradients", gradients.size(), manifest_.gradients.size()));
  manifest_.position = position;
  for (std::size_t i = 0; i < manifest_.records.size(); ++i) manifest_.records[i].sum = sums[i];
  for (std::size_t i = 0; i < gradients.size(); ++i) {
    manifest_.gradients[i].sum = gradients[i].sum;
    manifest_.gradients[i].factor = gradients[i].factor;
  }
  const std::string contradiction = contradiction_of(manifest_);
  SLUICE_CHECK(contradiction.empty(), kLogic,
               fmt::format("{}: {}", folder_.target().string(), contradiction));
  drive_.reset();
  for (File& file : files_) file.sync();
  files_.clear();
  const std::string text = to_json(manifest_);
  SLUICE_CHECK(text.size() <= kMaxManifest, kBudget,
               fmt::format("{}: {} records are more than a manifest may name; raise "
                           "zero_optimization.sub_group_size",
                           folder_.target().string(),
                           manifest_.records.size() + manifest_.gradients.size()));
  write_text(folder_.path() / kManifestName, text);
  write_text(folder_.path() / kCompleteName, hex(sum_of_text(text)) + "\n");
  sync_folder(folder_.path());
}

void StateWriter::publish() {
  folder_.publish();
}

}  // namespace sluice::checkpoint
