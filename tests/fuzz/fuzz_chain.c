/* Any bytes as a chain file, and as that of an operator: loaded and, when small, multiplied
   out, or refused; of a chain with few numbers what the algebra makes of it, alone and twice. */
// SPDX-License-Identifier: Apache-2.0
#include "fuzz/fuzz.h"

#include <string.h>

#include "danaus/danaus.h"

#define MOST_ELEMENTS (1 << 14)
#define MOST_NUMBERS  256 /* of a chain that algebra is tried on */

static int is_small(int64_t rows, int64_t cols)
{
    expect(rows > 0 && cols > 0);
    return rows < MOST_ELEMENTS && cols < MOST_ELEMENTS && rows * cols < MOST_ELEMENTS;
}

/* A place for W of a type. */
static void *room_for(int64_t rows, int64_t cols, danaus_dtype dtype)
{
    void *dense = malloc((size_t)(rows * cols) * danaus_dtype_size(dtype));
    expect(dense != NULL);
    return dense;
}

/* W, or the sentence that its type does not hold it. */
static void expect_dense(danaus_status status)
{
    expect(
        status == DANAUS_OK || (status == DANAUS_ERR_ARGUMENT &&
                                strstr(danaus_error_detail(), "are too small for")));
}

/* A chain, or a sentence. */
static void expect_made(danaus_status status, danaus_chain *made)
{
    expect((status == DANAUS_OK) == (made != NULL));
    expect(made ? danaus_chain_parameters(made) > 0 : *danaus_error_detail());
    danaus_chain_destroy(made);
}

static void try_algebra(const danaus_chain *chain)
{
    const danaus_chain *twice[] = { chain, chain };
    for (int how = DANAUS_PRODUCT; how <= DANAUS_KRONECKER; how++) {
        danaus_chain *made = NULL;
        danaus_status status =
            danaus_chain_combine((danaus_combination)how, twice, 2, &made);
        expect_made(status, made);
    }
    for (int what = 0; what < 3; what++) {
        danaus_chain *made = NULL;
        danaus_status status =
            what == 0   ? danaus_chain_transpose(chain, 1, &made)
            : what == 1 ? danaus_chain_fuse(chain, 0, danaus_chain_count(chain), &made)
                        : danaus_chain_invert(chain, 1, &made, NULL);
        expect_made(status, made);
    }
    double log_modulus, phase[2];
    if (danaus_chain_determinant(chain, 1, &log_modulus, phase) != DANAUS_OK)
        expect(*danaus_error_detail());
}

static void try_chain(const char *path)
{
    danaus_chain *chain = NULL;
    if (danaus_chain_load(path, &chain) != DANAUS_OK) {
        expect(!chain && *danaus_error_detail());
        return;
    }
    int64_t rows = danaus_chain_rows(chain), cols = danaus_chain_cols(chain);
    expect(danaus_chain_parameters(chain) > 0);
    if (is_small(rows, cols)) {
        void *dense = room_for(rows, cols, danaus_chain_dtype(chain));
        expect_dense(danaus_chain_to_dense(chain, dense));
        free(dense);
        if (danaus_chain_parameters(chain) <= MOST_NUMBERS)
            try_algebra(chain);
    }
    danaus_chain_destroy(chain);
}

static void try_operator(const char *path)
{
    danaus_operator *made = NULL;
    if (danaus_operator_load(path, &made) != DANAUS_OK) {
        expect(!made && *danaus_error_detail());
        return;
    }
    int64_t rows = danaus_operator_rows(made), cols = danaus_operator_cols(made);
    if (is_small(rows, cols)) {
        void *dense = room_for(rows, cols, danaus_operator_dtype(made));
        expect_dense(danaus_operator_to_dense(made, dense));
        free(dense);
    }
    danaus_operator_destroy(made);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    const char *path = fuzz_file(data, size);
    try_chain(path);
    try_operator(path);
    return 0;
}
