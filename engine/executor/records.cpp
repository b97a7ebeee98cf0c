#include "engine/executor/records.h"

#include <utility>

namespace sluice::executor {

void add_span(Trace* trace, const prefetch::Scoreboard& board, prefetch::OpRef op, Nanos begin,
              Nanos end) {
  if (trace == nullptr) return;
  const prefetch::Op& what = board.op(op);
  trace->add({what.lane, what.kind.id, place(op), pack(board.cause(op)), board.ready_since(op),
              begin, end});
}

std::vector<std::uint32_t> peak_slots(const prefetch::Scoreboard& board) {
  std::vector<std::uint32_t> peaks;
  for (prefetch::PoolId pool = 0; pool < board.pools().size(); ++pool) {
    peaks.push_back(board.peak_slots(pool));
  }
  return peaks;
}

void Records::finish(Finished finished) {
  Record& record = kept_[finished.instance - first_];
  finished.tag = record.tag;
  record.finished = std::move(finished);
}

std::vector<Finished> Records::take() {
  std::vector<Finished> taken;
  while (!kept_.empty() && kept_.front().finished) {
    taken.push_back(std::move(*kept_.front().finished));
    kept_.pop_front();
    ++first_;
  }
  return taken;
}

}  // namespace sluice::executor
