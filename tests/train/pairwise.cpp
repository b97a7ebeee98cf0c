#include "tests/train/pairwise.h"

#include <algorithm>
#include <numeric>
#include <optional>
#include <random>
#include <set>
#include <utility>

namespace sluice::train {
namespace {

using Pair = std::pair<Choice, Choice>;  // the lower axis first

class Cover {
 public:
  Cover(const std::vector<std::size_t>& values, const Fits& fits) : values_(values), fits_(fits) {
    for (std::size_t a = 0; a < values.size(); ++a) {
      for (std::size_t b = a + 1; b < values.size(); ++b) {
        for (std::size_t va = 0; va < values[a]; ++va) {
          for (std::size_t vb = 0; vb < values[b]; ++vb) {
            if (both_fit({a, va}, {b, vb})) left_.insert({{a, va}, {b, vb}});
          }
        }
      }
    }
  }

  std::vector<Row> rows() {
    std::vector<Row> rows;
    while (!left_.empty()) {
      const Pair wanted = *left_.begin();
      if (const auto row = best_with(wanted)) {
        for (const Pair& pair : pairs_of(*row)) left_.erase(pair);
        rows.push_back(*row);
      } else {
        left_.erase(wanted);  // some axis has no value that fits both
      }
    }
    return rows;
  }

 private:
  static constexpr int kTries = 30;

  bool both_fit(const Choice& a, const Choice& b) const { return fits_(a, b) && fits_(b, a); }

  static std::vector<Pair> pairs_of(const Row& row) {
    std::vector<Pair> pairs;
    for (std::size_t a = 0; a < row.size(); ++a) {
      for (std::size_t b = a + 1; b < row.size(); ++b) pairs.push_back({{a, row[a]}, {b, row[b]}});
    }
    return pairs;
  }

  std::size_t fresh(const Row& row) const {
    const auto pairs = pairs_of(row);
    return static_cast<std::size_t>(std::count_if(
        pairs.begin(), pairs.end(), [this](const Pair& pair) { return left_.contains(pair); }));
  }

  /// Of several tries, the row with most pairs that are still wanted.
  std::optional<Row> best_with(const Pair& wanted) {
    std::optional<Row> best;
    for (int i = 0; i < kTries; ++i) {
      const auto row = complete(wanted);
      if (row && (!best || fresh(*row) > fresh(*best))) best = row;
    }
    return best;
  }

  /// The other axes in random order, each with the value that meets most chosen ones anew.
  std::optional<Row> complete(const Pair& wanted) {
    std::vector<Choice> chosen{wanted.first, wanted.second};
    std::vector<std::size_t> axes(values_.size());
    std::iota(axes.begin(), axes.end(), 0U);
    std::shuffle(axes.begin(), axes.end(), random_);
    for (const std::size_t axis : axes) {
      if (axis == wanted.first.axis || axis == wanted.second.axis) continue;
      const auto choice = best_on(axis, chosen);
      if (!choice) return std::nullopt;
      chosen.push_back(*choice);
    }
    Row row(values_.size());
    for (const Choice& choice : chosen) row[choice.axis] = choice.value;
    return row;
  }

  std::optional<Choice> best_on(std::size_t axis, const std::vector<Choice>& chosen) {
    std::vector<std::size_t> order(values_[axis]);
    std::iota(order.begin(), order.end(), 0U);
    std::shuffle(order.begin(), order.end(), random_);  // ties fall on all values alike
    std::optional<Choice> best;
    std::ptrdiff_t most = -1;
    for (const std::size_t value : order) {
      const Choice choice{axis, value};
      if (!std::all_of(chosen.begin(), chosen.end(),
                       [&](const Choice& other) { return both_fit(choice, other); })) {
        continue;
      }
      const auto meets = std::count_if(chosen.begin(), chosen.end(), [&](const Choice& other) {
        return left_.contains(std::minmax(choice, other));
      });
      if (meets > most) {
        most = meets;
        best = choice;
      }
    }
    return best;
  }

  const std::vector<std::size_t>& values_;
  const Fits& fits_;
  std::set<Pair> left_;
  std::mt19937 random_{1};
};

}  // namespace

std::vector<Row> pairwise_cover(const std::vector<std::size_t>& values, const Fits& fits) {
  return Cover(values, fits).rows();
}

}  // namespace sluice::train
