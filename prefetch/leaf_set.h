/// Leaves, without repeats: as many as an op names, in the memory of a few ranges.
#pragma once

#include <cstddef>
#include <iterator>
#include <vector>

#include "prefetch/residents.h"

namespace sluice::prefetch {

class LeafSet {
 public:
  LeafSet() = default;
  /// Of ranges in any order, that may overlap.
  explicit LeafSet(std::vector<LeafRange> ranges);

  /// Every leaf, in ascending order.
  class Iterator {
   public:
    using iterator_category = std::forward_iterator_tag;
    using value_type = LeafId;
    using difference_type = std::ptrdiff_t;
    using pointer = const LeafId*;
    using reference = LeafId;

    Iterator() = default;
    Iterator(const LeafRange* range, const LeafRange* end) : range_(range), end_(end) { enter(); }
    LeafId operator*() const { return leaf_; }
    Iterator& operator++() {
      if (++leaf_ == range_->end) {
        ++range_;
        enter();
      }
      return *this;
    }
    Iterator operator++(int) {
      Iterator before = *this;
      ++*this;
      return before;
    }
    friend bool operator==(const Iterator& a, const Iterator& b) {
      return a.range_ == b.range_ && a.leaf_ == b.leaf_;
    }

   private:
    void enter() { leaf_ = range_ == end_ ? 0 : range_->begin; }

    const LeafRange* range_ = nullptr;
    const LeafRange* end_ = nullptr;
    LeafId leaf_ = 0;
  };
  using value_type = LeafId;
  using const_iterator = Iterator;
  Iterator begin() const { return {ranges_.data(), ranges_.data() + ranges_.size()}; }
  Iterator end() const {
    return {ranges_.data() + ranges_.size(), ranges_.data() + ranges_.size()};
  }
  bool contains(LeafId leaf) const;
  /// How many leaves.
  std::size_t size() const;
  /// Disjoint and apart, in ascending order.
  const std::vector<LeafRange>& ranges() const { return ranges_; }

 private:
  std::vector<LeafRange> ranges_;
};

}  // namespace sluice::prefetch
