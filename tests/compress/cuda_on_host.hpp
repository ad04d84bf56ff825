// Enough of CUDA (32 lanes) or HIP (64 lanes) to run the kernels with a C++ compiler: several blocks
// are resident at once, every lane is a fiber that runs to its next collective, and warps go on in an
// order drawn from a seed. So a wait that nobody ends shows here, and so does a missing barrier unless
// a collective stands in its place: here that orders memory, too, which on a device it need not.
#pragma once
#include <setjmp.h>
#include <stdint.h>
#include <ucontext.h>

#include <cmath>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <functional>
#include <memory>
#include <utility>
#include <vector>

#define __global__
#define __device__
#define __forceinline__ inline
#define __launch_bounds__(...)
#define SCADL_SHARED(type, name) type& name = *static_cast<type*>(host::shared(sizeof(type)))

struct Index { unsigned x, y, z; };
static Index threadIdx, blockIdx, blockDim, gridDim;

namespace host {
constexpr unsigned RESIDENT = 3, THREADS = 256, STACK = 1 << 17;
enum State { READY, IN_COLLECTIVE, AT_BARRIER, DONE };

struct Lane {
  jmp_buf here;
  State state = DONE;
  unsigned turn = 0;  // collectives so far: values are kept for two of them
  uint64_t value[2];
  std::unique_ptr<char[]> stack;
};

struct Block {
  unsigned index;
  Lane lanes[THREADS];
  std::vector<char> memory;
};

static Block blocks[RESIDENT];
static Block* block;
static unsigned lane;
static uint64_t random_state;
static std::function<void()> body;
static jmp_buf scheduler;
static ucontext_t boot, birth;

inline uint64_t draw() {  // splitmix64
  uint64_t z = random_state += 0x9E3779B97F4A7C15u;
  z = (z ^ z >> 30) * 0xBF58476D1CE4E5B9u;
  z = (z ^ z >> 27) * 0x94D049BB133111EBu;
  return z ^ z >> 31;
}

inline void* shared(size_t size) {
  if (block->memory.empty()) {  // what shared memory holds at first is anybody's guess
    block->memory.resize(size);
    for (char& byte : block->memory) byte = static_cast<char>(draw());
  }
  return block->memory.data();
}

inline void leave() {
  if (!_setjmp(block->lanes[lane].here)) _longjmp(scheduler, 1);
}

inline void fiber() {
  Block* mine = block;
  const unsigned me = lane;
  if (!_setjmp(mine->lanes[me].here)) swapcontext(&birth, &boot);
  for (;;) {
    body();
    mine->lanes[me].state = DONE;
    leave();
  }
}

inline void prepare(unsigned b, unsigned l) {
  Lane& one = blocks[b].lanes[l];
  if (one.stack) return;
  one.stack.reset(new char[STACK]);
  block = &blocks[b], lane = l;
  getcontext(&birth);
  birth.uc_stack.ss_sp = one.stack.get();
  birth.uc_stack.ss_size = STACK;
  birth.uc_link = nullptr;
  makecontext(&birth, fiber, 0);
  swapcontext(&boot, &birth);
}

inline void resume(Block& which, unsigned l) {
  block = &which, lane = l;
  threadIdx = {l, 0, 0}, blockIdx = {which.index, 0, 0};
  if (!_setjmp(scheduler)) _longjmp(which.lanes[l].here, 1);
}

// Lets those go on who have all arrived; lanes that have ended are not waited for.
inline bool release(Block& which, unsigned first, unsigned count, State waiting) {
  bool any = false;
  for (unsigned l = first; l < first + count; ++l) {
    const State state = which.lanes[l].state;
    if (state != waiting && state != DONE) return false;
    any |= state == waiting;
  }
  for (unsigned l = first; l < first + count; ++l)
    if (which.lanes[l].state == waiting) which.lanes[l].state = READY;
  return any;
}

inline bool step(Block& which) {
  bool moved = release(which, 0, blockDim.x, AT_BARRIER);
  for (unsigned first = 0; first < blockDim.x; first += 32) {
    if (draw() % 4 == 0) {  // this warp is slow today
      moved = true;
      continue;
    }
    moved |= release(which, first, 32, IN_COLLECTIVE);
    const unsigned turn = draw() % 32;
    for (unsigned k = 0; k < 32; ++k) {
      const unsigned l = first + (k + turn) % 32;
      if (which.lanes[l].state == READY) resume(which, l), moved = true;
    }
  }
  return moved;
}

inline bool ended(const Block& which) {
  for (unsigned l = 0; l < blockDim.x; ++l)
    if (which.lanes[l].state != DONE) return false;
  return true;
}

inline void begin(Block& which, unsigned index) {
  which.index = index;
  which.memory.clear();
  for (unsigned l = 0; l < blockDim.x; ++l) which.lanes[l].state = READY, which.lanes[l].turn = 0;
}

template <class... A, size_t... I>
void set_body(void (*kernel)(A...), void** args, std::index_sequence<I...>) {
  body = [=] { kernel(*static_cast<std::remove_cv_t<A>*>(args[I])...); };
}

// Runs `kernel` with arguments passed as cuLaunchKernel takes them; blocks start in any order.
template <class... A>
void launch(void (*kernel)(A...), unsigned grid, unsigned threads, void** args, uint64_t seed) {
  set_body(kernel, args, std::index_sequence_for<A...>());
  random_state = seed;
  gridDim = {grid, 1, 1}, blockDim = {threads, 1, 1};
  std::vector<unsigned> order(grid);
  for (unsigned k = 0; k < grid; ++k) order[k] = k;
  for (unsigned k = grid; k > 1; --k) std::swap(order[k - 1], order[draw() % k]);
  unsigned begun = 0, over = 0;
  bool running[RESIDENT] = {};
  while (over < grid) {
    bool moved = false;
    for (unsigned b = 0; b < RESIDENT; ++b) {
      if (!running[b] && begun < grid) {
        for (unsigned l = 0; l < threads; ++l) prepare(b, l);
        begin(blocks[b], order[begun++]), running[b] = true;
      }
      if (!running[b]) continue;
      moved |= step(blocks[b]);
      if (ended(blocks[b])) running[b] = false, ++over, moved = true;
    }
    if (!moved) fprintf(stderr, "a block waits at a barrier that others never reach\n"), abort();
  }
}

// Everyone's value of this collective, in the group of 32 lanes.
inline unsigned exchange(uint64_t value) {
  Lane& mine = block->lanes[lane];
  const unsigned slot = mine.turn++ & 1;
  mine.value[slot] = value;
  mine.state = IN_COLLECTIVE;
  leave();
  return slot;
}

inline unsigned vote(bool mine) {
  const unsigned slot = exchange(mine), first = lane & ~31u;
  unsigned all = 0;
  for (unsigned k = 0; k < 32; ++k) all |= unsigned(block->lanes[first + k].value[slot] & 1) << k;
  return all;
}

template <class V> V from(V value, unsigned source) {
  uint64_t bits = 0;
  memcpy(&bits, &value, sizeof value);
  const unsigned slot = exchange(bits);
  memcpy(&value, &block->lanes[(lane & ~31u) + source].value[slot], sizeof value);
  return value;
}

template <class V> V up(V value, unsigned by) {
  const unsigned mine = lane & 31;
  return from(value, mine >= by ? mine - by : mine);
}
}  // namespace host

