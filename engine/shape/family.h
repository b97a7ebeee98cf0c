/// What makes one architecture differ from another, as rows of a table: the names of its tensors
/// and the keys of its config.json. A new family is a new row, not new code.
#pragma once

#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <variant>
#include <vector>

#include "engine/shape/decoder.h"
#include "engine/shape/model.h"

namespace sluice::shape {

struct SizeKey {
  std::string_view key;  ///< empty: config.json has no key for it, `absent` always gives it
  std::int64_t Decoder::*field;
  /// The value when the key is absent, from the fields of earlier rows; null: the key is required.
  std::int64_t (*absent)(const Decoder&) = nullptr;
  /// The value when the key is there and null; null: as when it is absent.
  std::int64_t (*null)(const Decoder&) = nullptr;
};

struct RealKey {
  std::string_view key;
  double Decoder::*field;
  double absent;
};

struct FlagKey {
  std::string_view key;
  bool Decoder::*field;
  bool absent;
};

/// A key that changes the maths, of which one value is built. Absent means this value.
struct FixedKey {
  std::string_view key;
  std::variant<bool, std::int64_t, double> value;
};

struct TensorName {
  Role role;
  std::string_view pattern;  ///< "{}" stands for the number of the layer
};

/// How the projections that end on the residual stream are initialised.
enum class ResidualInit : std::uint8_t { kAsOthers, kOverSqrtTwiceLayers };

/// Attention that reaches back so many tokens only.
struct WindowKey {
  std::string_view key = {};  ///< empty: the family knows none
  std::string_view on =
      {};  ///< the flag without which the key says nothing; empty: it always counts
  std::int64_t absent = 0;
  std::string_view first_layer = {};  ///< the key of the first layer that has one; empty: all have
  std::int64_t first_layer_absent = 0;
};

struct Family {
  std::string_view model_type;
  std::string_view architecture;  ///< the class of transformers that loads it
  Decoder base;                   ///< what its models share, before the keys are read
  std::string_view activation_key;
  ResidualInit residual_init;
  std::vector<SizeKey> sizes;
  std::vector<RealKey> reals;
  std::vector<FlagKey> flags;
  std::vector<FixedKey> fixed;
  std::vector<std::string_view> dropouts;  ///< keys; trained without, after a warning
  WindowKey window;
  bool padding = true;       ///< pad_token_id names a row of the embedding
  bool heads_divide = true;  ///< hidden must be a multiple of the heads
  std::vector<TensorName> names;
};

std::span<const Family> families();

/// Throws kConfig with the known ones.
const Family& find_family(std::string_view model_type, std::string_view where = "model.config");

/// Throws kLogic when the family has no such tensor.
std::string tensor_name(const Family& family, Role role, int layer);

/// Throws kConfig, naming `where`.KEY as the family spells it, when the numbers make no model.
void check(const Decoder& decoder, std::string_view where = "model.config");

}  // namespace sluice::shape
