#include "engine/data/step_line.h"

#include <gtest/gtest.h>

#include <functional>
#include <limits>

namespace sluice::data {
namespace {

StepRecord usual() {
  StepRecord r;
  r.step = 120;
  r.steps = 1000;
  r.loss = 2.18341;
  r.gnorm = 0.912;
  r.lr = 2e-5;
  r.seconds = 58.3;
  r.mean_seconds = 58.1;
  r.tokens = 65536;
  r.bound = "nvme-write";
  r.bound_share = 0.921;
  r.cpu_bytes = 49_GiB;
  r.cpu_limit = 64_GiB;
  r.nvme_read_bytes = 373'120'000'000;
  r.nvme_write_bytes = 279'840'000'000;
  return r;
}

TEST(StepLine, SaysWhatTheDesignSays) {
  EXPECT_EQ(step_line(usual()),
            "step 120/1000 | loss 2.1834 | gnorm 0.91 | lr 2.0e-05 | 58.3 s | 1,124 tok/s | "
            "cpu 49/64 GiB | nvme r 6.4 w 4.8 GB/s | bound nvme-write 92% | eta 14h12m");
}

TEST(StepLine, SmallestOneIsStillWellFormed) {
  EXPECT_EQ(step_line({}),
            "step 0 | loss 0.0000 | gnorm 0.00 | lr 0.0e+00 | 0.00 ms | cpu 0.0 KiB");
}

struct Part {
  const char* has;
  const char* has_not;  ///< nullptr = anything
  std::function<void(StepRecord&)> change;
};

TEST(StepLine, EveryPartInItsForms) {
  constexpr double kNan = std::numeric_limits<double>::quiet_NaN();
  constexpr double kInf = std::numeric_limits<double>::infinity();
  const std::vector<Part> parts = {
      {"| loss nan |", nullptr, [](auto& r) { r.loss = kNan; }},
      {"| gnorm inf | skipped | lr", nullptr, [](auto& r) { r.gnorm = kInf, r.skipped = true; }},
      {"| gnorm 0.91 | scale 65536 | lr", nullptr, [](auto& r) { r.loss_scale = 65536; }},
      {"| gnorm 0.91 | largest of a segment 0.40 | lr", nullptr,
       [](auto& r) { r.largest_gnorm = 0.4; }},
      {"| gnorm 0.91 | delayed | lr", nullptr, [](auto& r) { r.delayed = true; }},
      {"tok/s | mfu 43% | cpu", nullptr, [](auto& r) { r.mfu = 0.4349; }},
      {"| gnorm 1.2e-03 |", nullptr, [](auto& r) { r.gnorm = 0.0012; }},
      {"| gnorm 2.5e+06 |", nullptr, [](auto& r) { r.gnorm = 2.5e6; }},
      {"| loss 2.1834 | valid 2.2010 |", nullptr, [](auto& r) { r.valid_loss = 2.201; }},
      {"| 1.23 s |", nullptr, [](auto& r) { r.seconds = 1.234; }},
      {"| 2.96 ms |", nullptr, [](auto& r) { r.seconds = 0.00296; }},
      {"| 0.042 s | 1,560,381 tok/s |", nullptr, [](auto& r) { r.seconds = 0.042; }},
      {"| 0.5 tok/s |", nullptr, [](auto& r) { r.tokens = 30; }},
      {"| 515 tok/s |", nullptr, [](auto& r) { r.tokens = 30'000; }},
      {"| 1,000 tok/s |", nullptr, [](auto& r) { r.tokens = 58'300; }},
      {"| cpu 49/64 GiB | bound", "nvme r",
       [](auto& r) { r.nvme_read_bytes = r.nvme_write_bytes = 0; }},
      {"| nvme r 0.0 w 4.8 GB/s |", nullptr, [](auto& r) { r.nvme_read_bytes = 0; }},
      {"| nvme r 6.4 w 4.8 GB/s, 33 TB written |", nullptr,
       [](auto& r) { r.nvme_write_total = 33'400'000'000'000; }},
      {"| nvme r 12 w 4.8 GB/s |", nullptr, [](auto& r) { r.nvme_read_bytes *= 1.9; }},
      {"| nvme r 0.4 w 2.1 MB/s |", nullptr,
       [](auto& r) { r.nvme_read_bytes = 23'320'000, r.nvme_write_bytes = 122'430'000; }},
      {"| nvme r 0.0 w 0.2 kB/s |", nullptr,
       [](auto& r) { r.nvme_read_bytes = 0, r.nvme_write_bytes = 11'660; }},
      {"| cpu 300 MiB/4.0 GiB |", nullptr,
       [](auto& r) { r.cpu_bytes = 300_MiB, r.cpu_limit = 4_GiB; }},
      {"| cpu 9.5 KiB/1.5 TiB |", nullptr,
       [](auto& r) { r.cpu_bytes = 9728, r.cpu_limit = 1536_GiB; }},
      {"| cpu 120/512 MiB |", nullptr,
       [](auto& r) { r.cpu_bytes = 120_MiB, r.cpu_limit = 512_MiB; }},
      {"| cpu 49 GiB |", nullptr, [](auto& r) { r.cpu_limit = 0; }},
      {"GB/s | eta", "bound", [](auto& r) { r.bound.clear(); }},
      {"bound nvme-write 92%", "eta", [](auto& r) { r.mean_seconds = 0; }},
      {"step 1000/1000 |", "eta", [](auto& r) { r.step = 1000; }},
      {"step 120 |", "eta", [](auto& r) { r.steps = 0; }},
      {"| eta 12s", nullptr, [](auto& r) { r.step = 999, r.mean_seconds = 12.9; }},
      {"| eta 3m05s", nullptr, [](auto& r) { r.step = 999, r.mean_seconds = 185; }},
      {"| eta 1h00m", nullptr, [](auto& r) { r.step = 999, r.mean_seconds = 3600; }},
      {"| eta 2d04h", nullptr, [](auto& r) { r.step = 999, r.mean_seconds = 188'000; }},
  };
  for (const Part& part : parts) {
    StepRecord r = usual();
    part.change(r);
    const std::string line = step_line(r);
    EXPECT_NE(line.find(part.has), std::string::npos) << part.has << "\n in " << line;
    if (part.has_not != nullptr) {
      EXPECT_EQ(line.find(part.has_not), std::string::npos) << part.has_not << "\n in " << line;
    }
  }
}

TEST(ProgressLine, SaysHowFarTheRunIs) {
  EXPECT_EQ(progress_line(usual(), 200),
            "[==>                 ] 120/1000 | eta 14h12m | bound nvme-write 92% | loss 2.1834");
  StepRecord last = usual();
  last.step = 1000;
  EXPECT_EQ(progress_line(last, 200),
            "[====================] 1000/1000 | bound nvme-write 92% | loss 2.1834");
  EXPECT_EQ(progress_line({}, 200), "[>                   ] 0/0 | loss 0.0000");
}

TEST(ProgressLine, IsNoLongerThanTheTerminal) {
  EXPECT_EQ(progress_line(usual(), 30), "[==>                 ] 120/100");
}

}  // namespace
}  // namespace sluice::data
