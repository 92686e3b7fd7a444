/* What a plan tells the kernels of its steps: what follows the product, and what lies in
   the caches. */
// SPDX-License-Identifier: Apache-2.0
#include "support/test.h"

#include "device/backend.h"
#include "product/ks_plan.h"

static const danaus_pattern chain[] = { { 1, 4, 4, 16 },
                                        { 4, 4, 4, 4 },
                                        { 16, 4, 4, 1 } };

static void only_the_last_step_has_bias_and_activation(void **state)
{
    for (int adjoint = 0; adjoint < 2; adjoint++) {
        danaus_ks_plan *plan = NULL;
        danaus_ks_desc desc = {
            .keep_factors = 1, .bias = 1, .activation = DANAUS_GELU, .adjoint = adjoint
        };
        assert_ok(danaus_ks_plan_create(*state, chain, 3, &desc, &plan));
        assert_int_equal(plan->run.count, 3);
        for (int i = 0; i < 3; i++) {
            const problem *p = &plan->run.step[i].p;
            assert_int_equal(p->bias, !adjoint && i == 2);
            assert_int_equal(p->activation, i == 2 ? DANAUS_GELU : 0);
            assert_int_equal(p->x_cached, i > 0);
            assert_int_equal(p->y_cached, i < 2);
        }
        danaus_ks_plan_destroy(plan);
    }
}

int main(void)
{
    danaus_device *device = NULL;
    if (danaus_device_open("cpu", &device))
        return 1;
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_prestate(only_the_last_step_has_bias_and_activation, device),
    };
    int failed = cmocka_run_group_tests_name("steps of plans", tests, NULL, NULL);
    danaus_device_close(device);
    return failed;
}
