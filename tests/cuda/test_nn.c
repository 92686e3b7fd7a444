/* Models' operations on a GPU, where tables are left and sequences are many: each gives what
   the CPU's does, whose own tests are plain loops. */
// SPDX-License-Identifier: Apache-2.0
#include "support/test.h"

#include "support/device.h"

#include "base/numbers.h"
#include "device/nn.h"
#include "gpu/nn/nn.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

#define UNIT 0x1p-24

static danaus_device *gpu, *cpu;

/* Types of rows, and half a unit in their last place. */
static const struct {
    danaus_dtype dtype;
    double unit;
} types[] = { { DANAUS_F32, 0 }, { DANAUS_F16, 0x1p-11 }, { DANAUS_BF16, 0x1p-8 } };
enum { TYPES = sizeof types / sizeof *types };

/* The same numbers on both: of a type there, as f32 here. */
typedef struct pair {
    int64_t count;
    int type;
    float *host;
    void *device;
} pair;

static void put(pair *p)
{
    danaus_dtype dtype = types[p->type].dtype;
    size_t bytes = (size_t)p->count * danaus_dtype_size(dtype);
    void *stored = malloc(bytes);
    assert_non_null(stored);
    assert_ok(danaus_convert(DANAUS_F32, p->host, dtype, stored, p->count));
    assert_ok(danaus_convert(dtype, stored, DANAUS_F32, p->host, p->count));
    assert_ok(danaus_upload(gpu, p->device, stored, bytes));
    free(stored);
}

static pair make_of(rng *r, int type, int64_t count)
{
    pair p = { .count = count, .type = type };
    p.host = malloc((size_t)count * sizeof *p.host);
    assert_non_null(p.host);
    for (int64_t i = 0; i < count; i++)
        p.host[i] = (float)rng_sign(r);
    size_t bytes = (size_t)count * danaus_dtype_size(types[type].dtype);
    assert_ok(danaus_alloc(gpu, bytes, &p.device));
    put(&p);
    return p;
}

/* f32 on both. */
static pair make(rng *r, int64_t count) { return make_of(r, 0, count); }

static void end(pair *p)
{
    danaus_free(gpu, p->device);
    free(p->host);
}

/* What is stored in 16 bits is rounded once more, to nearest. */
static void expect_same(const pair *p, double bound)
{
    danaus_dtype dtype = types[p->type].dtype;
    size_t bytes = (size_t)p->count * danaus_dtype_size(dtype);
    void *stored = malloc(bytes);
    float *found = malloc((size_t)p->count * sizeof *found);
    assert_true(stored && found);
    assert_ok(danaus_download(gpu, stored, p->device, bytes));
    assert_ok(danaus_convert(dtype, stored, DANAUS_F32, found, p->count));
    for (int64_t i = 0; i < p->count; i++) {
        double most = bound;
        if (p->type)
            most += types[p->type].unit * (fabs(p->host[i]) + bound) + 0x1p-25;
        if (!(fabs((double)found[i] - p->host[i]) <= most))
            fail_msg(
                "number %d of %d, %s, is %.9g, not %.9g within %g", (int)i,
                (int)p->count, danaus_dtype_name(dtype), found[i], p->host[i], most);
    }
    free(found);
    free(stored);
}

/* All but gradients, which only compression needs. */
static void no_operation_is_missing(void **state)
{
    (void)state;
    const char *at = (const char *)gpu->backend->nn;
    void (*function)(void), (*none)(void) = NULL;
    size_t count = offsetof(struct nn_backend, norm_gradient) / sizeof function;
    assert_in_range(count, 10, 100);
    for (size_t i = 0; i < count; i++)
        assert_memory_not_equal(at + i * sizeof function, &none, sizeof function);
}

static int32_t *put_integers(const int32_t *from, int64_t count)
{
    void *memory;
    size_t bytes = (size_t)count * sizeof *from;
    assert_ok(danaus_alloc(gpu, bytes, &memory));
    assert_ok(danaus_upload(gpu, memory, from, bytes));
    return memory;
}

/* Both devices, and where each has a pair. */
#define BOTH(i)  for (int i = 0; i < 2; i++)
#define ON(i)    ((i) ? gpu : cpu)
#define NN(i)    (ON(i)->backend->nn)
#define AT(p, i) ((i) ? (p).device : (void *)(p).host)

