#include "engine/base/units.h"

#include <gtest/gtest.h>

#include <cmath>
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

TEST(Fp16, RoundsToNearestTiesToEven) {
  EXPECT_EQ(to_fp16(1.0F).bits, 0x3c00);
  EXPECT_EQ(to_fp16(-2.0F).bits, 0xc000);
  EXPECT_EQ(to_fp16(0x1.002p0F).bits, 0x3c00);     // tie, even below
  EXPECT_EQ(to_fp16(0x1.006p0F).bits, 0x3c02);     // tie, even above
  EXPECT_EQ(to_fp16(0x1.002002p0F).bits, 0x3c01);  // just over the tie
  EXPECT_EQ(to_fp16(65504.0F).bits, 0x7bff);
  EXPECT_EQ(to_fp16(65519.996F).bits, 0x7bff);
  EXPECT_EQ(to_fp16(65520.0F).bits, 0x7c00);  // overflows to infinity
  EXPECT_EQ(to_fp16(-3.4e38F).bits, 0xfc00);
  EXPECT_EQ(to_fp16(0x1p-24F).bits, 0x0001);
  EXPECT_EQ(to_fp16(0x1p-25F).bits, 0x0000);  // tie, even below
  EXPECT_EQ(to_fp16(0x1.000002p-25F).bits, 0x0001);
  EXPECT_EQ(to_fp16(-0x1.8p-24F).bits, 0x8002);      // tie, even above
  EXPECT_EQ(to_fp16(0x1.ffcp-15F).bits, 0x0400);     // tie, to the smallest normal one
  EXPECT_EQ(to_fp16(0x1.ffbffep-15F).bits, 0x03ff);  // just below it
  EXPECT_EQ(to_fp16(0x1p-149F).bits, 0x0000);
  EXPECT_EQ(to_fp16(-0.0F).bits, 0x8000);
}

/// What the standard says of the bits of a finite half.
double value_of(std::uint32_t bits) {
  const int exponent = static_cast<int>((bits >> 10) & 0x1fU);
  const int fraction = static_cast<int>(bits & 0x3ffU);
  const double size =
      exponent == 0 ? std::ldexp(fraction, -24) : std::ldexp(fraction + 1024, exponent - 25);
  return (bits & 0x8000U) != 0 ? -size : size;
}

TEST(Fp16, IsWhatItsBitsSayAndTakesAllThatIsNearest) {
  for (std::uint32_t bits = 0; bits < 0x7bff; ++bits) {
    for (const std::uint32_t sign : {0U, 0x8000U}) {
      const std::uint32_t inner = sign | bits;
      const float here = to_float(Fp16{static_cast<std::uint16_t>(inner)});
      ASSERT_EQ(here, value_of(inner)) << inner;
      const auto tie = static_cast<float>((value_of(inner) + value_of(inner + 1)) / 2);
      ASSERT_EQ(to_fp16(tie).bits, inner + inner % 2) << inner;
      ASSERT_EQ(to_fp16(std::nextafterf(tie, 0)).bits, inner);
      ASSERT_EQ(to_fp16(std::nextafterf(tie, 2 * tie)).bits, inner + 1);
    }
  }
}

TEST(Fp16, ComesBackFromAFloatAsItWas) {
  for (std::uint32_t bits = 0; bits < 0x10000; ++bits) {
    const Fp16 half{static_cast<std::uint16_t>(bits)};
    const float wide = to_float(half);
    if ((bits & 0x7fffU) > 0x7c00U) {
      EXPECT_NE(wide, wide);
      EXPECT_EQ(to_fp16(wide).bits, bits | 0x200U) << "a quiet NaN with the same payload";
    } else {
      EXPECT_EQ(to_fp16(wide).bits, bits);
    }
  }
  const float nan = to_float(to_fp16(std::bit_cast<float>(0x7f800001U)));
  EXPECT_NE(nan, nan);
}

}  // namespace
}  // namespace sluice
