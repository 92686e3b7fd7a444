/* Files written in one step: whole, or not at all. */
// SPDX-License-Identifier: Apache-2.0
#include "support/files.h"
#include "support/test.h"

#include "base/replace.h"
#include "danaus/file.h"

#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <pthread.h>
#include <signal.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <unistd.h>

enum { WHOLE_PIPE = 300000 };

static danaus_status write_text(const char *path, const char *content)
{
    file_part part = { content, strlen(content) };
    return dn_replace_file(path, &part, 1);
}

static void expect_text(const char *path, const char *content)
{
    bytes b = file_bytes(path);
    assert_int_equal(b.size, strlen(content));
    assert_memory_equal(b.data, content, b.size);
    bytes_free(&b);
}

static void parts_follow_each_other(void **state)
{
    (void)state;
    const char *path = scratch_path("parts");
    const file_part parts[] = { { "ab", 2 }, { NULL, 0 }, { "c", 1 }, { "defg", 4 } };
    assert_ok(dn_replace_file(path, parts, 4));
    expect_text(path, "abcdefg");
    assert_ok(dn_replace_file(path, NULL, 0));
    expect_text(path, "");
}

static void an_older_file_is_replaced(void **state)
{
    (void)state;
    const char *path = scratch_path("older");
    assert_ok(write_text(path, "a longer text"));
    int files = scratch_count();
    assert_ok(write_text(path, "short"));
    expect_text(path, "short");
    assert_int_equal(scratch_count(), files);
}

static void a_bare_name_is_in_the_working_directory(void **state)
{
    (void)state;
    char before[PATH_MAX];
    assert_non_null(getcwd(before, sizeof before));
    assert_int_equal(chdir(scratch_directory()), 0);
    danaus_status status = write_text("bare", "here");
    assert_int_equal(chdir(before), 0);
    assert_int_equal(status, DANAUS_OK);
    expect_text(scratch_path("bare"), "here");
}

static void the_mask_of_the_process_decides_who_may_read(void **state)
{
    (void)state;
    mode_t mask = umask(027);
    struct stat s;
    assert_ok(write_text(scratch_path("mask"), "x"));
    umask(mask);
    assert_int_equal(stat(scratch_path("mask"), &s), 0);
    assert_int_equal(s.st_mode & 0777, 0640);
}

static mode_t mode_of(const char *path)
{
    struct stat s;
    assert_int_equal(stat(path, &s), 0);
    return s.st_mode & 07777;
}

/* Whatever the mask of the process is. */
static void who_may_read_a_file_does_not_change(void **state)
{
    (void)state;
    const char *path = scratch_path("mode");
    const mode_t modes[] = { 0600, 0640, 0664, 0666, 0755, 0200 };
    file_write(path, "old", 3);
    for (size_t i = 0; i < sizeof modes / sizeof *modes; i++)
        for (mode_t mask = 0; mask <= 077; mask += 077) {
            assert_int_equal(chmod(path, modes[i]), 0);
            mode_t before = umask(mask);
            danaus_status status = write_text(path, "new");
            umask(before);
            assert_int_equal(status, DANAUS_OK);
            assert_int_equal(mode_of(path), modes[i]);
        }
}

/* `root` keeps both. Who may not give a file to its group lets the new one do what
   everybody could. */
static void a_file_stays_with_its_owner_and_group(void **state)
{
    (void)state;
    const char *path = scratch_path("owner");
    enum { NOBODY = 65534, GROUP = 12345 };
    struct stat s;
    file_write(path, "old", 3);
    if (geteuid() != 0 || chown(path, NOBODY, GROUP))
        skip();
    assert_int_equal(chmod(path, 0664), 0);
    assert_int_equal(chmod(scratch_directory(), 0777), 0);
    assert_ok(write_text(path, "new"));
    assert_int_equal(stat(path, &s), 0);
    assert_int_equal(s.st_uid, NOBODY);
    assert_int_equal(s.st_gid, GROUP);
    assert_int_equal(mode_of(path), 0664);

    assert_int_equal(seteuid(NOBODY), 0);
    danaus_status status = write_text(path, "newer");
    assert_int_equal(seteuid(0), 0);
    assert_int_equal(status, DANAUS_OK);
    expect_text(path, "newer");
    assert_int_equal(mode_of(path), 0644);
}

