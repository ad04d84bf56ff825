// Values to codes and back. Each operation is one IEEE 754 operation rounded to nearest, named so
// that no compiler contracts two of them, or an integer operation: the CPU gives the same codes.
#pragma once
#include "lanes.cuh"

constexpr u32 LOGARITHMIC = 4;
constexpr int NOTHING = (int)0x80000000u;  // an exact zero under dither

struct Law {
  u32 kind, predictor, width, dithered, seed, shift;
  u64 base;
  double inverse, step, tolerance;
};

DEVICE float times(float a, float b) { return __fmul_rn(a, b); }
DEVICE float plus(float a, float b) { return __fadd_rn(a, b); }
DEVICE double times(double a, double b) { return __dmul_rn(a, b); }
DEVICE double plus(double a, double b) { return __dadd_rn(a, b); }
DEVICE u32 bits_of(float a) { return __float_as_uint(a); }
DEVICE u64 bits_of(double a) { return (u64)__double_as_longlong(a); }

// A sum with this number has the rounded value in its last bits, ties to even, while that is below
// 2^22 (2^51); what is not stays at least as large, so that the caller's limit refuses it.
template <class R> struct Rounder;
template <> struct Rounder<float> {
  static constexpr float magic = 12582912.0f, limit = 4194304.0f;
  static DEVICE int integer(float sum) { return (int)(bits_of(sum) - 0x4B400000u); }
};
template <> struct Rounder<double> {
  static constexpr double magic = 6755399441055744.0, limit = 1073741824.0;
  static DEVICE int integer(double sum) { return (int)(u32)bits_of(sum); }
};

// Bits of a tile's element, and the float in which the linear law reckons.
struct Float32 {
  typedef u32 Pattern;
  typedef u32 Word;
  typedef float Real;
  static constexpr u32 sign = 0x80000000u, infinity = 0x7F800000u;
  static constexpr bool may_be_nothing = false;  // as the CPU has it, for words of a stranger
  static DEVICE float widened(u32 bits) { return __uint_as_float(bits); }
  static DEVICE u32 narrowed(float value) { return bits_of(value); }
};

struct Float64 {
  typedef u64 Pattern;
  typedef u64 Word;
  typedef double Real;
  static constexpr u64 sign = 1ull << 63, infinity = 0x7FF0000000000000ull;
  static constexpr bool may_be_nothing = false;
  static DEVICE double widened(u64 bits) { return __longlong_as_double((i64)bits); }
  static DEVICE u64 narrowed(double value) { return bits_of(value); }
};

struct Float16 {
  typedef u16 Pattern;
  typedef u32 Word;
  typedef float Real;
  static constexpr u32 sign = 0x8000u, infinity = 0x7C00u;
  static constexpr bool may_be_nothing = true;
  static DEVICE float widened(u32 bits) {
    const u32 size = (bits & 0x7FFFu) << 13;
    const u32 normal = size + (size < 0x0F800000u ? 0x38000000u : 0x70000000u);
    const float small = plus(__uint_as_float(size + 0x38800000u), -__uint_as_float(0x38800000u));
    const u32 wide = size < 0x00800000u ? bits_of(small) : normal;
    return __uint_as_float(wide | (bits & 0x8000u) << 16);
  }
  static DEVICE u32 narrowed(float value) {
    const u32 bits = bits_of(value), size = bits & 0x7FFFFFFFu;
    const u32 small = bits_of(plus(__uint_as_float(size), 0.5f)) - 0x3F000000u;
    const u32 normal = (size + 0xC8000FFFu + (size >> 13 & 1)) >> 13;
    const u32 near = size < 0x38800000u ? small : normal;
    return (bits >> 16 & 0x8000u) | (size < 0x477FF000u ? near : 0x7C00u);
  }
};

struct BFloat16 {
  typedef u16 Pattern;
  typedef u32 Word;
  typedef float Real;
  static constexpr u32 sign = 0x8000u, infinity = 0x7F80u;
  static constexpr bool may_be_nothing = true;
  static DEVICE float widened(u32 bits) { return __uint_as_float(bits << 16); }
  static DEVICE u32 narrowed(float value) {
    const u32 bits = bits_of(value);
    return (bits + 0x7FFFu + (bits >> 16 & 1)) >> 16;
  }
};

