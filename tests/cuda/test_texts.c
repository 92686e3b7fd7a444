/* Every row of the GPU table is compiled by NVRTC, which needs no GPU, and keeps what it
   works with in registers: the compiler's report says so. It says too where it lets
   tensor cores wait for each product, which no text may make it do.

   Texts are made for every row, problem, size, type and architecture. A few are compiled that
   have together each feature of all: a row; a line of defines, which is a size, an option or a
   tile of the file; an architecture; a problem's type on 7.5, which lacks bf16, and on later
   ones. DANAUS_TEXTS=2 in the environment chooses others, in which features have other
   company, and DANAUS_TEXTS=all compiles every text for every architecture. */
// SPDX-License-Identifier: Apache-2.0
#include "support/test.h"

#include "base/hash.h"
#include "base/mem.h"
#include "base/thread.h"
#include "cuda/cuda.h"
#include "gpu/run/program.h"
#include "gpu/run/conv/engine.h"
#include "cuda/nvrtc.h"
#include "gpu/conv/conv_short.h"
#include "gpu/nn/nn.h"
#include "support/device.h"

#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* 8.6 is compiled for as 8.9 is, 10.0 as 12.0: only if all texts are asked for. */
static const int archs[] = { 90, 75, 80, 89, 120, 86, 100 };

enum { ARCHS = 7, ALIKE = 2, MOST_LOG = 400 };

static int takes_all(void)
{
    const char *texts = getenv("DANAUS_TEXTS");
    return texts && !strcmp(texts, "all");
}

/* Sums of gradients of filters stay in registers, 16 numbers of a lane for each of up to four
   blocks, so that the reads of the next window spill some: that is measured, windows of 16,384
   points are 1.4 to 1.8 times as fast as by vector units. */
static int sums_allowed(const char *defines)
{
    static const char word[] = "#define ROOT ";
    const char *at = strstr(defines, word);
    int root = at ? atoi(at + strlen(word)) : 0;
    return root > 32 ? 700 : root > 16 ? 388 : 148;
}

/* Where windows begin anywhere, rows are of planes, or go through few taps, more is kept beside points than
   the 80 registers hold that a thread of 24 warps has, or the 255 of long rows. */
static int windows_allowed(const char *defines)
{
    return strstr(defines, "#define PLANE_PITCH ") ? 256
           : strstr(defines, "#define TAPS ")      ? 216
           : strstr(defines, "#define ODD 1\n")    ? 144
                                                   : 80;
}

/* 80 registers, so that a third block of 256 threads hides the reads of two. Taps have their
   sizes beside the points, and in odd radices more points than 128 registers hold. */
static int transforms_allowed(const char *defines)
{
    int is_pair = strstr(defines, "#define PAIR 1\n#define GATED 0\n") != NULL;
    int has_taps = strstr(defines, "#define LOAD 3\n") != NULL;
    return has_taps ? 140 : strstr(defines, "#define HALF 1\n") ? 96 : is_pair ? 64 : 8;
}

/* Bytes of stack that a text may use: portable ones leave the compiler 128 registers a
   thread, a few too little for some tiles, most of all for 64 sums with several lanes; where sums take 192 of 255, a few counters do
   not find room; in f32, of 256 columns k batch-last one counter does not, nor do some of
   sums of convolutions by 512 threads, and of whole windows by tensor cores that are not in
   f16; of 16 times of six or seven taps a few numbers do not. */
static int stack_allowed(const char *file, const char *defines)
{
    if (!strcmp(file, "conv_sums.cu"))
        return 16;
    if (!strcmp(file, "conv_transform.cu") || !strncmp(file, "conv_filter", 11))
        return transforms_allowed(defines);
    if (!strcmp(file, "conv_mma.cu"))
        return windows_allowed(defines);
    if (!strcmp(file, "conv_mma_cluster.cu") && strstr(defines, "#define TAPS "))
        return 16; /* by NVRTC 13.0, none by 13.5 */
    if (!strcmp(file, "conv_mma_sums.cu"))
        return sums_allowed(defines);
    if (!strcmp(file, "conv_short_last.cu"))
        return strstr(defines, "#define TAPS 6\n")   ? 32
               : strstr(defines, "#define TAPS 7\n") ? 72
                                                     : 0;
    if (!strcmp(file, "ks_mma.cu") || !strcmp(file, "ks_mma_runs.cu") ||
        !strncmp(file, "conv_", 5))
        return 0;
    if (!strcmp(file, "ks_wgmma.cu")) /* the addresses of residuals beside sums */
        return strstr(defines, "#define RESIDUAL 1\n") ? 16 : 8;
    if (!strcmp(file, "ks_simt.cu"))
        return 176;
    return strcmp(file, "ks_mma_lanes.cu") && strcmp(file, "ks_pair.cu") &&
                   strcmp(file, "ks_dw_mma.cu") && strcmp(file, "ks_dw_wgmma.cu")
               ? 128
               : 64;
}

