// Groups of 32 lanes, one a tile, whatever the width of the hardware's warp: with 64 lanes two tiles
// share a warp and may take different branches, so nothing here looks at the other half.
#pragma once

typedef unsigned short u16;
typedef unsigned int u32;
typedef unsigned long long u64;
typedef long long i64;

#ifndef SCADL_SHARED
#define SCADL_SHARED(type, name) __shared__ type name
#endif
#define DEVICE __device__ __forceinline__

constexpr u32 ALL = 0xFFFFFFFFu;

DEVICE u32 lane_id() { return threadIdx.x & 31; }

#if SCADL_LANES == 32
DEVICE u32 ballot(bool vote) { return __ballot_sync(ALL, vote); }
template <class V> DEVICE V shuffle(V value, u32 lane) { return __shfl_sync(ALL, value, lane); }
template <class V> DEVICE V shuffle_up(V value, u32 by) { return __shfl_up_sync(ALL, value, by); }
template <class V> DEVICE V shuffle_xor(V value, u32 by) { return __shfl_xor_sync(ALL, value, by); }
DEVICE void fence() { __syncwarp(); }
DEVICE void pause() { __nanosleep(20); }
DEVICE u64 observed(u64* word) { return *(volatile u64*)word; }
#elif SCADL_LANES == 64
DEVICE u32 ballot(bool vote) { return (u32)(__ballot(vote) >> (threadIdx.x & 32)); }
template <class V> DEVICE V shuffle(V value, u32 lane) { return __shfl(value, (int)lane, 32); }
template <class V> DEVICE V shuffle_up(V value, u32 by) { return __shfl_up(value, by, 32); }
template <class V> DEVICE V shuffle_xor(V value, u32 by) { return __shfl_xor(value, (int)by, 32); }
DEVICE void fence() { __threadfence_block(); __builtin_amdgcn_wave_barrier(); }
DEVICE void pause() { __builtin_amdgcn_s_sleep(1); }
DEVICE u64 observed(u64* word) { return atomicAdd(word, 0ull); }
#else
#error "SCADL_LANES is 32 or 64"
#endif

template <class V> DEVICE V sum_of(V value) {
#pragma unroll
  for (u32 by = 16; by; by >>= 1) value += shuffle_xor(value, by);
  return value;
}

template <class V> DEVICE V max_of(V value) {
#pragma unroll
  for (u32 by = 16; by; by >>= 1) {
    const V other = shuffle_xor(value, by);
    value = value > other ? value : other;
  }
  return value;
}

// Sum over this lane and those before it.
DEVICE u32 running_sum(u32 value) {
#pragma unroll
  for (u32 by = 1; by < 32; by <<= 1) {
    const u32 other = shuffle_up(value, by);
    if (lane_id() >= by) value += other;
  }
  return value;
}

DEVICE u32 bit_length(u32 value) { return 32 - __clz((int)value); }

// Transposes 32 x 32 bits by swapping ever smaller blocks (Warren, Hacker's Delight, section 7-3).
// The cost does not depend on how many planes there are, and it is its own inverse.
DEVICE void transpose(u32 (&bits)[32]) {
#pragma unroll
  for (u32 stage = 0; stage < 5; ++stage) {
    const u32 by = 16 >> stage;
    const u32 keep = ALL / ((1u << by) + 1);
#pragma unroll
    for (u32 k = 0; k < 32; ++k) {
      if (k & by) continue;
      const u32 swapped = ((bits[k] >> by) ^ bits[k + by]) & keep;
      bits[k + by] ^= swapped;
      bits[k] ^= swapped << by;
    }
  }
}

DEVICE u32 union_of(const u32 (&values)[32]) {
  u32 all = 0;
#pragma unroll
  for (u32 k = 0; k < 32; ++k) all |= values[k];
  return all;
}
