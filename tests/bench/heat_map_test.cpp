#include "engine/bench/heat_map.h"

#include <fmt/format.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cstdlib>
#include <string>
#include <vector>

#include "tests/support/occurrences.h"
#include "tests/support/temp_folder.h"

namespace sluice::bench {
namespace {

using test::occurrences;
using ::testing::HasSubstr;
using ::testing::Not;

Context context() {
  Context c;
  c.date = "2026-11-22T10:11:12Z";
  c.cpu = "A & B";
  c.cores = 16;
  c.kernel = "6.18";
  c.path = "/mnt/\"nvme\"";
  c.filesystem = "ext4";
  c.device = "nvme0n1 <script>alert('x')</script>";
  c.free = 5_GiB;
  c.engines = "io_uring, libaio, threads";
  c.direct = "4096";
  c.memlock = "8.0 MiB";
  c.planned_writes = 32_GiB;
  return c;
}

Summary summary(nvme::Engine engine, Bytes block, unsigned depth, Traffic traffic, double rate,
                double spread) {
  Summary s;
  s.point = {engine, block, depth, traffic};
  s.repetitions = 3;
  (traffic == Traffic::kWrite ? s.write_rate : s.read_rate) = rate;
  s.spread = spread;
  s.read_latency = {0.001, 0.002, 0.003};
  s.cpu_s_per_gb = 0.125;
  return s;
}

std::vector<Summary> sweep() {
  using nvme::Engine;
  return {summary(Engine::kIoUring, 128_KiB, 4, Traffic::kRead, 1.11e9, 0.01),
          summary(Engine::kIoUring, 8_MiB, 4, Traffic::kRead, 2.22e9, 0.02),
          summary(Engine::kIoUring, 8_MiB, 32, Traffic::kRead, 3.33e9, 0.03),
          summary(Engine::kThreads, 1_MiB, 32, Traffic::kRead, 2.44e9, 0.04),
          summary(Engine::kLibaio, 1_MiB, 16, Traffic::kWrite, 0.55e9, 0.05)};
}

TEST(HeatMap, HoldsEveryValueWithItsSpreadAndMarksTheChosen) {
  const std::vector<Summary> all = sweep();
  const std::vector<Point> chosen = {all[2].point};
  const std::string html = heat_map(context(), all, chosen);
  for (const std::string cell :
       {"1.11<small>1 %", "2.22<small>2 %", "2.44<small>4 %", "0.55<small>5 %"}) {
    EXPECT_THAT(html, HasSubstr(">" + cell + "</small></td>"));
  }
  EXPECT_EQ(occurrences(html, "<td class=\"chosen\""), 1U);
  const std::size_t marked = html.find("<td class=\"chosen\"");
  EXPECT_THAT(html.substr(marked, html.find("</td>", marked) - marked),
              HasSubstr(">3.33<small>3 %"));
  EXPECT_THAT(html, HasSubstr("read p50 / p99 / p99.9: 1000 / 2000 / 3000 us"));
}

TEST(HeatMap, SaysOfOneRunThatItHasNoSpread) {
  std::vector<Summary> all = sweep();
  all[0].repetitions = 1;
  all[0].spread = 0;
  EXPECT_THAT(heat_map(context(), all, {}), HasSubstr(">1.11<small>one run</small></td>"));
}

TEST(HeatMap, HasAGridForEachEngineOfATrafficAndNoneForWhatWasNotMeasured) {
  const std::string html = heat_map(context(), sweep(), {});
  EXPECT_EQ(occurrences(html, "<table class=\"grid\">"), 3U);
  EXPECT_THAT(html, HasSubstr("<h2>read</h2>"));
  EXPECT_THAT(html, HasSubstr("<h2>write</h2>"));
  EXPECT_THAT(html, Not(HasSubstr("<h2>mixed</h2>")));
  EXPECT_THAT(html, HasSubstr("<tr><th>128 KiB</th>"));
  EXPECT_THAT(html, HasSubstr("<tr><th>8 MiB</th>"));
  EXPECT_EQ(occurrences(html, "<td class=\"none\">"), 1U);  // io_uring, 128 KiB, depth 32
  EXPECT_THAT(html, Not(HasSubstr("class=\"chosen")));
}

TEST(HeatMap, ColoursTheGridsOfATrafficByOneScale) {
  const std::string html = heat_map(context(), sweep(), {});
  EXPECT_EQ(occurrences(html, "--share: 1.00"), 2U);  // 3.33 of the reads, 0.55 of the writes
  EXPECT_THAT(html, HasSubstr("--share: 0.44"));      // (2.22 / 3.33) squared
  EXPECT_THAT(html, HasSubstr("--share: 0.54"));      // (2.44 / 3.33) squared, in another grid
}

TEST(HeatMap, ShowsTheContextAsTextAndNothingFromElsewhere) {
  const std::string html = heat_map(context(), sweep(), {});
  EXPECT_THAT(html, HasSubstr("nvme0n1 &lt;script&gt;alert(&#39;x&#39;)&lt;/script&gt;"));
  EXPECT_THAT(html, HasSubstr("A &amp; B, 16 cores"));
  EXPECT_THAT(html, HasSubstr("/mnt/&quot;nvme&quot;"));
  EXPECT_THAT(html, HasSubstr("32.0 GiB"));
  EXPECT_THAT(html, Not(HasSubstr("<script")));
  EXPECT_THAT(html, Not(HasSubstr("://")));
  EXPECT_LT(html.size(), 16U << 10);
}

TEST(HeatMap, OfNothingIsStillAPage) {
  EXPECT_THAT(heat_map(context(), {}, {}), HasSubstr("</html>"));
}

/// Every element that is opened is closed, in order, as Python's parser sees it.
constexpr const char* kWellFormed = R"(
import html.parser, sys
class Check(html.parser.HTMLParser):
    open = []
    def handle_starttag(self, tag, attributes):
        if tag != 'meta': self.open.append(tag)
    def handle_endtag(self, tag):
        assert self.open.pop() == tag, tag
check = Check()
check.feed(open(sys.argv[1], encoding='utf-8').read())
check.close()
assert not check.open, check.open
)";

TEST(HeatMap, IsWellFormed) {
  const test::TempFolder folder;
  const std::vector<Summary> all = sweep();
  folder.write("map.html", heat_map(context(), all, std::vector<Point>{all[0].point}));
  folder.write("check.py", kWellFormed);
  EXPECT_EQ(
      std::system(
          fmt::format("'{}' '{}' '{}'", PYTHON, folder / "check.py", folder / "map.html").c_str()),
      0);
}

}  // namespace
}  // namespace sluice::bench
