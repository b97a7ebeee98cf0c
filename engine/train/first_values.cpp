#include "engine/train/first_values.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <array>
#include <bit>
#include <cmath>
#include <cstdint>
#include <map>
#include <optional>
#include <set>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "engine/base/error.h"
#include "engine/base/log.h"
#include "engine/checkpoint/reader.h"
#include "engine/shape/init.h"
#include "engine/zero/layout.h"
#include "nvme/unaligned.h"

namespace sluice::train {
namespace {

// Shorter stretches of a file are read when they are wanted: the blocks around them would take more
// room than there is.
constexpr Bytes kLeastAhead = 64_KiB;

/// m and v of a chunk: room, until the masters are made.
std::span<float> moments(std::span<float> state) {
  return state.subspan(state.size() / checkpoint::kStateParts.size());
}

/// Weights of a model, whose segments are runs of tensors; both moments begin as zero.
class OfModel : public FirstValues {
 public:
  void fill(int segment, const zero::Chunk& chunk, std::span<float> state,
            const checkpoint::Each& each) const override {
    const std::span<float> m_and_v = moments(state);
    each(chunk.elems, [&](std::size_t begin, std::size_t end) {
      masters(segment, chunk, std::as_bytes(m_and_v), begin, state.subspan(begin, end - begin));
    });
    each(chunk.elems, [&](std::size_t begin, std::size_t end) {
      std::ranges::fill(m_and_v.subspan(2 * begin, 2 * (end - begin)), 0.0F);
    });
  }

 protected:
  explicit OfModel(std::shared_ptr<const shape::Model> model) : model_(std::move(model)) {
    for (const shape::Segment& segment : model_->segments) {
      layouts_.push_back(zero::make_layout(segment));
    }
  }

  /// Elements first, first + 1, ... of the chunk, of what read() brought.
  virtual void masters(int segment, const zero::Chunk& chunk, std::span<const std::byte> room,
                       std::uint64_t first, std::span<float> out) const = 0;

  const shape::Model& model() const { return *model_; }
  const std::vector<shape::TensorSpec>& tensors(int segment) const {
    return model_->segments[static_cast<std::size_t>(segment)].tensors;
  }
  std::vector<zero::Run> runs(int segment, const zero::Chunk& chunk) const {
    const auto s = static_cast<std::size_t>(segment);
    return zero::runs(model_->segments[s], layouts_[s], chunk);
  }
  /// Where the run begins, in elements of its tensor.
  std::uint64_t first_of_tensor(int segment, const zero::Run& run) const {
    const zero::Layout& layout = layouts_[static_cast<std::size_t>(segment)];
    return run.first_elem - layout.tensors[static_cast<std::size_t>(run.tensor)].offset_elems;
  }

 private:
  std::shared_ptr<const shape::Model> model_;
  std::vector<zero::Layout> layouts_;
};

class Drawn : public OfModel {
 public:
  Drawn(std::uint64_t seed, std::shared_ptr<const shape::Model> model)
      : OfModel(std::move(model)), seed_(seed) {}

  Ticket read(int /*segment*/, const zero::Chunk& /*chunk*/,
              std::span<float> /*state*/) const override {
    return {};
  }

 private:
  void masters(int segment, const zero::Chunk& chunk, std::span<const std::byte> /*room*/,
               std::uint64_t first, std::span<float> out) const override {
    const std::uint64_t begin = chunk.first_elem + first;
    for (const zero::Run& run : runs(segment, {begin, out.size()})) {
      const auto values = out.subspan(run.first_elem - begin, run.elems);
      if (run.tensor < 0) {
        std::ranges::fill(values, 0.0F);
      } else {
        shape::initial_values(seed_, tensors(segment)[static_cast<std::size_t>(run.tensor)],
                              first_of_tensor(segment, run), values);
      }
    }
  }

