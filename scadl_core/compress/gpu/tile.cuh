// What encoding and decoding of a tile share; the words are described in docs/compress_format.md.
#pragma once
#include "values.cuh"

constexpr u32 TILE = 1024, GROUP = 32;
constexpr u32 TILES = 8;     // a block does at a time
constexpr u32 AREA = 1088;   // words of shared memory a tile
constexpr u32 RAW = 33, CONSTANT = 34;
constexpr u32 SIZE_MASK = 0xFFF, SPARSE = 1u << 12, ZIGZAG = 1u << 13, WIDTHS = 14;

// One word is skipped behind each row, so that lanes which go down a column meet no bank twice.
DEVICE u32 padded(u32 index) { return index + (index >> 5); }

template <class T> DEVICE u32 words_of(u32 width) {
  constexpr u32 halves = sizeof(typename T::Pattern) / 2;
  return width == RAW ? 16 * halves : width == CONSTANT ? (halves + 1) / 2 : width;
}

// How many lanes' elements a raw row stores: a 16-bit constant fills its word twice.
template <class T> DEVICE u32 lanes_of(u32 width) {
  return width == RAW ? 32 : sizeof(typename T::Pattern) == 2 ? 2 : 1;
}

DEVICE u32 planes_of(u32 flag) { return flag == 3 ? 6 : 2 + flag; }
DEVICE u32 flag_of(u32 widest) { return widest < 4 ? 0 : widest < 8 ? 1 : widest < 16 ? 2 : 3; }

// Where the elements of a tile are, without a test of each against the end of the array.
template <class T> struct Elements {
  typedef typename T::Pattern Pattern;
  const Pattern* at;
  u32 left;
  DEVICE Pattern operator[](u32 i) const { return i < left ? at[i] : (Pattern)0; }
};
