// SPDX-License-Identifier: Apache-2.0
#include "support/pairs.h"

#include "support/chains.h"

#include <inttypes.h>
#include <stdio.h>

pair_case pair_random(rng *r, const problem *p)
{
    pair_case c = { .p = *p, .activation = random_activation(r, p->dtype) };
    c.l = array_random(r, p->dtype, weights_of(p->inner));
    c.w = array_random(r, p->dtype, weights_of(p->pattern));
    c.x = array_random(r, p->dtype, cols_of(p->inner) * p->batch);
    if (rng_next(r) % 2)
        c.bias = array_random(r, DANAUS_F32, rows_of(p->pattern));
    if (rng_next(r) % 2)
        c.residual = array_random(r, p->dtype, rows_of(p->pattern) * p->batch);
    return c;
}

void pair_free(pair_case *c)
{
    array_free(&c->l);
    array_free(&c->w);
    array_free(&c->x);
    array_free(&c->bias);
    array_free(&c->residual);
}

void pair_pack(const pair_case *c, const kernel *k, void *packed)
{
    weights_view inner = dn_weights_view(c->l.data, c->p.dtype, c->p.inner);
    weights_view outer = dn_weights_view(c->w.data, c->p.dtype, c->p.pattern);
    outer.inner = &inner;
    k->family->pack(k, &c->p, outer, packed);
}

/* Tf32 rounds both operands of a product to 11 bits, or cuts them. */
static signal times(const problem *p, danaus_pattern q, const array *w, const signal *x)
{
    signal y = signal_times(q, w, 0, x, p->dtype);
    for (int64_t s = 0; p->dtype == DANAUS_F32 && s < y.size * y.batch; s++)
        y.e[s] += 0x1.81p-10 * y.m[s];
    return y;
}

void pair_expect(const pair_case *c, const kernel *k, const array *y)
{
    danaus_dtype dtype = c->p.dtype;
    danaus_pattern w = c->p.pattern, l = c->p.inner;
    signal xs = signal_read(&c->x, DANAUS_BATCH_FIRST, cols_of(l), c->p.batch);
    signal mid = times(&c->p, l, &c->l, &xs);
    signal_round(&mid, dtype);
    signal ys = times(&c->p, w, &c->w, &mid);
    if (c->bias.count)
        signal_add_bias(&ys, &c->bias, dtype);
    if (c->activation)
        signal_round(&ys, dtype);
    signal_activate(&ys, c->activation, dtype);
    if (c->residual.count) {
        signal_round(&ys, dtype);
        signal_add_residual(&ys, &c->residual, DANAUS_BATCH_FIRST, dtype);
    }
    signal_round(&ys, dtype);
    char what[200];
    snprintf(
        what, sizeof what,
        "%s: %" PRId64 ",%" PRId64 ",%" PRId64 ",%" PRId64 " after %" PRId64 ",%" PRId64
        ",%" PRId64 ",1 batch %" PRId64 " bias %d activation %d residual %d",
        k->name, w.a, w.b, w.c, w.d, l.a, l.b, l.c, c->p.batch, c->bias.count > 0,
        (int)c->activation, c->residual.count > 0);
    expect_signal(y, DANAUS_BATCH_FIRST, &ys, what);
    signal_free(&xs);
    signal_free(&mid);
    signal_free(&ys);
}
