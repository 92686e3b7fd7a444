/* The inside of a plan and of packed weights. */
// SPDX-License-Identifier: Apache-2.0
#ifndef DN_PRODUCT_KS_PLAN_H
#define DN_PRODUCT_KS_PLAN_H

#include "device/backend.h"
#include "product/chain.h"

/* Steps with the factors [from, to) of the chain that each multiplies by: their product,
   or, if its problem has an inner factor, one after the other. */
typedef struct step_list {
    int count;
    ks_step step[DANAUS_MAX_FACTORS];
    int from[DANAUS_MAX_FACTORS], to[DANAUS_MAX_FACTORS];
} step_list;

/* The weights of factors [from, to), or their adjoints, in the order of a step's kernel. */
typedef struct packed_form {
    const ks_step *step;
    int from, to, adjoint;
    size_t at; /* byte where they begin in packed weights */
} packed_form;

#define DN_MOST_FORMS (3 * DANAUS_MAX_FACTORS)

struct danaus_ks_plan {
    char device[32];
    danaus_ks_desc desc;
    int orders; /* dn_orders that its ends may do */
    int count;
    danaus_pattern patterns[DANAUS_MAX_FACTORS];
    step_list run;           /* merged as the planner likes */
    double seconds;          /* of these, as the planner expects */
    step_list forward, back; /* for gradients: a step a factor, and its adjoint */
    step_list weights; /* and its weight gradient, if the device has rows for these */
    /* Packed weights are one block: every form once, then the bias in the type of sums. */
    int forms;
    packed_form form[DN_MOST_FORMS];
    /* The form that a step needs; not of the last forward step, which never runs. */
    int run_form[DANAUS_MAX_FACTORS], forward_form[DANAUS_MAX_FACTORS],
        back_form[DANAUS_MAX_FACTORS];
    size_t bias_at, packed_bytes;
    size_t rounded_bias_at; /* in the plan's type, maybe the same; 0: it is not there */
};

/* Refuses what no plan can be, whatever its patterns; the type is not 0. */
danaus_status dn_check_desc(const danaus_ks_desc *desc);

/* danaus_ks_plan_create() of a product that dn_orders come before and after, which its steps do
   where that is estimated to take less time than by themselves. */
danaus_status dn_ks_plan_create(
    danaus_device *device, const danaus_pattern *patterns, int count,
    const danaus_ks_desc *desc, int orders, danaus_ks_plan **plan);

/* Those that they do. */
int dn_ks_orders(const danaus_ks_plan *plan);

/* danaus_ks_execute() with operands that were checked; it sets `packed`. */
danaus_status dn_ks_run(
    const danaus_ks_plan *plan, danaus_device *device, const danaus_ks_weights *weights,
    ks_operands o);

/* True if the plan can add to what y holds and then apply the activation. */
int dn_ks_adds(
    const danaus_ks_plan *plan, const danaus_device *device,
    danaus_activation activation);

/* Decides the places of all packed weights of a plan in their block of memory. */
danaus_status dn_lay_out_weights(danaus_ks_plan *plan, const danaus_device *device);

/* True if a bias is also packed in the plan's type. */
static inline int dn_rounds_bias(const danaus_ks_plan *plan)
{
    return plan->rounded_bias_at && plan->rounded_bias_at != plan->bias_at;
}

/* The factor for the weights of a form: only the step with the leftmost factor scales. */
static inline double dn_scale_of(const danaus_ks_plan *plan, const packed_form *f)
{
    return f->from == 0 ? plan->desc.scale : 1;
}

struct danaus_ks_weights {
    const danaus_ks_plan *plan;
    const backend *backend;
    danaus_device *device;        /* whose memory holds the packed weights */
    pack_map *map[DN_MOST_FORMS]; /* NULL: not packed from the device's memory yet */
    char *memory;                 /* packed; NULL: none is bound yet */
    void *own;                    /* memory that was made for them, or NULL */
    /* What a step needs, in that memory. */
    const void *run[DANAUS_MAX_FACTORS];
    const void *forward[DANAUS_MAX_FACTORS], *back[DANAUS_MAX_FACTORS];
    int has_bias;
    int ready;         /* for numbers in the device's memory */
    void *products[2]; /* of merged factors, while one is made of another */
};

/* What an update that was checked brings, and binding to its memory. */
chain_numbers dn_update_numbers(const danaus_ks_update *u);
void dn_bind_update(const danaus_ks_update *u);

/* Packing numbers that lie in the memory of a device that is not the host. */
danaus_status dn_ready_weights(danaus_ks_weights *w);
danaus_status dn_gather_weights(
    danaus_device *device, int count, const danaus_ks_update *updates);
void dn_release_weights(danaus_ks_weights *w);

/* Fails unless these weights have memory. */
danaus_status dn_check_bound(const danaus_ks_weights *weights);

/* Makes a device ready to run the plan. */
danaus_status dn_prepare(const danaus_ks_plan *plan, danaus_device *device);

/* Bytes of operands of so many columns, which were found to have a size. */
size_t dn_ks_x_bytes(const danaus_ks_plan *plan, int64_t batch);
size_t dn_ks_y_bytes(const danaus_ks_plan *plan, int64_t batch);

/* Checks what execute and gradient have in common. */
danaus_status dn_check_operands(
    const danaus_ks_plan *plan, const danaus_device *device,
    const danaus_ks_weights *weights, int64_t batch, const void *x, const void *y);

#endif
