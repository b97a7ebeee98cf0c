#include "engine/base/units.h"

#include <gtest/gtest.h>

#include <string>

#include "engine/base/dtype.h"
#include "engine/base/error.h"
#include "tests/support/errors.h"

namespace sluice {
namespace {

TEST(Units, ReadsEverySpellingOfASize) {
  EXPECT_EQ(parse_bytes("17B"), 17U);
  EXPECT_EQ(parse_bytes("1.5 GiB"), 1536_MiB);
  int shift = 0;
  for (const std::string letter : {"K", "M", "G", "T"}) {
    shift += 10;
    for (const std::string& unit : {letter, letter + "B", letter + "iB"}) {
      EXPECT_EQ(parse_bytes("3" + unit), Bytes{3} << shift) << unit;
    }
  }
}

TEST(Units, RefusesABareNumberAndShowsTheRightSpelling) {
  test::expect_error(Errc::kConfig, {"DeepSpeed counts elements"}, [] { parse_bytes("1e9"); });
}

TEST(Units, RefusesWhatIsNoSize) {
  for (const char* text : {"", "MiB", "-1GiB", "1.3B", "10parsecs", "nan MiB", "1e30GiB"}) {
    EXPECT_THROW(parse_bytes(text), Error) << text;
  }
}

TEST(Units, ReadsWhatADriveEnduresInPowersOfTen) {
  EXPECT_EQ(parse_endurance("600TB"), 600'000'000'000'000U);
  EXPECT_EQ(parse_endurance("1.1 PB"), 1'100'000'000'000'000U);
  for (const std::string text : {"600TB", "1100TB", "3PB", "1234567GB"}) {
    EXPECT_EQ(format_endurance(parse_endurance(text)), text);
  }
  for (const std::string bad :
       {"", "600", "600TiB", "-1TB", "0TB", "600TBW", "nanTB", "infTB", "1001PB", "TB", "1.5GB"}) {
    test::expect_error(Errc::kConfig, {"'" + bad + "'", "600TB"}, [&] { parse_endurance(bad); });
  }
}

TEST(Units, FormatsForPeople) {
  EXPECT_EQ(format_bytes(512), "512 B");
  EXPECT_EQ(format_bytes(4_GiB), "4.0 GiB");
  EXPECT_EQ(format_bytes(1536), "1.5 KiB");
}

TEST(Bf16, RoundsToNearestTiesToEven) {
  EXPECT_EQ(to_bf16(1.0F).bits, 0x3f80);
  EXPECT_EQ(to_bf16(1.00390625F).bits, 0x3f80);  // tie, even below
  EXPECT_EQ(to_bf16(1.01171875F).bits, 0x3f82);  // tie, even above
  EXPECT_EQ(to_bf16(1.00390637F).bits, 0x3f81);  // just over the tie
  EXPECT_EQ(to_bf16(3.4e38F).bits, 0x7f80);      // overflows to infinity
  const float nan = to_float(to_bf16(std::bit_cast<float>(0x7f800001U)));
  EXPECT_NE(nan, nan);
}

}  // namespace
}  // namespace sluice
