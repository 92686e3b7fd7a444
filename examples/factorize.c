/* Factorises the Hadamard matrix of 256 into eight butterfly factors.

       cc factorize.c $(pkg-config --cflags --libs danaus) */
// SPDX-License-Identifier: Apache-2.0
#include <danaus/danaus.h>
#include <stdio.h>

enum { N = 256 };

int main(void)
{
    static double dense[N][N];
    for (unsigned i = 0; i < N; i++)
        for (unsigned k = 0; k < N; k++)
            dense[i][k] = __builtin_parity(i & k) ? -1 : 1;

    danaus_chain_desc kind = { .kind = DANAUS_CHAIN_DYADIC, .rows = N, .cols = N };
    danaus_pattern patterns[8];
    danaus_factorize_result result;
    danaus_chain *chain = NULL;
    int count;
    int failed =
        danaus_patterns_make(&kind, patterns, 8, &count) ||
        danaus_factorize(dense, DANAUS_F64, patterns, count, NULL, &chain, &result) ||
        danaus_chain_save(chain, "hadamard.safetensors");
    if (failed)
        fprintf(stderr, "%s\n", danaus_error_detail());
    else
        printf(
            "%d factors, %d parameters for %d entries, relative error %.1e\n", count,
            (int)result.parameters, N * N, result.error);
    danaus_chain_destroy(chain);
    return failed;
}
