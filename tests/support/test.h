/* What every test program includes: cmocka with what it needs. */
// SPDX-License-Identifier: Apache-2.0
#ifndef TEST_SUPPORT_TEST_H
#define TEST_SUPPORT_TEST_H

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include "danaus/danaus.h"

/* The call succeeds; the library's sentence is shown when it does not. */
#define assert_ok(call)                                                                \
    do {                                                                               \
        danaus_status status_ = (call);                                                \
        if (status_ != DANAUS_OK)                                                      \
            fail_msg(                                                                  \
                "%s: %s: %s", #call, danaus_status_name(status_),                      \
                danaus_error_detail());                                                \
    } while (0)

/* The call fails with this status. */
#define assert_status(call, expected)                                                  \
    do {                                                                               \
        danaus_status status_ = (call), expected_ = (expected);                        \
        if (status_ != expected_)                                                      \
            fail_msg(                                                                  \
                "%s: is \"%s\", not \"%s\"", #call, danaus_status_name(status_),       \
                danaus_status_name(expected_));                                        \
    } while (0)

#endif