static int64_t *random_offsets(rng *r, int64_t count, int64_t most)
{
    int64_t *offsets = calloc((size_t)count + 1, sizeof *offsets);
    assert_non_null(offsets);
    for (int64_t i = 0; i < count; i++)
        offsets[i + 1] = offsets[i] + rng_int(r, 1, most);
    return offsets;
}

/* Scores are sums of `head` products of numbers in [-1, 1]; y is a mean of such numbers, by
   weights that tensor cores round to the type of rows. Half of all have rows that lie apart. */
static void attend(
    rng *r, int type, int64_t sequences, int64_t most, int64_t heads, int64_t head,
    int64_t window, int64_t reach)
{
    int64_t *offsets = random_offsets(r, sequences, most), width = heads * head;
    int64_t pitch = width + rng_int(r, 0, 1) * rng_int(r, 1, 20);
    int64_t numbers = offsets[sequences] * pitch;
    pair q = make_of(r, type, numbers), k = make_of(r, type, numbers);
    pair v = make_of(r, type, numbers);
    pair y = make_of(r, type, offsets[sequences] * width);
    pair bias = make(r, heads * (2 * reach + 1));
    nn_attention o = { .sequences = { sequences, offsets },
                       .width = width,
                       .heads = heads,
                       .pitch = pitch == width ? 0 : pitch,
                       .window = window,
                       .q = q.host,
                       .k = k.host,
                       .v = v.host,
                       .y = y.host,
                       .bias = reach ? bias.host : NULL,
                       .reach = reach };
    assert_ok(cpu->backend->nn->attention(cpu, &o));
    o.q = q.device, o.k = k.device, o.v = v.device, o.y = y.device;
    o.bias = reach ? bias.device : NULL;
    o.dtype = types[type].dtype;
    assert_ok(gpu->backend->nn->attention(gpu, &o));
    double scores = sqrt((double)head) * ((double)head + 4);
    double bound = 2 * UNIT * (4 * scores + 2 * (double)most + 16);
    expect_same(&y, bound + types[type].unit);
    end(&bias);
    end(&q);
    end(&k);
    end(&v);
    end(&y);
    free(offsets);
}

/* Turned numbers are sums of two products of numbers in [-1, 1]. */
static void rotary_positions_are_those_of_the_cpu(void **state)
{
    (void)state;
    for (int round = 0; round < rounds_of(12); round++) {
        rng r = { (uint64_t)round };
        int type = round % TYPES;
        int64_t rows = rng_int(&r, 1, 80), places = rng_int(&r, 1, 40);
        int64_t head = 2 * rng_int(&r, 1, 40), width = head * rng_int(&r, 1, 5);
        int64_t pitch = width + rng_int(&r, 0, 9);
        pair x = make_of(&r, type, rows * pitch), turns = make(&r, places * head);
        int32_t positions[80];
        for (int64_t i = 0; i < rows; i++)
            positions[i] = (int32_t)rng_int(&r, 0, places - 1);
        int32_t *there = put_integers(positions, rows);
        BOTH(i)
        assert_ok(NN(i)->rotary(
            ON(i), &(nn_rotary){ .rows = rows,
                                 .width = width,
                                 .pitch = pitch,
                                 .head = head,
                                 .positions = i ? there : positions,
                                 .turns = AT(turns, i),
                                 .x = AT(x, i),
                                 .dtype = i ? types[type].dtype : 0 }));
        expect_same(&x, 4 * UNIT);
        danaus_free(gpu, there);
        end(&x);
        end(&turns);
    }
}

static int64_t most_head(void)
{
    gpu_attention a;
    int64_t most;
    dn_gpu_attention(&((gpu_device *)gpu)->facts, 1, DANAUS_F32, &a, &most);
    return most;
}

static void attention_is_that_of_the_cpu(void **state)
{
    (void)state;
    rng r = { 1 };
    for (int round = 0; round < rounds_of(40); round++)
        attend(
            &r, round % TYPES, rng_int(&r, 1, 5), rng_int(&r, 1, 140),
            rng_int(&r, 1, 3), rng_int(&r, 1, 70),
            round / TYPES % 2 ? rng_int(&r, 1, 90) : 0,
            round / TYPES % 3 ? rng_int(&r, 1, 150) : 0);
    for (int64_t window = 1; window <= 64; window *= 4)
        attend(&r, 0, 3, 140, 2, 20, window, window);
    attend(&r, 0, 500, 3, 2, 5, 2, 1);
    attend(&r, 1, 1, 65, 1, 129, 0, 0);
    attend(&r, 0, 1, 40, 1, most_head(), 0, 128);
}

