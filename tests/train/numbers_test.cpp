/// What a run computes with and what it tells, against the same numbers worked out here: the crown
/// test says that all placements agree, this one that they agree on what is right.

#include <gtest/gtest.h>

#include <algorithm>
#include <atomic>
#include <chrono>
#include <cmath>
#include <cstring>
#include <filesystem>
#include <future>
#include <map>
#include <memory>
#include <mutex>
#include <optional>
#include <set>
#include <span>
#include <tuple>
#include <utility>
#include <vector>

#include "cpu_adam/optimizer.h"
#include "engine/checkpoint/reader.h"
#include "engine/data/sampler.h"
#include "engine/shape/init.h"
#include "tests/support/token_set.h"
#include "tests/train/tiny_run.h"
#include "tests/train/witness.h"

namespace sluice::train {
namespace {

using executor::OpContext;
using schedule::OpId;

constexpr std::int64_t kMicroBatches = 3;
constexpr std::int64_t kSequences = 2;  // per micro-batch
constexpr std::int64_t kTokens = kSequences * 13;
constexpr std::int64_t kEvaluated = 3;  // micro-batches that the validation data has

/// Chunks of one grain, several micro-batches, two kinds of data, a seed that is not the default.
class Numbers : public testing::Test {
 protected:
  Numbers() : job_(tiny_job(folder_, tiny_llama())) {
    write_tokens(folder_ / "valid.bin", 80, 200);  // six samples
    job_.seed = 99;
    job_.decoder.vocab = 601;
    job_.data.valid = {folder_ / "valid.bin"};
    job_.eval = {.every = 2, .batches = 50};
    job_.train.gradient_accumulation_steps = kMicroBatches;
    job_.train.train_batch_size = kMicroBatches * kSequences;
    job_.optimizer.weight_decay = 0.5;
    job_.hooks.wrap_handler = [this](executor::Handler& inner, const memory::SlotMemory& memory) {
      return std::make_unique<Witness>(inner, memory, seen_);
    };
  }

  /// Tokens, targets, positions, ends of documents, and the targets of the whole program.
  static std::vector<std::int64_t> batch_of(const data::Dataset& data,
                                            const std::vector<std::int64_t>& samples,
                                            std::int64_t micro_batches) {
    std::vector<std::int64_t> tokens, targets, positions;
    for (const std::int64_t k : samples) {
      data::SampleBuffer buffer(13);
      data.sample(k, buffer.view());
      const auto add = [](auto& all, auto of_sample) {
        all.insert(all.end(), of_sample.begin(), of_sample.end());
      };
      add(tokens, buffer.view().tokens);
      add(targets, buffer.view().targets);
      add(positions, buffer.view().positions);
    }
    tokens.insert(tokens.end(), targets.begin(), targets.end());
    tokens.insert(tokens.end(), positions.begin(), positions.end());
    // Each sample is one document; two numbers of 32 bits in each of 64.
    const auto pair = [](std::int64_t a, std::int64_t b) { return a | b << 32; };
    for (std::int64_t i = 0; i <= kTokens; ++i) {
      tokens.push_back(i == 0 ? pair(0, 13) : pair(kTokens, kTokens));
    }
    tokens.push_back(micro_batches * kTokens);
    return tokens;
  }

  /// Of all batches of a program: how many targets there are, and what each batch says of that.
  std::int64_t targets_of(Tag::Kind kind, std::int64_t step, std::int32_t micro_batches) const {
    std::int64_t count = 0;
    std::set<std::int64_t> said;
    for (std::int32_t mb = 0; mb < micro_batches; ++mb) {
      const std::vector<std::int64_t>& batch = seen_.batches.at({kind, step, mb});
      said.insert(batch.back());
      for (std::int64_t i = 0; i < kTokens; ++i) {
        count += batch[static_cast<std::size_t>(kTokens + i)] >= 0 ? 1 : 0;
      }
    }
    EXPECT_EQ(said, std::set<std::int64_t>{count});
    return count;
  }

  /// The sum over micro-batches, in order.
  double loss_of(Tag::Kind kind, std::int64_t step, std::int32_t micro_batches) const {
    double sum = 0;
    for (std::int32_t mb = 0; mb < micro_batches; ++mb) sum += seen_.losses.at({kind, step, mb});
    return sum;
  }