  std::uint64_t seed_;
};

/// Files of the base model alone leave out the first part of each name, as gpt2's do.
std::string without_prefix(const std::string& name) {
  return name.substr(name.find('.') + 1);
}

/// Constants that older files hold beside the weights, and a tied head's second copy.
bool is_no_weight(std::string_view name) {
  constexpr std::array<std::string_view, 4> kEndings = {".attn.bias", ".attn.masked_bias",
                                                        ".rotary_emb.inv_freq", "lm_head.weight"};
  return std::ranges::any_of(kEndings, [&](auto ending) { return name.ends_with(ending); });
}

/// Without a branch per number, so several are looked at at once.
bool all_finite(std::span<const float> values) {
  constexpr std::uint32_t kExponent = 0x7f800000;
  std::uint32_t found = 0;
  for (const float x : values) {
    found |= static_cast<std::uint32_t>((std::bit_cast<std::uint32_t>(x) & kExponent) == kExponent);
  }
  return found == 0;
}

class Stored : public OfModel {
 public:
  Stored(const std::filesystem::path& weights, std::shared_ptr<const shape::Model> model,
         const nvme::Options& queue)
      : OfModel(std::move(model)),
        path_(weights.string()),
        reader_(weights),
        files_(reader_.paths(), nvme::Access::kRead, queue) {
    std::set<std::string> left;
    for (std::string& name : reader_.names()) left.insert(std::move(name));
    for (const shape::Segment& segment : this->model().segments) {
      for (const shape::TensorSpec& tensor : segment.tensors) left.erase(locate(tensor));
    }
    for (const std::string& name : left) {
      if (name == "lm_head.weight") {
        log::warning(
            fmt::format("{}: lm_head.weight is left alone: config.json says that the head "
                        "is the embedding (tie_word_embeddings)",
                        path_));
      }
      SLUICE_CHECK(is_no_weight(name), kFormat,
                   fmt::format("{}: tensor '{}' belongs to no part of the {} that config.json "
                               "describes",
                               path_, name, this->model().decoder.family));
    }
  }

  Ticket read(int segment, const zero::Chunk& chunk, std::span<float> state) const override {
    const auto room = std::as_writable_bytes(moments(state));
    std::vector<nvme::Range> ranges;
    for (const Piece& piece : pieces(segment, chunk)) {
      if (!piece.ahead) continue;
      ranges.push_back(piece.range);
      ranges.back().room = &room[piece.at];
    }
    return files_.read(ranges);
  }

 private:
  void masters(int segment, const zero::Chunk& chunk, std::span<const std::byte> room,
               std::uint64_t first, std::span<float> out) const override {
    const std::uint64_t begin = chunk.first_elem + first, end = begin + out.size();
    for (const Piece& piece : pieces(segment, chunk)) {
      const std::uint64_t from = std::max(begin, piece.run.first_elem);
      const std::uint64_t to = std::min(end, piece.run.first_elem + piece.run.elems);
      if (from >= to) continue;
      const auto values = out.subspan(from - begin, to - from);
      if (piece.run.tensor < 0) {
        std::ranges::fill(values, 0.0F);
      } else {
        widen(segment, piece, room, from - piece.run.first_elem, values);
      }
    }
  }

  /// A run of a chunk, and where its bytes are: in the file, and in the chunk's room.
  struct Piece {
    zero::Run run{};
    const std::string* name = nullptr;  // in the files; null: padding
    nvme::Range range;
    bool ahead = false;  // read before it is filled
    Bytes at = 0;        // of the room
  };

  std::vector<Piece> pieces(int segment, const zero::Chunk& chunk) const {
    std::vector<Piece> all;
    Bytes taken = 0;
    for (const zero::Run& run : runs(segment, chunk)) {
      Piece& piece = all.emplace_back();
      piece.run = run;
      if (run.tensor < 0) continue;
      piece.name = &names_.at(tensors(segment)[static_cast<std::size_t>(run.tensor)].name);
      const checkpoint::Stretch at =
          reader_.stretch_of(*piece.name, first_of_tensor(segment, run), run.elems);
      piece.range = {.file = at.file, .offset = at.offset, .bytes = at.bytes};
      if (at.bytes < kLeastAhead) continue;
      piece.ahead = true;
      piece.at = taken;
      taken += nvme::room_for(at.offset, at.bytes);
    }
    return all;
  }

  /// Elements first, first + 1, ... of the piece.
  void widen(int segment, const Piece& piece, std::span<const std::byte> room, std::uint64_t first,
             std::span<float> out) const {
    const std::uint64_t first_element = first_of_tensor(segment, piece.run) + first;
    if (piece.ahead) {
      const Bytes width = piece.range.bytes / piece.run.elems;
      const Bytes data = piece.at + piece.range.offset % kAlignment;
      reader_.widen(*piece.name, &room[data + first * width], out);
    } else {
      reader_.read(*piece.name, first_element, out);
    }
    if (all_finite(out)) return;
    const auto bad = std::ranges::find_if_not(out, [](float x) { return std::isfinite(x); });
    throw Error(Errc::kFormat,
                fmt::format("{}: element {} of tensor '{}' is {}: the weights are damaged",
                            reader_.file_of(*piece.name).string(),
                            first_element + static_cast<std::uint64_t>(bad - out.begin()),
                            *piece.name, *bad));
  }

