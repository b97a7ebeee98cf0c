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

void GradientWriter::add(Where where, int b, BufferId contribution) {
  auto& of_use = gradient(where.segment).of_use;
  const bool first = !of_use.contains(b);
  if (first) of_use[b] = new_gradient(where.segment, b);
  add_to(of_use[b], where, contribution, first);
}

/// The first is assigned, so that no zeros are added.
void GradientWriter::add_to(BufferId sum, Where where, BufferId contribution, bool first) {
  arithmetic(first ? OpId::kStartSum : OpId::kAccumulate, route(where.segment).home, where,
             {{kContribution, contribution}, {kSum, sum}}, sum_cost(where, 2));
}

void GradientWriter::complete(int s) {
  const bool on_device = separate() && route(s).home == prefetch::Tier::kGpu;
  BufferId& norms = norms_[static_cast<std::size_t>(s)];
  norms = transient(on_device ? catalog_.device_norms : catalog_.norms,
                    norm_bytes(setup_.segment_elems(s)));
  if (route(s).apart) {
    take_norms_by_chunk(s, norms);
  } else {
    const BufferId whole = add_uses(s);
    take_norms({.segment = s}, whole, norms);
    keep_parts(s, setup_.delays() ? catalog_.pending_chunks[static_cast<std::size_t>(s)]
                                  : parts_of(s, whole, size_of(route(s).dtype)));
  }
  if (on_device) norms = moved(OpId::kOffloadNorms, {.segment = s}, norms, catalog_.norms);
}

/// In a sum that is there: the embedding's, whose block has the lower number.
BufferId GradientWriter::add_uses(int s) {
  const auto& of_use = gradient(s).of_use;
  const BufferId whole = of_use.begin()->second;
  if (of_use.size() > 1) {
    arithmetic(OpId::kAddUses, route(s).home, {.segment = s},
               {{kSum, whole}, {kOtherUse, of_use.rbegin()->second}}, sum_cost({.segment = s}, 3));
  }
  return whole;
}

void GradientWriter::take_norms(Where where, BufferId gradient, BufferId norms) {
  const GradientRoute& of = route(where.segment);
  arithmetic(OpId::kNorm, of.home, where, {{kGradient, gradient}, {kNorms, norms}},
             {.bytes = static_cast<double>(elems_of(where) * size_of(of.dtype))});
}

/// Of sums that live only for this.
void GradientWriter::take_norms_by_chunk(int s, BufferId norms) {
  for (const auto& [b, contribution] : gradient(s).of_use) {
    keep_parts(s, parts_of(s, contribution, size_of(setup_.compute)));
  }
  for (int c = 0; c < chunks(s); ++c) {
    const Where where{.segment = s, .chunk = c};
    const zero::Chunk& of = chunk(where);
    const BufferId part = part_of(norms, norm_bytes(of.first_elem), norm_bytes(of.elems));
    take_norms(where, chunk_gradient(where), part);
  }
}

void GradientWriter::keep_parts(int s, const Buffers& parts) {
  auto& all = gradient(s).parts;
  all.resize(parts.size());
  for (std::size_t c = 0; c < parts.size(); ++c) all[c].push_back(parts[c]);
}

Buffers GradientWriter::parts_of(int s, BufferId all, Bytes elem) {
  Buffers parts;
  for (const zero::Chunk& c : setup_.chunks[static_cast<std::size_t>(s)]) {
    parts.push_back(part_of(all, c.first_elem * elem, c.elems * elem));
  }
  return parts;
}

BufferId GradientWriter::chunk_gradient(Where where) {
  const Buffers& parts = gradient(where.segment).parts[static_cast<std::size_t>(where.chunk)];
  if (!route(where.segment).apart) return parts.front();
  const Bytes bytes = chunk(where).elems * size_of(DType::kF32);
  const BufferId sum = transient(catalog_.summed_chunks.at(bytes), bytes);
  for (const BufferId part : parts) add_to(sum, where, part, part == parts.front());
  return sum;
}

}  // namespace sluice::schedule
