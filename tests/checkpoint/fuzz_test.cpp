/// Files that nobody vouches for. Whatever they hold, they are refused or read as they say, in
/// memory of their own size.
#include <gtest/gtest.h>
#include <malloc.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <cstdlib>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <map>
#include <new>
#include <nlohmann/json.hpp>
#include <set>
#include <string>
#include <vector>

#include "engine/checkpoint/index.h"
#include "engine/checkpoint/reader.h"
#include "tests/checkpoint/mutator.h"
#include "tests/support/errors.h"
#include "tests/support/temp_folder.h"

namespace {

std::atomic<std::size_t> live{0};  // bytes of operator new
std::atomic<std::size_t> most_live{0};

}  // namespace

// Not inlined: the compiler would see malloc and delete, or new and free, as a pair.
[[gnu::noinline]] void* operator new(std::size_t size) {
  void* const memory = std::malloc(size);
  if (memory == nullptr) throw std::bad_alloc();
  const std::size_t now = live += ::malloc_usable_size(memory);
  if (now > most_live) most_live = now;
  return memory;
}
[[gnu::noinline]] void operator delete(void* memory) noexcept {
  if (memory != nullptr) live -= ::malloc_usable_size(memory);
  std::free(memory);
}
void operator delete(void* memory, std::size_t /*size*/) noexcept {
  operator delete(memory);
}

