#include "engine/schedule/gradients.h"

namespace sluice::schedule {

using enum Operand;

Buffers GradientWriter::contributions(int b) {
  Buffers all;
  for (const int s : block(b).segments) all.push_back(contribution(s, b));
  return all;
}

BufferId GradientWriter::contribution(int s, int b) {
  if (route(s).written_at_home()) return new_gradient(s, b);
  const PoolBySize& pools =
      route(s).written_staged(b > 0) ? catalog_.staged : catalog_.contributions;
  const Bytes bytes = segment_bytes(s);
  return transient(pools.at(bytes), bytes);
}

/// A buffer at home for all of a segment's gradient by this block. Where updates are delayed it
/// stays; of a tied segment's two that of the embedding, into which the other is added.
BufferId GradientWriter::new_gradient(int s, int b) {
  const bool whole = route(s).uses == 1 || b == 0;
  if (setup_.delays() && whole) return catalog_.pending[static_cast<std::size_t>(s)];
  const Bytes bytes = setup_.segment_elems(s) * size_of(route(s).dtype);
  return transient(catalog_.gradients.at(bytes), bytes);
}

bool GradientWriter::collected(Where where, int b, BufferId contribution) {
  const int s = where.segment;
  contribution = brought_home(where, b, contribution);
  if (!route(s).summed) {
    gradient(s).of_use[b] = contribution;
  } else if (waits(s, b)) {
    gradient(s).later = contribution;
  } else {
    add(where, b, contribution);
    if (gradient(s).later) add(where, b, *gradient(s).later);
  }
  if (++gradient(s).collected < setup_.micro_batches * route(s).uses) return false;
  complete(s);
  return true;
}

BufferId GradientWriter::brought_home(Where where, int b, BufferId contribution) {
  const int s = where.segment;
  if (!route(s).offloaded) return contribution;
  const Bytes bytes = segment_bytes(s);
  const BufferId to =
      route(s).staged() ? transient(catalog_.staged.at(bytes), bytes) : new_gradient(s, b);
  copy(OpId::kOffloadGradient, where, contribution, to);
  return to;
}

/// The first is assigned, so that no zeros are added.
void GradientWriter::add(Where where, int b, BufferId contribution) {
  const int s = where.segment;
  auto& of_use = gradient(s).of_use;
  const bool first = !of_use.contains(b);
  if (first) of_use[b] = new_gradient(s, b);
  arithmetic(first ? OpId::kStartSum : OpId::kAccumulate, route(s).home, where,
             {{kContribution, contribution}, {kSum, of_use[b]}}, sum_cost(s, 2));
}

void GradientWriter::complete(int s) {
  const Buffers all = add_uses(s);
  take_norms(s, all);
  if (!setup_.delays()) keep_parts(s, all);
}

/// In a sum that is there: the embedding's, whose block has the lower number. Or, where they stay
/// apart, not at all: both, in this order.
Buffers GradientWriter::add_uses(int s) {
  const auto& of_use = gradient(s).of_use;
  const BufferId first = of_use.begin()->second, last = of_use.rbegin()->second;
  if (of_use.size() == 1) return {first};
  if (route(s).apart) return {first, last};
  arithmetic(OpId::kAddUses, route(s).home, {.segment = s}, {{kSum, first}, {kOtherUse, last}},
             sum_cost(s, 3));
  return {first};
}

void GradientWriter::take_norms(int s, const Buffers& all) {
  const bool on_device = separate() && route(s).home == prefetch::Tier::kGpu;
  const std::uint64_t elems = setup_.segment_elems(s);
  BufferId& norms = norms_[static_cast<std::size_t>(s)];
  norms = transient(on_device ? catalog_.device_norms : catalog_.norms, norm_bytes(elems));
  const Bytes read = elems * size_of(route(s).dtype) * all.size();
  arithmetic(OpId::kNorm, route(s).home, {.segment = s}, {{kGradient, all}, {kNorms, norms}},
             {.bytes = static_cast<double>(read)});
  if (on_device) norms = moved(OpId::kOffloadNorms, {.segment = s}, norms, catalog_.norms);
}

void GradientWriter::keep_parts(int s, const Buffers& all) {
  const Bytes elem = size_of(route(s).dtype);
  for (const zero::Chunk& c : setup_.chunks[static_cast<std::size_t>(s)]) {
    Buffers& parts = gradient(s).parts.emplace_back();
    for (const BufferId term : all) {
      parts.push_back(part_of(term, c.first_elem * elem, c.elems * elem));
    }
  }
}

Buffers GradientWriter::chunk_gradient(Where where) {
  if (setup_.delays()) return {home_gradient(where)};
  return gradient(where.segment).parts[static_cast<std::size_t>(where.chunk)];
}

}  // namespace sluice::schedule