  const std::string& locate(const shape::TensorSpec& tensor) {
    std::string name = tensor.name;
    if (!reader_.contains(name)) name = without_prefix(name);
    SLUICE_CHECK(reader_.contains(name), kFormat,
                 fmt::format("{}: has no tensor '{}' of shape [{}], which config.json asks for",
                             path_, tensor.name, fmt::join(tensor.shape, ", ")));
    const checkpoint::Entry& entry = reader_.entry(name);
    reader_.check_readable(name);
    SLUICE_CHECK(entry.shape == tensor.shape, kFormat,
                 fmt::format("{}: tensor '{}' has shape [{}], config.json asks for [{}]", path_,
                             name, fmt::join(entry.shape, ", "), fmt::join(tensor.shape, ", ")));
    return names_.emplace(tensor.name, std::move(name)).first->second;
  }

  std::string path_;
  checkpoint::Reader reader_;
  nvme::UnalignedFiles files_;
  std::map<std::string, std::string> names_;  // of the model's tensors -> of the files'
};

[[noreturn]] void no_gradient() {
  throw Error(Errc::kLogic, "first values that are no checkpoint have no gradient");
}

/// The state of a checkpoint, however that was cut into chunks.
class Resumed : public FirstValues {
 public:
  Resumed(std::unique_ptr<const checkpoint::StateReader> reader, bool verify)
      : reader_(std::move(reader)) {
    if (verify) sums_.emplace(*reader_);
  }

  Ticket read(int segment, const zero::Chunk& chunk, std::span<float> state) const override {
    return reader_->read(segment, chunk.first_elem, state);
  }

  void fill(int segment, const zero::Chunk& chunk, std::span<float> state,
            const checkpoint::Each& each) const override {
    if (!sums_) return;
    each(chunk.elems, [&](std::size_t begin, std::size_t end) {
      sums_->add(segment, chunk.first_elem, state, begin, end);
    });
  }

  Waiting waiting(int segment) const override {
    return {reader_->gradient_factor(segment), reader_->manifest().position.pending_lr};
  }

  Ticket read_gradient(int segment, const zero::Chunk& chunk,
                       std::span<std::byte> gradient) const override {
    return reader_->read_gradient(segment, chunk.first_elem, gradient);
  }

  void check_gradient(int segment, const zero::Chunk& chunk, std::span<const std::byte> gradient,
                      const checkpoint::Each& each) const override {
    if (!sums_) return;
    each(chunk.elems, [&](std::size_t begin, std::size_t end) {
      sums_->add_gradient(segment, chunk.first_elem, gradient, begin, end);
    });
  }

 private:
  const std::unique_ptr<const checkpoint::StateReader> reader_;
  mutable std::optional<checkpoint::RecordSums> sums_;
};

}  // namespace

FirstValues::Waiting FirstValues::waiting(int /*segment*/) const {
  no_gradient();
}

Ticket FirstValues::read_gradient(int /*segment*/, const zero::Chunk& /*chunk*/,
                                  std::span<std::byte> /*gradient*/) const {
  no_gradient();
}

void FirstValues::check_gradient(int /*segment*/, const zero::Chunk& /*chunk*/,
                                 std::span<const std::byte> /*gradient*/,
                                 const checkpoint::Each& /*each*/) const {
  no_gradient();
}

std::unique_ptr<FirstValues> resumed_values(std::unique_ptr<const checkpoint::StateReader> reader,
                                            bool verify) {
  return std::make_unique<Resumed>(std::move(reader), verify);
}

std::unique_ptr<FirstValues> drawn_values(std::uint64_t seed,
                                          std::shared_ptr<const shape::Model> model) {
  return std::make_unique<Drawn>(seed, std::move(model));
}

std::unique_ptr<FirstValues> stored_values(const std::filesystem::path& weights,
                                           std::shared_ptr<const shape::Model> model,
                                           const nvme::Options& queue) {
  return std::make_unique<Stored>(weights, std::move(model), queue);
}

}  // namespace sluice::train
