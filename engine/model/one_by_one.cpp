#include "engine/model/one_by_one.h"

#include <ATen/ops/empty.h>

#include "engine/tensor/workspace.h"

namespace sluice::model {
namespace {

/// [B, h, S, ...] -> [1, h, tokens, ...], a view.
at::Tensor part(const at::Tensor& t, const Document& document) {
  return t.narrow(0, document.row, 1).narrow(2, document.begin, document.tokens);
}

Heads part(const Heads& heads, const Document& document) {
  return {part(heads.q, document), part(heads.k, document), part(heads.v, document)};
}

}  // namespace

at::Tensor token_by_token(const at::Tensor& like_BhSD) {
  return at::empty({like_BhSD.size(0), like_BhSD.size(2), like_BhSD.size(1), like_BhSD.size(3)},
                   like_BhSD.options())
      .transpose(1, 2);
}

Looked look_one_by_one(const Heads& heads, const Documents& documents, std::int64_t window) {
  if (documents.are_rows(heads.q.size(0))) return look(heads, window);
  const at::Tensor& q = heads.q;
  const Looked all{token_by_token(q),
                   at::empty({q.size(0), q.size(1), q.size(2)}, q.options().dtype(at::kFloat))};
  for (const Document& document : documents.all) {
    const tensor::Stack stack;
    const Looked looked = look(part(heads, document), window);
    part(all.out, document).copy_(looked.out);
    part(all.logsumexp, document).copy_(looked.logsumexp);
  }
  return all;
}

Heads look_one_by_one_backward(const Heads& heads, const Looked& looked, const at::Tensor& dout,
                               const Documents& documents, std::int64_t window) {
  if (documents.are_rows(heads.q.size(0))) return look_backward(heads, looked, dout, window);
  const Heads all{token_by_token(heads.q), token_by_token(heads.k), token_by_token(heads.v)};
  for (const Document& document : documents.all) {
    const tensor::Stack stack;
    const Heads gradients = look_backward(
        part(heads, document), {part(looked.out, document), part(looked.logsumexp, document)},
        part(dout, document), window);
    part(all.q, document).copy_(gradients.q);
    part(all.k, document).copy_(gradients.k);
    part(all.v, document).copy_(gradients.v);
  }
  return all;
}

}  // namespace sluice::model
