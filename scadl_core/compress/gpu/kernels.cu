// The kernels that scadl_core/compress/gpu/backend.py launches: blocks of 256, a tile for each group
// of 32 lanes.
#include "decode.cuh"

// Keys that order as the values do: largest of minus the key, of the key, of minus the smallest
// magnitude above zero; see scadl_core/compress/cpu/chunks.py.
template <class T> DEVICE void scan(const typename T::Pattern* x, u64 count, i64* found) {
  constexpr i64 top = (i64)T::infinity;
  i64 low = top, high = -top, least = top;
  for (u64 i = (u64)blockIdx.x * blockDim.x + threadIdx.x; i < count;
       i += (u64)gridDim.x * blockDim.x) {
    const typename T::Word bits = x[i];
    const i64 size = (i64)(bits & (T::sign - 1)), key = bits & T::sign ? -size : size;
    if (size < top && key < low) low = key;
    if (size < top && key > high) high = key;
    if (size > 0 && size < least) least = size;
  }
  low = -max_of(-low), high = max_of(high), least = -max_of(-least);
  if (lane_id() == 0) {
    atomicMin(found, low);
    atomicMax(found + 1, high);
    atomicMin(found + 2, least);
  }
}

#define LAW                                                                                  \
  u32 kind, u32 predictor, u32 width, u32 dithered, u32 seed, u32 shift, u64 base,           \
      double inverse, double step, double tolerance
#define LAW_OF {kind, predictor, width, dithered, seed, shift, base, inverse, step, tolerance}

// At most 64 registers a lane, so that 32 warps are resident.
#define KERNELS(name, T)                                                                     \
  extern "C" __global__ void __launch_bounds__(256, 4)                                       \
      encode_##name(const T::Pattern* x, u64 count, u32 tiles, u32 stride, LAW, u64* states, \
                    u64* cursor, u32 per_base, u32* words, u64 capacity, u16* descriptors,   \
                    u64* bases, u64* stats) {                                                \
    const Law law = LAW_OF;                                                                  \
    encode<T>(x, count, tiles, stride, law, states, cursor, per_base, words, capacity,       \
              descriptors, bases, stats);                                                    \
  }                                                                                          \
  extern "C" __global__ void __launch_bounds__(256, 4)                                       \
      decode_##name(const u32* words, u64 limit, const u16* descriptors, const u64* bases,   \
                    u32 per_base, u32 tiles, LAW, T::Pattern* x, u64 count, u32 first,       \
                    u64* damaged) {                                                          \
    const Law law = LAW_OF;                                                                  \
    decode<T>(words, limit, descriptors, bases, per_base, tiles, law, x, count, first,       \
              damaged);                                                                      \
  }                                                                                          \
  extern "C" __global__ void __launch_bounds__(256)                                          \
      scan_##name(const T::Pattern* x, u64 count, i64* found) {                              \
    scan<T>(x, count, found);                                                                \
  }

KERNELS(float32, Float32)
KERNELS(float64, Float64)
KERNELS(float16, Float16)
KERNELS(bfloat16, BFloat16)
