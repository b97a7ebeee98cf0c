#include "engine/executor/driver.h"

#include <fmt/format.h>

#include <algorithm>

#include "engine/base/error.h"

namespace sluice::executor {

NamedSlots named_slots(const prefetch::Scoreboard& board, prefetch::OpRef ref) {
  const prefetch::Op& op = board.op(ref);
  const prefetch::Program& program = board.program(ref.instance);
  NamedSlots slots;
  slots.reserve(op.reads.size() + op.writes.size() + 1);
  const auto name = [&](prefetch::BufferId id) {
    if (program.info(id).pool != prefetch::kNoPool) slots.emplace_back(program.root(id), 0);
  };
  for (const prefetch::BufferId id : op.reads) name(id);
  for (const prefetch::BufferId id : op.writes) name(id);
  if (op.predicate) name(op.predicate->record);
  std::sort(slots.begin(), slots.end());
  slots.erase(std::unique(slots.begin(), slots.end()), slots.end());
  for (auto& [root, slot] : slots) slot = board.slot(ref, root);
  return slots;
}

std::exception_ptr in_op(std::exception_ptr error, const prefetch::Scoreboard& board,
                         prefetch::OpRef ref) {
  if (!error) return nullptr;
  try {
    std::rethrow_exception(error);
  } catch (const Error& met) {
    if (met.code != Errc::kIo && met.code != Errc::kWatchdog) return error;
    return std::make_exception_ptr(
        Error(met.code, fmt::format("{}\n  in the op '{}' of the program '{}'", met.what(),
                                    describe(board.op(ref)), board.program(ref.instance).name())));
  } catch (...) {
    return error;
  }
}

std::uint32_t OpContext::slot(prefetch::BufferId id) const {
  const prefetch::BufferId root = program.root(id);
  const auto found = std::lower_bound(
      slots.begin(), slots.end(), root,
      [](const auto& named, prefetch::BufferId wanted) { return named.first < wanted; });
  SLUICE_CHECK(
      found != slots.end() && found->first == root, kLogic,
      fmt::format(
          "{}: the handler of '{}' asks for buffer {}, which {}", program.name(), describe(op), id,
          program.info(id).pool == prefetch::kNoPool ? "has no bytes" : "the op does not name"));
  return found->second;
}

}  // namespace sluice::executor