  const TempFolder folder_;
  Job job_;
  Sightings seen_;
};

/// Two for each weight of a product and each pair of places and channel that attention looks at;
/// three times, for a backward is two more.
TEST_F(Numbers, OperationsOfAStepAreThoseOfTheModel) {
  const double hidden = 42, narrow = 14, wide = 67, layers = 4;
  const double layer = 2 * hidden * hidden + 2 * hidden * narrow + 3 * hidden * wide;
  const double pairs = 13.0 * 14 / 2 * kSequences * kMicroBatches;
  const double products = (layers * layer + 601 * hidden) * kTokens * kMicroBatches;
  const double attention = layers * pairs * 2 * hidden;
  job_.homes.recompute = schedule::Recompute::kEveryLayer;
  for (const data::StepRecord& record : observe(job_).records) {
    EXPECT_EQ(record.flops, 3 * 2 * (products + attention));
    EXPECT_FALSE(record.mfu);
  }
}

TEST_F(Numbers, EveryTensorBeginsWithTheValuesOfItsSeedAndName) {
  const Observed run = observe(job_);
  const schedule::Setup& setup = run.plan.setup;
  ASSERT_GT(setup.chunk_count(), 2 * setup.chunks.size());
  for (std::size_t s = 0; s < setup.chunks.size(); ++s) {
    Floats expected(setup.layouts[s].elems, 0.0F);  // padding stays 0
    for (const zero::Placed& placed : setup.layouts[s].tensors) {
      const auto& tensor =
          setup.model->segments[s].tensors[static_cast<std::size_t>(placed.tensor)];
      shape::initial_values(99, tensor, 0,
                            std::span(expected).subspan(placed.offset_elems, tensor.numel()));
    }
    for (std::size_t c = 0; c < setup.chunks[s].size(); ++c) {
      const zero::Chunk& chunk = setup.chunks[s][c];
      Floats state(3 * chunk.elems, 0.0F);
      std::copy_n(expected.begin() + static_cast<std::ptrdiff_t>(chunk.first_elem), chunk.elems,
                  state.begin());
      EXPECT_EQ(seen_.initial.at({static_cast<int>(s), static_cast<int>(c)}), state)
          << "segment " << s << " chunk " << c;
    }
  }
}

TEST_F(Numbers, StepsDrawTheNextSamplesAndEvaluationsTheFirstOfTheValidationData) {
  observe(job_);
  const data::Dataset train(job_.data, job_.data.train, job_.decoder.vocab);
  const data::Dataset valid(job_.data, job_.data.valid, job_.decoder.vocab);
  const data::Sampler sampler(train.samples(), 99, data::Order::kShuffled);
  std::size_t batches = 0;
  std::uint64_t position = 0;
  for (std::int64_t step = 0; step < kTinySteps; ++step) {
    for (std::int32_t mb = 0; mb < kMicroBatches; ++mb, ++batches) {
      const std::int64_t first = sampler.at(position++);
      const std::int64_t second = sampler.at(position++);
      EXPECT_EQ(seen_.batches.at({Tag::Kind::kStep, step, mb}),
                batch_of(train, {first, second}, kMicroBatches));
    }
  }
  for (const std::int64_t step : {1, 3, 4}) {  // after every other one, and at the end
    for (std::int32_t mb = 0; mb < kEvaluated; ++mb, ++batches) {
      EXPECT_EQ(seen_.batches.at({Tag::Kind::kEvaluation, step, mb}),
                batch_of(valid, {2 * mb, 2 * mb + 1}, kEvaluated));
    }
  }
  EXPECT_EQ(seen_.batches.size(), batches);
}

TEST_F(Numbers, OfDocumentsALossIsTheMeanOverTheTargetsOfItsProgram) {
  for (const char* name : {"train", "valid"}) {
    std::vector<std::int64_t> ends;
    std::string mask;
    for (std::int64_t end = 3; end <= 400; end += 3 + end % 7) ends.push_back(end);
    for (std::int64_t i = 0; i < ends.back(); ++i) mask += static_cast<char>(i % 5 > 1 ? 1 : 0);
    test::write_token_set(folder_, name, std::vector<std::uint16_t>(mask.size(), 5), ends, mask);
  }
  job_.data.train = {folder_ / "train.bin"};
  job_.data.valid = {folder_ / "valid.bin"};
  const Observed run = observe(job_);
  ASSERT_EQ(run.records.size(), static_cast<std::size_t>(kTinySteps));
  std::set<std::int64_t> different;
  for (std::int64_t step = 0; step < kTinySteps; ++step) {
    const data::StepRecord& record = run.records[static_cast<std::size_t>(step)];
    const std::int64_t targets = targets_of(Tag::Kind::kStep, step, kMicroBatches);
    different.insert(targets);
    EXPECT_EQ(record.targets, targets);
    EXPECT_EQ(record.loss, loss_of(Tag::Kind::kStep, step, kMicroBatches) / double(targets));
    if (!record.valid_loss) continue;
    const std::int32_t evaluated = seen_.micro_batches(Tag::Kind::kEvaluation, step);
    ASSERT_GT(evaluated, 1);
    EXPECT_EQ(*record.valid_loss, loss_of(Tag::Kind::kEvaluation, step, evaluated) /
                                      double(targets_of(Tag::Kind::kEvaluation, step, evaluated)));
  }
  EXPECT_GT(different.size(), 1U);
}

TEST_F(Numbers, ALossIsTheMeanOverTheTokensOfItsProgram) {
  const Observed run = observe(job_);
  ASSERT_EQ(run.records.size(), static_cast<std::size_t>(kTinySteps));
  for (std::int64_t step = 0; step < kTinySteps; ++step) {
    const data::StepRecord& record = run.records[static_cast<std::size_t>(step)];
    EXPECT_EQ(record.loss,
              loss_of(Tag::Kind::kStep, step, kMicroBatches) / (kMicroBatches * kTokens));
    EXPECT_EQ(record.valid_loss.has_value(), step == 1 || step == 3 || step == 4);
    if (!record.valid_loss) continue;
    EXPECT_EQ(*record.valid_loss,
              loss_of(Tag::Kind::kEvaluation, step, kEvaluated) / (kEvaluated * kTokens));
  }
}

TEST_F(Numbers, TheNormIsOfAllGradientsAndDecidesTheClipFactor) {
  const Observed run = observe(job_);
  int clipped = 0;
  for (std::int64_t step = 0; step < kTinySteps; ++step) {
    const data::StepRecord& record = run.records[static_cast<std::size_t>(step)];
    double squares = 0;
    std::size_t n = 0;
    for (const auto& [id, update] : seen_.updates) {
      if (std::get<0>(id) != step) continue;
      for (const float g : update.gradient) squares += double{g} * double{g};
      n += update.gradient.size();
    }
    // Squares of floats are exact in double. A sum of n of them rounds n - 1 times, in any order:
    // each of the two is off by less than n 2^-53 of itself, their roots by half of that.
    const double norm = std::sqrt(squares);
    EXPECT_NEAR(record.gnorm, norm, norm * static_cast<double>(n + 2) * 0x1p-53);
    EXPECT_EQ(record.clip, std::min(1.0, *job_.train.gradient_clipping / (record.gnorm + 1e-6)));
    if (record.clip < 1) ++clipped;
    for (const auto& [id, update] : seen_.updates) {
      if (std::get<0>(id) != step) continue;
      EXPECT_EQ(update.record.clip, static_cast<float>(record.clip));
    }
  }
  EXPECT_GT(clipped, 0);
}

TEST_F(Numbers, AStepWhoseLossIsNotFiniteIsSkipped) {
  seen_.spoiled_step = 2;
  const Observed run = observe(job_);
  for (std::int64_t step = 0; step < kTinySteps; ++step) {
    const data::StepRecord& record = run.records[static_cast<std::size_t>(step)];
    EXPECT_TRUE(std::isfinite(record.gnorm));
    EXPECT_EQ(record.skipped, step == 2);
  }
}

TEST_F(Numbers, AnUpdateIsTheOptimizersOnTensorsOfWhichMatricesAloneDecay) {
  const Observed run = observe(job_);
  const schedule::Setup& setup = run.plan.setup;
  ASSERT_EQ(seen_.updates.size(), static_cast<std::size_t>(kTinySteps) * setup.chunk_count());
  const cpu_adam::Optimizer optimizer({.threads = 1, .isa = cpu_adam::Isa::kScalar});
  for (const auto& [id, update] : seen_.updates) {
    const auto& [step, s, c] = id;
    const auto t = static_cast<std::uint64_t>(step + 1);
    const zero::Chunk& chunk =
        setup.chunks[static_cast<std::size_t>(s)][static_cast<std::size_t>(c)];
    cpu_adam::Hyper hyper{.mode = cpu_adam::Mode::kAdamW,
                          .lr = update.record.lr,
                          .beta1 = 0.9F,
                          .beta2 = 0.95F,
                          .eps = 1e-8F,
                          .bias_correction1 = cpu_adam::bias_correction(0.9F, t),
                          .bias_correction2 = cpu_adam::bias_correction(0.95F, t),
                          .clip = update.record.clip};
    Floats after = update.before;
    for (const zero::Placed& placed : setup.layouts[static_cast<std::size_t>(s)].tensors) {
      const auto& tensor = setup.model->segments[static_cast<std::size_t>(s)]
                               .tensors[static_cast<std::size_t>(placed.tensor)];
      const std::uint64_t begin = std::max(placed.offset_elems, chunk.first_elem);
      const std::uint64_t end = std::min(placed.end(), chunk.first_elem + chunk.elems);
      if (begin >= end) continue;
      hyper.weight_decay = tensor.shape.size() > 1 ? 0.5F : 0.0F;
      const auto here = [&](std::span<float> values) {
        return values.subspan(begin - chunk.first_elem, end - begin);
      };
      const std::span all(after);
      optimizer.update(hyper,
                       {here(all.first(chunk.elems)), here(all.subspan(chunk.elems, chunk.elems)),
                        here(all.last(chunk.elems))},
                       std::span(update.gradient).subspan(begin - chunk.first_elem, end - begin),
                       {});
    }
    EXPECT_EQ(update.after, after) << "step " << step << " segment " << s << " chunk " << c;
  }
}

TEST_F(Numbers, TheFinalWeightsAreTheMastersOfTheLastUpdate) {
  const Observed run = observe(job_);
  const schedule::Setup& setup = run.plan.setup;
  const checkpoint::Reader reader(std::filesystem::path(job_.folder) / "final");
  for (std::size_t s = 0; s < setup.chunks.size(); ++s) {
    Floats master;
    for (std::size_t c = 0; c < setup.chunks[s].size(); ++c) {
      const Floats& state =
          seen_.updates.at({kTinySteps - 1, static_cast<int>(s), static_cast<int>(c)}).after;
      master.insert(master.end(), state.begin(),
                    state.begin() + static_cast<std::ptrdiff_t>(setup.chunks[s][c].elems));
    }
    for (const zero::Placed& placed : setup.layouts[s].tensors) {
      const auto& tensor =
          setup.model->segments[s].tensors[static_cast<std::size_t>(placed.tensor)];
      const auto begin = master.begin() + static_cast<std::ptrdiff_t>(placed.offset_elems);
      EXPECT_EQ(reader.read(tensor.name),
                Floats(begin, begin + static_cast<std::ptrdiff_t>(tensor.numel())))
          << tensor.name;
    }
  }
}

TEST_F(Numbers, ARunThatIsToldToStopBeginsNoMoreSteps) {
  std::atomic<int> stop{0};
  std::int64_t told = 0;
  job_.train.steps = 20;
  job_.stop = &stop;
  job_.checkpoint.save_on_signal = false;
  job_.on_step = [&](const data::StepRecord& record) {
    told = record.step;
    if (record.step == 2) stop = 15;
  };
  std::filesystem::create_directories(job_.folder);
  EXPECT_EQ(make_session(job_).run(), Outcome::kStopped);
  EXPECT_LE(told, 4);  // two programs may have been under way
  EXPECT_FALSE(std::filesystem::exists(std::filesystem::path(job_.folder) / "final"));
}

/// Holds the first update back until the next step has loaded a batch.
class HeldUpdate : public executor::Handler {
 public:
  HeldUpdate(executor::Handler& inner, std::future_status& waited)
      : inner_(inner), waited_(waited) {}

