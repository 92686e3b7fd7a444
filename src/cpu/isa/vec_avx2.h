/* The vector vocabulary in AVX2, FMA and F16C. Names: vec_scalar.h. */
// SPDX-License-Identifier: Apache-2.0
#include <immintrin.h>

#define VF           8
#define VD           4
#define TILE_ROWS    6
#define TILE_VECS    2
#define DW_ROWS      3
#define DW_COLS      4
#define LANE_VECS    2
#define LANE_COLUMNS 6
#define FFT_RADIX    8

typedef __m256 vf;
typedef __m256d vd;

static inline __m256i vf_mask(int n)
{
    __m256i lane = _mm256_setr_epi32(0, 1, 2, 3, 4, 5, 6, 7);
    return _mm256_cmpgt_epi32(_mm256_set1_epi32(n), lane);
}
static inline vf vf_set1(float x) { return _mm256_set1_ps(x); }
static inline vf vf_fma(vf a, vf b, vf c) { return _mm256_fmadd_ps(a, b, c); }
static inline vf vf_add(vf a, vf b) { return _mm256_add_ps(a, b); }
static inline vf vf_load(const float *p) { return _mm256_loadu_ps(p); }
static inline void vf_store(float *p, vf v) { _mm256_storeu_ps(p, v); }
static inline void vf_stream(float *p, vf v) { _mm256_stream_ps(p, v); }
static inline vf vf_load_part(const float *p, int n)
{
    return _mm256_maskload_ps(p, vf_mask(n));
}
static inline void vf_store_part(float *p, vf v, int n)
{
    _mm256_maskstore_ps(p, vf_mask(n), v);
}
static inline float vf_sum(vf v)
{
    __m128 s = _mm_add_ps(_mm256_castps256_ps128(v), _mm256_extractf128_ps(v, 1));
    s = _mm_add_ps(s, _mm_movehl_ps(s, s));
    return _mm_cvtss_f32(_mm_add_ss(s, _mm_movehdup_ps(s)));
}
static inline vf vf_set_pair(const float *p)
{
    double pair; /* as one number it is broadcast by the load itself */
    memcpy(&pair, p, sizeof pair);
    return _mm256_castpd_ps(_mm256_set1_pd(pair));
}
static inline vf vf_swap(vf v) { return _mm256_permute_ps(v, 0xb1); }
static inline vf vf_add_i_times(vf re, vf im)
{
    return _mm256_addsub_ps(re, vf_swap(im));
}
static inline float vf_sum_odd_less_even(vf v)
{
    return vf_sum(_mm256_addsub_ps(_mm256_setzero_ps(), v));
}

/* 4 x 4 blocks inside the 128-bit lanes, then the lanes themselves. */
static inline void vf_transpose(vf v[8])
{
    vf t[8];
    for (int i = 0; i < 8; i += 2) {
        t[i] = _mm256_unpacklo_ps(v[i], v[i + 1]);
        t[i + 1] = _mm256_unpackhi_ps(v[i], v[i + 1]);
    }
    for (int i = 0; i < 8; i += 4) {
        v[i] = _mm256_shuffle_ps(t[i], t[i + 2], 0x44);
        v[i + 1] = _mm256_shuffle_ps(t[i], t[i + 2], 0xee);
        v[i + 2] = _mm256_shuffle_ps(t[i + 1], t[i + 3], 0x44);
        v[i + 3] = _mm256_shuffle_ps(t[i + 1], t[i + 3], 0xee);
    }
    for (int i = 0; i < 4; i++) {
        vf low = _mm256_permute2f128_ps(v[i], v[i + 4], 0x20);
        v[i + 4] = _mm256_permute2f128_ps(v[i], v[i + 4], 0x31);
        v[i] = low;
    }
}

static inline __m256i vd_mask(int n)
{
    __m256i lane = _mm256_setr_epi64x(0, 1, 2, 3);
    return _mm256_cmpgt_epi64(_mm256_set1_epi64x(n), lane);
}
static inline vd vd_set1(double x) { return _mm256_set1_pd(x); }
static inline vd vd_fma(vd a, vd b, vd c) { return _mm256_fmadd_pd(a, b, c); }
static inline vd vd_add(vd a, vd b) { return _mm256_add_pd(a, b); }
static inline vd vd_load(const double *p) { return _mm256_loadu_pd(p); }
static inline void vd_store(double *p, vd v) { _mm256_storeu_pd(p, v); }
static inline void vd_stream(double *p, vd v) { _mm256_stream_pd(p, v); }
static inline vd vd_load_part(const double *p, int n)
{
    return _mm256_maskload_pd(p, vd_mask(n));
}
static inline void vd_store_part(double *p, vd v, int n)
{
    _mm256_maskstore_pd(p, vd_mask(n), v);
}
static inline double vd_sum(vd v)
{
    __m128d s = _mm_add_pd(_mm256_castpd256_pd128(v), _mm256_extractf128_pd(v, 1));
    return _mm_cvtsd_f64(_mm_add_sd(s, _mm_unpackhi_pd(s, s)));
}
static inline vd vd_set_pair(const double *p)
{
    __m128d pair = _mm_loadu_pd(p);
    return _mm256_set_m128d(pair, pair);
}
static inline vd vd_swap(vd v) { return _mm256_permute_pd(v, 0x5); }
static inline vd vd_add_i_times(vd re, vd im)
{
    return _mm256_addsub_pd(re, vd_swap(im));
}
static inline double vd_sum_odd_less_even(vd v)
{
    return vd_sum(_mm256_addsub_pd(_mm256_setzero_pd(), v));
}

