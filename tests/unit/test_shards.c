/* Weights in several files: the model is that of one file, whatever lies where; an index that is
   wrong is refused with a sentence, and reaches nothing outside of its folder. */
// SPDX-License-Identifier: Apache-2.0
#include "support/test.h"

#include "support/files.h"
#include "support/m2_bert.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define PARTS 4
#define INDEX "model.safetensors.index.json"

static danaus_device *device;

static const char *part_name(int part)
{
    static char name[32];
    snprintf(name, sizeof name, "part-%d.safetensors", part);
    return name;
}

/* Writes the arrays of a model into files by chance, and an index of them. */
static void write_parts(rng *r, const small_m2 *m)
{
    named_arrays parts[PARTS] = { { 0 } };
    size_t size = 1 << 16, at;
    char *index = malloc(size);
    at = (size_t)snprintf(index, size, "{\"metadata\": {}, \"weight_map\": {");
    for (int i = 0; i < m->arrays.count; i++) {
        int part = i < PARTS ? i : (int)rng_int(r, 0, PARTS - 1);
        named_arrays *to = &parts[part];
        to->tensor[to->count] = m->arrays.tensor[i];
        named_path(to->name[to->count++], "%s", m->arrays.name[i]);
        at += (size_t)snprintf(
            index + at, size - at, "%s\"%s\": \"%s\"", i ? ", " : "", m->arrays.name[i],
            part_name(part));
    }
    at += (size_t)snprintf(index + at, size - at, "}}");
    for (int i = 0; i < PARTS; i++)
        named_write(&parts[i], scratch_path(part_name(i)));
    file_write(scratch_path(INDEX), index, at);
    free(index);
}

static void embed(const small_m2 *m, float *y)
{
    danaus_model *model = NULL;
    const int64_t offsets[] = { 0, 1 };
    const int32_t id = (int32_t)m->vocabulary - 1;
    assert_ok(danaus_model_load(device, scratch_directory(), &model));
    assert_ok(danaus_model_embed(model, device, 1, offsets, &id, y));
    danaus_model_destroy(model);
}

static void parts_are_as_one_file(void **state)
{
    (void)state;
    for (int round = 0; round < 20; round++) {
        rng r = { (uint64_t)round };
        small_m2 m = m2_random(&r);
        float one[M2_MOST_WIDTH], parts[M2_MOST_WIDTH];
        m2_write(&m);
        embed(&m, one);
        remove(scratch_path("model.safetensors"));
        write_parts(&r, &m);
        embed(&m, parts);
        assert_memory_equal(parts, one, (size_t)m.width * sizeof *one);
        m2_free(&m);
    }
}

static void saved_models_are_one_file(void **state)
{
    (void)state;
    rng r = { 5 };
    small_m2 m = m2_random(&r);
    danaus_model *model = NULL;
    char folder[200];
    m2_write(&m);
    remove(scratch_path("model.safetensors"));
    write_parts(&r, &m);
    assert_ok(danaus_model_load(device, scratch_directory(), &model));
    snprintf(folder, sizeof folder, "%s", scratch_path("saved"));
    assert_ok(danaus_model_save(model, folder));
    danaus_model_destroy(model);
    assert_ok(danaus_model_load(device, folder, &model));
    danaus_model_destroy(model);
    remove(scratch_path("saved/config.json"));
    remove(scratch_path("saved/model.safetensors"));
    assert_int_equal(remove(folder), 0);
    m2_free(&m);
}

static void expect_refusal(danaus_status status, const char *words)
{
    danaus_model *model = NULL;
    assert_status(danaus_model_load(device, scratch_directory(), &model), status);
    assert_null(model);
    if (!strstr(danaus_error_detail(), words))
        fail_msg("\"%s\" does not say \"%s\"", danaus_error_detail(), words);
}

static void indices_are_checked(void **state)
{
    (void)state;
    static const struct {
        const char *index, *words;
        danaus_status status;
    } wrong[] = {
        { "[]", "no object", DANAUS_ERR_FORMAT },
        { "{\"weight_map\": {}}", "no object", DANAUS_ERR_FORMAT },
        { "{\"weight_map\": {\"a\": 3}}", "no text", DANAUS_ERR_FORMAT },
        { "{\"weight_map\": {\"a\": \"../b\"}}", "no name of a file",
          DANAUS_ERR_FORMAT },
        { "{\"weight_map\": {\"a\": \"/etc/passwd\"}}", "no name of a file",
          DANAUS_ERR_FORMAT },
        { "{\"weight_map\": {\"a\": \"sub/b\"}}", "no name of a file",
          DANAUS_ERR_FORMAT },
        { "{\"weight_map\": {\"a\": \"\"}}", "no name of a file", DANAUS_ERR_FORMAT },
        { "{\"weight_map\": {\"a\": \"none\"}}", "none", DANAUS_ERR_IO },
        { "{\"weight_map\": {\"a\": \"config.json\"}}", "config.json",
          DANAUS_ERR_FORMAT },
        { "{\"weight_map\": {\"a\": \"part-0.safetensors\", \"b\": "
          "\"part-1.safetensors\"}}",
          "2 tensors: a is not in part-0.safetensors; b is not in part-1.safetensors",
          DANAUS_ERR_FORMAT },
    };
    rng r = { 6 };
    small_m2 m = m2_random(&r);
    m2_write(&m);
    remove(scratch_path("model.safetensors"));
    write_parts(&r, &m);
    for (size_t i = 0; i < sizeof wrong / sizeof *wrong; i++) {
        file_write(scratch_path(INDEX), wrong[i].index, strlen(wrong[i].index));
        expect_refusal(wrong[i].status, wrong[i].words);
    }
    m2_free(&m);
}

static void tensors_are_in_one_file(void **state)
{
    (void)state;
    static const char index[] =
        "{\"weight_map\": {\"a\": \"part-0.safetensors\", \"b\": "
        "\"part-1.safetensors\"}}";
    named_arrays one = { 0 }, two = { 0 };
    small_m2 m = m2_of_vectors(0);
    m2_write(&m);
    remove(scratch_path("model.safetensors"));
    named_add(&one, 0, NULL, "a");
    named_add(&two, 0, NULL, "a");
    named_add(&two, 0, NULL, "b");
    named_write(&one, scratch_path(part_name(0)));
    named_write(&two, scratch_path(part_name(1)));
    file_write(scratch_path(INDEX), index, strlen(index));
    expect_refusal(DANAUS_ERR_FORMAT, "two files have a tensor \"a\"");
    named_free(&one);
    named_free(&two);
    m2_free(&m);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(parts_are_as_one_file),
        cmocka_unit_test(saved_models_are_one_file),
        cmocka_unit_test(indices_are_checked),
        cmocka_unit_test(tensors_are_in_one_file),
    };
    if (danaus_device_open("cpu", &device))
        return 1;
    int failed = cmocka_run_group_tests(tests, scratch_setup, scratch_teardown);
    danaus_device_close(device);
    return failed;
}
