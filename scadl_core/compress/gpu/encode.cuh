// Encoding, one kernel: the input is read once and the words are written once, in order. A lane is a
// column while elements are read and a row while it is cut into planes.
#pragma once
#include "tile.cuh"

// What a group of lanes knows of its tile; widths and masks are those of the lane's row.
template <class T> struct Facts {
  u32 bad = 0;       // rows to keep raw
  u32 mask = 0;      // under dither: what is not an exact zero
  u32 width = 0;
  u32 squares = 0;
  typename T::Word worst = 0;
};

template <class T, class L>
DEVICE void quantise(const Elements<T>& x, u32 index, const L& law, bool dithered, u32* room,
                     Facts<T>& facts) {
  constexpr u32 AHEAD = 8;  // loads in flight
  const u32 lane = lane_id();
  for (u32 first = 0; first < 32; first += AHEAD) {
    typename T::Pattern bits[AHEAD];
#pragma unroll
    for (u32 k = 0; k < AHEAD; ++k) bits[k] = x[(first + k) * 32 + lane];
#pragma unroll
    for (u32 k = 0; k < AHEAD; ++k) {
      const u32 row = first + k;
      const Coded<T> coded = law.code(bits[k], index + row * 32 + lane);
      room[row * 33 + lane] = (u32)coded.code;
      if (dithered) {
        const u32 mask = ballot((bits[k] & (T::sign - 1)) != 0);
        if (lane == row) facts.mask = mask;
      }
      if (ballot(coded.bad)) {
        facts.bad |= 1u << row;
      } else {
        facts.squares += coded.unit * coded.unit;
        facts.worst = coded.error > facts.worst ? coded.error : facts.worst;
      }
    }
  }
}

DEVICE u32 code_at(const u32* room, int index) {
  return index < 0 ? 0 : room[padded((u32)index)];
}

// Gives raw rows the codes that are predicted, so that their residuals are zero. A row's differences
// are those of `width` before, or of as many times `width` as lead out of the row.
DEVICE void bridge(const Law& law, u32 bad, u32* room) {
  const int lane = (int)lane_id(), width = (int)law.width;
  for (u32 rest = bad; rest; rest &= rest - 1) {
    const int row = __ffs((int)rest) - 1;
    u32 code = 0;
    if (law.predictor == 2) {
      const int above = row * 32 + lane - (lane / width + 1) * width;
      if (above >= 0) code = code_at(room, above) - code_at(room, above - 1);
    }
    if (law.predictor > 0) code = code_at(room, row * 32 - 1) + running_sum(code);
    fence();
    room[row * 33 + lane] = code;
    fence();
  }
}

DEVICE void predict(const Law& law, const u32* room, u32 (&residuals)[32]) {
  const int first = (int)lane_id() * 32, above = first - (int)law.width;
  const u32* const row = room + padded(first);
#pragma unroll
  for (int k = 0; k < 32; ++k) residuals[k] = row[k];
  if (law.predictor == 0) return;
  const u32 before = code_at(room, first - 1);
#pragma unroll
  for (int k = 31; k > 0; --k) residuals[k] -= residuals[k - 1];
  residuals[0] -= before;
  if (law.predictor == 1) return;
  u32 last = code_at(room, above - 1);
#pragma unroll
  for (int k = 0; k < 32; ++k) {
    const u32 code = code_at(room, above + k);
    residuals[k] -= code - last;
    last = code;
  }
}

template <class T> DEVICE u32 raw_width(const Elements<T>& x, u32 bad) {
  u32 width = 0;
  for (u32 rest = bad; rest; rest &= rest - 1) {
    const u32 row = (u32)__ffs((int)rest) - 1;
    const typename T::Word bits = x[row * 32 + lane_id()];
    const bool constant = ballot(bits == shuffle(bits, 0)) == ALL;
    if (lane_id() == row) width = constant ? CONSTANT : RAW;
  }
  return width;
}

DEVICE void write_widths(u32 width, u32 planes, u32* out) {
#pragma unroll
  for (u32 plane = 0; plane < 6; ++plane) {
    const u32 word = ballot(width >> plane & 1);
    if (lane_id() == 0 && plane < planes) out[plane] = word;
  }
}

DEVICE void write_planes(const u32 (&planes)[32], u32 width, u32* out) {
#pragma unroll
  for (u32 k = 0; k < 32; ++k)
    if (k < width) out[k] = planes[k];
}

// Moves what is kept to the front and hands each lane a group of it; `ahead` is how many values the
// rows before this one keep. Returns the group's width.
DEVICE u32 compact(u32 mask, u32 ahead, u32 count, u32 less, u32* room, u32 (&values)[32]) {
  fence();
#pragma unroll
  for (u32 k = 0; k < 32; ++k)
    if (mask >> k & 1) room[padded(ahead++)] = values[k] - less;
  const u32 end = (count + 31) & ~31u;
  if (count + lane_id() < end) room[padded(count + lane_id())] = 0;
  fence();
  const bool used = lane_id() * 32 < end;
#pragma unroll
  for (u32 k = 0; k < 32; ++k) values[k] = used ? room[lane_id() * 33 + k] : 0;
  return bit_length(union_of(values));
}