  Ticket start(const OpContext& context) override {
    const Tag tag = Tag::unpack(context.tag);
    const OpId id = schedule::id_of(context.op);
    const prefetch::Where& where = context.op.where;
    const bool step = tag.kind == Tag::Kind::kStep;
    if (step && tag.step == 1 && id == OpId::kLoadBatch && where.micro_batch == 0) {
      begun_.set_value();
    }
    if (step && tag.step == 0 && id == OpId::kAdam && where.segment == 0 && where.chunk == 0) {
      waited_ = begun_.get_future().wait_for(std::chrono::seconds(60));
    }
    return inner_.start(context);
  }
  void freed(const prefetch::Freed& slot) override { inner_.freed(slot); }

 private:
  executor::Handler& inner_;
  std::promise<void> begun_;
  std::future_status& waited_;
};

TEST_F(Numbers, AStepBeginsWhileTheUpdateOfTheOneBeforeIsNotDone) {
  std::future_status waited = std::future_status::deferred;
  job_.hooks.wrap_handler = [&](executor::Handler& inner, const memory::SlotMemory&) {
    return std::make_unique<HeldUpdate>(inner, waited);
  };
  observe(job_);
  EXPECT_EQ(waited, std::future_status::ready);
}

TEST_F(Numbers, StreamedWeightsServeAllMicroBatchesOfAStep) {
  const Observed run = observe(job_);
  ASSERT_TRUE(run.plan.setup.streams_params());
  EXPECT_EQ(run.plan.setup.sweep, kMicroBatches);
}

}  // namespace
}  // namespace sluice::train
