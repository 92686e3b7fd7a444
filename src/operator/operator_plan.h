/* The inside of a plan of an operator. */
// SPDX-License-Identifier: Apache-2.0
#ifndef DN_OPERATOR_OPERATOR_PLAN_H
#define DN_OPERATOR_OPERATOR_PLAN_H

#include "device/backend.h"
#include "operator/operator.h"

/* Columns of a slab are a multiple of this, and of every tile of columns. */
#define OPERATOR_SLAB_UNIT 48

/* An order, or its transpose, in a device's memory: `rows` numbers of `sources`. */
typedef struct operator_order {
    int64_t rows, sources;
    int natural;         /* it changes nothing */
    int gaps;            /* some of its numbers are 0 */
    void *start, *place; /* of a pick_job */
} operator_order;

/* A chain, or its adjoint, with the order before it. */
typedef struct operator_stage {
    operator_order before, back; /* and its transpose */
    danaus_ks_plan *plan;
    danaus_ks_weights *weights;
    int orders; /* dn_orders that the plan does: that before, that after its term */
    int64_t takes, gives, passing; /* numbers that go by it, behind those */
    int first, factors;            /* among those of all chains */
} operator_stage;

/* Stages [from, to), in the order in which they run. */
typedef struct operator_term {
    int from, to;
    operator_order after, back;
} operator_term;

struct danaus_operator_plan {
    char place[32];
    danaus_device *device; /* whose memory is in use */
    danaus_ks_desc desc;
    int64_t takes, gives; /* numbers of x, of y */
    int stages, terms;
    operator_stage stage[DANAUS_MAX_FACTORS];
    operator_term term[DANAUS_MAX_FACTORS];
    danaus_layout inside; /* of numbers between x and y */
    int64_t widest;       /* most numbers of a column there */
    int plain;            /* one chain whose orders change nothing */
    int64_t slab;         /* columns that a thread takes; 0: all */
    void *bias;           /* in the type of sums; or NULL */
    danaus_ks_plan *end;  /* sums over columns, for gradients of the bias; or NULL */
    danaus_ks_weights *end_weights;
    void *work;
    size_t work_bytes;
    danaus_device **helpers; /* of a thread each */
    int helper_count;
};

/* Memory of at least so many bytes. */
danaus_status dn_operator_work(danaus_operator_plan *plan, size_t bytes, char **memory);

#endif
