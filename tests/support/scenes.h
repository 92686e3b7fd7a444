/* What models of every kind are asked: random texts, whether embeddings depend on threads, what
   is refused, and outlines. Models lie in the folder of files.h. */
// SPDX-License-Identifier: Apache-2.0
#ifndef TEST_SUPPORT_SCENES_H
#define TEST_SUPPORT_SCENES_H

#include "danaus/danaus.h"
#include "support/rng.h"

typedef struct texts {
    int64_t count, *offsets;
    int32_t *ids;
} texts;

/* So many sequences of 1 to `longest` tokens, less than `vocabulary`. */
texts texts_random(rng *r, int64_t count, int64_t longest, int64_t vocabulary);

/* New tokens, and sequences of these lengths. */
void texts_fill(rng *r, texts *t, const int64_t *lengths, int64_t vocabulary);
void texts_free(texts *t);

/* Embeddings of `width` numbers, of which nothing is written behind. The caller frees them. */
float *texts_embed(
    danaus_model *model, danaus_device *device, const texts *t, int64_t width);

/* Skips the test where threads are not counted. */
void need_threads(const danaus_device *device);

/* Any number of threads gives the same bits. */
void expect_threads_to_agree(
    danaus_model *model, danaus_device *device, const texts *t, int64_t width);

/* The folder is not loaded, and the sentence has these words. */
void expect_refusal(danaus_device *device, danaus_status status, const char *words);

/* Skips the test where models have no 16 bits. */
void need_sixteen_bits(const danaus_device *device);

/* The folder, loaded with rows of f16 or bf16 in turn; plain loops count what is stored as
   rounded to that (named.h) until the model is closed. */
danaus_model *sixteen_bits_load(danaus_device *device, int round);
void sixteen_bits_close(danaus_model *model);

/* An outline of the folder says of itself what the model does, in every type that the model is
   for, and does not run. */
void expect_outline(danaus_model *model, danaus_device *device);

#endif