/* A text that is to be compiled, and what came of it. */
typedef struct job {
    const char *name, *file; /* of the row, of the text */
    char *defines, *log;
    danaus_dtype dtype;
    int arch, skipped, chosen;
    uint64_t order;
    char *failure;
} job;

#define MOST_JOBS 8192

static job jobs[MOST_JOBS];
static int count;
static int compiled, skipped, passed_over;

static int number_before(const char *log, const char *words)
{
    int most = 0;
    for (const char *at = log; (at = strstr(at, words)); at++) {
        const char *digits = at;
        while (digits > log && digits[-1] >= '0' && digits[-1] <= '9')
            digits--;
        most = atoi(digits) > most ? atoi(digits) : most;
    }
    return most;
}

/* On any thread; what failed is told afterwards. */
static void compile(void *arg, int i)
{
    (void)arg;
    job *j = &jobs[i];
    void *image = NULL;
    size_t bytes = 0;
    danaus_status status = dn_gpu_compile(
        &dn_cuda_gpu_driver, j->file, j->defines, j->arch, &image, &bytes, &j->log,
        NULL);
    dn_free(image);
    j->skipped = status == DANAUS_ERR_UNSUPPORTED; /* this NVRTC does not know it */
    if (status != DANAUS_OK && !j->skipped)
        j->failure = strdup(danaus_error_detail());
}

/* Products of tensor cores of 9.0 run beside other work only if nothing touches their
   registers. */
static int is_serialized(const char *log) { return strstr(log, "serialized") != NULL; }

/* A define is lost if what the text includes defines it, too. */
static int is_defined_twice(const char *log)
{
    return strstr(log, "redefinition of macro") != NULL;
}

/* Says what is wrong. */
static int is_wrong(const job *j)
{
    if (j->failure) {
        print_error("%s for sm_%d: %s\n", j->name, j->arch, j->failure);
        return 1;
    }
    int spilled = number_before(j->log, " bytes spill stores");
    int stack = number_before(j->log, " bytes stack frame");
    int allowed = stack_allowed(j->file, j->defines);
    if (stack <= allowed && spilled <= allowed && !is_serialized(j->log) &&
        !is_defined_twice(j->log))
        return 0;
    print_error(
        "%s for sm_%d: %.*s\nwith %s\n", j->name, j->arch, MOST_LOG, j->log,
        j->defines);
    return 1;
}

/* ---- which are compiled ---- */

#define MOST_KNOWN (1 << 15)

/* Something that texts have, and how many of those that are compiled have it. */
typedef struct feature {
    hash128 hash;
    int texts;
} feature;

static feature known[MOST_KNOWN];
static int known_count;

static feature *find_feature(const char *file, const char *words, size_t length)
{
    hash128 h = dn_hash(dn_hash_text(DN_HASH_START, file), words, length);
    size_t at = h.part[0] % MOST_KNOWN;
    for (; known[at].hash.part[0]; at = (at + 1) % MOST_KNOWN)
        if (dn_hash_equal(known[at].hash, h))
            return &known[at];
    assert_in_range(known_count++, 0, MOST_KNOWN / 2);
    known[at].hash = h;
    return &known[at];
}

enum { MOST_FEATURES = 64 };

static int features_of(const job *j, feature *found[MOST_FEATURES])
{
    char type[64], arch[64];
    snprintf(
        type, sizeof type, "%s %s 8.0", danaus_dtype_name(j->dtype),
        j->arch < 80 ? "before" : "since");
    snprintf(arch, sizeof arch, "on %d", j->arch);
    int n = 0;
    found[n++] = find_feature(j->file, type, strlen(type));
    found[n++] = find_feature(j->file, arch, strlen(arch));
    found[n++] = find_feature(j->file, j->name, strlen(j->name));
    size_t bytes;
    for (const char *line = j->defines; *line;
         line += bytes + strspn(line + bytes, "\n")) {
        bytes = strcspn(line, "\n");
        assert_in_range(n, 0, MOST_FEATURES - 1);
        found[n++] = find_feature(j->file, line, bytes);
    }
    return n;
}

