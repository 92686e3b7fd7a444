/* The vector vocabulary in 64-bit Arm NEON. Names: vec_scalar.h. */
// SPDX-License-Identifier: Apache-2.0
#include <arm_neon.h>

#define VF           4
#define VD           2
#define TILE_ROWS    8
#define TILE_VECS    3
#define DW_ROWS      4
#define DW_COLS      6
#define LANE_VECS    4
#define LANE_COLUMNS 6
#define FFT_RADIX    8

typedef float32x4_t vf;
typedef float64x2_t vd;

static inline vf vf_set1(float x) { return vdupq_n_f32(x); }
static inline vf vf_fma(vf a, vf b, vf c) { return vfmaq_f32(c, a, b); }
static inline vf vf_add(vf a, vf b) { return vaddq_f32(a, b); }
static inline vf vf_load(const float *p) { return vld1q_f32(p); }
static inline void vf_store(float *p, vf v) { vst1q_f32(p, v); }
static inline void vf_stream(float *p, vf v) { vst1q_f32(p, v); }
static inline vf vf_load_part(const float *p, int n)
{
    float t[4] = { 0 };
    for (int i = 0; i < n; i++)
        t[i] = p[i];
    return vld1q_f32(t);
}
static inline void vf_store_part(float *p, vf v, int n)
{
    float t[4];
    vst1q_f32(t, v);
    for (int i = 0; i < n; i++)
        p[i] = t[i];
}
static inline float vf_sum(vf v) { return vaddvq_f32(v); }
static inline vf vf_set_pair(const float *p)
{
    float32x2_t pair = vld1_f32(p);
    return vcombine_f32(pair, pair);
}
static inline vf vf_swap(vf v) { return vrev64q_f32(v); }
static inline vf vf_negate_even(vf v)
{
    const float sign[4] = { -1, 1, -1, 1 };
    return vmulq_f32(v, vld1q_f32(sign));
}
static inline vf vf_add_i_times(vf re, vf im)
{
    return vaddq_f32(re, vf_negate_even(vf_swap(im)));
}
static inline float vf_sum_odd_less_even(vf v) { return vf_sum(vf_negate_even(v)); }
static inline void vf_transpose(vf v[4])
{
    float32x4x2_t a = vtrnq_f32(v[0], v[1]), b = vtrnq_f32(v[2], v[3]);
    v[0] = vcombine_f32(vget_low_f32(a.val[0]), vget_low_f32(b.val[0]));
    v[1] = vcombine_f32(vget_low_f32(a.val[1]), vget_low_f32(b.val[1]));
    v[2] = vcombine_f32(vget_high_f32(a.val[0]), vget_high_f32(b.val[0]));
    v[3] = vcombine_f32(vget_high_f32(a.val[1]), vget_high_f32(b.val[1]));
}

static inline vd vd_set1(double x) { return vdupq_n_f64(x); }
static inline vd vd_fma(vd a, vd b, vd c) { return vfmaq_f64(c, a, b); }
static inline vd vd_add(vd a, vd b) { return vaddq_f64(a, b); }
static inline vd vd_load(const double *p) { return vld1q_f64(p); }
static inline void vd_store(double *p, vd v) { vst1q_f64(p, v); }
static inline void vd_stream(double *p, vd v) { vst1q_f64(p, v); }
static inline vd vd_load_part(const double *p, int n)
{
    double t[2] = { n > 0 ? p[0] : 0, n > 1 ? p[1] : 0 };
    return vld1q_f64(t);
}
static inline void vd_store_part(double *p, vd v, int n)
{
    if (n > 0)
        p[0] = vgetq_lane_f64(v, 0);
    if (n > 1)
        p[1] = vgetq_lane_f64(v, 1);
}
static inline double vd_sum(vd v) { return vaddvq_f64(v); }
static inline vd vd_set_pair(const double *p) { return vld1q_f64(p); }
static inline vd vd_swap(vd v) { return vextq_f64(v, v, 1); }
static inline vd vd_negate_even(vd v)
{
    const double sign[2] = { -1, 1 };
    return vmulq_f64(v, vld1q_f64(sign));
}
static inline vd vd_add_i_times(vd re, vd im)
{
    return vaddq_f64(re, vd_negate_even(vd_swap(im)));
}
static inline double vd_sum_odd_less_even(vd v) { return vd_sum(vd_negate_even(v)); }
static inline void vd_transpose(vd v[2])
{
    vd t = vtrn1q_f64(v[0], v[1]);
    v[1] = vtrn2q_f64(v[0], v[1]);
    v[0] = t;
}