// Uniform in [-1/2, 1/2) from the element's index (MurmurHash3's finaliser, Appleby 2016).
DEVICE float noise(u32 seed, u32 index) {
  u32 value = index ^ seed;
  value = (value ^ value >> 16) * 0x85EBCA6Bu;
  value = (value ^ value >> 13) * 0xC2B2AE35u;
  value ^= value >> 16;
  return plus(times((float)(value >> 8), 1.0f / 16777216.0f), -0.5f);
}

template <class T> struct Coded {
  int code;
  typename T::Word error;  // its pattern, or units of the pattern
  u32 unit;                // the error in units of step / 2048
  bool bad;
};

template <class T, bool DITHERED> struct Linear {
  typedef typename T::Real Real;
  typedef typename T::Word Word;
  typedef Rounder<Real> Round;
  Real inverse, step;
  Word most;
  u32 seed;

  DEVICE explicit Linear(const Law& law)
      : inverse((Real)law.inverse), step((Real)law.step), most(bits_of((Real)law.tolerance)),
        seed(law.seed) {}

  DEVICE Coded<T> code(typename T::Pattern bits, u32 index) const {
    const Real value = T::widened(bits);
    Real scaled = times(value, inverse), offset = 0;
    if (DITHERED) {
      offset = (Real)noise(seed, index);
      scaled = plus(scaled, offset);
    }
    const Real sum = plus(scaled, Round::magic);
    Real rounded = plus(sum, -Round::magic);
    const bool small = rounded < Round::limit && rounded > -Round::limit;
    rounded = small ? rounded : Real(0);
    const int code = small ? Round::integer(sum) : 0;
    if (DITHERED) rounded = value == Real(0) ? Real(0) : plus(rounded, -offset);
    const Real again = T::widened((typename T::Pattern)T::narrowed(times(rounded, step)));
    const Real error = plus(value, -again);
    const Word size = bits_of(error) & ~((Word)1 << (8 * sizeof(Word) - 1));
    const Real steps = times(error < Real(0) ? -error : error, inverse);
    const Real units = times(steps < Real(1) ? steps : Real(1), Real(2048));
    const u32 unit = (u32)Round::integer(plus(units, Round::magic));
    return {code, size, unit, size > most};
  }

  DEVICE typename T::Pattern value(int code, u32 index) const {
    if ((DITHERED || T::may_be_nothing) && code == NOTHING) return 0;
    Real wide = (Real)code;
    if (DITHERED) wide = plus(wide, -(Real)noise(seed, index));
    return (typename T::Pattern)T::narrowed(times(wide, step));
  }
};

// The pattern of |x| without its lowest bits; without a shift it is exact.
template <class T> struct Patterns {
  typedef typename T::Word Word;
  u32 shift;
  Word base;

  DEVICE explicit Patterns(const Law& law) : shift(law.shift), base((Word)law.base) {}

  DEVICE Coded<T> code(typename T::Pattern bits, u32) const {
    const Word size = bits & (T::sign - 1), half = ((Word)1 << shift) >> 1;
    const bool negative = (bits & T::sign) != 0;
    const Word code = (size - base + half) >> shift, again = (code << shift) + base;
    bool fits = size >= base && code < (1u << 30);
    fits = fits && (shift == 0 || (size < T::infinity && again < T::infinity));
    const bool zero = size == 0 && (shift > 0 || !negative);
    const Word error = zero ? 0 : size > again ? size - again : again - size;
    const u32 unit = (u32)(shift > 11 ? error >> (shift - 11) : error << (11 - shift));
    const u32 kept = fits && !zero ? (u32)code + 1 : 0;
    return {(int)(negative ? 0 - kept : kept), error, unit, !(fits || zero)};
  }

  DEVICE typename T::Pattern value(int code, u32) const {
    const Word size = (Word)(code < 0 ? 0u - (u32)code : (u32)code);
    const Word bits = ((size - 1) << shift) + base;
    return (typename T::Pattern)(code == 0 ? 0 : code < 0 ? bits | T::sign : bits);
  }
};