static void a_link_that_leads_nowhere_is_refused(void **state)
{
    (void)state;
    const char *link = scratch_path("dangling");
    struct stat s;
    assert_int_equal(symlink("nothing", link), 0);
    int files = scratch_count();
    assert_status(write_text(link, "x"), DANAUS_ERR_IO);
    assert_non_null(strstr(danaus_error_detail(), "leads nowhere"));
    assert_int_equal(lstat(link, &s), 0);
    assert_true(S_ISLNK(s.st_mode));
    assert_int_equal(scratch_count(), files);
}

static void a_link_stays_and_its_target_is_replaced(void **state)
{
    (void)state;
    const char *target = scratch_path("target"), *link = scratch_path("link");
    struct stat s;
    file_write(target, "old", 3);
    assert_int_equal(symlink("target", link), 0);
    assert_ok(write_text(link, "new"));
    expect_text(target, "new");
    assert_int_equal(lstat(link, &s), 0);
    assert_true(S_ISLNK(s.st_mode));
}

static void what_cannot_be_written_is_refused(void **state)
{
    (void)state;
    assert_status(write_text(scratch_directory(), "x"), DANAUS_ERR_IO);
    assert_non_null(
        strstr(danaus_error_detail(), "it is a folder, not a regular file"));
    assert_status(write_text("", "x"), DANAUS_ERR_IO);
    assert_status(write_text(scratch_path("none/file"), "x"), DANAUS_ERR_IO);
    file_write(scratch_path("file"), "old", 3);
    assert_status(write_text(scratch_path("file/file"), "x"), DANAUS_ERR_IO);
    char name[2 * PATH_MAX];
    memset(name, 'x', sizeof name - 1);
    name[sizeof name - 1] = 0;
    assert_status(write_text(name, "x"), DANAUS_ERR_IO);
    name[300] = 0; /* longer than a name may be */
    assert_status(write_text(name, "x"), DANAUS_ERR_IO);
}

/* ---- what is written to ---- */

static void a_device_is_written_to(void **state)
{
    (void)state;
    int replaced = 1;
    struct stat s;
    assert_ok(dn_check_output("/dev/null", &replaced));
    assert_int_equal(replaced, 0);
    assert_ok(write_text("/dev/null", "x"));
    assert_int_equal(stat("/dev/null", &s), 0);
    assert_true(S_ISCHR(s.st_mode));
    assert_status(write_text("/dev/full", "x"), DANAUS_ERR_IO);
}

static void a_pipe_without_a_reader_does_not_block(void **state)
{
    (void)state;
    const char *pipe = scratch_path("pipe");
    assert_int_equal(mkfifo(pipe, 0600), 0);
    assert_status(write_text(pipe, "x"), DANAUS_ERR_IO);
    assert_non_null(strstr(danaus_error_detail(), "a pipe that nothing reads"));
}

static void *read_pipe(void *path)
{
    char *content = calloc(1, WHOLE_PIPE + 1);
    size_t got = 0;
    FILE *file = fopen(path, "rb");
    for (size_t more; (more = fread(content + got, 1, WHOLE_PIPE - got, file)) > 0;)
        got += more;
    fclose(file);
    return content;
}

/* More than a pipe holds. */
static void a_pipe_is_written_to(void **state)
{
    (void)state;
    static char text[WHOLE_PIPE + 1];
    char *path = strdup(scratch_path("read"));
    void *content;
    pthread_t reader;
    memset(text, 'x', WHOLE_PIPE);
    assert_int_equal(mkfifo(path, 0600), 0);
    assert_int_equal(pthread_create(&reader, NULL, read_pipe, path), 0);
    assert_ok(write_text(path, text));
    assert_int_equal(pthread_join(reader, &content), 0);
    assert_string_equal(content, text);
    free(content);
    free(path);
}