/* Adds a text to those that are compiled, or takes it away. */
static void count_text(const job *j, int change)
{
    feature *found[MOST_FEATURES];
    for (int n = features_of(j, found); n--;)
        found[n]->texts += change;
}

/* Fewest texts among those compiled that have some feature of this one. */
static int rarest(const job *j)
{
    feature *found[MOST_FEATURES];
    int least = INT_MAX;
    for (int n = features_of(j, found); n--;)
        least = found[n]->texts < least ? found[n]->texts : least;
    return least;
}

static int by_order(const void *a, const void *b)
{
    const job *first = a, *second = b;
    return (first->order > second->order) - (first->order < second->order);
}

/* An order that a text has of its own, so that others leave its place alone. */
static void put_in_order(int seed)
{
    for (int i = 0; i < count; i++) {
        job *j = &jobs[i];
        int own[] = { seed, j->arch };
        hash128 h = dn_hash(DN_HASH_START, own, sizeof own);
        j->order = dn_hash_text(dn_hash_text(h, j->file), j->defines).part[0];
    }
    qsort(jobs, (size_t)count, sizeof *jobs, by_order);
}

/* Keeps texts that have something new, then leaves out those whose features later ones have,
   too, and takes one of so many of the others. */
static void choose(int share)
{
    const char *texts = getenv("DANAUS_TEXTS");
    static int turn;
    int asked = count;
    if (takes_all())
        return;
    put_in_order(texts ? atoi(texts) : 1);
    for (int i = 0; i < asked; i++) {
        jobs[i].chosen = rarest(&jobs[i]) == 0;
        if (jobs[i].chosen)
            count_text(&jobs[i], 1);
    }
    count = 0;
    for (int i = 0; i < asked; i++) {
        if (jobs[i].chosen && rarest(&jobs[i]) > 1) {
            count_text(&jobs[i], -1);
            jobs[i].chosen = 0;
        }
        if (jobs[i].chosen && turn++ % share == 0)
            jobs[count++] = jobs[i];
        else
            free(jobs[i].defines);
    }
    passed_over += asked - count;
}

/* Compiles the chosen jobs on as many threads as there are processors. */
static void compile_share(int share)
{
    thread_pool *pool = NULL;
    choose(share);
    assert_ok(dn_pool_create(dn_thread_count(), &pool));
    dn_pool_run(pool, count, compile, NULL);
    dn_pool_destroy(pool);
    int wrong = 0;
    for (int i = 0; i < count; i++) {
        skipped += jobs[i].skipped;
        compiled += !jobs[i].skipped;
        wrong += !jobs[i].skipped && is_wrong(&jobs[i]);
        free(jobs[i].defines);
        free(jobs[i].failure);
        dn_free(jobs[i].log);
    }
    memset(jobs, 0, sizeof jobs);
    count = 0;
    assert_int_equal(wrong, 0);
}

static void compile_all(void) { compile_share(share_of_cases()); }

/* ---- which are asked for ---- */

static int is_known(const char *file, const char *defines, int arch)
{
    for (int i = 0; i < count; i++)
        if (jobs[i].arch == arch && !strcmp(jobs[i].file, file) &&
            !strcmp(jobs[i].defines, defines))
            return 1;
    return 0;
}

/* A text that another row or problem has already asked for is passed over. */
static void ask(
    const char *name, const char *file, const char *defines, danaus_dtype dtype,
    int arch)
{
    if (is_known(file, defines, arch))
        return;
    assert_in_range(count, 0, MOST_JOBS - 1);
    jobs[count++] = (job){ .name = name,
                           .file = file,
                           .defines = strdup(defines),
                           .dtype = dtype,
                           .arch = arch };
}

/* For all architectures that the row runs on. */
static void ask_everywhere(
    const kernel *row, const char *file, danaus_dtype dtype, const char *defines)
{
    for (int i = 0; i < ARCHS - (takes_all() ? 0 : ALIKE); i++)
        if (dn_gpu_runs_on(row, archs[i]))
            ask(row->name, file, defines, dtype, archs[i]);
}

