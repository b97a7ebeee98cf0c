#include "engine/executor/records.h"

#include <utility>

namespace sluice::executor {

void add_span(Trace* trace, const prefetch::Scoreboard& board, prefetch::OpRef op, Nanos begin,
              Nanos end) {
  if (trace == nullptr) return;
  const prefetch::Op& what = board.op(op);
  trace->add({what.lane, what.kind.id, place(op), begin, end});
}

void Records::finish(std::uint32_t instance, Nanos end, std::vector<Nanos> busy) {
  Record& record = kept_[instance - first_];
  record.finished = Finished{instance, record.tag, end, std::move(busy)};
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
