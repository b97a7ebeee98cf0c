/// SLUICE_DEVICE: in front of a function that a device runs too, where nvcc compiles it.
#pragma once

#ifdef __CUDACC__
#define SLUICE_DEVICE __host__ __device__
#else
#define SLUICE_DEVICE
#endif
