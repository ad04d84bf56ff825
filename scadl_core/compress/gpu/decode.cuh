// Decoding, one pass: a sum of at most 31 sizes finds any tile. Before a word is used the parts of
// the tile are known to add up to its size, whoever wrote it.
#pragma once
#include "encode.cuh"

DEVICE u32 read_widths(const u32* words, u32 planes) {
  u32 width = 0;
  for (u32 plane = 0; plane < planes; ++plane) width |= (words[plane] >> lane_id() & 1) << plane;
  return width;
}

DEVICE void read_planes(const u32* words, u32 width, u32 (&values)[32]) {
#pragma unroll
  for (u32 k = 0; k < 32; ++k) values[k] = k < width ? words[k] : 0;
  transpose(values);
}

// Residuals of a dense tile; `width` is that of the lane's row.
template <class T>
DEVICE bool read_dense(const u32* words, u32 size, u32 planes, u32& width, u32 (&values)[32]) {
  width = read_widths(words, planes);
  if (ballot(width > CONSTANT)) return false;
  const u32 taken = words_of<T>(width), end = running_sum(taken);
  if (planes + shuffle(end, 31) != size) return false;
  read_planes(words + planes + end - taken, width <= 32 ? width : 0, values);
  return true;
}

// Residuals of a sparse tile, whose words are in `room`; `mask` is that of the lane's row.
DEVICE bool read_sparse(u32* room, u32 size, u32 planes, bool dithered, u32& mask,
                        u32 (&values)[32]) {
  const u32 lane = lane_id(), rows = room[0], used = (u32)__popc(rows);
  if (1 + used + planes > size) return false;
  mask = rows >> lane & 1 ? room[1 + __popc(rows & ((1u << lane) - 1))] : 0;
  const u32 ahead = running_sum((u32)__popc(mask)) - (u32)__popc(mask);
  const u32 groups = (shuffle(ahead + (u32)__popc(mask), 31) + 31) / 32;
  const u32 width = read_widths(room + 1 + used, planes), end = running_sum(width);
  if (ballot(width > 32 || (lane >= groups && width > 0))) return false;
  if (1 + used + planes + shuffle(end, 31) != size) return false;
  read_planes(room + 1 + used + planes + end - width, width, values);
  fence();
#pragma unroll
  for (u32 k = 0; k < 32; ++k) room[lane * 33 + k] = values[k];
  fence();
  expand(mask, ahead, dithered ? 0 : 1, room, values);
  return true;
}

// Sums over each column of a run with `width` elements a row. While a row is shorter than the lanes,
// sums of 1, 2, 4, ... rows are formed; then lanes go down columns of their own.
DEVICE void add_rows_above(u32 width, u32* room) {
  const u32 lane = lane_id();
  for (; width < 32; width *= 2) {
    for (u32 row = 32; row-- > 0;) {
      const u32 sum = room[row * 33 + lane] + code_at(room, (int)(row * 32 + lane - width));
      fence();
      room[row * 33 + lane] = sum;
      fence();
    }
  }
  for (u32 column = lane; column < width; column += 32) {
    u32 sum = 0;
    for (u32 at = column; at < TILE; at += width) {
      sum += room[padded(at)];
      room[padded(at)] = sum;
    }
  }
}

// Codes from residuals, both in lanes of rows.
DEVICE void restore(const Law& law, u32* room, u32 (&values)[32]) {
  if (law.predictor == 0) return;
  if (law.predictor == 2) {
    fence();
#pragma unroll
    for (u32 k = 0; k < 32; ++k) room[lane_id() * 33 + k] = values[k];
    fence();
    add_rows_above(law.width, room);
    fence();
#pragma unroll
    for (u32 k = 0; k < 32; ++k) values[k] = room[lane_id() * 33 + k];
  }
#pragma unroll
  for (u32 k = 1; k < 32; ++k) values[k] += values[k - 1];
  const u32 before = running_sum(values[31]) - values[31];
#pragma unroll
  for (u32 k = 0; k < 32; ++k) values[k] += before;
}

