/* The vector vocabulary in AVX-512 (F, BW, VL, DQ). Names: vec_scalar.h. */
// SPDX-License-Identifier: Apache-2.0
#include <immintrin.h>

#define VF           16
#define VD           8
#define TILE_ROWS    8
#define TILE_VECS    3
#define DW_ROWS      4
#define DW_COLS      6
#define LANE_VECS    4
#define LANE_COLUMNS 6
#define FFT_RADIX    8

typedef __m512 vf;
typedef __m512d vd;

static inline __mmask16 vf_mask(int n) { return (__mmask16)((1u << n) - 1u); }
static inline vf vf_set1(float x) { return _mm512_set1_ps(x); }
static inline vf vf_fma(vf a, vf b, vf c) { return _mm512_fmadd_ps(a, b, c); }
/* Half of a vector. */
#define VH 8
typedef __m256 vh;
static inline vh vh_set1(float x) { return _mm256_set1_ps(x); }
static inline vh vh_fma(vh a, vh b, vh c) { return _mm256_fmadd_ps(a, b, c); }
static inline vh vh_load(const float *p) { return _mm256_loadu_ps(p); }
static inline void vh_store(float *p, vh v) { _mm256_storeu_ps(p, v); }

static inline vf vf_add(vf a, vf b) { return _mm512_add_ps(a, b); }
static inline vf vf_load(const float *p) { return _mm512_loadu_ps(p); }
static inline void vf_store(float *p, vf v) { _mm512_storeu_ps(p, v); }
static inline void vf_stream(float *p, vf v) { _mm512_stream_ps(p, v); }
static inline vf vf_load_part(const float *p, int n)
{
    return _mm512_maskz_loadu_ps(vf_mask(n), p);
}
static inline void vf_store_part(float *p, vf v, int n)
{
    _mm512_mask_storeu_ps(p, vf_mask(n), v);
}
static inline float vf_sum(vf v) { return _mm512_reduce_add_ps(v); }
static inline vf vf_set_pair(const float *p)
{
    double pair; /* as one number it is broadcast by the load itself */
    memcpy(&pair, p, sizeof pair);
    return _mm512_castpd_ps(_mm512_set1_pd(pair));
}
static inline vf vf_swap(vf v) { return _mm512_permute_ps(v, 0xb1); }
static inline vf vf_add_i_times(vf re, vf im)
{
    return _mm512_fmaddsub_ps(re, _mm512_set1_ps(1), vf_swap(im));
}
static inline float vf_sum_odd_less_even(vf v)
{
    return _mm512_mask_reduce_add_ps(0xaaaa, v) - _mm512_mask_reduce_add_ps(0x5555, v);
}

/* 4 x 4 blocks inside the 128-bit lanes, then the lanes themselves. */
static inline void vf_transpose(vf v[16])
{
    vf t[16];
    for (int i = 0; i < 16; i += 2) {
        t[i] = _mm512_unpacklo_ps(v[i], v[i + 1]);
        t[i + 1] = _mm512_unpackhi_ps(v[i], v[i + 1]);
    }
    for (int i = 0; i < 16; i += 4) {
        v[i] = _mm512_shuffle_ps(t[i], t[i + 2], 0x44);
        v[i + 1] = _mm512_shuffle_ps(t[i], t[i + 2], 0xee);
        v[i + 2] = _mm512_shuffle_ps(t[i + 1], t[i + 3], 0x44);
        v[i + 3] = _mm512_shuffle_ps(t[i + 1], t[i + 3], 0xee);
    }
    for (int i = 0; i < 4; i++) {
        vf a = _mm512_shuffle_f32x4(v[i], v[i + 4], 0x88);
        vf b = _mm512_shuffle_f32x4(v[i], v[i + 4], 0xdd);
        vf c = _mm512_shuffle_f32x4(v[i + 8], v[i + 12], 0x88);
        vf d = _mm512_shuffle_f32x4(v[i + 8], v[i + 12], 0xdd);
        v[i] = _mm512_shuffle_f32x4(a, c, 0x88);
        v[i + 8] = _mm512_shuffle_f32x4(a, c, 0xdd);
        v[i + 4] = _mm512_shuffle_f32x4(b, d, 0x88);
        v[i + 12] = _mm512_shuffle_f32x4(b, d, 0xdd);
    }
}

