#include <ATen/ops/zeros.h>
#include <c10/core/GradMode.h>
#include <fmt/format.h>

#include <utility>
#include <vector>

#include "engine/base/error.h"
#include "engine/model/blocks.h"
#include "engine/model/norm.h"
#include "engine/model/pieces.h"
#include "engine/model/products.h"
#include "engine/model/softmax.h"

namespace sluice::model {
namespace {

using shape::Role;

Role weight_role(const shape::Decoder& d) {
  return d.tied_embeddings ? Role::kTokenEmbedding : Role::kHeadWeight;
}

/// The head over normed inputs.
class Head {
 public:
  Head(at::Tensor weight_VH, at::Tensor n_NH, std::int64_t loss_chunk)
      : weight_VH_(std::move(weight_VH)), n_NH_(std::move(n_NH)), chunk_(loss_chunk) {
    SLUICE_CHECK(chunk_ > 0, kLogic, fmt::format("loss_chunk: asked {} columns", chunk_));
  }

  bool one_chunk() const { return chunk_ >= vocab(); }

  template <class Body>
  void for_columns(Body body) const {
    for_pieces(vocab(), chunk_, body);
  }

  at::Tensor logits(Columns columns) const { return product(n_NH_, columns.of(weight_VH_).t()); }
  at::Tensor logits_to(at::Tensor out_NC, Columns columns) const {
    product_to(out_NC, n_NH_, columns.of(weight_VH_).t());
    return out_NC;
  }
  /// Of what there is one of for each part of the vocabulary, that of these columns.
  const at::Tensor& part_of(const std::vector<at::Tensor>& parts, Columns columns) const {
    return parts[static_cast<std::size_t>(columns.begin / chunk_)];
  }

  /// Writes the weight gradient of these columns; returns their part of the gradient of n.
  at::Tensor backward(Columns columns, const at::Tensor& dlogits_NC,
                      const at::Tensor& dweight_VH) const {
    product_to(columns.of(dweight_VH), dlogits_NC.t(), n_NH_);
    return product(dlogits_NC, columns.of(weight_VH_));
  }

 private:
  std::int64_t vocab() const { return weight_VH_.size(0); }

  at::Tensor weight_VH_, n_NH_;
  std::int64_t chunk_;
};

template <class Logits>
Softmax see_all(const Head& head, const at::Tensor& targets_BS, Logits logits) {
  Softmax softmax(targets_BS);
  head.for_columns([&](Columns columns) { softmax.add(columns, logits(columns)); });
  return softmax;
}

/// The way there and back.
class Train {
 public:
  Train(const Head& head, const at::Tensor& targets_BS, const at::Tensor& scale,
        const at::Tensor& dweight_VH)
      : head_(head), targets_BS_(targets_BS), scale_(scale), dweight_VH_(dweight_VH) {}

  /// Each returns the gradient of the head's input.
  at::Tensor at_once(const at::Tensor& out_loss) const {
    Softmax softmax(targets_BS_);
    const Columns all{0, dweight_VH_.size(0)};
    at::Tensor logits = head_.logits(all);
    softmax.add(all, logits);
    softmax.write_loss_sum(out_loss);
    return backward(softmax, all, std::move(logits));
  }
  /// The second pass makes each part's logits again: they never exist all at once.
  at::Tensor in_parts(const at::Tensor& out_loss) const {
    const auto logits = [&](Columns columns) { return head_.logits(columns); };
    return in_parts(out_loss, logits, logits);
  }
  at::Tensor in_kept_parts(const std::vector<at::Tensor>& kept, const at::Tensor& out_loss) const {
    const auto again = [&](Columns columns) { return head_.part_of(kept, columns); };
    const auto first = [&](Columns columns) { return head_.logits_to(again(columns), columns); };
    return in_parts(out_loss, first, again);
  }

 private:
  template <class First, class Again>
  at::Tensor in_parts(const at::Tensor& out_loss, First first, Again again) const {
    const Softmax softmax = see_all(head_, targets_BS_, first);
    softmax.write_loss_sum(out_loss);
    at::Tensor dn = at::zeros({targets_BS_.numel(), dweight_VH_.size(1)},
                              dweight_VH_.options().dtype(at::kFloat));
    head_.for_columns(
        [&](Columns columns) { dn.add_(backward(softmax, columns, again(columns))); });
    return dn;
  }
  at::Tensor backward(const Softmax& softmax, Columns columns, at::Tensor logits) const {
    const at::Tensor dlogits =
        softmax.gradient(columns, std::move(logits), scale_).to(dweight_VH_.scalar_type());
    return head_.backward(columns, dlogits, dweight_VH_);
  }

  const Head& head_;
  const at::Tensor &targets_BS_, &scale_, &dweight_VH_;
};

}  // namespace

void head_train(const shape::Decoder& d, const ParamSource& params, const at::Tensor& x_BSH,
                const at::Tensor& targets_BS, const at::Tensor& scale, std::int64_t loss_chunk,
                const std::vector<at::Tensor>& logits, GradSink& grads, at::Tensor out_dx_BSH,
                at::Tensor out_loss) {
  const c10::NoGradGuard no_graph;
  const at::Tensor x = x_BSH.view({-1, d.hidden});
  Normed normed = forward(final_norm(d), params, x);
  at::Tensor dn;
  {
    const Head head(params.weight(weight_role(d)), std::exchange(normed.y_NH, {}), loss_chunk);
    const at::Tensor dweight = grads.gradient(weight_role(d));
    const Train train(head, targets_BS, scale, dweight);
    if (head.one_chunk()) {
      dn = train.at_once(out_loss);
    } else {
      dn = logits.empty() ? train.in_parts(out_loss) : train.in_kept_parts(logits, out_loss);
    }
  }
  backward_plus(final_norm(d), params, grads, x, normed, dn, /*plus_NH=*/{},
                out_dx_BSH.view({-1, d.hidden}));
}

void head_loss(const shape::Decoder& d, const ParamSource& params, const at::Tensor& x_BSH,
               const at::Tensor& targets_BS, std::int64_t loss_chunk, at::Tensor out_loss) {
  const c10::NoGradGuard no_graph;
  const at::Tensor x = x_BSH.view({-1, d.hidden});
  const Head head(params.weight(weight_role(d)), forward(final_norm(d), params, x).y_NH,
                  loss_chunk);
  const auto logits = [&](Columns columns) { return head.logits(columns); };
  see_all(head, targets_BS, logits).write_loss_sum(out_loss);
}

}  // namespace sluice::model
