/// A model's state with numbers that say where they belong, and a checkpoint of it.
#pragma once

#include <gtest/gtest.h>

#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <fstream>
#include <span>
#include <string>
#include <vector>

#include "engine/checkpoint/state_writer.h"
#include "nvme/aligned.h"
#include "tests/checkpoint/weights.h"

namespace sluice::checkpoint {

/// Memory as transfers want it, of whole numbers.
class StateRoom {
 public:
  explicit StateRoom(std::uint64_t elems)
      : bytes_(nvme::allocate_aligned(elems * zero::kStateBytesPerElem)),
        floats_(elems * kStateParts.size()) {}
  std::span<float> floats() const { return {reinterpret_cast<float*>(bytes_.get()), floats_}; }

 private:
  nvme::AlignedBytes bytes_;
  std::size_t floats_;
};

/// Element `elem` of master, m or v.
inline float state_of(std::size_t segment, std::size_t part, std::uint64_t elem) {
  return value_of(segment, elem) + static_cast<float>(part) * 0.125F;
}

/// Those elements, as they lie in memory.
inline StateRoom make_state(int segment, std::uint64_t first_elem, std::uint64_t elems) {
  StateRoom room(elems);
  for (std::size_t part = 0; part < kStateParts.size(); ++part) {
    for (std::uint64_t i = 0; i < elems; ++i) {
      room.floats()[part * elems + i] =
          state_of(static_cast<std::size_t>(segment), part, first_elem + i);
    }
  }
  return room;
}

inline Manifest lay_out_for(const shape::Model& model, std::uint64_t chunk_elems, Bytes file_size) {
  Manifest manifest;
  manifest.sluice = "of a test";
  manifest.settings = {{"seed", "7"}, {"aio.engine", "\"auto\""}};
  manifest.segments = places_of(model);
  std::vector<std::vector<zero::Chunk>> chunks;
  for (const SegmentPlace& segment : manifest.segments) {
    chunks.push_back(zero::make_chunks(segment.elems, chunk_elems));
  }
  lay_out(manifest, chunks, file_size);
  return manifest;
}

/// Writes all records of state. Their sums.
inline std::vector<std::uint64_t> write_records(StateWriter& writer) {
  std::vector<std::uint64_t> sums;
  for (std::size_t i = 0; i < writer.manifest().records.size(); ++i) {
    const Record& r = writer.manifest().records[i];
    const StateRoom room = make_state(r.segment, r.first_elem, r.elems);
    writer.write(i, std::as_bytes(room.floats())).wait();
    sums.push_back(sum_of_state(r.first_elem, room.floats(), 0, r.elems));
  }
  return sums;
}

/// Writes all records, and seals.
inline void write_state(StateWriter& writer, const Position& position) {
  writer.seal(position, write_records(writer));
}

/// A checkpoint in chunks and files of these sizes.
inline void save(const shape::Model& model, const std::filesystem::path& folder,
                 std::uint64_t chunk_elems = kGrainElems, Bytes file_size = 5_GiB) {
  StateWriter writer(lay_out_for(model, chunk_elems, file_size), folder,
                     companions_of(model.decoder), {});
  write_state(writer, {12, 11, 1, 4096, 2048, 5});
  writer.publish();
}

inline void flip_bit(const std::filesystem::path& path, Bytes at, int bit = 0) {
  std::fstream file(path, std::ios::in | std::ios::out | std::ios::binary);
  file.seekg(static_cast<std::streamoff>(at));
  const auto byte = static_cast<char>(file.get() ^ (1 << bit));
  file.seekp(static_cast<std::streamoff>(at));
  file.put(byte);
  ASSERT_TRUE(file.good()) << path << " at " << at;
}

}  // namespace sluice::checkpoint
