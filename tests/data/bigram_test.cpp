#include "engine/data/bigram.h"

#include <cmath>

#include "tests/data/folder.h"
#include "tests/support/errors.h"

namespace sluice::data {
namespace {

using test::expect_error;
using Ids = std::vector<std::int64_t>;

void count(Bigram& model, Ids tokens) {
  Ids targets(tokens.begin() + 1, tokens.end()), positions(targets.size());
  tokens.pop_back();
  model.count({tokens, targets, positions});
}

TEST(Bigram, CountsNeighboursAndAddsOne) {
  Bigram model(4);
  count(model, {0, 1, 0, 1, 0, 2});  // 0 -> 1 twice, 0 -> 2 once, 1 -> 0 twice
  EXPECT_DOUBLE_EQ(model.nats(0, 1), std::log((3 + 4) / 3.0));
  EXPECT_DOUBLE_EQ(model.nats(0, 2), std::log((3 + 4) / 2.0));
  EXPECT_DOUBLE_EQ(model.nats(0, 3), std::log((3 + 4) / 1.0));
  EXPECT_DOUBLE_EQ(model.nats(1, 0), std::log((2 + 4) / 3.0));
  EXPECT_DOUBLE_EQ(model.nats(3, 3), std::log(4.0));
}

TEST(Bigram, ProbabilitiesAddUpToOne) {
  Bigram model(50);
  Ids tokens;
  for (std::int64_t i = 0; i < 5000; ++i) tokens.push_back(i * i % 37);
  count(model, tokens);
  for (const std::int64_t token : {0, 4, 36, 49}) {
    double sum = 0;
    for (std::int64_t next = 0; next < 50; ++next) sum += std::exp(-model.nats(token, next));
    EXPECT_NEAR(sum, 1.0, 1e-12);
  }
}

TEST(Bigram, WithoutDataItIsUniformForAnyVocabulary) {
  EXPECT_DOUBLE_EQ(Bigram(65536).nats(65535, 7), std::log(65536.0));
  EXPECT_DOUBLE_EQ(Bigram(std::int64_t{1} << 32).nats(1, 2), std::log(4294967296.0));
}

class BigramFiles : public Folder {
 protected:
  Dataset text(const std::string& name, const std::string& content, std::int64_t seq_len) const {
    DataOptions options;
    options.seq_len = seq_len;
    return {options, {write(name, content)}, 256};
  }
};

TEST_F(BigramFiles, LossIsTheMeanOverTheFirstSamplesAndPairsAcrossSamplesCountOnce) {
  // Two samples of S = 2: a b a, a b c; the last d is the dropped tail.
  const Dataset train = text("train.txt", "ababcd", 2);
  ASSERT_EQ(train.samples(), 2);
  const Dataset valid = text("valid.txt", "abazz", 2);
  const double ab = std::log((2 + 256) / 3.0);
  const double ba = std::log((2 + 256) / 2.0);
  const double unseen_after_a = std::log((2 + 256) / 1.0);
  const double unseen = std::log(256.0);
  EXPECT_DOUBLE_EQ(bigram_loss(train, valid, 1), (ab + ba) / 2);
  EXPECT_DOUBLE_EQ(bigram_loss(train, valid, 2), (ab + ba + unseen_after_a + unseen) / 4);
}

TEST_F(BigramFiles, LargeVocabularyNeedsNoSquareOfIt) {
  DataOptions options;
  options.seq_len = 100;
  std::vector<std::uint16_t> ids;
  for (int i = 0; i < 100'001; ++i) ids.push_back(static_cast<std::uint16_t>(i * 7));
  const Dataset data(options, {write_ids("ids.bin", ids)}, 65536);
  EXPECT_LT(bigram_loss(data, data, data.samples()), std::log(65536.0));
}

TEST_F(BigramFiles, MisuseIsRefused) {
  const Dataset data = text("a.txt", "abcdef", 2);
  expect_error(Errc::kLogic, {"3 of 2"}, [&] { bigram_loss(data, data, 3); });
  expect_error(Errc::kLogic, {"0 of 2"}, [&] { bigram_loss(data, data, 0); });
  DataOptions options;
  options.seq_len = 2;
  const Dataset other(options, {path("a.txt")}, 128);
  expect_error(Errc::kLogic, {"256", "128"}, [&] { bigram_loss(data, other, 1); });
}

}  // namespace
}  // namespace sluice::data
