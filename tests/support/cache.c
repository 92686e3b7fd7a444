/* The emulated compiler, and the folder that it fills. */
// SPDX-License-Identifier: Apache-2.0
#include "support/cache.h"

#include "danaus/danaus.h"
#include "support/test.h"

#include <dlfcn.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

static const int *compilations;
char cache_folder[64];

emulator_control *cache_compiler(void)
{
    void *compiler = dlopen("libnvrtc.so.13", RTLD_NOW);
    compilations = compiler ? dlsym(compiler, "emulator_compilations") : NULL;
    if (compilations)
        return dlsym(compiler, "emulator_nvrtc_control");
    fprintf(stderr, "this test needs the emulated compiler\n");
    return NULL;
}

static const danaus_pattern pattern = { 1, 3, 4, 2 };

danaus_status try_a_kernel(void)
{
    danaus_device *device = NULL;
    danaus_ks_desc desc = { .batch = 9 };
    danaus_ks_plan *plan = NULL;
    assert_ok(danaus_device_open("cuda:0", &device));
    danaus_status status = danaus_ks_plan_create(device, &pattern, 1, &desc, &plan);
    danaus_ks_plan_destroy(plan);
    danaus_device_close(device);
    return status;
}

void use_a_kernel(void) { assert_ok(try_a_kernel()); }

int compilations_of_use(void)
{
    int before = *compilations;
    use_a_kernel();
    return *compilations - before;
}

static int is_ours(const struct dirent *entry)
{
    return strstr(entry->d_name, ".cubin") != NULL;
}

int cache_list(struct dirent ***entries)
{
    return scandir(cache_folder, entries, is_ours, alphasort);
}

void cache_free_list(struct dirent **entries, int count)
{
    for (int i = 0; i < count; i++)
        free(entries[i]);
    free(entries);
}

int cache_count(void)
{
    struct dirent **entries;
    int count = cache_list(&entries);
    if (count >= 0)
        cache_free_list(entries, count);
    return count;
}

int cache_setup(void **state)
{
    (void)state;
    strcpy(cache_folder, "/tmp/danaus-cache-XXXXXX");
    return mkdtemp(cache_folder) ? setenv("DANAUS_CACHE", cache_folder, 1) : -1;
}

int cache_teardown(void **state)
{
    (void)state;
    char command[128];
    snprintf(command, sizeof command, "rm -r %s", cache_folder);
    unsetenv("DANAUS_CACHE_MIB");
    return system(command);
}
