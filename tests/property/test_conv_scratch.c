/* Convolutions in scratch that ends at a page that may not be touched: no thread needs
   more than was asked for. */
// SPDX-License-Identifier: Apache-2.0
#include "support/test.h"

#include "base/numbers.h"
#include "support/conv.h"
#include "support/device.h"

#include <sys/mman.h>
#include <unistd.h>

/* What was lent last. */
typedef struct lender {
    void *pages;
    size_t bytes;
    int calls;
} lender;

static danaus_status lend(void *user, size_t bytes, void *stream, void **memory)
{
    lender *l = user;
    size_t page = (size_t)sysconf(_SC_PAGESIZE);
    size_t inside = (bytes + page - 1) / page * page;
    (void)stream;
    assert_null(l->pages);
    l->bytes = inside + page;
    l->pages = mmap(
        NULL, l->bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    assert_true(l->pages != MAP_FAILED);
    char *end = (char *)l->pages + inside;
    assert_int_equal(mprotect(end, page, PROT_NONE), 0);
    *memory = end - ROUND_UP(bytes, DANAUS_SCRATCH_ALIGN);
    l->calls++;
    return DANAUS_OK;
}

static void take_back(void *user, void *memory, void *stream)
{
    lender *l = user;
    (void)stream, (void)memory;
    assert_int_equal(munmap(l->pages, l->bytes), 0);
    l->pages = NULL;
}

/* Windows of one thread each, and windows that threads share. */
static void scratch_is_as_large_as_was_asked_for(void **state)
{
    static const int64_t lengths[] = { 100, 3000, 70000, 70001 };
    danaus_device *device = *state;
    lender l = { 0 };
    danaus_allocator a = { &l, lend, take_back, { NULL } };
    assert_ok(danaus_device_set_allocator(device, &a));
    for (int i = 0; i < 4; i++)
        for (int threads = 1; threads <= 7; threads += 3) {
            rng r = { (uint64_t)i };
            danaus_conv_desc desc = { .channels = 2,
                                      .filters = 2,
                                      .batch = 1,
                                      .length = lengths[i],
                                      .filter_length = lengths[i] };
            conv_case c = conv_random(&r, &desc, 1, i);
            array dy = array_random(&r, c.desc.dtype, c.u.count);
            int before = l.calls;
            assert_ok(danaus_device_set_threads(device, threads));
            conv_outcome o = conv_compute(device, &c, &dy);
            assert_true(l.calls > before);
            conv_outcome_free(&o);
            array_free(&dy);
            conv_free(&c);
        }
    assert_ok(danaus_device_set_threads(device, 0));
    assert_ok(danaus_device_set_allocator(device, NULL));
}

int main(int argc, char **argv)
{
    danaus_device *device = device_from_arguments(argc, argv);
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_prestate(scratch_is_as_large_as_was_asked_for, device),
    };
    int failed = cmocka_run_group_tests_name("conv scratch", tests, NULL, NULL);
    danaus_device_close(device);
    return failed;
}
