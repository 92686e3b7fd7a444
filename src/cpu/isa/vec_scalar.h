/* The vector vocabulary in plain C: the specification of the names, and the
   fall-back for any processor. Compilers make what they can of the loops.

   vf holds VF floats, vd holds VD doubles, both an even number. Part versions
   touch only the first `n` lanes, 0 <= n <= lanes; missing lanes load as zero.
   Stores named stream want aligned addresses and go past the caches where a
   processor can. TILE_*, DW_* and LANE_* are sizes of register tiles,
   FFT_RADIX the largest radix whose butterfly suits the registers. */
// SPDX-License-Identifier: Apache-2.0
#define VF           4
#define VD           2
#define TILE_ROWS    4
#define TILE_VECS    2
#define DW_ROWS      2
#define DW_COLS      2
#define LANE_VECS    2
#define LANE_COLUMNS 4
#define FFT_RADIX    4

typedef float vf __attribute__((vector_size(16)));
typedef double vd __attribute__((vector_size(16)));

static inline vf vf_set1(float x) { return (vf){ x, x, x, x }; }
static inline vf vf_set_pair(const float *p) { return (vf){ p[0], p[1], p[0], p[1] }; }
static inline vf vf_fma(vf a, vf b, vf c) { return a * b + c; }
static inline vf vf_add(vf a, vf b) { return a + b; }
static inline vf vf_load_part(const float *p, int n)
{
    vf v = { 0 };
    for (int i = 0; i < n; i++)
        v[i] = p[i];
    return v;
}
static inline void vf_store_part(float *p, vf v, int n)
{
    for (int i = 0; i < n; i++)
        p[i] = v[i];
}
static inline vf vf_load(const float *p) { return (vf){ p[0], p[1], p[2], p[3] }; }
static inline void vf_store(float *p, vf v) { vf_store_part(p, v, VF); }
static inline void vf_stream(float *p, vf v) { vf_store(p, v); }
static inline float vf_sum(vf v) { return (v[0] + v[2]) + (v[1] + v[3]); }

/* In each pair of lanes: exchanged; re + i im; the sum of (odd - even). */
static inline vf vf_swap(vf v) { return (vf){ v[1], v[0], v[3], v[2] }; }
static inline vf vf_add_i_times(vf re, vf im)
{
    return re + (vf){ -im[1], im[0], -im[3], im[2] };
}
static inline float vf_sum_odd_less_even(vf v) { return (v[1] - v[0]) + (v[3] - v[2]); }

/* v[i] lane j becomes v[j] lane i. */
static inline void vf_transpose(vf v[VF])
{
    for (int i = 0; i < VF; i++)
        for (int j = 0; j < i; j++) {
            float t = v[i][j];
            v[i][j] = v[j][i];
            v[j][i] = t;
        }
}

static inline vd vd_set1(double x) { return (vd){ x, x }; }
static inline vd vd_set_pair(const double *p) { return (vd){ p[0], p[1] }; }
static inline vd vd_fma(vd a, vd b, vd c) { return a * b + c; }
static inline vd vd_add(vd a, vd b) { return a + b; }
static inline vd vd_load_part(const double *p, int n)
{
    return (vd){ n > 0 ? p[0] : 0, n > 1 ? p[1] : 0 };
}
static inline void vd_store_part(double *p, vd v, int n)
{
    for (int i = 0; i < n; i++)
        p[i] = v[i];
}
static inline vd vd_load(const double *p) { return (vd){ p[0], p[1] }; }
static inline void vd_store(double *p, vd v) { vd_store_part(p, v, VD); }
static inline void vd_stream(double *p, vd v) { vd_store(p, v); }
static inline double vd_sum(vd v) { return v[0] + v[1]; }
static inline vd vd_swap(vd v) { return (vd){ v[1], v[0] }; }
static inline vd vd_add_i_times(vd re, vd im) { return re + (vd){ -im[1], im[0] }; }
static inline double vd_sum_odd_less_even(vd v) { return v[1] - v[0]; }
static inline void vd_transpose(vd v[VD])
{
    double t = v[0][1];
    v[0][1] = v[1][0];
    v[1][0] = t;
}

