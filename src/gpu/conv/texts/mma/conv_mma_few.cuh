/* Rows that pass through short filters where they are read (conv_mma.cu):

       z[j] = bias + sum over s < TAPS of k[s] u[j - s],

   with zeros for u before its row. k[group][channel][TAPS], bias[group][channel] or NULL. */
// SPDX-License-Identifier: Apache-2.0

/* The filter of one row; not on: numbers are taken as they are. */
typedef struct few_row {
    float k[TAPS + 1], bias;
    int is_on;
} few_row;

/* groups: for each operand, of four bits, one more than its group, or 0. */
INLINE few_row few_of(
    const rows *r, const window *w, const float *k, const float *bias, int groups,
    int operand)
{
    few_row f = {};
    int group = groups >> 4 * operand & 15;
    if (!TAPS || !group)
        return f;
    int64 row = (group - 1) * r->channels + w->channel;
    UNROLL for (int s = 0; s < TAPS; s++) f.k[s] = k[row * TAPS + s];
    f.bias = bias ? bias[row] : 0;
    f.is_on = 1;
    return f;
}

/* Number j of a window, which is there, from its place. */
INLINE float read_number(const window *w, const few_row *f, const X *at, int j)
{
    if (!TAPS || !f->is_on)
        return load(*at);
    float z = f->bias;
    UNROLL for (int s = 0; s < TAPS; s++) z += is_in(w->row, j - s) ? f->k[s] * load(at[-s]) : 0;
    return z;
}

/* Turns `count` numbers of u in v into z; `before` has as many numbers of u before these. */
INLINE void make_numbers(const few_row *f, const float *before, int count, float *v)
{
    UNROLL for (int n = count - 1; n >= 0; n--)
    {
        float z = f->bias;
        UNROLL for (int s = 0; s < TAPS; s++)
            z += f->k[s] * (n >= s ? v[n - s] : before[count + n - s]);
        v[n] = z;
    }
}
