/* Public structures keep their sizes and the places of their members, end with reserved
   words, and those that the library fills get zeros there (docs/abi.md). */
// SPDX-License-Identifier: Apache-2.0
#include "support/test.h"

#include "danaus/danaus.h"
#include "support/files.h"

#include <string.h>

#define LEAST_RESERVED 32 /* bytes */

typedef struct place {
    const char *what;
    size_t found, expected;
} place;

static const place places[] = {
#define SIZE(type, bytes)        { "the size of " #type, sizeof(type), bytes },
#define FIXED(type, bytes)       SIZE(type, bytes)
#define MEMBER(type, member, at) { #type "." #member, offsetof(type, member), at },
#include "abi/layout.def"
#undef SIZE
#undef FIXED
#undef MEMBER
};

/* From where the reserved words begin, to their end and to that of the structure. */
static const place ends[] = {
#define SIZE(type, bytes)                                                              \
    { #type, sizeof((type *)NULL)->reserved, sizeof(type) - offsetof(type, reserved) },
#define FIXED(type, bytes)
#define MEMBER(type, member, at)
#include "abi/layout.def"
#undef SIZE
#undef FIXED
#undef MEMBER
};

static void structures_stay_as_they_are(void **state)
{
    (void)state;
    for (size_t i = 0; i < sizeof places / sizeof *places; i++)
        if (places[i].found != places[i].expected)
            fail_msg(
                "%s is %zu, was %zu", places[i].what, places[i].found,
                places[i].expected);
}

static void structures_end_with_reserved_words(void **state)
{
    (void)state;
    for (size_t i = 0; i < sizeof ends / sizeof *ends; i++)
        if (ends[i].found != ends[i].expected || ends[i].found < LEAST_RESERVED)
            fail_msg("%s has %zu reserved bytes", ends[i].what, ends[i].found);
}

static void expect_zeros(const void *words, size_t size)
{
    for (size_t i = 0; i < size; i++)
        assert_int_equal(((const char *)words)[i], 0);
}

#define EXPECT_ZEROS(s) expect_zeros((s).reserved, sizeof(s).reserved)

static void what_the_library_fills_has_zeros_there(void **state)
{
    (void)state;
    danaus_device *device;
    danaus_device_info info;
    danaus_factorize_result result;
    danaus_condition condition;
    danaus_chain *chain;
    danaus_file *file;
    danaus_tensor tensor;
    double dense[16] = { 1 };
    memset(&info, 'x', sizeof info);
    assert_ok(danaus_device_list(0, &info));
    EXPECT_ZEROS(info);
    assert_ok(danaus_device_open("cpu", &device));
    memset(&info, 'x', sizeof info);
    assert_ok(danaus_device_describe(device, &info));
    EXPECT_ZEROS(info);
    danaus_device_close(device);

    danaus_pattern p[] = { { 1, 2, 2, 2 }, { 2, 2, 2, 1 } };
    memset(&result, 'x', sizeof result);
    assert_ok(danaus_factorize(dense, DANAUS_F64, p, 2, NULL, &chain, &result));
    EXPECT_ZEROS(result);
    const char *path = scratch_path("layout");
    assert_ok(danaus_chain_save(chain, path));
    danaus_chain_destroy(chain);
    assert_ok(danaus_file_open(path, &file));
    memset(&tensor, 'x', sizeof tensor);
    assert_ok(danaus_file_tensor(file, 0, &tensor));
    EXPECT_ZEROS(tensor);
    memset(&tensor, 'x', sizeof tensor);
    assert_ok(danaus_file_find(file, "factor.1", &tensor));
    EXPECT_ZEROS(tensor);
    danaus_file_close(file);

    danaus_pattern one = { 1, 1, 1, 1 };
    assert_ok(danaus_chain_create(&one, 1, DANAUS_F64, &chain));
    *(double *)danaus_chain_weights(chain, 0) = 2;
    memset(&condition, 'x', sizeof condition);
    assert_ok(
        danaus_chain_solve(chain, 1, DANAUS_BATCH_LAST, 1, dense, dense, &condition));
    EXPECT_ZEROS(condition);
    danaus_chain_destroy(chain);
}

int main(void)
{
    if (sizeof(void *) != 8)
        return 77;
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(structures_stay_as_they_are),
        cmocka_unit_test(structures_end_with_reserved_words),
        cmocka_unit_test(what_the_library_fills_has_zeros_there),
    };
    return cmocka_run_group_tests_name(
        "layout", tests, scratch_setup, scratch_teardown);
}