inline void __syncthreads() {
  host::block->lanes[host::lane].state = host::AT_BARRIER;
  host::leave();
}

#if SCADL_LANES == 32
inline unsigned __ballot_sync(unsigned, bool vote) { return host::vote(vote); }
template <class V> V __shfl_sync(unsigned, V v, unsigned l) { return host::from(v, l & 31); }
template <class V> V __shfl_up_sync(unsigned, V v, unsigned by) { return host::up(v, by); }
template <class V> V __shfl_xor_sync(unsigned, V v, unsigned by) {
  return host::from(v, (host::lane & 31) ^ by);
}
inline void __syncwarp() { host::exchange(0); }
inline void __nanosleep(unsigned) { host::exchange(0); }
#else
inline uint64_t __ballot(bool vote) {  // the other half may vote on anything or not at all
  const uint64_t mine = host::vote(vote), other = host::draw() >> 32;
  return host::lane & 32 ? mine << 32 | other : other << 32 | mine;
}
template <class V> V __shfl(V v, int l, int) { return host::from(v, l & 31); }
template <class V> V __shfl_up(V v, unsigned by, int) { return host::up(v, by); }
template <class V> V __shfl_xor(V v, int by, int) { return host::from(v, (host::lane & 31) ^ by); }
inline void __threadfence_block() {}
inline void __builtin_amdgcn_wave_barrier() { host::exchange(0); }
inline void __builtin_amdgcn_s_sleep(int) { host::exchange(0); }
#endif

template <class V> V change(V* at, V value) {
  const V old = *at;
  *at = value;
  return old;
}
template <class V> V atomicAdd(V* at, V by) { return change(at, V(*at + by)); }
template <class V> V atomicExch(V* at, V value) { return change(at, value); }
template <class V> V atomicMax(V* at, V v) { return change(at, v > *at ? v : *at); }
template <class V> V atomicMin(V* at, V v) { return change(at, v < *at ? v : *at); }

inline int __clz(int x) { return x ? __builtin_clz(unsigned(x)) : 32; }
inline int __popc(unsigned x) { return __builtin_popcount(x); }
inline int __ffs(int x) { return __builtin_ffs(x); }
inline float __fmul_rn(float a, float b) { return a * b; }
inline float __fadd_rn(float a, float b) { return a + b; }
inline double __dmul_rn(double a, double b) { return a * b; }
inline double __dadd_rn(double a, double b) { return a + b; }
template <class To, class From> To bits_as(From from) {
  To to;
  static_assert(sizeof to == sizeof from, "sizes");
  memcpy(&to, &from, sizeof to);
  return to;
}
inline unsigned __float_as_uint(float v) { return bits_as<unsigned>(v); }
inline float __uint_as_float(unsigned v) { return bits_as<float>(v); }
inline long long __double_as_longlong(double v) { return bits_as<long long>(v); }
inline double __longlong_as_double(long long v) { return bits_as<double>(v); }

#define EXPORT(kernel)                                                                         \
  extern "C" void host_##kernel(unsigned grid, unsigned threads, void** args, uint64_t seed) { \
    host::launch(kernel, grid, threads, args, seed);                                           \
  }
#define EXPORT_TYPE(name) EXPORT(encode_##name) EXPORT(decode_##name) EXPORT(scan_##name)
