#include "engine/checkpoint/header.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <bit>
#include <cstring>
#include <limits>
#include <nlohmann/json.hpp>
#include <utility>

#include "engine/base/error.h"
#include "engine/checkpoint/json.h"

namespace sluice::checkpoint {
namespace {

static_assert(std::endian::native == std::endian::little, "safetensors files are little-endian");

using nlohmann::json;

struct Width {
  std::string_view dtype;
  Bytes bytes;
};
constexpr std::array kWidths = {
    Width{"BOOL", 1},    Width{"U8", 1},  Width{"I8", 1},  Width{"F8_E4M3", 1}, Width{"I16", 2},
    Width{"F8_E5M2", 1}, Width{"U16", 2}, Width{"F16", 2}, Width{"BF16", 2},    Width{"I32", 4},
    Width{"U32", 4},     Width{"F32", 4}, Width{"F64", 8}, Width{"I64", 8},     Width{"U64", 8},
    Width{"F8_E8M0", 1}, Width{"C64", 8},
};

/// Turns the JSON of one tensor into an entry; every doubt is a kFormat with the file's name.
class EntryParser {
 public:
  EntryParser(std::string_view file, Bytes data_bytes) : file_(file), data_bytes_(data_bytes) {}

  Entry parse(const std::string& name, const json& value) const {
    check(value.is_object(), name, "is described by no table");
    Entry e;
    e.name = name;
    const json& dtype = member(value, name, "dtype");
    check(dtype.is_string(), name, "has a dtype that is no name");
    e.dtype = dtype.get<std::string>();
    for (const json& extent : array(value, name, "shape")) {
      e.shape.push_back(static_cast<std::int64_t>(
          number(extent, name, std::numeric_limits<std::int64_t>::max())));
    }
    const json& offsets = array(value, name, "data_offsets");
    check(offsets.size() == 2, name, "has data_offsets that are not two numbers");
    e.begin = number(offsets[0], name, data_bytes_);
    e.end = number(offsets[1], name, data_bytes_);
    check(e.begin <= e.end, name, "ends before it begins");
    check(bytes_of(e) == e.end - e.begin, name, "has data of another size than its shape");
    return e;
  }

  void check(bool good, const std::string& name, std::string_view reason) const {
    SLUICE_CHECK(
        good, kFormat,
        fmt::format("{}: tensor '{}' {}; the file is damaged: copy it again", file_, name, reason));
  }

 private:
  const json& member(const json& value, const std::string& name, const char* key) const {
    const auto at = value.find(key);
    check(at != value.end(), name, fmt::format("has no {}", key));
    return *at;
  }
  const json& array(const json& value, const std::string& name, const char* key) const {
    const json& a = member(value, name, key);
    check(a.is_array(), name, fmt::format("has a {} that is no list", key));
    return a;
  }
  std::uint64_t number(const json& value, const std::string& name, std::uint64_t most) const {
    check(value.is_number_unsigned(), name, "has a number that is not whole and positive");
    const auto n = value.get<std::uint64_t>();
    check(n <= most, name, fmt::format("reaches {}, past the end at {}", n, most));
    return n;
  }
  Bytes bytes_of(const Entry& e) const {
    const auto width = std::find_if(kWidths.begin(), kWidths.end(),
                                    [&](const Width& w) { return w.dtype == e.dtype; });
    check(width != kWidths.end(), e.name, fmt::format("has the unknown dtype '{}'", e.dtype));
    Bytes n = width->bytes;
    for (const std::int64_t extent : e.shape) {
      const auto x = static_cast<std::uint64_t>(extent);
      check(x == 0 || n <= std::numeric_limits<Bytes>::max() / x, e.name, "is too large");
      n *= x;
    }
    return n;
  }

  std::string_view file_;
  Bytes data_bytes_;
};

/// Free text by name; nothing here needs it.
void check_metadata(const json& value, std::string_view file) {
  const auto is_text = [](const json& member) { return member.is_string(); };
  SLUICE_CHECK(value.is_object() && std::all_of(value.begin(), value.end(), is_text), kFormat,
               fmt::format("{}: __metadata__ is no table of texts; the file is damaged: copy it "
                           "again",
                           file));
}

}  // namespace

std::uint64_t Entry::numel() const {
  std::uint64_t n = 1;
  for (const std::int64_t extent : shape) n *= static_cast<std::uint64_t>(extent);
  return n;
}

std::string_view dtype_name(DType dtype) {
  switch (dtype) {
    case DType::kF32:
      return "F32";
    case DType::kBf16:
      return "BF16";
    case DType::kF16:
      return "F16";
  }
  return {};
}

std::vector<Entry> parse_header(std::string_view text, Bytes data_bytes, std::string_view file) {
  const json root = parse_bounded_json(text, file);
  SLUICE_CHECK(root.is_object(), kFormat,
               fmt::format("{}: the header is no table of tensors", file));
  const EntryParser parser(file, data_bytes);
  std::vector<Entry> entries;
  for (const auto& [name, value] : root.items()) {
    if (name == "__metadata__") {
      check_metadata(value, file);
    } else {
      entries.push_back(parser.parse(name, value));
    }
  }
  std::sort(entries.begin(), entries.end(), [](const Entry& a, const Entry& b) {
    return std::pair(a.begin, a.end) < std::pair(b.begin, b.end);
  });
  Bytes at = 0;
  for (const Entry& e : entries) {
    parser.check(e.begin >= at, e.name, "overlaps another");
    parser.check(e.begin <= at, e.name, "follows a hole");
    at = e.end;
  }
  SLUICE_CHECK(at == data_bytes, kFormat,
               fmt::format("{}: the tensors end at byte {} of the data, the file has {}; it is "
                           "damaged: copy it again",
                           file, at, data_bytes));
  return entries;
}

std::string make_header(const std::vector<Entry>& entries, Bytes alignment) {
  nlohmann::ordered_json root;
  root["__metadata__"]["format"] = "pt";  // transformers refuses a file without it
  // Names differ: looking each up among those before would take the square of their number.
  auto& members = root.get_ref<nlohmann::ordered_json::object_t&>();
  for (const Entry& e : entries) {
    members.push_back(
        {e.name, {{"dtype", e.dtype}, {"shape", e.shape}, {"data_offsets", {e.begin, e.end}}}});
  }
  std::string text = root.dump();
  std::uint64_t length = 0;
  text.resize(round_up(sizeof length + text.size(), alignment) - sizeof length, ' ');
  length = text.size();
  std::string out(sizeof length, '\0');
  std::memcpy(out.data(), &length, sizeof length);
  return out + text;
}

}  // namespace sluice::checkpoint
