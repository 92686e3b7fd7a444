/* Any bytes as a chain file: loaded and, when small, multiplied out, or refused. */
// SPDX-License-Identifier: Apache-2.0
#include "fuzz/fuzz.h"

#include "danaus/danaus.h"

#define MOST_ELEMENTS (1 << 14)

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    danaus_chain *chain = NULL;
    if (danaus_chain_load(fuzz_file(data, size), &chain) != DANAUS_OK) {
        expect(!chain && *danaus_error_detail());
        return 0;
    }
    int64_t rows = danaus_chain_rows(chain), cols = danaus_chain_cols(chain);
    expect(rows > 0 && cols > 0 && danaus_chain_parameters(chain) > 0);
    if (rows < MOST_ELEMENTS && cols < MOST_ELEMENTS && rows * cols < MOST_ELEMENTS) {
        size_t element = danaus_dtype_size(danaus_chain_dtype(chain));
        void *dense = malloc((size_t)(rows * cols) * element);
        expect(dense && danaus_chain_to_dense(chain, dense) == DANAUS_OK);
        free(dense);
    }
    danaus_chain_destroy(chain);
    return 0;
}