static inline vf vf_load_period(const float *p, int period)
{
    return period == 0   ? vf_set1(0)
           : period == 1 ? vf_set1(*p)
           : period == 2 ? vf_set_pair(p)
                         : vf_load(p);
}
static inline vd vd_load_period(const double *p, int period)
{
    return period == 0 ? vd_set1(0) : period == 1 ? vd_set1(*p) : vd_load(p);
}

static inline vf f16_load(const uint16_t *p)
{
    return vcvt_f32_f16(vreinterpret_f16_u16(vld1_u16(p)));
}
static inline void f16_store(uint16_t *p, vf v)
{
    vst1_u16(p, vreinterpret_u16_f16(vcvt_f16_f32(v)));
}
static inline vf bf16_load(const uint16_t *p)
{
    return vreinterpretq_f32_u32(vshll_n_u16(vld1_u16(p), 16));
}
static inline void bf16_store(uint16_t *p, vf v)
{
    uint32x4_t u = vreinterpretq_u32_f32(v);
    uint32x4_t odd = vandq_u32(vshrq_n_u32(u, 16), vdupq_n_u32(1));
    uint32x4_t up = vaddq_u32(u, vaddq_u32(odd, vdupq_n_u32(0x7fff)));
    uint32x4_t quiet = vorrq_u32(u, vdupq_n_u32(0x400000));
    up = vbslq_u32(vceqq_f32(v, v), up, quiet);
    vst1_u16(p, vshrn_n_u32(up, 16));
}

typedef int32x4_t vi;
static inline vi vi_load(const int32_t *p) { return vld1q_s32(p); }
static inline int32_t vi_top(vi v) { return vmaxvq_s32(v); }
static inline vf vf_from_vi(vi v) { return vcvtq_f32_s32(v); }
static inline vi vi_most(vi most, vf x)
{
    return vmaxq_s32(most, vreinterpretq_s32_f32(vabsq_f32(x)));
}
static inline int8x8_t vi_round(vf x)
{
    int16x4_t n = vqmovn_s32(vcvtnq_s32_f32(x));
    return vqmovn_s16(vcombine_s16(n, n));
}
#define PLAIN_TERMS 2
#define PLAIN_ZERO  0
typedef int8_t plain_x;
typedef int8x8_t plain_w;
static inline plain_w plain_load(const int8_t *p) { return vld1_s8(p); }
static inline plain_w plain_spread(const plain_x *x)
{
    int16_t pair;
    memcpy(&pair, x, sizeof pair);
    return vreinterpret_s8_s16(vdup_n_s16(pair));
}
static inline vi plain_dot(vi sum, plain_w w, plain_w x)
{
    return vpadalq_s16(sum, vmull_s8(w, x));
}
static inline void plain_round(plain_x *to, vf x)
{
    vst1_lane_s32((int32_t *)to, vreinterpret_s32_s8(vi_round(x)), 0);
}
/* The instructions for dots, which compilers need not know. */
#define FAST_TERMS 4
#define FAST_ZERO  0
typedef int8_t fast_x;
typedef int8x16_t fast_w;
static inline fast_w fast_load(const int8_t *p) { return vld1q_s8(p); }
static inline fast_w fast_spread(const fast_x *x)
{
    int32_t four;
    memcpy(&four, x, sizeof four);
    return vreinterpretq_s8_s32(vdupq_n_s32(four));
}
static inline vi fast_dot(vi sum, fast_w w, fast_w x)
{
    __asm__(".arch armv8.2-a+dotprod\n\tsdot %0.4s, %1.16b, %2.16b"
            : "+w"(sum)
            : "w"(w), "w"(x));
    return sum;
}
static inline void fast_round(fast_x *to, vf x) { plain_round(to, x); }

#define VF_INNER 1
#define VD_INNER 2
static inline void vf_turn_chunks(vf v[4]) { vf_transpose(v); }
static inline void vd_turn_chunks(vd v[4]) { (void)v; }
static inline void vf_turn_inner(vf *v) { (void)v; }
static inline void vd_turn_inner(vd *v) { vd_transpose(v); }

static inline void vec_fence(void) {}
