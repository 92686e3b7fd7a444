/* The hash of 128 bits: every byte counts, and so does where pieces end; files hold it. */
// SPDX-License-Identifier: Apache-2.0
#include "support/test.h"

#include "base/hash.h"
#include "support/rng.h"

#include <string.h>

#define MOST 80

static hash128 hash(const void *data, size_t bytes)
{
    return dn_hash(DN_HASH_START, data, bytes);
}

/* In any bit of any byte, and zeros at the end. */
static void every_change_is_seen(void **state)
{
    (void)state;
    unsigned char data[MOST + 1] = { 0 };
    rng r = { 7 };
    for (int i = 0; i < MOST; i++)
        data[i] = (unsigned char)rng_int(&r, 0, 255);
    for (size_t bytes = 0; bytes <= MOST; bytes++) {
        hash128 whole = hash(data, bytes);
        for (size_t bit = 0; bit < 8 * bytes; bit++) {
            data[bit / 8] ^= (unsigned char)(1u << bit % 8);
            assert_false(dn_hash_equal(whole, hash(data, bytes)));
            data[bit / 8] ^= (unsigned char)(1u << bit % 8);
        }
        assert_true(dn_hash_equal(whole, hash(data, bytes)));
        unsigned char saved = data[bytes];
        data[bytes] = 0;
        assert_false(dn_hash_equal(whole, hash(data, bytes + 1)));
        data[bytes] = saved;
    }
}

/* No two of many short inputs, in either half. */
static void halves_differ_too(void **state)
{
    (void)state;
    static hash128 all[2048];
    for (uint64_t i = 0; i < 2048; i++) {
        uint64_t word[2] = { i << 40, i << 50 };
        all[i] = hash(word, sizeof word);
        for (uint64_t j = 0; j < i; j++)
            assert_true(
                all[i].part[0] != all[j].part[0] && all[i].part[1] != all[j].part[1]);
    }
}

static void pieces_are_not_their_sum(void **state)
{
    (void)state;
    hash128 whole = dn_hash_text(DN_HASH_START, "a kernel");
    hash128 pieces = dn_hash_text(dn_hash_text(DN_HASH_START, "a "), "kernel");
    hash128 others = dn_hash_text(dn_hash_text(DN_HASH_START, "a k"), "ernel");
    assert_false(dn_hash_equal(whole, pieces));
    assert_false(dn_hash_equal(others, pieces));
    assert_false(dn_hash_equal(dn_hash_text(whole, ""), whole));
}

/* Its formula, worked out by another program. */
static void what_files_hold_stays(void **state)
{
    (void)state;
    hash128 of_nothing = hash("", 0),
            of_text = dn_hash_text(DN_HASH_START, "the bytes of this text");
    assert_int_equal(of_nothing.part[0], 0x8f9a709e569f04aau);
    assert_int_equal(of_nothing.part[1], 0x7706fe46ac7e0a9bu);
    assert_int_equal(of_text.part[0], 0x676eec949599358cu);
    assert_int_equal(of_text.part[1], 0x92b21464ead4ee5bu);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(every_change_is_seen),
        cmocka_unit_test(halves_differ_too),
        cmocka_unit_test(pieces_are_not_their_sum),
        cmocka_unit_test(what_files_hold_stays),
    };
    return cmocka_run_group_tests_name("hash", tests, NULL, NULL);
}