static void wide_heads_are_refused(void **state)
{
    (void)state;
    rng r = { 2 };
    const int64_t offsets[] = { 0, 1 };
    pair x = make(&r, 513);
    nn_attention o = { .sequences = { 1, offsets },
                       .width = 513,
                       .heads = 1,
                       .q = x.device,
                       .k = x.device,
                       .v = x.device,
                       .y = x.device };
    assert_status(gpu->backend->nn->attention(gpu, &o), DANAUS_ERR_UNSUPPORTED);
    assert_non_null(strstr(danaus_error_detail(), "513"));
    end(&x);
}

static void many_sequences_are_pooled(void **state)
{
    (void)state;
    for (int round = 0; round < 4; round++) {
        rng r = { (uint64_t)round };
        int type = round % TYPES;
        int64_t count = 100 * round + 200, width = rng_int(&r, 1, 200);
        int64_t *offsets = random_offsets(&r, count, 4);
        pair x = make_of(&r, type, offsets[count] * width);
        pair y = make(&r, count * width);
        nn_pool o = { .sequences = { count, offsets },
                      .width = width,
                      .first = round % 2,
                      .normalize = round / 2,
                      .x = x.host,
                      .y = y.host };
        assert_ok(cpu->backend->nn->pool(cpu, &o));
        o.x = x.device, o.y = y.device;
        o.dtype = types[type].dtype;
        assert_ok(gpu->backend->nn->pool(gpu, &o));
        /* Brought to length 1: numbers are at most 1, with errors of the length's. */
        expect_same(&y, 2 * UNIT * (double)(width + 16));
        end(&x);
        end(&y);
        free(offsets);
    }
}

/* Rows from the middle of some sequence on, of more than one table; or of few sequences that
   are longer than a tile, rows and columns in whole pieces. */
static void few_taps_meet_many_sequences(void **state)
{
    (void)state;
    for (int round = 0; round < 12; round++) {
        rng r = { (uint64_t)round };
        int type = round % TYPES, longer = round % 2;
        int64_t count = longer ? 4 : 45 * round + 100, unit = longer ? 8 : 1;
        int64_t width = unit * rng_int(&r, 1, longer ? 20 : 70);
        int64_t taps = rng_int(&r, 1, 6);
        int64_t *offsets = random_offsets(&r, count, longer ? 300 : 7);
        int64_t all = offsets[count], first = rng_int(&r, 0, (all - 1) / unit) * unit;
        int64_t rows = rng_int(&r, 1, all - first), stride = ROUND_UP(rows + 3, unit);
        pair x = make_of(&r, type, all * width), k = make(&r, taps * width);
        pair shift = make(&r, width), y = make_of(&r, type, width * stride);
        nn_short o = { .sequences = { count, offsets },
                       .first = first,
                       .rows = rows,
                       .width = width,
                       .taps = taps,
                       .stride = stride,
                       .x = x.host + first * width,
                       .k = k.host,
                       .shift = shift.host,
                       .y = y.host };
        assert_ok(cpu->backend->nn->short_conv(cpu, &o));
        size_t size = danaus_dtype_size(types[type].dtype);
        o.x = (char *)x.device + (size_t)(first * width) * size;
        o.k = k.device, o.shift = shift.device, o.y = y.device;
        o.dtype = types[type].dtype;
        assert_ok(gpu->backend->nn->short_conv(gpu, &o));
        expect_same(&y, 2 * UNIT * (double)(taps + 1) * (double)(taps + 1));
        end(&x);
        end(&k);
        end(&shift);
        end(&y);
        free(offsets);
    }
}

/* ---- what is made number by number, or row by row ---- */

static void norms_are_those_of_the_cpu(rng *r, int type, int64_t rows, int64_t width)
{
    int64_t n = rows * width;
    pair a = make_of(r, type, n), b = make_of(r, type, n), scale = make(r, width);
    pair sum = make_of(r, type, n), normed = make_of(r, type, n);
    BOTH(i)
    assert_ok(NN(i)->norm(
        ON(i), &(nn_norm){ .rows = rows,
                           .width = width,
                           .x = AT(a, i),
                           .more = AT(b, i),
                           .scale = AT(scale, i),
                           .shift = AT(scale, i),
                           .epsilon = 0.1f,
                           .y = AT(normed, i),
                           .sum = AT(sum, i),
                           .dtype = i ? types[type].dtype : 0 }));
    expect_same(&sum, 0);
    expect_same(&normed, 8 * UNIT * (double)(width + 16) * 10);
    pair *const all[] = { &a, &b, &scale, &sum, &normed };
    for (size_t i = 0; i < sizeof all / sizeof *all; i++)
        end(all[i]);
}

