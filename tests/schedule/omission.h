/// A program with one of its declared accesses left out: what a forgotten dependency looks like.
#pragma once

#include <array>
#include <compare>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <ostream>
#include <vector>

#include "engine/schedule/ops.h"
#include "prefetch/program.h"

namespace sluice::testing {

enum class Declared : std::uint8_t {
  kRead,
  kWrite,
  kPredicate  ///< the read of the record that says whether the op does its work
};

/// The n-th read or write of an op, or its predicate.
struct Omission {
  std::size_t op = 0;
  Declared access = Declared::kRead;
  std::size_t n = 0;
};

/// Every single one of a program.
inline std::vector<Omission> omissions_of(const prefetch::Program& program) {
  std::vector<Omission> all;
  for (std::size_t i = 0; i < program.ops().size(); ++i) {
    const prefetch::Op& op = program.ops()[i];
    for (std::size_t n = 0; n < op.reads.size(); ++n) all.push_back({i, Declared::kRead, n});
    for (std::size_t n = 0; n < op.writes.size(); ++n) all.push_back({i, Declared::kWrite, n});
    if (op.predicate) all.push_back({i, Declared::kPredicate});
  }
  return all;
}

inline prefetch::BufferId buffer_of(const prefetch::Program& program, const Omission& left_out) {
  const prefetch::Op& op = program.ops()[left_out.op];
  if (left_out.access == Declared::kPredicate) return op.predicate->record;
  return (left_out.access == Declared::kRead ? op.reads : op.writes)[left_out.n];
}

/// Which operand of which kind of op, and how it is used.
struct AccessKind {
  schedule::OpId op;
  Declared access;
  schedule::Operand operand;
  friend auto operator<=>(const AccessKind&, const AccessKind&) = default;
  friend std::ostream& operator<<(std::ostream& out, const AccessKind& kind) {
    static constexpr std::array kAccess = {"read", "write", "predicate"};
    return out << schedule::row_of(kind.op).name << "'s "
               << kAccess[static_cast<std::size_t>(kind.access)] << " of operand "
               << static_cast<int>(kind.operand);
  }
};

inline AccessKind kind_of(const prefetch::Program& program, const Omission& left_out) {
  const prefetch::Op& op = program.ops()[left_out.op];
  const schedule::OpId id = schedule::id_of(op);
  switch (left_out.access) {
    case Declared::kRead:
      return {id, left_out.access, schedule::read_name(op, left_out.n)};
    case Declared::kWrite:
      return {id, left_out.access, schedule::write_name(op, left_out.n)};
    case Declared::kPredicate:
      break;
  }
  return {id, left_out.access, schedule::Operand::kRecord};
}

/// The same buffers, and each op as `change` leaves it.
using Change = std::function<void(std::size_t, prefetch::Op&)>;
inline std::shared_ptr<const prefetch::Program> rewritten(
    const prefetch::Program& program, const std::shared_ptr<const prefetch::Residents>& residents,
    const Change& change) {
  auto copy = std::make_shared<prefetch::Program>(program.name(), residents);
  const prefetch::BufferTable& table = program.transients();
  for (auto id = table.first_buffer(); id < table.end_buffer(); ++id) {
    if (table.root(id) == id) {
      copy->buffer(table.info(id));
    } else {
      copy->part_of(table.root(id), table.offset(id), table.info(id).bytes);
    }
  }
  for (std::size_t i = 0; i < program.ops().size(); ++i) {
    prefetch::Op op = program.ops()[i];
    change(i, op);
    copy->op(std::move(op));
  }
  copy->seal();
  return copy;
}

/// The op does not declare it any more.
inline void leave_out(prefetch::Op& op, const Omission& omission) {
  const auto at = static_cast<std::ptrdiff_t>(omission.n);
  if (omission.access == Declared::kPredicate) {
    op.predicate.reset();
  } else if (omission.access == Declared::kRead) {
    op.reads.erase(op.reads.begin() + at);
    op.names.erase(op.names.begin() + at);
  } else {
    op.writes.erase(op.writes.begin() + at);
    op.names.erase(op.names.begin() + static_cast<std::ptrdiff_t>(op.reads.size()) + at);
  }
}

}  // namespace sluice::testing