/* As a shell's >> has opened it, and at the place where it stands. */
static void a_descriptor_is_written_to(void **state)
{
    (void)state;
    const char *const names[] = { "/dev/fd/%d", "/proc/self/fd/%d",
                                  "/proc/thread-self/fd/%d" };
    for (size_t i = 0; i < sizeof names / sizeof *names; i++) {
        char name[64];
        int fd = open(scratch_path("open"), O_WRONLY | O_CREAT | O_TRUNC, 0600);
        assert_int_equal(write(fd, "before ", 7), 7);
        snprintf(name, sizeof name, names[i], fd);
        assert_ok(write_text(name, "new "));
        assert_int_equal(write(fd, "after", 5), 5);
        close(fd);
        expect_text(scratch_path("open"), "before new after");
    }
}

static void a_link_to_a_descriptor_is_written_to(void **state)
{
    (void)state;
    char name[64];
    const char *link = scratch_path("leads");
    int fd = open(scratch_path("there"), O_WRONLY | O_CREAT | O_APPEND, 0600);
    assert_int_equal(write(fd, "kept ", 5), 5);
    snprintf(name, sizeof name, "/dev/fd/%d", fd);
    assert_int_equal(symlink(name, link), 0);
    assert_ok(write_text(link, "new"));
    close(fd);
    expect_text(scratch_path("there"), "kept new");
}

/* ---- new files without a name, and with one ---- */

static int names_only;        /* the file system has no files without a name */
static int files_when_synced; /* of the scratch folder; -1: not looked at */
static int abandoned;         /* a signal handler runs then */

int open(const char *path, int flags, ...)
{
    va_list rest;
    va_start(rest, flags);
    mode_t mode =
        flags & O_CREAT || (flags & O_TMPFILE) == O_TMPFILE ? va_arg(rest, mode_t) : 0;
    va_end(rest);
    if (names_only && (flags & O_TMPFILE) == O_TMPFILE) {
        errno = EOPNOTSUPP;
        return -1;
    }
    return (int)syscall(SYS_openat, AT_FDCWD, path, flags, mode);
}

int fsync(int fd)
{
    if (abandoned)
        dn_abandon_files();
    files_when_synced = scratch_count();
    return (int)syscall(SYS_fsync, fd);
}

static void a_file_has_no_name_while_it_is_written(void **state)
{
    (void)state;
    int files = scratch_count();
    assert_ok(write_text(scratch_path("late"), "x"));
    expect_text(scratch_path("late"), "x");
    if (files_when_synced != files)
        skip(); /* the file system has no such files */
}

static void a_name_of_a_new_file_can_be_abandoned(void **state)
{
    (void)state;
    int files = scratch_count();
    names_only = 1;
    assert_ok(write_text(scratch_path("named"), "x"));
    assert_int_equal(files_when_synced, files + 1);
    abandoned = 1;
    danaus_status status = write_text(scratch_path("abandoned"), "x");
    names_only = abandoned = 0;
    assert_int_equal(files_when_synced, files + 1);
    assert_int_equal(status, DANAUS_ERR_IO);
    assert_int_equal(scratch_count(), files + 1);
    danaus_file_abandon(); /* the file that is done stays */
    expect_text(scratch_path("named"), "x");
}

static void a_name_of_full_length_can_be_written(void **state)
{
    (void)state;
    char name[NAME_MAX + 1];
    memset(name, 'n', NAME_MAX);
    name[NAME_MAX] = 0;
    assert_ok(write_text(scratch_path(name), "x"));
    expect_text(scratch_path(name), "x");
}

static void a_read_only_file_stays(void **state)
{
    (void)state;
    const char *path = scratch_path("locked");
    file_write(path, "old", 3);
    assert_int_equal(chmod(path, 0444), 0);
    assert_int_equal(chmod(scratch_directory(), 0777), 0);
    uid_t user = geteuid(), nobody = 65534;
    if (user == 0) /* who may write every file */
        assert_int_equal(seteuid(nobody), 0);
    danaus_status status = write_text(path, "new");
    assert_int_equal(seteuid(user), 0);
    assert_int_equal(status, DANAUS_ERR_IO);
    expect_text(path, "old");
}

