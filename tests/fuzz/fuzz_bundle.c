/* Any bytes as a file of compiled kernels, and as a file of the cache: what is taken lies
   in the bytes and is whole, or all is refused with a sentence. */
// SPDX-License-Identifier: Apache-2.0
#include "fuzz/fuzz.h"

#include "cuda/cache.h"
#include "danaus/base.h"

static const uint8_t *first, *last;
static int64_t taken;

static danaus_status take(const cache_entry *e)
{
    expect(e->image >= first && e->image <= last);
    expect(e->bytes <= (size_t)(last - e->image) && e->arch >= 0);
    taken++;
    return DANAUS_OK;
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    cache_entry e;
    int64_t count = -1;
    first = data;
    last = data + size;
    taken = 0;
    size_t length = dn_cache_parse(data, size, &e);
    if (length)
        expect(length <= size && take(&e) == DANAUS_OK);
    taken = 0;
    if (dn_bundle_read(data, size, take, &count) == DANAUS_OK)
        expect(count == taken);
    else
        expect(count == -1 && taken == 0 && *danaus_error_detail());
    return 0;
}