static void channels_are_those_of_the_cpu(rng *r, int type, int64_t rows, int64_t width)
{
    int64_t n = rows * width;
    pair a = make_of(r, type, n), b = make_of(r, type, n), decay = make(r, width);
    pair times = make(r, rows), turned = make_of(r, type, n);
    for (int64_t i = 0; i < rows; i++)
        times.host[i] = fabsf(times.host[i]);
    put(&times);
    BOTH(i)
    assert_ok(NN(i)->turn(
        ON(i), &(nn_turn){ .rows = rows,
                           .width = width,
                           .stride = rows,
                           .x = AT(a, i),
                           .more = AT(b, i),
                           .decay = AT(decay, i),
                           .times = AT(times, i),
                           .shift = 0.5f,
                           .y = AT(turned, i),
                           .dtype = i ? types[type].dtype : 0 }));
    expect_same(&turned, 16 * UNIT);
    int64_t from = rng_int(r, 0, rows);
    BOTH(i)
    assert_ok(NN(i)->pad(
        ON(i), &(nn_pad){ .channels = width,
                          .from = from,
                          .stride = rows,
                          .y = AT(turned, i),
                          .dtype = i ? types[type].dtype : 0 }));
    expect_same(&turned, 16 * UNIT);
    pair *const all[] = { &a, &b, &decay, &times, &turned };
    for (size_t i = 0; i < sizeof all / sizeof *all; i++)
        end(all[i]);
}

/* Gates. GELU of 16 bits errs by 8.2e-5 of it (normal.h), which is at most 1 here. */
static void gates_are_those_of_the_cpu(rng *r, int type, int64_t rows, int64_t width)
{
    pair x = make_of(r, type, 2 * rows * width), y = make_of(r, type, rows * width);
    for (int a = DANAUS_ACTIVATION_NONE; a <= DANAUS_GELU_TANH; a++) {
        BOTH(i)
        assert_ok(NN(i)->gate(
            ON(i), &(nn_gate){ .rows = rows,
                               .width = width,
                               .activation = (danaus_activation)a,
                               .x = AT(x, i),
                               .y = AT(y, i),
                               .dtype = i ? types[type].dtype : 0 }));
        expect_same(&y, 64 * UNIT + (type ? 8.2e-5 : 0));
    }
    end(&x);
    end(&y);
}

/* Words of a table, and scores of them. */
static void words_are_those_of_the_cpu(rng *r, int type, int64_t rows, int64_t width)
{
    int64_t words = rng_int(r, 1, 40);
    pair table = make_of(r, type, words * width),
         place = make_of(r, type, rows * width);
    pair kind = make_of(r, type, width), y = make_of(r, type, rows * width);
    pair bias = make(r, words), scores = make(r, rows * words);
    int32_t ids[9], positions[9];
    for (int64_t i = 0; i < rows; i++) {
        ids[i] = (int32_t)rng_int(r, 0, words - 1);
        positions[i] = (int32_t)rng_int(r, 0, rows - 1);
    }
    int32_t *there[] = { put_integers(ids, rows), put_integers(positions, rows) };
    BOTH(i)
    assert_ok(NN(i)->lookup(
        ON(i), &(nn_lookup){ .rows = rows,
                             .width = width,
                             .ids = i ? there[0] : ids,
                             .positions = i ? there[1] : positions,
                             .word = AT(table, i),
                             .position = AT(place, i),
                             .type = AT(kind, i),
                             .y = AT(y, i),
                             .dtype = i ? types[type].dtype : 0 }));
    expect_same(&y, 4 * UNIT);
    put(&y); /* what is scored is the same */
    BOTH(i)
    assert_ok(NN(i)->score(
        ON(i), &(nn_score){ .rows = rows,
                            .width = width,
                            .words = words,
                            .x = AT(y, i),
                            .table = AT(table, i),
                            .bias = AT(bias, i),
                            .y = AT(scores, i),
                            .dtype = i ? types[type].dtype : 0 }));
    expect_same(&scores, 2 * UNIT * (double)(width + 2) * (3 * (double)width + 1));
    danaus_free(gpu, there[0]);
    danaus_free(gpu, there[1]);
    pair *const all[] = { &table, &place, &kind, &y, &bias, &scores };
    for (size_t i = 0; i < sizeof all / sizeof *all; i++)
        end(all[i]);
}