static inline void vd_transpose(vd v[4])
{
    vd a = _mm256_unpacklo_pd(v[0], v[1]), b = _mm256_unpackhi_pd(v[0], v[1]);
    vd c = _mm256_unpacklo_pd(v[2], v[3]), d = _mm256_unpackhi_pd(v[2], v[3]);
    v[0] = _mm256_permute2f128_pd(a, c, 0x20);
    v[1] = _mm256_permute2f128_pd(b, d, 0x20);
    v[2] = _mm256_permute2f128_pd(a, c, 0x31);
    v[3] = _mm256_permute2f128_pd(b, d, 0x31);
}

static inline vf vf_load_period(const float *p, int period)
{
    return period == 0   ? vf_set1(0)
           : period == 1 ? vf_set1(*p)
           : period == 2 ? vf_set_pair(p)
           : period == 4 ? _mm256_broadcast_ps((const void *)p)
                         : vf_load(p);
}
static inline vd vd_load_period(const double *p, int period)
{
    return period == 0   ? vd_set1(0)
           : period == 1 ? vd_set1(*p)
           : period == 2 ? vd_set_pair(p)
                         : vd_load(p);
}

static inline vf f16_load(const uint16_t *p)
{
    return _mm256_cvtph_ps(_mm_loadu_si128((const void *)p));
}
static inline void f16_store(uint16_t *p, vf v)
{
    _mm_storeu_si128((void *)p, _mm256_cvtps_ph(v, _MM_FROUND_TO_NEAREST_INT));
}
static inline vf bf16_load(const uint16_t *p)
{
    __m256i w = _mm256_cvtepu16_epi32(_mm_loadu_si128((const void *)p));
    return _mm256_castsi256_ps(_mm256_slli_epi32(w, 16));
}
static inline void bf16_store(uint16_t *p, vf v)
{
    __m256i u = _mm256_castps_si256(v), one = _mm256_set1_epi32(1);
    __m256i odd = _mm256_and_si256(_mm256_srli_epi32(u, 16), one);
    __m256i up = _mm256_add_epi32(u, _mm256_add_epi32(odd, _mm256_set1_epi32(0x7fff)));
    __m256i quiet = _mm256_or_si256(u, _mm256_set1_epi32(0x400000));
    __m256 nan = _mm256_cmp_ps(v, v, _CMP_UNORD_Q);
    up = _mm256_castps_si256(
        _mm256_blendv_ps(_mm256_castsi256_ps(up), _mm256_castsi256_ps(quiet), nan));
    up = _mm256_srli_epi32(up, 16);
    up = _mm256_permute4x64_epi64(_mm256_packus_epi32(up, up), 0x08);
    _mm_storeu_si128((void *)p, _mm256_castsi256_si128(up));
}

typedef __m256i vi;
static inline vi vi_load(const int32_t *p)
{
    return _mm256_loadu_si256((const void *)p);
}
static inline int32_t vi_top(vi v)
{
    __m128i m =
        _mm_max_epi32(_mm256_castsi256_si128(v), _mm256_extracti128_si256(v, 1));
    m = _mm_max_epi32(m, _mm_shuffle_epi32(m, 0x4e));
    return _mm_cvtsi128_si32(_mm_max_epi32(m, _mm_shuffle_epi32(m, 0xb1)));
}
static inline vf vf_from_vi(vi v) { return _mm256_cvtepi32_ps(v); }
static inline vi vi_most(vi most, vf x)
{
    __m256i magnitude = _mm256_set1_epi32(0x7fffffff);
    return _mm256_max_epi32(most, _mm256_and_si256(_mm256_castps_si256(x), magnitude));
}
/* Numbers are made 16 bits wide: products of 8 bits would be added with saturation. */
#define PLAIN_TERMS 2
#define PLAIN_ZERO  0
typedef int16_t plain_x;
typedef __m256i plain_w;
static inline plain_w plain_load(const int8_t *p)
{
    return _mm256_cvtepi8_epi16(_mm_loadu_si128((const void *)p));
}
static inline plain_w plain_spread(const plain_x *x)
{
    int32_t pair;
    memcpy(&pair, x, sizeof pair);
    return _mm256_set1_epi32(pair);
}
static inline vi plain_dot(vi sum, plain_w w, plain_w x)
{
    return _mm256_add_epi32(sum, _mm256_madd_epi16(w, x));
}
static inline void plain_round(plain_x *to, vf x)
{
    __m256i n = _mm256_cvtps_epi32(x);
    n = _mm256_permute4x64_epi64(_mm256_packs_epi32(n, n), 0x08);
    _mm_storeu_si128((void *)to, _mm256_castsi256_si128(n));
}

#define VF_INNER 2
#define VD_INNER 1
static inline void vf_turn_chunks(vf v[4])
{
    vd t[4];
    for (int i = 0; i < 4; i++)
        t[i] = _mm256_castps_pd(v[i]);
    vd_transpose(t);
    for (int i = 0; i < 4; i++)
        v[i] = _mm256_castpd_ps(t[i]);
}
static inline void vd_turn_chunks(vd v[4]) { vd_transpose(v); }
static inline void vf_turn_inner(vf *v)
{
    vf even = _mm256_blend_ps(v[0], _mm256_moveldup_ps(v[1]), 0xaa);
    v[1] = _mm256_blend_ps(_mm256_movehdup_ps(v[0]), v[1], 0xaa);
    v[0] = even;
}
static inline void vd_turn_inner(vd *v) { (void)v; }

static inline void vec_fence(void) { _mm_sfence(); }
