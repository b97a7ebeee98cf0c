#include "prefetch/program.h"

#include <fmt/format.h>

#include <utility>

#include "engine/base/error.h"

namespace sluice::prefetch {

std::string describe(const Op& op) {
  std::string text = op.kind.name;
  if (op.where.segment >= 0) text += fmt::format(" segment {}", op.where.segment);
  if (op.where.chunk >= 0) text += fmt::format(" chunk {}", op.where.chunk);
  if (op.where.micro_batch >= 0) text += fmt::format(" micro-batch {}", op.where.micro_batch);
  return text;
}

Program::Program(std::string name, std::shared_ptr<const Residents> residents)
    : name_(std::move(name)),
      residents_(std::move(residents)),
      transients_(residents_->end_buffer(), residents_->end_leaf()) {
  SLUICE_CHECK(residents_->sealed(), kLogic,
               "the table of persistents is sealed before any program");
}

void Program::op(Op op) {
  SLUICE_CHECK(!transients_.sealed(), kLogic, "an op was added to a sealed program");
  ops_.push_back(std::move(op));
}

void Program::seal() {
  transients_.seal();
  users_.assign(transients_.end_buffer() - transients_.first_buffer(), 0);
  accesses_.resize(ops_.size());
  std::vector<std::size_t> last_named(users_.size(), ops_.size());  // by root: the last op
  for (std::size_t i = 0; i < ops_.size(); ++i) {
    const Op& op = ops_[i];
    Accesses& access = accesses_[i];
    std::vector<LeafRange> reads, writes;
    const auto name = [&](BufferId id, std::vector<LeafRange>& leaves) {
      leaves.push_back(table(id).leaves(id));
      if (persistent(id)) return;
      const BufferId root = transients_.root(id);
      const std::size_t index = root - transients_.first_buffer();
      if (std::exchange(last_named[index], i) == i) return;
      access.roots.push_back(root);
      if (users_[index]++ == 0) access.defines.push_back(root);
    };
    for (const BufferId id : op.reads) name(id, reads);
    if (op.predicate) name(op.predicate->record, reads);
    for (const BufferId id : op.writes) name(id, writes);
    access.reads = LeafSet(std::move(reads));
    access.writes = LeafSet(std::move(writes));
  }
}

std::shared_ptr<const Program> Program::with_costs(const std::vector<Cost>& costs) const {
  SLUICE_CHECK(costs.size() == ops_.size(), kLogic,
               fmt::format("{}: {} costs for {} ops", name_, costs.size(), ops_.size()));
  auto copy = std::make_shared<Program>(*this);
  for (std::size_t i = 0; i < costs.size(); ++i) copy->ops_[i].cost = costs[i];
  return copy;
}

}  // namespace sluice::prefetch