/* A row's text for a problem, and those of its parts; variants take turns, and
   activations and residuals. */
static void ask_for_row(const kernel *k, const problem *asked, int turn)
{
    const gpu_family *f = dn_gpu_family(k);
    ks_step part;
    int variants = f->variants ? f->variants : 1;
    char defines[4096];
    text t = { defines, sizeof defines, 0 };
    problem activated = *asked, *p = &activated;
    p->activation = turn / variants % (DANAUS_GELU_TANH + 1);
    p->residual = p->operation == DN_PRODUCT && !p->gated && turn / variants % 3 == 1;
    if (f->text) {
        f->defines(k, p, turn % variants, &t);
        ask_everywhere(k, f->text, p->dtype, defines);
    }
    for (int n = 0; f->part && f->part(k, p, n, &part); n++)
        ask_for_row(part.kernel, &part.p, turn);
}

static void every_row_stays_in_registers(void **state)
{
    (void)state;
    for (const kernel *k = dn_gpu_kernels; k->name; k++)
        for (int form = 0; form < 4; form++) {
            problem p = { .operation = k->family->operation,
                          .pattern = { 4, 64, 64, 8 },
                          .dtype = k->dtype,
                          .layout = (danaus_layout)(form % 2),
                          .math = (danaus_math)(form / 2),
                          .batch = 4096 };
            if (p.operation == DN_PACK && form % 2) /* multiplies out */
                p.inner = p.pattern;
            if (dn_fits(k, &p) && (!p.math || k->dtype == DANAUS_F32))
                ask_for_row(k, &p, form + (int)(k - dn_gpu_kernels));
        }
    compile_all();
}

/* Rows that read and write in orders, each in one way of doing so. */
static void orders_stay_in_registers(void **state)
{
    (void)state;
    int turn = 0;
    for (const kernel *k = dn_gpu_kernels; k->name; k++)
        for (int form = 0; form < 2; form++) {
            problem p = { .pattern = { 4, 64, 64, 8 },
                          .dtype = k->dtype,
                          .layout = (danaus_layout)form,
                          .math = DANAUS_MATH_TF32,
                          .batch = 4096,
                          .orders = 1 + turn % 3 };
            if (k->family->orders && dn_fits(k, &p))
                ask_for_row(k, &p, turn++);
        }
    compile_all();
}

/* Rows that make what is gated, of as many rows in a tile as there can be. */
static void gates_stay_in_registers(void **state)
{
    (void)state;
    for (const kernel *k = dn_gpu_kernels; k->name; k++)
        for (int form = 0; form < 2; form++) {
            problem p = { .pattern = { 4, 192, 200, 1 },
                          .dtype = k->dtype,
                          .layout = DANAUS_BATCH_FIRST,
                          .batch = 4096,
                          .gated = 1 };
            if (dn_fits(k, &p))
                ask_for_row(k, &p, form + 2 * (int)(k - dn_gpu_kernels));
        }
    compile_all();
}

/* Blocks of many columns k, in f32, whose numbers are cut in two. */
static void blocks_stay_in_registers(void **state)
{
    (void)state;
    for (const kernel *k = dn_gpu_kernels; k->name; k++) {
        problem p = { .pattern = { 4, 512, 256, 4 },
                      .dtype = DANAUS_F32,
                      .layout = DANAUS_BATCH_LAST,
                      .batch = 4096 };
        if (strstr(k->name, "ks.wgmma.f32.") && dn_fits(k, &p))
            ask_for_row(k, &p, 0);
    }
    compile_all();
}

/* Narrow blocks that are joined to 64 columns, to 200, and to lines that are not aligned. */
static void narrow_blocks_stay_in_registers(void **state)
{
    (void)state;
    static const danaus_pattern patterns[] = { { 384, 8, 8, 1 },
                                               { 64, 100, 100, 1 },
                                               { 150, 31, 31, 1 } };
    for (const kernel *k = dn_gpu_kernels; k->name; k++)
        for (int i = 0; i < 3; i++) {
            problem p = { .pattern = patterns[i],
                          .dtype = k->dtype,
                          .math = DANAUS_MATH_TF32,
                          .batch = 4096 };
            if (strstr(k->name, "joined") && dn_fits(k, &p))
                ask_for_row(k, &p, i + (int)(k - dn_gpu_kernels));
        }
    compile_all();
}