namespace sluice::checkpoint {
namespace {

namespace fs = std::filesystem;
using test::TempFolder;

/// The most that `action` had allocated at once.
template <class Action>
std::size_t peak_of(Action action) {
  const std::size_t before = live;
  most_live = before;
  action();
  return most_live - before;
}

std::string bytes_of(const fs::path& path) {
  std::ifstream file(path, std::ios::binary);
  return {std::istreambuf_iterator<char>(file), {}};
}

/// What a file says of its tensors, by a reader that believes all of it.
struct Said {
  std::string dtype;
  std::vector<std::int64_t> shape;
  std::string bytes;
};
using Tensors = std::map<std::string, Said>;

void add_said(Tensors& all, const fs::path& file) {
  const std::string bytes = bytes_of(file);
  std::uint64_t length = 0;
  std::memcpy(&length, bytes.data(), sizeof length);
  const std::size_t data = sizeof length + length;
  const std::string text = bytes.substr(sizeof length, length);
  EXPECT_EQ(text.find('\0'), text.npos) << file << ": the parser of this reader stops there";
  const auto header = nlohmann::json::parse(text);
  std::size_t described = 0;
  for (const auto& [name, tensor] : header.items()) {
    if (name == "__metadata__") continue;
    const std::size_t begin = tensor["data_offsets"][0];
    const std::size_t end = tensor["data_offsets"][1];
    all[name] = {tensor["dtype"], tensor["shape"], bytes.substr(data + begin, end - begin)};
    described += end - begin;
  }
  EXPECT_EQ(data + described, bytes.size()) << file << ": bytes that no tensor has, or two have";
}

Tensors said_by(const fs::path& path) {
  Tensors all;
  if (!fs::is_directory(path)) {
    add_said(all, path);
    return all;
  }
  const auto index = nlohmann::json::parse(bytes_of(path / kIndexName));
  std::set<std::string> files;
  for (const auto& [tensor, file] : index["weight_map"].items()) files.insert(file);
  for (const std::string& file : files) {
    EXPECT_EQ(fs::path(file).filename(), file) << "is beside the index";
    add_said(all, path / file);
  }
  EXPECT_EQ(all.size(), index["weight_map"].size());
  return all;
}

template <class T>
std::vector<float> floats(const std::string& bytes) {
  std::vector<float> out;
  for (std::size_t at = 0; at < bytes.size(); at += sizeof(T)) {
    T value;
    std::memcpy(&value, &bytes.at(at), sizeof value);
    if constexpr (std::is_same_v<T, float>) {
      out.push_back(value);
    } else {
      out.push_back(to_float(value));
    }
  }
  return out;
}

/// By their bits: NaN is as good as any other number here.
void expect_same(const std::vector<float>& read, const std::vector<float>& said) {
  ASSERT_EQ(read.size(), said.size());
  EXPECT_TRUE(read.empty() || std::memcmp(read.data(), said.data(), read.size() * 4) == 0);
}

/// Reads all there is as the files say, or throws.
void read_as_said(const fs::path& path) {
  const Reader reader(path);
  const Tensors said = said_by(path);
  EXPECT_EQ(reader.names().size(), said.size());
  for (const std::string& name : reader.names()) {
    const Said& tensor = said.at(name);
    EXPECT_EQ(reader.entry(name).dtype, tensor.dtype);
    EXPECT_EQ(reader.entry(name).shape, tensor.shape);
    if (tensor.dtype == "F32") expect_same(reader.read(name), floats<float>(tensor.bytes));
    if (tensor.dtype == "BF16") expect_same(reader.read(name), floats<Bf16>(tensor.bytes));
    if (tensor.dtype == "F16") expect_same(reader.read(name), floats<Fp16>(tensor.bytes));
  }
}

bool is_expected(const fs::path& path, const Error& error) {
  return error.code == Errc::kFormat || (fs::is_directory(path) && error.code == Errc::kIo);
}

std::vector<fs::path> listed(const char* kind) {
  std::vector<fs::path> all;
  for (const auto& entry : fs::directory_iterator(fs::path(CORPUS) / kind)) {
    all.push_back(entry.path());
  }
  std::sort(all.begin(), all.end());
  return all;
}

/// By name, what must stand in the refusal.
const std::map<std::string, std::string> kRefusals = {
    {"a_list", "no table of tensors"},
    {"a_name_twice", "'a' stands in one table twice"},
    {"a_number", "no table of tensors"},
    {"archive_of_torch", "is a pickle of torch"},
    {"cut_in_the_data", "past the end at 7"},
    {"cut_in_the_length", "7 bytes are no safetensors file"},
    {"deep_lists", "nested too deep"},
    {"deep_shape", "nested too deep"},
    {"deep_tables", "nested too deep"},
    {"dtype_a_number", "'a' has a dtype that is no name"},
    {"dtype_twice", "'dtype' stands in one table twice"},
    {"dtype_unknown", "'a' has the unknown dtype 'F4'"},
    {"empty", "0 bytes are no safetensors file"},
    {"half_a_surrogate", "surrogate"},
    {"hole", "'b' follows a hole"},
    {"hole_at_the_beginning", "'a' follows a hole"},
    {"index_a_list", "no table weight_map"},
    {"index_cut", "unexpected end of input"},
    {"index_file_a_number", "said to be in 7"},
    {"index_file_above", "no file beside it"},
    {"index_file_at_the_root", "no file beside it"},
    {"index_file_cut_by_0", "no file beside it"},
    {"index_file_empty", "no file beside it"},
    {"index_file_itself", "no file beside it"},
    {"index_file_missing", "names three.safetensors, which is not there"},
    {"index_map_a_list", "no table weight_map"},
    {"index_map_twice", "'weight_map' stands in one table twice"},
    {"index_name_twice", "'a' stands in one table twice"},
    {"index_of_a_pickle", "two.bin: is a pickle of torch"},
    {"index_of_another_file", "'b' is not in two.safetensors as it says"},
    {"index_of_itself", "claims a header of"},
    {"index_of_less", "does not list tensor 'b'"},
    {"index_of_more", "'d' is not in two.safetensors as it says"},
    {"index_twin_tensors", "'b' is in another file too"},
    {"index_without_a_map", "no table weight_map"},
    {"length_0", "unexpected end of input"},
    {"length_1", "unexpected end of input"},
    {"length_2_to_40", "claims a header of 1099511627776 bytes"},
    {"length_2_to_63", "claims a header of 9223372036854775808 bytes"},
    {"length_beyond_the_file", "claims a header of"},
    {"length_into_the_data", "a zero byte"},
    {"length_most", "claims a header of 18446744073709551615 bytes"},
    {"metadata_a_number", "__metadata__ is no table of texts"},
    {"metadata_of_numbers", "__metadata__ is no table of texts"},
    {"metadata_of_tables", "__metadata__ is no table of texts"},
    {"more_data", "the tensors end at byte 8 of the data, the file has 9"},
    {"no_dtype", "'a' has no dtype"},
    {"no_offsets", "'a' has no data_offsets"},
    {"no_shape", "'a' has no shape"},
    {"no_table", "'b' is described by no table"},
    {"not_utf8", "UTF-8"},
    {"offsets_backwards", "'a' ends before it begins"},
    {"offsets_beyond_64_bits", "no"},
    {"offsets_beyond_the_file", "'a' reaches 16, past the end at 8"},
    {"offsets_fractions", "not whole and positive"},
    {"offsets_most", "past the end at 8"},
    {"offsets_negative", "not whole and positive"},
    {"offsets_one", "not two numbers"},
    {"offsets_three", "not two numbers"},
    {"offsets_wrap", "past the end at 8"},
    {"overlap", "'b' overlaps another"},
    {"overlap_of_nothing", "'b' overlaps another"},
    {"pickle", "is a pickle of torch"},
    {"same_bytes", "overlaps another"},
    {"shape_2_to_63", "past the end at 9223372036854775807"},
    {"shape_a_fraction", "not whole and positive"},
    {"shape_a_number", "a shape that is no list"},
    {"shape_an_exponent", "not whole and positive"},
    {"shape_beyond_64_bits", "not whole and positive"},
    {"shape_bytes_overflow", "is too large"},
    {"shape_minus_0", "not whole and positive"},
    {"shape_negative", "not whole and positive"},
    {"shape_null", "not whole and positive"},
    {"shape_of_another_size", "another size than its shape"},
    {"shape_overflows", "is too large"},
    {"shape_overflows_to_its_size", "is too large"},
    {"shape_text", "not whole and positive"},
    {"two_headers", "is not the JSON"},
    {"zero_after_the_header", "a zero byte"},
};

TEST(Corpus, OfGoodFilesIsReadAsItSays) {
  for (const fs::path& path : listed("valid")) {
    SCOPED_TRACE(path);
    EXPECT_NO_THROW(read_as_said(path));
  }
}

TEST(Corpus, OfHostileFilesIsRefusedWithTheReason) {
  const std::vector<fs::path> hostile = listed("hostile");
  EXPECT_EQ(hostile.size(), kRefusals.size());
  for (const fs::path& path : hostile) {
    SCOPED_TRACE(path);
    ASSERT_TRUE(kRefusals.contains(path.stem())) << "say why it is refused";
    const Error error = test::error_of([&] { Reader{path}; });
    EXPECT_TRUE(is_expected(path, error)) << error.what();
    EXPECT_THAT(error.what(), testing::HasSubstr(kRefusals.at(path.stem())));
    EXPECT_THAT(error.what(), testing::HasSubstr(path.stem().string())) << "names the file";
  }
}

TEST(Corpus, AHeaderIsNotAllocatedBecauseTheFileIsThatLong) {
  const TempFolder folder;
  const std::string path = folder.write("m", std::string("\0\0\0\0\0\1\0\0{}", 10));
  if (::truncate(path.c_str(), (off_t{1} << 40) + 8) != 0) GTEST_SKIP() << "no such files here";
  EXPECT_LT(peak_of([&] {
              test::expect_error(Errc::kFormat, {"claims a header of 1099511627776 bytes"},
                                 [&] { Reader{path}; });
            }),
            1_MiB);
}

TEST(Corpus, AHeaderOfManySmallValuesEndsBeforeTheMemory) {
  const TempFolder folder;
  std::string text = "{\"a\":[[]";
  while (text.size() < 24_MiB) text += ",[]";
  text += "]}";
  const std::uint64_t length = text.size();
  folder.write("m", std::string(reinterpret_cast<const char*>(&length), sizeof length) + text);
  EXPECT_LT(peak_of([&] {
              test::expect_error(Errc::kFormat, {"more than 2097152 values"},
                                 [&] { Reader{fs::path(folder / "m")}; });
            }),
            200_MiB);
}

/// The files of the corpus, damaged in turn.
class Fuzz : public testing::Test {
 protected:
  Fuzz() {
    for (const fs::path& path : listed("valid")) {
      if (!fs::is_directory(path)) good_.push_back(bytes_of(path));
    }
    files_ = good_;
    for (const fs::path& path : listed("hostile")) {
      if (!fs::is_directory(path)) files_.push_back(bytes_of(path));
    }
    std::erase(files_, "");
    for (const auto& entry : fs::directory_iterator(fs::path(CORPUS) / "valid" / "shards")) {
      shards_[entry.path().filename()] = bytes_of(entry.path());
    }
  }

