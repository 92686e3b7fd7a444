/* Any bytes as a file of compiled kernels, and as a file of the cache: what is found lies
   in the bytes, by its key, or all is refused with a sentence. */
// SPDX-License-Identifier: Apache-2.0
#include "fuzz/fuzz.h"

#include "gpu/run/images/bundle.h"

#include <string.h>

static void check_entry(const cache_entry *e, const uint8_t *data, size_t size)
{
    expect(e->image >= data && e->image <= data + size);
    expect(e->head.bytes <= (size_t)(data + size - e->image));
    if (dn_cache_is_whole(e))
        expect(e->head.arch <= INT32_MAX && memchr(e->head.version, 0, 16));
}

static void check_bundle(const bundle *b, const uint8_t *data, size_t size)
{
    cache_entry e, found;
    hash128 key = { { 0, 0 } };
    uint64_t whole = 0;
    expect(b->count <= size / sizeof(image_head));
    for (uint64_t i = 0; i < b->count; i++) {
        e = dn_bundle_entry(b, i);
        check_entry(&e, data, size);
        whole += (uint64_t)dn_cache_is_whole(&e);
        expect(dn_bundle_find(b, e.head.key, &found) && found.image == e.image);
    }
    memcpy(&key, data, sizeof key); /* it has a head, so these are there */
    if (dn_bundle_find(b, key, &found))
        expect(dn_hash_equal(found.head.key, key));
    expect((dn_bundle_check(b) == DANAUS_OK) == (whole == b->count));
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    cache_entry e;
    bundle b = { .count = UINT64_MAX };
    if (dn_cache_parse(data, size, &e)) {
        check_entry(&e, data, size);
        expect(dn_cache_is_whole(&e));
    }
    if (dn_bundle_read((map){ data, size }, &b) == DANAUS_OK)
        check_bundle(&b, data, size);
    else
        expect(b.count == UINT64_MAX && *danaus_error_detail());
    return 0;
}