/* Lanes whose numbers in a tile differ, odd ones where the row makes them, and the most rows
   that a tile has. */
static void lanes_stay_in_registers(void **state)
{
    (void)state;
    static const int64_t lanes[] = { 2, 4, 8, 16, 64, 13, 65 };
    for (const kernel *k = dn_gpu_kernels; k->name; k++)
        for (int i = 0; i < 7; i++) {
            problem p = { .pattern = { 1, 480, 96, lanes[i] },
                          .dtype = k->dtype,
                          .layout = DANAUS_BATCH_FIRST,
                          .math = DANAUS_MATH_TF32,
                          .batch = 4096 };
            int any = lanes[i] == 2 || lanes[i] % 2; /* lanes that others do not make */
            int wanted = strstr(k->name, "ks.wgmma_lanes") ||
                         (any && strstr(k->name, "ks.mma_runs"));
            if (wanted && dn_fits(k, &p))
                ask_for_row(k, &p, i + (int)(k - dn_gpu_kernels));
        }
    compile_all();
}

/* Blocks of 32 in one type, of 64 in the other, and of 96, which two launches make. */
static void pairs_stay_in_registers(void **state)
{
    (void)state;
    for (const kernel *k = dn_gpu_kernels; k->name; k++) {
        const gpu_code *code = k->code;
        int64_t w = code->first ? 96 : k->dtype == DANAUS_BF16 ? 64 : 32;
        problem p = { .pattern = { 1, w, w, 32 },
                      .inner = { 32, w, w, 1 },
                      .dtype = k->dtype,
                      .layout = DANAUS_BATCH_FIRST,
                      .math = DANAUS_MATH_TF32,
                      .batch = 4096 };
        if (dn_fits(k, &p))
            ask_for_row(k, &p, (int)(k - dn_gpu_kernels));
    }
    compile_all();
}

/* Every row for weight gradients, and what else gradients run, for lanes of every kind, of
   rows that are and are not lines of whole segments. */
static void gradients_stay_in_registers(void **state)
{
    (void)state;
    static const danaus_pattern patterns[] = {
        { 2, 64, 64, 1 }, { 2, 48, 48, 4 }, { 1, 128, 128, 16 }, { 1, 96, 32, 3 }
    };
    for (const kernel *k = dn_gpu_kernels; k->name; k++)
        for (int form = 0; form < 16; form++) {
            problem p = { .operation = DN_WEIGHT_GRADIENT,
                          .pattern = patterns[form / 4],
                          .dtype = k->dtype,
                          .layout = (danaus_layout)(form % 2),
                          .math = (danaus_math)(form / 2 % 2),
                          .batch = 4096 };
            if (dn_fits(k, &p) && (!p.math || k->dtype == DANAUS_F32))
                ask_for_row(k, &p, form + (int)(k - dn_gpu_kernels));
        }
    compile_all();
}

/* Convolutions of few taps, parts of their gradients, and du beside these: of every number of
   taps that is known when a text is compiled, and of more; of few channels; of packed
   sequences. */
static void short_convolutions_stay_in_registers(void **state)
{
    (void)state;
    static const danaus_dtype types[] = { DANAUS_F16, DANAUS_BF16, DANAUS_F32,
                                          DANAUS_F64 };
    const gpu_facts facts = { .units = 132 };
    const void *some = &dn_gpu_texts;
    for (int form = 0; form < 4 * 10 * 2 * 3 * 3; form++) {
        int packed = form / 240 == 2;
        int64_t taps = form / 4 % 10 + 1, shift = form / 240 == 1 ? (taps - 1) / 2 : 0;
        danaus_short_desc d = { .channels = form / 8 % 4 + 1,
                                .length = 1000,
                                .taps = taps,
                                .layout = (danaus_channels)(form / 40 % 2),
                                .dtype = types[form % 4] };
        char defines[4096];
        text t = { defines, sizeof defines, 0 };
        const void *du = form / 80 % 3 == 2 ? some : NULL;
        gpu_short s =
            form / 80 % 3
                ? dn_gpu_short_sums(&d, 4, packed, shift, some, some, du)
                : dn_gpu_short(&facts, &d, 4, packed, taps - 1 - shift, some, some);
        const gpu_family *f = dn_gpu_family(s.kernel);
        f->defines(s.kernel, &s.p, s.variant, &t);
        ask_everywhere(s.kernel, f->text, d.dtype, defines);
    }
    compile_all();
}