  static std::uint64_t inputs() {
    const char* wanted = std::getenv("SLUICE_FUZZ_INPUTS");
    return wanted == nullptr ? 20'000 : std::strtoull(wanted, nullptr, 10);
  }

  /// 1 when it was read, 0 when it was refused.
  std::size_t read(const fs::path& path, std::size_t size) {
    std::size_t read = 0;
    const std::size_t peak = peak_of([&] {
      try {
        read_as_said(path);
        read = 1;
      } catch (const Error& error) {
        EXPECT_TRUE(is_expected(path, error)) << error.what();
      }
    });
    EXPECT_LT(peak, 64_KiB + 200 * size);
    return read;
  }

  std::size_t damaged_file(Mutator& mutator, std::size_t input) {
    const std::vector<std::string>& from = input % 4 == 1 ? files_ : good_;
    const std::string bytes = mutator.safetensors(from[mutator.below(from.size())]);
    return read(write("m", bytes), bytes.size());
  }

  std::size_t damaged_folder(Mutator& mutator) {
    std::size_t size = 0;
    const std::size_t damaged = mutator.below(2 * shards_.size());
    std::size_t at = 0;
    for (const auto& [name, bytes] : shards_) {
      std::string now = bytes;
      if (at++ == damaged) now = mutator.safetensors(bytes);
      // The index is what only a folder has.
      if (damaged >= shards_.size() && name == kIndexName) now = mutator.text(bytes);
      write("shards/" + name, now);
      size += now.size();
    }
    return read(folder_ / "shards", size);
  }

  /// A new file: writing over one costs a sync on some file systems.
  std::string write(const std::string& name, const std::string& bytes) {
    fs::remove(folder_ / name);
    return folder_.write(name, bytes);
  }

  const TempFolder folder_;  // after a crash it holds the input
  std::vector<std::string> good_;
  std::vector<std::string> files_;  // good and hostile
  std::map<std::string, std::string> shards_;
};

TEST_F(Fuzz, EndsInAnErrorOrIsReadAsItSays) {
  std::size_t read = 0;
  for (std::uint64_t input = 0; input < inputs() && !HasFailure(); ++input) {
    SCOPED_TRACE("input " + std::to_string(input));
    Mutator mutator(input, files_);
    read += input % 4 == 0 ? damaged_folder(mutator) : damaged_file(mutator, input);
  }
  EXPECT_GT(read, inputs() / 50) << "damage that is always refused at once tests little";
  EXPECT_LT(read, inputs() / 2);
}

}  // namespace
}  // namespace sluice::checkpoint