static inline __mmask8 vd_mask(int n) { return (__mmask8)((1u << n) - 1u); }
static inline vd vd_set1(double x) { return _mm512_set1_pd(x); }
static inline vd vd_fma(vd a, vd b, vd c) { return _mm512_fmadd_pd(a, b, c); }
static inline vd vd_add(vd a, vd b) { return _mm512_add_pd(a, b); }
static inline vd vd_load(const double *p) { return _mm512_loadu_pd(p); }
static inline void vd_store(double *p, vd v) { _mm512_storeu_pd(p, v); }
static inline void vd_stream(double *p, vd v) { _mm512_stream_pd(p, v); }
static inline vd vd_load_part(const double *p, int n)
{
    return _mm512_maskz_loadu_pd(vd_mask(n), p);
}
static inline void vd_store_part(double *p, vd v, int n)
{
    _mm512_mask_storeu_pd(p, vd_mask(n), v);
}
static inline double vd_sum(vd v) { return _mm512_reduce_add_pd(v); }
static inline vd vd_set_pair(const double *p)
{
    return _mm512_broadcast_f64x2(_mm_loadu_pd(p));
}
static inline vd vd_swap(vd v) { return _mm512_permute_pd(v, 0x55); }
static inline vd vd_add_i_times(vd re, vd im)
{
    return _mm512_fmaddsub_pd(re, _mm512_set1_pd(1), vd_swap(im));
}
static inline double vd_sum_odd_less_even(vd v)
{
    return _mm512_mask_reduce_add_pd(0xaa, v) - _mm512_mask_reduce_add_pd(0x55, v);
}

static inline void vd_transpose(vd v[8])
{
    vd t[8];
    for (int i = 0; i < 8; i += 2) {
        t[i] = _mm512_unpacklo_pd(v[i], v[i + 1]);
        t[i + 1] = _mm512_unpackhi_pd(v[i], v[i + 1]);
    }
    for (int i = 0; i < 2; i++) {
        vd a = _mm512_shuffle_f64x2(t[i], t[i + 2], 0x88);
        vd b = _mm512_shuffle_f64x2(t[i], t[i + 2], 0xdd);
        vd c = _mm512_shuffle_f64x2(t[i + 4], t[i + 6], 0x88);
        vd d = _mm512_shuffle_f64x2(t[i + 4], t[i + 6], 0xdd);
        v[i] = _mm512_shuffle_f64x2(a, c, 0x88);
        v[i + 4] = _mm512_shuffle_f64x2(a, c, 0xdd);
        v[i + 2] = _mm512_shuffle_f64x2(b, d, 0x88);
        v[i + 6] = _mm512_shuffle_f64x2(b, d, 0xdd);
    }
}

static inline vf vf_load_period(const float *p, int period)
{
    return period == 0   ? vf_set1(0)
           : period == 1 ? vf_set1(*p)
           : period == 2 ? vf_set_pair(p)
           : period == 4 ? _mm512_broadcast_f32x4(_mm_loadu_ps(p))
           : period == 8 ? _mm512_broadcast_f32x8(_mm256_loadu_ps(p))
                         : vf_load(p);
}
static inline vd vd_load_period(const double *p, int period)
{
    return period == 0   ? vd_set1(0)
           : period == 1 ? vd_set1(*p)
           : period == 2 ? vd_set_pair(p)
           : period == 4 ? _mm512_broadcast_f64x4(_mm256_loadu_pd(p))
                         : vd_load(p);
}

static inline vf f16_load(const uint16_t *p)
{
    return _mm512_cvtph_ps(_mm256_loadu_si256((const void *)p));
}
static inline void f16_store(uint16_t *p, vf v)
{
    __m256i h = _mm512_cvtps_ph(v, _MM_FROUND_TO_NEAREST_INT | _MM_FROUND_NO_EXC);
    _mm256_storeu_si256((void *)p, h);
}
static inline vf bf16_load(const uint16_t *p)
{
    __m512i w = _mm512_cvtepu16_epi32(_mm256_loadu_si256((const void *)p));
    return _mm512_castsi512_ps(_mm512_slli_epi32(w, 16));
}
static inline void bf16_store(uint16_t *p, vf v)
{
    __m512i u = _mm512_castps_si512(v), one = _mm512_set1_epi32(1);
    __m512i odd = _mm512_and_si512(_mm512_srli_epi32(u, 16), one);
    __m512i up = _mm512_add_epi32(u, _mm512_add_epi32(odd, _mm512_set1_epi32(0x7fff)));
    __mmask16 nan = _mm512_cmp_ps_mask(v, v, _CMP_UNORD_Q);
    up = _mm512_mask_or_epi32(up, nan, u, _mm512_set1_epi32(0x400000));
    _mm256_storeu_si256((void *)p, _mm512_cvtepi32_epi16(_mm512_srli_epi32(up, 16)));
}

