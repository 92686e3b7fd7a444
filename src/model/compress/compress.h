/* Replaces linear layers by layers of lower rank, for models of every architecture. */
// SPDX-License-Identifier: Apache-2.0
#ifndef DN_MODEL_COMPRESS_COMPRESS_H
#define DN_MODEL_COMPRESS_COMPRESS_H

#include "model/arch.h"
#include "model/compress/fit.h"
#include "model/compress/least.h"
#include "model/compress/samples.h"

/* Like danaus_model_compress(), by the layers' inputs; without samples only by their weights.
   Layers that are no dense matrices do not change. */
danaus_status dn_compress(
    danaus_model *model, danaus_device *device, const samples *s,
    const danaus_model_compression *how);

/* Makes the choices of layer `number`; where it leaves them as they are the layer takes no
   part. */
typedef danaus_status choices_maker(void *user, int number, choices *c);

/* Divides the model's share of weights among all layers that take part (dn_share_out()).
   *ranks[linears], which the caller frees, are the ranks to fit; 0: all weights. */
danaus_status dn_find_budgets(
    const danaus_model *model, double share, choices_maker *list, void *user,
    int64_t **ranks);

/* The share, candidates and reserved fields. */
danaus_status dn_compression_check(const danaus_model_compression *how);

/* Fits a layer to a problem (dn_problem_best()), beside the dense layer that it is to replace; of
   8-bit numbers if that is asked for or the dense layer is. */
danaus_status dn_replace_layer(
    const linear *old, danaus_device *device, const fit_problem *p, int64_t rank,
    uint32_t candidates, int int8, linear *made);

/* The lower bound of a fitted layer for these targets, and its speedup over the dense one. */
danaus_status dn_rate_layer(const linear *old, targets *t, linear *made);

double dn_ridge_of(const danaus_model_compression *how);

/* Calls the caller's function; DANAUS_ERR_CANCELLED: it gives up. */
danaus_status dn_compression_report(const danaus_model_compression *how, double done);

#endif
