/* How many threads control groups leave, with files as systems have them. */
// SPDX-License-Identifier: Apache-2.0
#include "support/test.h"

#include "base/numbers.h"
#include "base/quota.h"
#include "base/thread.h"

#include <ftw.h>
#include <limits.h>
#include <sched.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

static char root[64];

static int make_root(void **state)
{
    (void)state;
    strcpy(root, "/tmp/danaus-quota-XXXXXX");
    return mkdtemp(root) ? 0 : -1;
}

static int remove_one(
    const char *path, const struct stat *s, int kind, struct FTW *walk)
{
    (void)s, (void)kind, (void)walk;
    return remove(path);
}

static int remove_root(void **state)
{
    (void)state;
    return nftw(root, remove_one, 16, FTW_DEPTH | FTW_PHYS);
}

/* A file below the root, in folders that are made. */
static void put(const char *name, const char *text)
{
    char path[512];
    snprintf(path, sizeof path, "%s/%s", root, name);
    for (char *at = path + strlen(root) + 1; (at = strchr(at, '/')); *at++ = '/') {
        *at = 0;
        mkdir(path, 0700);
    }
    FILE *file = fopen(path, "w");
    assert_non_null(file);
    fputs(text, file);
    assert_int_equal(fclose(file), 0);
}

#define V2                                                                             \
    "30 25 0:26 / /sys/fs/cgroup rw,nosuid shared:4 - cgroup2 cgroup2 rw,nsdelegate\n"

static void there_may_be_no_limit(void **state)
{
    (void)state;
    assert_int_equal(dn_processor_quota("/there/is/nothing"), INT_MAX);
    assert_int_equal(dn_processor_quota(root), INT_MAX);
    put("proc/self/mountinfo", "1 0 8:1 / / rw - ext4 /dev/sda rw\n" V2);
    assert_int_equal(dn_processor_quota(root), INT_MAX);
    put("proc/self/cgroup", "0::/user.slice/session\n");
    assert_int_equal(dn_processor_quota(root), INT_MAX);
    put("sys/fs/cgroup/user.slice/session/cpu.max", "max 100000\n");
    assert_int_equal(dn_processor_quota(root), INT_MAX);
}

static void the_group_and_those_above_limit(void **state)
{
    (void)state;
    put("proc/self/mountinfo", V2);
    put("proc/self/cgroup", "0::/user.slice/session\n");
    put("sys/fs/cgroup/user.slice/session/cpu.max", "1050000 100000\n");
    assert_int_equal(dn_processor_quota(root), 10);
    put("sys/fs/cgroup/user.slice/cpu.max", "799999 100000\n");
    assert_int_equal(dn_processor_quota(root), 7);
    put("sys/fs/cgroup/cpu.max", "100000 50000\n");
    assert_int_equal(dn_processor_quota(root), 2);
    put("sys/fs/cgroup/user.slice/other/cpu.max", "100000 100000\n");
    assert_int_equal(dn_processor_quota(root), 2);
}

static void less_than_a_processor_is_one(void **state)
{
    (void)state;
    put("proc/self/mountinfo", V2);
    put("proc/self/cgroup", "0::/\n");
    put("sys/fs/cgroup/cpu.max", "20000 100000\n");
    assert_int_equal(dn_processor_quota(root), 1);
}

/* A container sees its own group as the top of what is mounted. */
static void containers_see_their_group_at_the_top(void **state)
{
    (void)state;
    put("proc/self/mountinfo",
        "31 25 0:26 /docker/abc /sys/fs/cgroup ro - cgroup2 cgroup rw\n");
    put("proc/self/cgroup", "0::/docker/abc/inner\n");
    put("sys/fs/cgroup/cpu.max", "300000 100000\n");
    put("sys/fs/cgroup/inner/cpu.max", "500000 100000\n");
    assert_int_equal(dn_processor_quota(root), 3);
    put("sys/fs/cgroup/inner/cpu.max", "200000 100000\n");
    assert_int_equal(dn_processor_quota(root), 2);
    put("proc/self/cgroup", "0::/docker/abcd/inner\n"); /* not below what is seen */
    assert_int_equal(dn_processor_quota(root), 3);
}

static void version_1_has_files_of_its_own(void **state)
{
    (void)state;
    put("proc/self/mountinfo",
        "40 25 0:30 / /sys/fs/cgroup/unified rw - cgroup2 cgroup2 rw\n"
        "41 25 0:31 / /sys/fs/cgroup/cpuset rw - cgroup cgroup rw,cpuset\n"
        "42 25 0:32 / /sys/fs/cgroup/cpu,cpuacct rw - cgroup cgroup rw,cpuacct,cpu\n");
    put("proc/self/cgroup", "3:cpuset:/wrong\n2:cpuacct,cpu:/batch\n0::/\n");
    put("sys/fs/cgroup/cpu,cpuacct/batch/cpu.cfs_quota_us", "-1\n");
    put("sys/fs/cgroup/cpu,cpuacct/batch/cpu.cfs_period_us", "100000\n");
    put("sys/fs/cgroup/cpuset/wrong/cpu.cfs_quota_us", "100000\n");
    put("sys/fs/cgroup/cpuset/wrong/cpu.cfs_period_us", "100000\n");
    assert_int_equal(dn_processor_quota(root), INT_MAX);
    put("sys/fs/cgroup/cpu,cpuacct/batch/cpu.cfs_quota_us", "350000\n");
    assert_int_equal(dn_processor_quota(root), 3);
    put("sys/fs/cgroup/unified/cpu.max", "200000 100000\n"); /* both may be there */
    assert_int_equal(dn_processor_quota(root), 2);
}

