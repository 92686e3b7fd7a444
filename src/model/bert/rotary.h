/* Rotary positions (Su et al., arXiv 2104.09864), as nn_rotary takes them. */
// SPDX-License-Identifier: Apache-2.0
#ifndef DN_MODEL_ROTARY_H
#define DN_MODEL_ROTARY_H

#include "io/json.h"
#include "model/bind.h"

/* Reads rope_theta of an object, if it is there. Another rope_type than "default" is
   DANAUS_ERR_UNSUPPORTED, and a theta that is not above 0 DANAUS_ERR_FORMAT. */
danaus_status dn_rotary_theta(const json_t *object, double *theta);

/* Fails for heads that have no pairs. */
danaus_status dn_rotary_check_head(int64_t head);

/* Rows [positions][head] in device memory of the binder's copies: angles are
   position theta^(-2 i / head). In an outline memory is counted alone. */
danaus_status dn_rotary_make(
    binder *b, int64_t positions, int64_t head, double theta, const float **turns);

#endif