static void ask_for_operation(gpu_nn_row row, const problem *p)
{
    const kernel *k = &dn_gpu_nn[row];
    const gpu_family *f = dn_gpu_family(k);
    char defines[4096];
    text t = { defines, sizeof defines, 0 };
    f->defines(k, p, 0, &t);
    ask_everywhere(k, f->text, p->dtype, defines);
}

/* Models' operations of rows of every type: attention with heads from a column of a block's
   threads to the most, by tensor cores where there are such. */
static void operations_of_models_stay_in_registers(void **state)
{
    (void)state;
    static const danaus_dtype types[] = { DANAUS_F32, DANAUS_F16, DANAUS_BF16 };
    for (int i = 0; i < 3; i++) {
        for (int row = 0; row < GPU_NN_ATTENTION; row++)
            ask_for_operation((gpu_nn_row)row, &(problem){ .dtype = types[i] });
        int64_t most = 1;
        for (int64_t head = 16; head <= most; head *= 2)
            for (int arch = i && head % 64 == 0 ? 75 : 80; arch <= 80; arch += 5) {
                gpu_facts facts = { .arch = arch, .shared = 227 << 10 };
                gpu_attention a;
                assert_true(dn_gpu_attention(&facts, head, types[i], &a, &most));
                if (a.row == GPU_NN_ATTENTION_MMA || !i || head == most || arch < 80)
                    ask_for_operation(a.row, &a.p);
            }
    }
    compile_share(1); /* each has an entry point of its own */
}

/* All that convolutions with windows of n points run, on a GPU with so much shared memory
   for a block. */
static void ask_for_windows(int arch, int64_t shared, danaus_dtype dtype, int64_t n)
{
    static gpu_use uses[CONV_FUNCTIONS];
    gpu_facts facts = { .arch = arch, .shared = shared };
    gpu_conv_shape s;
    danaus_dtype sums = dtype == DANAUS_F64 ? DANAUS_F64 : DANAUS_F32;
    assert_true(dn_gpu_conv_shape(&facts, sums, n, 0, &s));
    /* By vector units, then by tensor cores, in pairs, and with what else there is of them; at
       last pairs, and complex numbers, by vector units, and planes by tensor cores. */
    for (int form = 0; form < 12; form++) {
        gpu_conv_mma fast[GPU_CONV_MMA_PARTS] = { { 0 } };
        int is_scaled = form == 9, is_complex = form == 10,
            is_real = form < 9 || form == 11;
        danaus_dtype own = !is_complex          ? dtype
                           : sums == DANAUS_F64 ? DANAUS_C128
                                                : DANAUS_C64;
        int half = (form > 6 ? (int)n / 256 / (form - 6) : form) % 2, pair = form == 4;
        conv_frame f = { .groups = 1 };
        if (form > 1 && is_real &&
            (arch < 80 || dtype == DANAUS_F64 ||
             !dn_gpu_conv_mma(&facts, n, half, pair, fast)))
            continue;
        if (is_scaled && (sums == DANAUS_F64 || s.passes == 1))
            continue;
        if (is_complex && dtype != sums)
            continue;
        half = is_complex ? 0 : half;
        assert_true(
            dn_gpu_conv_shape(&facts, sums, n, fast->root ? fast->rows : 0, &s));
        s.scaled = s.pair = is_scaled;
        s.complex = is_complex;
        if (form == 5 && n & (n - 1))
            continue;
        if (form == 5)
            f = (conv_frame){ .groups = 1,
                              .sparse = 1,
                              .box = {
                                  { 3, 3, 3, 3 }, { 7, 7, 7, 7 }, { 3, 5, 4, 6 } } };
        if (form == 6)
            f = (conv_frame){ .groups = 3, .short_taps = 3 + n / 1024 % 3 };
        if (form == 7) /* whose windows begin at segments, and those of packed rows */
            f = (conv_frame){ .groups = 1, .windows = 1, .length = 1, .cut.n = n };
        if (form == 8)
            f = (conv_frame){ .groups = 1, .packed = 1 };
        if (form == 11)
            f = (conv_frame){ .groups = 1,
                              .plane = { .height = n / 32,
                                         .width = 24,
                                         .pitch = 32,
                                         .taps_height = 3,
                                         .taps_width = 9,
                                         .tap_rows = 3,
                                         .tap_columns = 9 } };
        dn_gpu_conv_mma_fit(&f, fast);
        s.plane = f.plane;
        s.sparse = f.sparse;
        s.box = f.box;
        int all = dn_gpu_conv_uses(&s, fast, own, half, uses);
        for (int i = 0; i < all; i++)
            ask("a convolution", uses[i].text, uses[i].defines, own, arch);
    }
}