/* Images whose sides patches do not divide, too. */
static void patches_are_those_of_the_cpu(rng *r, int type)
{
    int64_t images = rng_int(r, 1, 3), channels = rng_int(r, 1, 4);
    int64_t size = rng_int(r, 1, 20), patch = rng_int(r, 1, size);
    int64_t side = size / patch * patch;
    pair x = make(r, images * channels * size * size);
    pair y = make_of(r, type, images * channels * side * side);
    BOTH(i)
    assert_ok(NN(i)->patches(
        ON(i), &(nn_patches){ .images = images,
                              .channels = channels,
                              .size = size,
                              .patch = patch,
                              .x = AT(x, i),
                              .y = AT(y, i),
                              .dtype = i ? types[type].dtype : 0 }));
    expect_same(&y, 0);
    end(&x);
    end(&y);
}

static void rows_of_any_type_are_those_of_the_cpu(void **state)
{
    (void)state;
    for (int round = 0; round < rounds_of(30); round++) {
        rng r = { (uint64_t)round };
        int type = round % TYPES, turn = round / TYPES;
        int64_t unit = turn % 2 ? 8 : 1; /* of which there are whole pieces, or none */
        int64_t rows = rng_int(&r, 1, 9), width = unit * rng_int(&r, 1, 300 / unit);
        norms_are_those_of_the_cpu(&r, type, rows, width + (turn % 4 < 2 ? 0 : 1024));
        channels_are_those_of_the_cpu(
            &r, type, unit * rng_int(&r, 1, 200 / unit), width);
        gates_are_those_of_the_cpu(&r, type, rows, width);
        words_are_those_of_the_cpu(&r, type, rows, width);
        patches_are_those_of_the_cpu(&r, type);
    }
}

/* What is f32 in every model. */
static void the_others_are_those_of_the_cpu(void **state)
{
    (void)state;
    for (int round = 0; round < rounds_of(20); round++) {
        rng r = { (uint64_t)round };
        int64_t rows = rng_int(&r, 1, 9), width = rng_int(&r, 1, 300);
        int64_t n = rows * width;
        int32_t targets[9];
        pair a = make(&r, n), b = make(&r, n), scale = make(&r, width);
        pair sine = make(&r, n), product = make(&r, n), score = make(&r, rows);
        pair activated = make(&r, n);
        for (int64_t i = 0; i < rows; i++)
            targets[i] = (int32_t)rng_int(&r, -1, width - 1);
        int32_t *there = put_integers(targets, rows);
        BOTH(i)
        {
            const nn_backend *nn = NN(i);
            danaus_device *d = ON(i);
            assert_ok(nn->sine(
                d, &(nn_sine){ rows, width, AT(a, i), AT(scale, i), 9, AT(sine, i) }));
            assert_ok(nn->multiply(
                d,
                &(nn_multiply){
                    .count = n, .a = AT(a, i), .b = AT(b, i), .y = AT(product, i) }));
            assert_ok(nn->activate(
                d, &(nn_activation){ n, (danaus_activation)(round % 5), AT(a, i),
                                     AT(activated, i) }));
            const int32_t *to = i ? there : targets;
            assert_ok(nn->likelihood(
                d, &(nn_likelihood){ rows, width, AT(b, i), to, AT(score, i) }));
        }
        expect_same(&product, 0);
        expect_same(&sine, 32 * UNIT);
        expect_same(&activated, 16 * UNIT);
        expect_same(&score, 4 * UNIT * (double)(width + 16));
        danaus_free(gpu, there);
        pair *const all[] = { &a, &b, &scale, &sine, &product, &score, &activated };
        for (size_t i = 0; i < sizeof all / sizeof *all; i++)
            end(all[i]);
    }
}

int main(int argc, char **argv)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(no_operation_is_missing),
        cmocka_unit_test(attention_is_that_of_the_cpu),
        cmocka_unit_test(rotary_positions_are_those_of_the_cpu),
        cmocka_unit_test(wide_heads_are_refused),
        cmocka_unit_test(many_sequences_are_pooled),
        cmocka_unit_test(few_taps_meet_many_sequences),
        cmocka_unit_test(rows_of_any_type_are_those_of_the_cpu),
        cmocka_unit_test(the_others_are_those_of_the_cpu),
    };
    gpu = device_from_arguments(argc, argv);
    assert_ok(danaus_device_open("cpu", &cpu));
    int failed = cmocka_run_group_tests(tests, NULL, NULL);
    danaus_device_close(cpu);
    danaus_device_close(gpu);
    return failed;
}