DEVICE void expand(u32 mask, u32 ahead, u32 more, const u32* room, u32 (&values)[32]) {
#pragma unroll
  for (u32 k = 0; k < 32; ++k) {
    const u32 kept = mask >> k & 1;
    values[k] = (room[padded(ahead)] + more) & (0u - kept);  // up to one word too far is read
    ahead += kept;
  }
}

// Residuals to words in `room`, all but raw rows; returns the descriptor.
template <class T>
DEVICE u32 pack(bool dithered, u32* room, u32 (&values)[32], Facts<T>& facts) {
  const u32 lane = lane_id(), less = dithered ? 0 : 1;
  u32 all = union_of(values), mask = facts.mask;
  const bool zigzag = ballot(all >> 31) != 0;
  if (zigzag) {
#pragma unroll
    for (u32 k = 0; k < 32; ++k) values[k] = values[k] << 1 ^ (u32)((int)values[k] >> 31);
    all = union_of(values);
  }
  if (!dithered) {
#pragma unroll
    for (u32 k = 0; k < 32; ++k) mask |= (values[k] != 0) << k;
  }
  const u32 ahead = running_sum((u32)__popc(mask)) - (u32)__popc(mask);
  const u32 count = shuffle(ahead + (u32)__popc(mask), 31);
  if (count == 0 && facts.bad == 0) return 0;
  if (!(facts.bad >> lane & 1)) facts.width = bit_length(all);
  const u32 widest = max_of(facts.width), rows = ballot(mask != 0);
  const u32 dense = sum_of(words_of<T>(facts.width));
  u32 flag = flag_of(widest), words = planes_of(flag) + dense;
  const u32 groups = (count + 31) / 32, used = (u32)__popc(rows);
  const bool promising =
      dithered ? count < TILE : groups * dense + used * (used + 1) < used * dense;
  u32 start = 0, sparse = 0;
  if (facts.bad == 0 && promising) {
    const u32 width = compact(mask, ahead, count, less, room, values);
    const u32 sparse_flag = flag_of(max_of(width));
    const u32 sparse_words = 1 + used + planes_of(sparse_flag) + sum_of(width);
    if (sparse_words < words || dithered) {
      facts.width = width, words = sparse_words, flag = sparse_flag;
      start = 1 + used, sparse = SPARSE;
    } else {
      expand(mask, ahead, less, room, values);
    }
  }
  fence();
  if (sparse) {
    if (lane == 0) room[0] = rows;
    if (mask) room[1 + __popc(rows & ((1u << lane) - 1))] = mask;
  }
  write_widths(facts.width, planes_of(flag), room + start);
  const u32 descriptor = words | sparse | (zigzag ? ZIGZAG : 0) | flag << WIDTHS;
  const u32 planes = facts.width <= 32 ? facts.width : 0;
  u32* const out = room + start + planes_of(flag) + running_sum(planes) - planes;
  transpose(values);  // late: only what it needs is in registers here
  write_planes(values, planes, out);
  return descriptor;
}

struct Block {
  u32 room[TILES][AREA];
  u32 widths[TILES][32];
  u32 descriptors[TILES];
  u64 worst, squares, base;
  u32 number;
};

template <class T>
DEVICE void encode_tile(const Elements<T>& x, u32 index, const Law& law, Block& block) {
  const u32 group = threadIdx.x / 32;
  u32* const room = block.room[group];
  Facts<T> facts;
  if (law.kind == LOGARITHMIC) {
    quantise<T>(x, index, Patterns<T>(law), false, room, facts);
  } else if (law.dithered) {
    quantise<T>(x, index, Linear<T, true>(law), true, room, facts);
    if (facts.bad) facts.bad |= ballot(facts.mask != ALL);  // a dense tile has no exact zeros
  } else {
    quantise<T>(x, index, Linear<T, false>(law), false, room, facts);
  }
  const typename T::Word worst = max_of(facts.worst);
  const u32 squares = sum_of(facts.squares);  // within the bound a unit is about 2^10
  if (lane_id() == 0 && worst) {
    atomicMax(&block.worst, (u64)worst);
    atomicAdd(&block.squares, (u64)squares);
  }
  fence();
  if (facts.bad) {
    bridge(law, facts.bad, room);
    facts.width = raw_width<T>(x, facts.bad);
  }
  u32 residuals[32];
  predict(law, room, residuals);
  const u32 descriptor = pack<T>(law.dithered, room, residuals, facts);
  block.widths[group][lane_id()] = facts.width;
  if (lane_id() == 0) block.descriptors[group] = descriptor;
}

template <class T> DEVICE void write_raw_row(const Elements<T>& x, u32 row, u32 width, u32* out) {
  const u32 lane = lane_id();
  if (lane >= lanes_of<T>(width)) return;
  const typename T::Pattern bits = x[row * 32 + lane];
  if (sizeof(bits) == 8) {
    out[2 * lane] = (u32)bits;
    out[2 * lane + 1] = (u32)((u64)bits >> 32);
  } else {
    reinterpret_cast<typename T::Pattern*>(out)[lane] = bits;
  }
}