/* Long convolutions: windows of one pass and of many, of every radix, as a block of threads
   has room for and beyond, of every type. */
static void long_convolutions_stay_in_registers(void **state)
{
    (void)state;
    static const int64_t points[] = { 16,    64,    256,   768,   1024,    1280,
                                      1536,  1792,  4096,  7168,  8192,    12000,
                                      16384, 24576, 35840, 65536, 1 << 20, 3 << 20 };
    static const danaus_dtype types[] = { DANAUS_F16, DANAUS_F32, DANAUS_BF16,
                                          DANAUS_F64 };
    static const int targets[][2] = { { 90, 227 << 10 },
                                      { 80, 163 << 10 },
                                      { 75, 64 << 10 } };
    for (size_t i = 0; i < sizeof points / sizeof *points; i++)
        for (int t = 0; t < 4 * 3; t++)
            ask_for_windows(
                targets[t % 3][0], targets[t % 3][1], types[t / 3], points[i]);
    compile_all();
}

/* 9.1 is nothing that an NVRTC knows: it gives PTX, where calls of a shuffle can be counted. */
enum { FOR_PTX = 91 };

static int count_in(const char *source, const char *words)
{
    int found = 0;
    for (const char *at = source; (at = strstr(at, words)); at++)
        found++;
    return found;
}

/* A pair of rows of 4,096 numbers has, by its text, two shuffles of results for each half of
   two row tiles. More are copies that lie in the ways of a branch in which lanes differ, and
   these take half of the kernel's time. */
static void shuffles_are_not_taken_into_branches(void **state)
{
    (void)state;
    const gpu_facts facts = { .arch = 90, .shared = 227 << 10 };
    const conv_frame dense = { .groups = 1 };
    gpu_conv_mma m[GPU_CONV_MMA_PARTS];
    static gpu_use use;
    void *image;
    size_t bytes;
    assert_true(dn_gpu_conv_mma(&facts, 4096, 0, 1, m));
    dn_gpu_conv_mma_fit(&dense, m);
    dn_gpu_conv_mma_use(&m[GPU_CONV_PRODUCT], GPU_CONV_PRODUCT, DANAUS_F16, 0, &use);
    assert_ok(dn_gpu_compile(
        &dn_cuda_gpu_driver, use.text, use.defines, FOR_PTX, &image, &bytes, NULL,
        NULL));
    assert_in_range(count_in(image, "shfl.sync"), 1, 2 * 2 * 2);
    dn_free(image);
}

/* Number by number they had taken twice as long. */
static void turned_pieces_are_stored_whole(void **state)
{
    (void)state;
    void *image;
    size_t bytes;
    assert_ok(dn_gpu_compile(
        &dn_cuda_gpu_driver, "ks_turn.cu", "#define TYPE_f16 1\n", FOR_PTX, &image,
        &bytes, NULL, NULL));
    assert_int_equal(count_in(image, "st.global.v4"), 8);
    assert_in_range(count_in(image, "st.global.u16"), 1, 2);
    dn_free(image);
}

/* Rows that begin at any address are stored in 16 bytes each, but for the 16 bytes where a row
   begins or ends: two results, and one that is not multiplied. */
static void results_of_packed_rows_are_stored_whole(void **state)
{
    (void)state;
    static const int points[] = { 1024, 4096 };
    const gpu_facts facts = { .arch = 90, .shared = 227 << 10 };
    const conv_frame packed = { .groups = 1, .packed = 1 };
    for (int i = 0; i < 4; i++) {
        gpu_conv_mma m[GPU_CONV_MMA_PARTS];
        static gpu_use use;
        void *image;
        size_t bytes;
        assert_true(dn_gpu_conv_mma(&facts, points[i / 2], i % 2, 0, m));
        dn_gpu_conv_mma_fit(&packed, m);
        dn_gpu_conv_mma_use(
            &m[GPU_CONV_PRODUCT], GPU_CONV_PRODUCT, DANAUS_F16, 0, &use);
        assert_ok(dn_gpu_compile(
            &dn_cuda_gpu_driver, use.text, use.defines, FOR_PTX, &image, &bytes, NULL,
            NULL));
        assert_in_range(count_in(image, "st.global.v4"), 2, 3);
        assert_in_range(count_in(image, "st.global.u16"), 8, 4 * 8);
        dn_free(image);
    }
}

