/* Limits of control groups (cgroups), of both versions:

   version   the group's line in /proc/self/cgroup   its limit, in us of time / us of a period
   2         0::GROUP                                cpu.max, "150000 100000" or "max 100000"
   1         N:cpu,cpuacct:GROUP                     cpu.cfs_quota_us (-1: none) and
                                                     cpu.cfs_period_us

   Memory is limited by memory.max in bytes ("max": none) or, for N:memory:GROUP, by
   memory.limit_in_bytes.

   /proc/self/mountinfo says where the folders of groups are mounted, and which group is
   seen there. All groups above a process's own group limit it too. */
// SPDX-License-Identifier: Apache-2.0
#include "base/quota.h"

#include "base/numbers.h"
#include "base/status.h"

#include <limits.h>
#include <stdio.h>
#include <string.h>

#define LINE 4096

/* What a group may have at most of something; INT64_MAX: all there is. */
typedef struct resource {
    const char *controller; /* of version 1 */
    int64_t (*limit)(const char *folder, int version);
} resource;

/* Reads a line without its end; a longer line is cut. Returns 0 at the end of the file. */
static int read_line(FILE *file, char line[LINE])
{
    if (!fgets(line, LINE, file))
        return 0;
    size_t length = strcspn(line, "\n");
    if (!line[length])
        for (int c = 0; c != '\n' && c != EOF;)
            c = getc(file);
    line[length] = 0;
    return 1;
}

/* The path of the text and what is behind it; 0 if that is too long. */
static int join(char path[LINE], const char *text, const char *more)
{
    int length = snprintf(path, LINE, "%s%s", text, more);
    return length > 0 && length < LINE;
}

static FILE *open_in(const char *folder, const char *name)
{
    char path[LINE];
    return join(path, folder, name) ? fopen(path, "r") : NULL;
}

/* True if the word is in the list, whose words are separated by commas. */
static int has_word(const char *list, const char *word)
{
    size_t length = strlen(word);
    while (list) {
        if (strcspn(list, ",") == length && !memcmp(list, word, length))
            return 1;
        list = strchr(list, ',');
        list = list ? list + 1 : NULL;
    }
    return 0;
}

/* This process's group in the folders of a version; 0 if there is none. */
static int find_group(
    const char *root, const resource *of, int version, char group[LINE])
{
    char line[LINE];
    int found = 0;
    FILE *file = open_in(root, "/proc/self/cgroup");
    while (file && !found && read_line(file, line)) {
        char *controllers = strchr(line, ':');
        char *at = controllers ? strchr(++controllers, ':') : NULL;
        if (!at)
            continue;
        *at = 0;
        found = version == 2 ? !*controllers : has_word(controllers, of->controller);
        if (found)
            found = join(group, at + 1, "");
    }
    if (file)
        fclose(file);
    return found;
}

/* The numbers that a file begins with; 0 if there are fewer than `count`. */
static int read_numbers(const char *folder, const char *name, int count, long long *to)
{
    FILE *file = open_in(folder, name);
    int read = 0;
    while (file && read < count && fscanf(file, "%lld", &to[read]) == 1)
        read++;
    if (file)
        fclose(file);
    return read == count;
}

static int64_t processors_in(const char *folder, int version)
{
    long long time[2]; /* granted, of a period */
    int there = version == 2
                    ? read_numbers(folder, "/cpu.max", 2, time)
                    : read_numbers(folder, "/cpu.cfs_quota_us", 1, &time[0]) &&
                          read_numbers(folder, "/cpu.cfs_period_us", 1, &time[1]);
    if (!there || time[0] <= 0 || time[1] <= 0)
        return INT64_MAX;
    return MAX(time[0] / time[1], 1);
}

static int64_t bytes_in(const char *folder, int version)
{
    long long bytes;
    const char *name = version == 2 ? "/memory.max" : "/memory.limit_in_bytes";
    return read_numbers(folder, name, 1, &bytes) && bytes > 0 ? bytes : INT64_MAX;
}

static const resource processors = { "cpu", processors_in },
                      memory = { "memory", bytes_in };

/* The least limit of a group and of the groups above it, up to `mounted`. */
static int64_t limit_up(
    const resource *of, const char *mounted, const char *group, int version)
{
    char folder[LINE];
    if (!join(folder, mounted, group))
        return INT64_MAX;
    int64_t least = of->limit(folder, version);
    for (char *end; (end = strrchr(folder + strlen(mounted), '/'));) {
        *end = 0;
        least = MIN(least, of->limit(folder, version));
    }
    return least;
}

/* A line of mountinfo: id parent device GROUP FOLDER options ... - TYPE source OPTIONS. The
   folder shows GROUP and the groups below it. A group that is elsewhere is not visible, but
   GROUP's own limits are. */
static int64_t limit_of_mount(const char *root, const resource *of, const char *line)
{
    char shown[LINE], folder[LINE], type[LINE], options[LINE], group[LINE],
        mounted[LINE];
    const char *kind = strstr(line, " - ");
    if (!kind || sscanf(line, "%*s %*s %*s %4095s %4095s", shown, folder) != 2 ||
        sscanf(kind, " - %4095s %*s %4095s", type, options) != 2)
        return INT64_MAX;
    int version = !strcmp(type, "cgroup2") ? 2 : 1;
    if (version == 1 && (strcmp(type, "cgroup") || !has_word(options, of->controller)))
        return INT64_MAX;
    if (!find_group(root, of, version, group) || !join(mounted, root, folder))
        return INT64_MAX;
    size_t above = strcmp(shown, "/") ? strlen(shown) : 0;
    int is_below = !strncmp(group, shown, above) && group[above] == '/';
    return limit_up(of, mounted, is_below ? group + above : "", version);
}

static int64_t least_limit(const char *root, const resource *of)
{
    char line[LINE];
    int64_t least = INT64_MAX;
    FILE *mounts = open_in(root, "/proc/self/mountinfo");
    while (mounts && read_line(mounts, line))
        least = MIN(least, limit_of_mount(root, of, line));
    if (mounts)
        fclose(mounts);
    return least;
}

int dn_processor_quota(const char *root)
{
    return (int)MIN(least_limit(root, &processors), INT_MAX);
}

int64_t dn_memory_room(const char *root)
{
    char line[LINE];
    long long kilobytes = 0;
    FILE *file = open_in(root, "/proc/meminfo");
    while (file && !kilobytes && read_line(file, line))
        if (sscanf(line, "MemAvailable: %lld", &kilobytes) != 1)
            kilobytes = 0;
    if (file)
        fclose(file);
    int64_t least = least_limit(root, &memory);
    if (kilobytes > 0 && kilobytes < INT64_MAX / 1024)
        least = MIN(least, kilobytes * 1024);
    return least;
}

danaus_status dn_check_room(double bytes, const char *what)
{
    if (bytes < (double)DN_LARGE_BLOCK)
        return DANAUS_OK;
    double room = (double)dn_memory_room("");
    if (bytes <= room)
        return DANAUS_OK;
    return dn_fail(
        DANAUS_ERR_MEMORY, "no memory for %s: it takes %.3g GB, and there are %.3g GB",
        what, bytes / 1e9, room / 1e9);
}

danaus_status danaus_memory_check(size_t bytes, const char *name)
{
    return dn_check_room((double)bytes, name ? name : "an array");
}