// Codes of a tile into rows of `room`; `width` is that of the lane's row. False: it is damaged.
template <class T>
DEVICE bool unpack(const u32* words, u32 descriptor, const Law& law, u32* room, u32& width) {
  const u32 lane = lane_id(), size = descriptor & SIZE_MASK;
  const u32 planes = planes_of(descriptor >> WIDTHS);
  u32 values[32], mask = ALL;
  width = 0;
  if (size == 0) {
    if (descriptor != 0) return false;
#pragma unroll
    for (u32 k = 0; k < 32; ++k) room[lane * 33 + k] = law.dithered ? (u32)NOTHING : 0;
    return true;
  }
  if (planes > size) return false;
  const bool staged = size <= AREA;
  if (staged)
    for (u32 k = lane; k < size; k += 32) room[k] = words[k];
  fence();
  if (descriptor & SPARSE) {
    if (!staged || !read_sparse(room, size, planes, law.dithered, mask, values)) return false;
  } else if (!read_dense<T>(staged ? room : words, size, planes, width, values)) {
    return false;
  }
  if (descriptor & ZIGZAG) {
#pragma unroll
    for (u32 k = 0; k < 32; ++k) values[k] = values[k] >> 1 ^ (0u - (values[k] & 1));
  }
  restore(law, room, values);
  fence();
#pragma unroll
  for (u32 k = 0; k < 32; ++k)
    room[lane * 33 + k] = law.dithered && !(mask >> k & 1) ? (u32)NOTHING : values[k];
  return true;
}

template <class T, class L>
DEVICE void dequantise(const u32* room, u32 raw, u32 index, const L& law, typename T::Pattern* x,
                       u32 left) {
#pragma unroll 4
  for (u32 row = 0; row < 32; ++row) {
    const u32 i = row * 32 + lane_id();
    if (i < left && !(raw >> row & 1))
      x[i] = law.value((int)room[row * 33 + lane_id()], index + i);
  }
}

template <class T>
DEVICE void read_raw_rows(const u32* words, u32 planes, u32 width, typename T::Pattern* x,
                          u32 left) {
  const u32 taken = words_of<T>(width), at = planes + running_sum(taken) - taken;
  for (u32 rest = ballot(width > 32); rest; rest &= rest - 1) {
    const u32 row = (u32)__ffs((int)rest) - 1, i = row * 32 + lane_id();
    const u32* from = words + shuffle(at, row);
    const u32 lane = shuffle(width, row) == RAW ? lane_id() : 0;
    typename T::Pattern bits;
    if (sizeof(bits) == 8)
      bits = (typename T::Pattern)(from[2 * lane] | (u64)from[2 * lane + 1] << 32);
    else
      bits = reinterpret_cast<const typename T::Pattern*>(from)[lane];
    if (i < left) x[i] = bits;
  }
}

struct Area { u32 room[TILES][AREA]; };

// Args:
//   words, limit: the stream and its length.
//   descriptors, bases, per_base: as the encoder wrote them, `tiles` in all.
//   x, count, first: receives `count` elements from the tile `first` on.
//   damaged: becomes the smallest number of a damaged tile.
template <class T>
DEVICE void decode(const u32* words, u64 limit, const u16* descriptors, const u64* bases,
                   u32 per_base, u32 tiles, const Law& law, typename T::Pattern* x, u64 count,
                   u32 first, u64* damaged) {
  SCADL_SHARED(Area, area);
  const u32 group = threadIdx.x / 32, lane = lane_id();
  const u32 ahead = blockIdx.x * TILES + group, tile = first + ahead;
  const u64 done = (u64)ahead * TILE;
  if (done >= count || tile >= tiles) return;
  const u32 within = tile % per_base, start = tile - within;
  const u64 at =
      bases[tile / per_base] + sum_of(lane < within ? descriptors[start + lane] & SIZE_MASK : 0u);
  const u32 descriptor = descriptors[tile], size = descriptor & SIZE_MASK;
  u32 width = 0;
  const bool inside = at <= limit && size <= limit - at;
  if (!inside || !unpack<T>(words + at, descriptor, law, area.room[group], width)) {
    if (lane == 0) atomicMin(damaged, (u64)tile);
    return;
  }
  fence();
  const u32 raw = ballot(width > 32), index = tile * TILE;
  const u32 left = count - done < TILE ? (u32)(count - done) : TILE;
  if (law.kind == LOGARITHMIC)
    dequantise<T>(area.room[group], raw, index, Patterns<T>(law), x + done, left);
  else if (law.dithered)
    dequantise<T>(area.room[group], raw, index, Linear<T, true>(law), x + done, left);
  else
    dequantise<T>(area.room[group], raw, index, Linear<T, false>(law), x + done, left);
  if (raw) read_raw_rows<T>(words + at, planes_of(descriptor >> WIDTHS), width, x + done, left);
}
