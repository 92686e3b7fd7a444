/* A GPU in a process that fork() made: a status, from devices of the parent and from new
   ones, and nothing of the driver is called when these are closed. */
// SPDX-License-Identifier: Apache-2.0
#include "support/test.h"

#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

static int says_fork(danaus_status status)
{
    return status == DANAUS_ERR_UNSUPPORTED && strstr(danaus_error_detail(), "fork()");
}

static int use_device(danaus_device *device)
{
    danaus_device *another = NULL;
    danaus_device_info info;
    void *memory = NULL;
    int devices = 0;
    alarm(60);
    if (!says_fork(danaus_device_sync(device)) ||
        !says_fork(danaus_alloc(device, 64, &memory)) || memory)
        return 1;
    if (!says_fork(danaus_device_open("cuda:0", &another)) || another)
        return 2;
    if (danaus_device_count(&devices))
        return 3;
    for (int i = 0; i < devices; i++)
        if (danaus_device_list(i, &info) || !strncmp(info.name, "cuda", 4))
            return 4;
    danaus_device_close(device);
    return 0;
}

static void a_child_is_told_why_it_has_no_gpu(void **state)
{
    (void)state;
    danaus_device *device = NULL;
    int status = 0;
    assert_ok(danaus_device_open("cuda:0", &device));
    pid_t child = fork();
    if (child == 0)
        _exit(use_device(device));
    assert_int_equal(waitpid(child, &status, 0), child);
    assert_int_equal(status, 0);
    assert_ok(danaus_device_sync(device));
    danaus_device_close(device);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_child_is_told_why_it_has_no_gpu),
    };
    return cmocka_run_group_tests_name("fork", tests, NULL, NULL);
}
