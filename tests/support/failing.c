/* Calls whose allocations fail. */
// SPDX-License-Identifier: Apache-2.0
#include "support/failing.h"

#include "support/device.h"
#include "support/test.h"

#include "base/mem.h"
#include "base/status.h"

#include <jansson.h>

int expect_memory_errors(danaus_status (*attempt)(void *arg), void *arg)
{
    for (int n = 1;; n++) {
        dn_fail(DANAUS_OK, "%s", "");
        dn_alloc_fail_at(n);
        danaus_status status = attempt(arg);
        long happened = dn_alloc_fail_at(0);
        if (happened < n) {
            assert_ok(status);
            return n - 1;
        }
        if (status != DANAUS_ERR_MEMORY)
            fail_msg(
                "allocation %d failed and the status is \"%s\": %s", n,
                danaus_status_name(status), danaus_error_detail());
        assert_string_not_equal(danaus_error_detail(), "");
    }
}

void fail_in_jansson(void) { json_set_alloc_funcs(dn_alloc, dn_free); }