/* The disk is full after 100,000 bytes. */
static void a_full_disk_leaves_the_old_file(void **state)
{
    (void)state;
    const char *path = scratch_path("full");
    struct rlimit limit, small;
    char *large = calloc(1, 1000000);
    file_part part = { large, 1000000 };
    file_write(path, "old", 3);
    int files = scratch_count();
    assert_int_equal(getrlimit(RLIMIT_FSIZE, &limit), 0);
    small = limit;
    small.rlim_cur = 100000;
    signal(SIGXFSZ, SIG_IGN);
    assert_int_equal(setrlimit(RLIMIT_FSIZE, &small), 0);
    danaus_status status = dn_replace_file(path, &part, 1);
    assert_int_equal(setrlimit(RLIMIT_FSIZE, &limit), 0);
    signal(SIGXFSZ, SIG_DFL);
    assert_int_equal(status, DANAUS_ERR_IO);
    expect_text(path, "old");
    assert_int_equal(scratch_count(), files);
    free(large);
}

/* ---- a reader sees one whole file or another, never a mixture ---- */

enum { WHOLE = 200000 };

typedef struct race {
    const char *path;
    char letter;
    danaus_status status;
} race;

static void *write_often(void *arg)
{
    race *r = arg;
    char *content = malloc(WHOLE);
    memset(content, r->letter, WHOLE);
    file_part halves[] = { { content, WHOLE / 2 }, { content, WHOLE / 2 } };
    for (int i = 0; i < 20 && r->status == DANAUS_OK; i++)
        r->status = dn_replace_file(r->path, halves, 2);
    free(content);
    return NULL;
}

static void writers_and_readers_do_not_mix(void **state)
{
    (void)state;
    race races[] = { { scratch_path("race"), 'a', DANAUS_OK },
                     { scratch_path("race"), 'b', DANAUS_OK } };
    pthread_t threads[2];
    write_often(&races[0]);
    int files = scratch_count();
    for (int i = 0; i < 2; i++)
        assert_int_equal(pthread_create(&threads[i], NULL, write_often, &races[i]), 0);
    for (int i = 0; i < 50; i++) {
        bytes b = file_bytes(races[0].path);
        assert_int_equal(b.size, WHOLE);
        for (size_t j = 1; j < b.size; j++)
            if (b.data[j] != b.data[0])
                fail_msg("byte %zu is of another file", j);
        bytes_free(&b);
    }
    for (int i = 0; i < 2; i++)
        assert_int_equal(pthread_join(threads[i], NULL), 0);
    assert_ok(races[0].status);
    assert_ok(races[1].status);
    assert_int_equal(scratch_count(), files);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(parts_follow_each_other),
        cmocka_unit_test(an_older_file_is_replaced),
        cmocka_unit_test(a_bare_name_is_in_the_working_directory),
        cmocka_unit_test(the_mask_of_the_process_decides_who_may_read),
        cmocka_unit_test(who_may_read_a_file_does_not_change),
        cmocka_unit_test(a_file_stays_with_its_owner_and_group),
        cmocka_unit_test(a_link_that_leads_nowhere_is_refused),
        cmocka_unit_test(a_link_stays_and_its_target_is_replaced),
        cmocka_unit_test(what_cannot_be_written_is_refused),
        cmocka_unit_test(a_device_is_written_to),
        cmocka_unit_test(a_pipe_without_a_reader_does_not_block),
        cmocka_unit_test(a_pipe_is_written_to),
        cmocka_unit_test(a_descriptor_is_written_to),
        cmocka_unit_test(a_link_to_a_descriptor_is_written_to),
        cmocka_unit_test(a_file_has_no_name_while_it_is_written),
        cmocka_unit_test(a_name_of_a_new_file_can_be_abandoned),
        cmocka_unit_test(a_name_of_full_length_can_be_written),
        cmocka_unit_test(a_read_only_file_stays),
        cmocka_unit_test(a_full_disk_leaves_the_old_file),
        cmocka_unit_test(writers_and_readers_do_not_mix),
    };
    return cmocka_run_group_tests_name(
        "replace", tests, scratch_setup, scratch_teardown);
}