static void streams_stay_in_registers(void **state)
{
    (void)state;
    static const int targets[] = { 75, 80, 90 };
    for (int t = 0; t < 3; t++) {
        ask("a stream", "conv_stream.cu", "#define TYPE_f32 1\n", DANAUS_F32,
            targets[t]);
        ask("a stream", "conv_stream.cu", "#define TYPE_f64 1\n", DANAUS_F64,
            targets[t]);
        ask("a stream", "conv_stream_put.cu", "#define TYPE_f32 1\n", DANAUS_F32,
            targets[t]);
    }
    compile_all();
}

/* A sum is changed while products are added to it. */
static void a_product_that_waits_is_found(void **state)
{
    (void)state;
    static const char product[] =
        "#define WGMMA 1\n#define TYPE_f16 1\n#define ELEMENT 2\n#include \"ptx.cuh\"\n"
        "extern \"C\" __global__ void ks(u64 x, u64 w, float *y, int n)\n"
        "{\n"
        "    float sum[8] = {};\n"
        "    for (int k = 0; k < n; k++) {\n"
        "        wgmma_fence();\n"
        "        wgmma<16, 0>(sum, x + k, w + k, 1);\n"
        "        wgmma_commit();\n"
        "        %s\n"
        "    }\n"
        "    wgmma_wait<0>();\n"
        "    for (int e = 0; e < 8; e++)\n"
        "        y[threadIdx.x * 8 + e] = sum[e];\n"
        "}\n";
    static const char *const change[] = { "", "sum[k % 2] *= 2;" };
    for (int i = 0; i < 2; i++) {
        char source[sizeof product + 32], *log = NULL;
        void *image = NULL;
        size_t bytes;
        snprintf(source, sizeof source, product, change[i]);
        danaus_status status = dn_nvrtc_compile(source, 90, &image, &bytes, &log, NULL);
        if (status == DANAUS_ERR_UNSUPPORTED)
            skip();
        assert_ok(status);
        assert_int_equal(is_serialized(log), i);
        dn_free(image);
        dn_free(log);
    }
}

/* The argument, if there is one, chooses tests by their names, with * in them. */
int main(int argc, char **argv)
{
    void *image;
    size_t bytes;
    if (dn_gpu_compile(
            &dn_cuda_gpu_driver, "ks_reduce.cu", "#define TYPE_f32 1\n", 90, &image,
            &bytes, NULL, NULL)) {
        fprintf(stderr, "%s\n", danaus_error_detail());
        return 77;
    }
    dn_free(image);
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_product_that_waits_is_found),
        cmocka_unit_test(every_row_stays_in_registers),
        cmocka_unit_test(orders_stay_in_registers),
        cmocka_unit_test(gates_stay_in_registers),
        cmocka_unit_test(blocks_stay_in_registers),
        cmocka_unit_test(narrow_blocks_stay_in_registers),
        cmocka_unit_test(lanes_stay_in_registers),
        cmocka_unit_test(pairs_stay_in_registers),
        cmocka_unit_test(gradients_stay_in_registers),
        cmocka_unit_test(short_convolutions_stay_in_registers),
        cmocka_unit_test(operations_of_models_stay_in_registers),
        cmocka_unit_test(long_convolutions_stay_in_registers),
        cmocka_unit_test(shuffles_are_not_taken_into_branches),
        cmocka_unit_test(turned_pieces_are_stored_whole),
        cmocka_unit_test(results_of_packed_rows_are_stored_whole),
        cmocka_unit_test(streams_stay_in_registers),
    };
    cmocka_set_test_filter(argc > 1 ? argv[1] : NULL);
    int failed = cmocka_run_group_tests_name("texts", tests, NULL, NULL);
    printf(
        "%d compiled, %d passed over, %d for architectures that this NVRTC lacks\n",
        compiled, passed_over, skipped);
    if (count)
        printf("%d were asked for by a test that did not compile them\n", count);
    return failed || count;
}
