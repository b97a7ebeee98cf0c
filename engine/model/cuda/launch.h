/// Bodies of fused/team.h on the device, on the stream whose work the caller is in.
#pragma once

#include "engine/model/fused/team.h"
#include "gpu/cuda/answer.h"
#include "gpu/cuda/current.h"

namespace sluice::model::cuda {

/// The value of the thread it is in.
template <class V>
struct Lane {
  V value;
  template <class Op>
  __device__ void meet(int apart, Op op) {
    constexpr unsigned kAll = 0xffffffffU;
    value = op(value, __shfl_xor_sync(kAll, value, apart));
  }
};

/// As many threads of a block as it takes, side by side: a warp of it, or all.
template <int kTeam>
struct Team {
  static constexpr int kThreads = kTeam;
  static constexpr int kWarps = kTeam / fused::kLanes;

  template <class V>
  struct Each {
    V mine;
    __device__ V& operator[](int) { return mine; }
    __device__ const V& operator[](int) const { return mine; }
  };

  __device__ static int thread() { return static_cast<int>(threadIdx.x) % kTeam; }

  template <class Body>
  __device__ void each(Body body) const {
    body(thread());
  }
  template <class Of>
  __device__ auto sum(Of of) const {
    return fold(of(thread()), fused::Plus{});
  }
  template <class Of>
  __device__ float greatest(Of of) const {
    return fold(of(thread()), fused::Greater{});
  }

  /// Warp by warp, then the warps' values in the same way; where there are fewer than lanes, the
  /// others have none.
  template <class V, class Op>
  __device__ static V fold(V value, Op op) {
    Lane<V> lane{value};
    fused::fold_lanes(lane, op);
    if constexpr (kWarps > 1) {
      __shared__ V of_warps[kWarps];
      const int warp = thread() / fused::kLanes, in_warp = thread() % fused::kLanes;
      if (in_warp == 0) of_warps[warp] = lane.value;
      __syncthreads();
      lane.value = in_warp < kWarps ? of_warps[in_warp] : static_cast<V>(Op::kNone);
      __syncthreads();
      fused::fold_lanes(lane, op);
    }
    return lane.value;
  }
};

inline constexpr int kBlock = fused::kWholeBlock;

template <class Body>
__global__ void __launch_bounds__(kBlock) each_kernel(std::int64_t n, const Body body) {
  const std::int64_t i = std::int64_t{blockIdx.x} * kBlock + threadIdx.x;
  if (i < n) body(i);
}

template <int kTeam, class Body>
__global__ void __launch_bounds__(kBlock) team_kernel(std::int64_t n, const Body body) {
  constexpr int kTeams = kBlock / kTeam;
  const std::int64_t i = std::int64_t{blockIdx.x} * kTeams + threadIdx.x / kTeam;
  if (i < n) body(Team<kTeam>{}, i);  // a team goes on, or not, as one
}

class Launch {
 public:
  template <class Body>
  void each(std::int64_t n, const Body& body) const {
    if (n == 0) return;
    each_kernel<<<blocks(n, kBlock), kBlock, 0, stream_>>>(n, body);
    gpu::cuda::check(cudaPeekAtLastError(), "a kernel's launch");
  }
  template <int kTeam, class Body>
  void teams(std::int64_t n, const Body& body) const {
    if (n == 0) return;
    team_kernel<kTeam><<<blocks(n, kBlock / kTeam), kBlock, 0, stream_>>>(n, body);
    gpu::cuda::check(cudaPeekAtLastError(), "a kernel's launch");
  }

 private:
  static unsigned blocks(std::int64_t n, std::int64_t per_block) {
    return static_cast<unsigned>((n + per_block - 1) / per_block);
  }
  cudaStream_t stream_ = gpu::cuda::current_stream();
};

}  // namespace sluice::model::cuda