static void memory_is_what_is_left_or_granted(void **state)
{
    (void)state;
    assert_true(dn_memory_room("/there/is/nothing") == INT64_MAX);
    put("proc/self/mountinfo", V2);
    put("proc/self/cgroup", "0::/user.slice/session\n");
    put("proc/meminfo", "MemTotal:  9000 kB\nMemFree: 20 kB\nMemAvailable:  4000 kB\n");
    assert_int_equal(dn_memory_room(root), 4096000);
    put("sys/fs/cgroup/user.slice/session/memory.max", "max\n");
    assert_int_equal(dn_memory_room(root), 4096000);
    put("sys/fs/cgroup/user.slice/memory.max", "1000000\n");
    assert_int_equal(dn_memory_room(root), 1000000);
    put("proc/self/mountinfo",
        "42 25 0:32 / /sys/fs/cgroup/memory rw - cgroup cgroup rw,memory\n");
    put("proc/self/cgroup", "4:memory:/batch\n");
    put("sys/fs/cgroup/memory/batch/memory.limit_in_bytes", "70000\n");
    assert_int_equal(dn_memory_room(root), 70000);
    put("proc/meminfo", "MemAvailable: many\n");
    put("sys/fs/cgroup/memory/batch/memory.limit_in_bytes", "-1\n");
    assert_true(dn_memory_room(root) == INT64_MAX);
}

static void odd_files_limit_nothing(void **state)
{
    static const char *const limits[] = {
        "",
        "\n",
        "100000\n",
        "0 100000\n",
        "-5 100000\n",
        "100000 0\n",
        "many of them\n",
        "99999999999999999999 1\n",
    };
    (void)state;
    put("proc/self/cgroup", "0::/\n");
    put("proc/self/mountinfo", V2);
    for (size_t i = 0; i < sizeof limits / sizeof *limits; i++) {
        put("sys/fs/cgroup/cpu.max", limits[i]);
        assert_int_equal(dn_processor_quota(root), INT_MAX);
    }
    put("sys/fs/cgroup/cpu.max", "200000 100000\n");
    put("proc/self/cgroup", "0\n0:\n:::\n\n0::/");
    assert_int_equal(dn_processor_quota(root), 2);
    put("proc/self/mountinfo", " - cgroup2\n30 25 - cgroup2 x rw\n- - -\n");
    assert_int_equal(dn_processor_quota(root), INT_MAX);
}

/* Mounts of many layers have lines of any length; the next line is found. */
static void long_lines_are_passed_over(void **state)
{
    (void)state;
    static char mounts[20000 + sizeof V2];
    memset(mounts, 'x', 20000);
    memcpy(mounts, "1 0 8:1 / / rw - overlay o ", 27);
    mounts[19999] = '\n';
    strcpy(mounts + 20000, V2);
    put("proc/self/mountinfo", mounts);
    put("proc/self/cgroup", "0::/\n");
    put("sys/fs/cgroup/cpu.max", "200000 100000\n");
    assert_int_equal(dn_processor_quota(root), 2);
}

/* The least of what it may run on and of its time. */
static void threads_are_the_least_of_both(void **state)
{
    (void)state;
    cpu_set_t set;
    assert_int_equal(sched_getaffinity(0, sizeof set, &set), 0);
    int all = CPU_COUNT(&set);
    size_t first = 0;
    while (!CPU_ISSET(first, &set))
        first++;
    put("proc/self/mountinfo", V2);
    put("proc/self/cgroup", "0::/\n");
    put("sys/fs/cgroup/cpu.max", "max 100000\n");
    assert_int_equal(dn_thread_count_below(root), all);
    put("sys/fs/cgroup/cpu.max", "100000 100000\n");
    assert_int_equal(dn_thread_count_below(root), 1);
    assert_int_equal(dn_thread_count(), MIN(all, dn_processor_quota("")));

    put("sys/fs/cgroup/cpu.max", "999900000 100000\n");
    cpu_set_t one;
    CPU_ZERO(&one);
    CPU_SET(first, &one);
    assert_int_equal(sched_setaffinity(0, sizeof one, &one), 0);
    assert_int_equal(dn_thread_count_below(root), 1);
    assert_int_equal(sched_setaffinity(0, sizeof set, &set), 0);
    assert_int_equal(dn_thread_count_below(root), MIN(all, 9999));
}

#define IN_ROOT(test) cmocka_unit_test_setup_teardown(test, make_root, remove_root)

int main(void)
{
    const struct CMUnitTest tests[] = {
        IN_ROOT(there_may_be_no_limit),
        IN_ROOT(the_group_and_those_above_limit),
        IN_ROOT(less_than_a_processor_is_one),
        IN_ROOT(containers_see_their_group_at_the_top),
        IN_ROOT(version_1_has_files_of_its_own),
        IN_ROOT(memory_is_what_is_left_or_granted),
        IN_ROOT(odd_files_limit_nothing),
        IN_ROOT(long_lines_are_passed_over),
        IN_ROOT(threads_are_the_least_of_both),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