template <class T>
DEVICE void write_tile(const Elements<T>& x, u32 descriptor, u32 own, const u32* room, u32* out) {
  const u32 lane = lane_id(), size = descriptor & SIZE_MASK;
  if (!ballot(own > 32)) {
    for (u32 k = lane; k < size; k += 32) out[k] = room[k];
    return;
  }
  const u32 planes = planes_of(descriptor >> WIDTHS);
  if (lane < planes) out[lane] = room[lane];
  u32 from = planes, to = planes;
  for (u32 row = 0; row < 32; ++row) {
    const u32 width = shuffle(own, row);
    if (width > 32) {
      write_raw_row<T>(x, row, width, out + to);
    } else {
      if (lane < width) out[to + lane] = room[from + lane];
      from += width;
    }
    to += words_of<T>(width);
  }
}

// Where a block's words begin (decoupled look-back, Merrill and Garland 2016): each block publishes
// its own number of words, then sums those before it back to one that knows its whole prefix. Blocks
// take their numbers as they start, so whoever is waited for runs.
constexpr u64 OWN = 1ull << 62, PREFIX = 2ull << 62, COUNT = OWN - 1;

DEVICE u64 look_back(u64* states, u32 block, u32 words) {
  if (lane_id() == 0) atomicExch(states + block, (block ? OWN : PREFIX) | words);
  u64 before = 0;
  for (i64 last = (i64)block - 1; last >= 0; last -= 32) {
    const i64 at = last - lane_id();
    u64 state;
    u32 known;
    for (;;) {
      state = at >= 0 ? observed(states + at) : PREFIX;
      known = ballot(state >= PREFIX);
      if (!(ballot(state < OWN) & (known ^ (known - 1)))) break;  // up to the first prefix
      pause();
    }
    const u32 nearest = known ? (u32)__ffs((int)known) - 1 : 31;
    before += sum_of(lane_id() <= nearest ? state & COUNT : (u64)0);
    if (known) break;
  }
  if (lane_id() == 0 && block) atomicExch(states + block, PREFIX | (before + words));
  return before;
}

// The tile of this group of lanes.
template <class T> struct Place {
  u32 tile;
  u64 first;
  Elements<T> elements;
  DEVICE Place(const typename T::Pattern* x, u64 count, u32 stride, u32 block)
      : tile(block * TILES + threadIdx.x / 32), first((u64)tile * stride * TILE) {
    const u64 left = first < count ? count - first : 0;
    elements = {x + first, left < TILE ? (u32)left : TILE};
  }
};

// Args:
//   x: patterns of `count` elements.
//   tiles, stride: how many are coded, and which: every stride-th.
//   states: one a block and one more, zeros; the last gives blocks their numbers.
//   cursor: null: tiles lie in order. Else blocks take their words from here as they finish.
//   bases: the first word of every `per_base` tiles, and in order the number of words behind them.
//   stats: the largest error's pattern and the sum of squared errors in units of step / 2048.
template <class T>
DEVICE void encode(const typename T::Pattern* x, u64 count, u32 tiles, u32 stride, const Law& law,
                   u64* states, u64* cursor, u32 per_base, u32* words, u64 capacity, u16* descriptors,
                   u64* bases, u64* stats) {
  SCADL_SHARED(Block, block);
  const u32 group = threadIdx.x / 32, lane = lane_id();
  if (threadIdx.x == 0) {
    block.number = (u32)atomicAdd(states + gridDim.x, 1ull);
    block.worst = block.squares = 0;
  }
  __syncthreads();
  const Place<T> place(x, count, stride, block.number);
  if (place.tile < tiles) {
    encode_tile<T>(place.elements, (u32)place.first, law, block);
  } else if (lane == 0) {
    block.descriptors[group] = 0;
  }
  __syncthreads();
  if (group == 0) {
    const u32 total = sum_of(lane < TILES ? block.descriptors[lane] & SIZE_MASK : 0);
    if (cursor == nullptr) {
      const u64 before = look_back(states, block.number, total);
      if (lane == 0) block.base = before;
    } else if (lane == 0) {
      block.base = atomicAdd(cursor, (u64)total);
    }
    if (lane == 0 && block.worst) atomicMax(stats, block.worst);
    if (lane == 0 && block.squares) atomicAdd(stats + 1, block.squares);
  }
  __syncthreads();
  const Place<T> again(x, count, stride, block.number);  // not kept in registers meanwhile
  const u32 tile = again.tile;
  if (tile >= tiles) return;
  const u32 descriptor = block.descriptors[group];
  u64 at = block.base;
  for (u32 k = 0; k < group; ++k) at += block.descriptors[k] & SIZE_MASK;
  const u64 end = at + (descriptor & SIZE_MASK);
  if (lane == 0) {
    descriptors[tile] = (u16)descriptor;
    if (tile % per_base == 0) bases[tile / per_base] = at;
    if (cursor == nullptr && tile == tiles - 1) bases[tile / per_base + 1] = end;
  }
  if (end <= capacity)
    write_tile<T>(again.elements, descriptor, block.widths[group][lane], block.room[group],
                  words + at);
}
