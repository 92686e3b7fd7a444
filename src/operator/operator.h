/* The inside of an operator: chains with orders of numbers between them, or a sum of
   operators. */
// SPDX-License-Identifier: Apache-2.0
#ifndef DN_OPERATOR_OPERATOR_H
#define DN_OPERATOR_OPERATOR_H

#include "danaus/transforms.h"

/* Stage i takes lengths[i + 1] numbers and gives sources[i]. Chain i multiplies the first of
   them, as many as its columns, and the others pass by. sources[count] are the inputs. A sum has
   terms, whose chains are its own, one after the other, and no orders; lengths[0] and
   sources[count] are its size. */
struct danaus_operator {
    int count;
    danaus_dtype dtype;
    danaus_chain *chains[DANAUS_MAX_FACTORS];
    int64_t *orders[DANAUS_MAX_FACTORS + 1];
    int64_t lengths[DANAUS_MAX_FACTORS + 1], sources[DANAUS_MAX_FACTORS + 1];
    int repeats[DANAUS_MAX_FACTORS + 1]; /* nonzero: a place comes twice in the order */
    int terms;                           /* 0: it is no sum */
    danaus_operator *term[DANAUS_MAX_FACTORS];
    void *bias; /* M numbers of the type; or NULL */
};

/* Numbers that pass by chain i. */
int64_t dn_operator_passing(const danaus_operator *made, int i);

/* Nonzero if order i changes nothing. */
int dn_operator_natural(const danaus_operator *made, int i);

/* Nonzero if it is one chain whose orders change nothing. */
int dn_operator_is_chain(const danaus_operator *made);

/* The operator of one chain, which is destroyed on failure; orders may be NULL. */
danaus_status dn_operator_of_chain(
    danaus_chain *chain, const int64_t *outputs, int64_t rows, const int64_t *inputs,
    int64_t length, int64_t cols, danaus_operator **made);

/* *made = A^H of an operator of one chain whose orders repeat nothing. */
danaus_status dn_operator_adjoint(const danaus_operator *from, danaus_operator **made);

#endif