typedef __m512i vi;
static inline vi vi_load(const int32_t *p) { return _mm512_loadu_si512(p); }
static inline int32_t vi_top(vi v) { return _mm512_reduce_max_epi32(v); }
static inline vf vf_from_vi(vi v) { return _mm512_cvtepi32_ps(v); }
static inline vi vi_most(vi most, vf x)
{
    __m512i magnitude = _mm512_set1_epi32(0x7fffffff);
    return _mm512_max_epi32(most, _mm512_and_si512(_mm512_castps_si512(x), magnitude));
}
static inline __m512i vi_set_word(const void *word)
{
    int32_t w;
    memcpy(&w, word, sizeof w);
    return _mm512_set1_epi32(w);
}
/* Numbers are made 16 bits wide, as in AVX2. */
#define PLAIN_TERMS 2
#define PLAIN_ZERO  0
typedef int16_t plain_x;
typedef __m512i plain_w;
static inline plain_w plain_load(const int8_t *p)
{
    return _mm512_cvtepi8_epi16(_mm256_loadu_si256((const void *)p));
}
static inline plain_w plain_spread(const plain_x *x) { return vi_set_word(x); }
static inline vi plain_dot(vi sum, plain_w w, plain_w x)
{
    return _mm512_add_epi32(sum, _mm512_madd_epi16(w, x));
}
static inline void plain_round(plain_x *to, vf x)
{
    _mm256_storeu_si256((void *)to, _mm512_cvtsepi32_epi16(_mm512_cvtps_epi32(x)));
}
/* VNNI, whose numbers x have no sign. Compilers need not know it. */
#define FAST_TERMS 4
#define FAST_ZERO  128
typedef uint8_t fast_x;
typedef __m512i fast_w;
static inline fast_w fast_load(const int8_t *p) { return _mm512_loadu_si512(p); }
static inline fast_w fast_spread(const fast_x *x) { return vi_set_word(x); }
static inline vi fast_dot(vi sum, fast_w w, fast_w x)
{
    __asm__("vpdpbusd %1, %2, %0" : "+v"(sum) : "v"(w), "v"(x));
    return sum;
}
static inline void fast_round(fast_x *to, vf x)
{
    __m512i n = _mm512_add_epi32(_mm512_cvtps_epi32(x), _mm512_set1_epi32(FAST_ZERO));
    _mm_storeu_si128((void *)to, _mm512_cvtepi32_epi8(n));
}

#define VF_INNER 4
#define VD_INNER 2
static inline void vf_turn_chunks(vf v[4])
{
    vf a = _mm512_shuffle_f32x4(v[0], v[1], 0x44);
    vf b = _mm512_shuffle_f32x4(v[0], v[1], 0xee);
    vf c = _mm512_shuffle_f32x4(v[2], v[3], 0x44);
    vf d = _mm512_shuffle_f32x4(v[2], v[3], 0xee);
    v[0] = _mm512_shuffle_f32x4(a, c, 0x88);
    v[1] = _mm512_shuffle_f32x4(a, c, 0xdd);
    v[2] = _mm512_shuffle_f32x4(b, d, 0x88);
    v[3] = _mm512_shuffle_f32x4(b, d, 0xdd);
}
static inline void vd_turn_chunks(vd v[4])
{
    vf t[4];
    for (int i = 0; i < 4; i++)
        t[i] = _mm512_castpd_ps(v[i]);
    vf_turn_chunks(t);
    for (int i = 0; i < 4; i++)
        v[i] = _mm512_castps_pd(t[i]);
}
static inline void vf_turn_inner(vf *v)
{
    vf a = _mm512_unpacklo_ps(v[0], v[1]), b = _mm512_unpackhi_ps(v[0], v[1]);
    vf c = _mm512_unpacklo_ps(v[2], v[3]), d = _mm512_unpackhi_ps(v[2], v[3]);
    v[0] = _mm512_shuffle_ps(a, c, 0x44);
    v[1] = _mm512_shuffle_ps(a, c, 0xee);
    v[2] = _mm512_shuffle_ps(b, d, 0x44);
    v[3] = _mm512_shuffle_ps(b, d, 0xee);
}
static inline void vd_turn_inner(vd *v)
{
    vd even = _mm512_unpacklo_pd(v[0], v[1]);
    v[1] = _mm512_unpackhi_pd(v[0], v[1]);
    v[0] = even;
}

static inline void vec_fence(void) { _mm_sfence(); }