/* The first `period` numbers at p, over and over; a period of 0 gives zeros. */
static inline vf vf_load_period(const float *p, int period)
{
    vf v = { 0 };
    for (int i = 0; i < VF && period; i++)
        v[i] = p[i % period];
    return v;
}
static inline vd vd_load_period(const double *p, int period)
{
    return period ? (vd){ p[0], p[1 % period] } : (vd){ 0, 0 };
}

static inline vf f16_load(const uint16_t *p)
{
    return (vf){ dn_f16_to_f32(p[0]), dn_f16_to_f32(p[1]), dn_f16_to_f32(p[2]),
                 dn_f16_to_f32(p[3]) };
}
static inline vf bf16_load(const uint16_t *p)
{
    return (vf){ dn_bf16_to_f32(p[0]), dn_bf16_to_f32(p[1]), dn_bf16_to_f32(p[2]),
                 dn_bf16_to_f32(p[3]) };
}
static inline void f16_store(uint16_t *p, vf v)
{
    for (int i = 0; i < VF; i++)
        p[i] = dn_f32_to_f16(v[i]);
}
static inline void bf16_store(uint16_t *p, vf v)
{
    for (int i = 0; i < VF; i++)
        p[i] = dn_f32_to_bf16(v[i]);
}

/* Dots: plain_dot() adds to each of VF sums the products of PLAIN_TERMS weights of its lane with the
   same PLAIN_TERMS numbers of x. Both have 8 bits, in [-127, 127]. plain_load() reads weights, one
   lane after the other. plain_spread() reads numbers of x, which plain_round() has stored: rounded
   to nearest and with PLAIN_ZERO added. A set with FAST_TERMS has fast_dot() and so on, too, for
   processors that are asked first (isa.c). vi_most() has the larger of two lanes each: of integers,
   and of the bits of |x|; vi_top() the largest lane. */
typedef int32_t vi __attribute__((vector_size(16)));
static inline vi vi_load(const int32_t *p) { return (vi){ p[0], p[1], p[2], p[3] }; }
static inline int32_t vi_top(vi v)
{
    int32_t top = v[0];
    for (int i = 1; i < VF; i++)
        top = v[i] > top ? v[i] : top;
    return top;
}
static inline vf vf_from_vi(vi v) { return __builtin_convertvector(v, vf); }
static inline vi vi_most(vi most, vf x)
{
    vi bits;
    memcpy(&bits, &x, sizeof bits);
    for (int i = 0; i < VF; i++) {
        int32_t magnitude = bits[i] & 0x7fffffff;
        most[i] = magnitude > most[i] ? magnitude : most[i];
    }
    return most;
}
#define PLAIN_TERMS 1
#define PLAIN_ZERO  0
typedef int8_t plain_x;
typedef vi plain_w;
static inline plain_w plain_load(const int8_t *p)
{
    return (vi){ p[0], p[1], p[2], p[3] };
}
static inline plain_w plain_spread(const plain_x *x) { return (vi){ *x, *x, *x, *x }; }
static inline vi plain_dot(vi sum, plain_w w, plain_w x) { return sum + w * x; }
static inline void plain_round(plain_x *to, vf x)
{
    for (int i = 0; i < VF; i++) /* NaN has no integer */
        to[i] = x[i] == x[i] ? (int8_t)rintf(x[i]) : 0;
}

/* Exchanges chunks of four vectors; each vector has four chunks, and chunk c of v[r] becomes
   chunk r of v[c]. Needs at least 4 lanes. */
static inline void vf_turn_chunks(vf v[4]) { vf_transpose(v); }
static inline void vd_turn_chunks(vd v[4]) { (void)v; }

/* Exchanges inside runs of I lanes of I vectors: lane l I + c of v[r] becomes lane
   l I + r of v[c]. I is VF_INNER or VD_INNER: lanes of a chunk, or all of a vector
   too short for chunks. */
#define VF_INNER 1
#define VD_INNER 2
static inline void vf_turn_inner(vf *v) { (void)v; }
static inline void vd_turn_inner(vd *v) { vd_transpose(v); }

/* Orders streamed stores before whatever follows. */
static inline void vec_fence(void) {}
