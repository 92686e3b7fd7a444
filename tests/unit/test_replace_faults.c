/* Files written in one step by a system whose calls fail: each one in turn, or writing
   a few bytes at a time. The calls of this program are those of the library. */
// SPDX-License-Identifier: Apache-2.0
#include "support/files.h"
#include "support/test.h"

#include "base/replace.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <unistd.h>

/* What was called since begin(): open, write, fsync, linkat, close, rename, fchmod by their
   initials (m for the last). The call numbered `fails` fails, but for linkat. */
static struct {
    int watching, count, fails, most, interrupted;
    char calls[64];
} seen;

/* How far the file system has files without a name. */
static enum { NONE, UNLINKED, ALL } nameless;

static void begin(int fails)
{
    memset(&seen, 0, sizeof seen);
    seen.watching = 1;
    seen.fails = fails;
    seen.most = 1 << 20;
}

static int fails(char call)
{
    if (!seen.watching)
        return 0;
    assert_true(seen.count < (int)sizeof seen.calls - 1);
    seen.calls[seen.count++] = call;
    errno = EIO;
    return seen.count == seen.fails;
}

int open(const char *path, int flags, ...)
{
    va_list list;
    va_start(list, flags);
    int unnamed = (flags & O_TMPFILE) == O_TMPFILE;
    mode_t mode = flags & O_CREAT || unnamed ? va_arg(list, mode_t) : 0;
    va_end(list);
    if (unnamed && nameless == NONE) {
        errno = EOPNOTSUPP;
        return -1;
    }
    if ((flags & O_CREAT) && fails('o'))
        return -1;
    return (int)syscall(SYS_openat, AT_FDCWD, path, flags, mode);
}

ssize_t write(int fd, const void *data, size_t size)
{
    if (fails('w'))
        return -1;
    if (seen.watching && seen.interrupted) {
        seen.interrupted = 0;
        errno = EINTR;
        return -1;
    }
    if (seen.watching && size > (size_t)seen.most)
        size = (size_t)seen.most;
    return syscall(SYS_write, fd, data, size);
}

int linkat(int from, const char *old, int to, const char *new, int flags)
{
    if (nameless == UNLINKED) {
        errno = EPERM;
        return -1;
    }
    seen.calls[seen.count++] = 'l';
    seen.fails += seen.count == seen.fails;
    return (int)syscall(SYS_linkat, from, old, to, new, flags);
}

int fsync(int fd) { return fails('f') ? -1 : (int)syscall(SYS_fsync, fd); }

int fchmod(int fd, mode_t mode)
{
    return fails('m') ? -1 : (int)syscall(SYS_fchmod, fd, mode);
}

/* Closed even so. */
int close(int fd)
{
    int failed = fails('c'), closed = (int)syscall(SYS_close, fd);
    errno = failed ? EIO : errno;
    return failed ? -1 : closed;
}

int rename(const char *from, const char *to)
{
    return fails('r') ? -1
                      : (int)syscall(SYS_renameat2, AT_FDCWD, from, AT_FDCWD, to, 0);
}

/* Two parts; what was called is in `seen` then. */
static danaus_status write_two(const char *path, int failing)
{
    const file_part parts[] = { { "new ", 4 }, { "content", 7 } };
    begin(failing);
    danaus_status status = dn_replace_file(path, parts, 2);
    seen.watching = 0;
    return status;
}

static void expect_text(const char *path, const char *content)
{
    bytes b = file_bytes(path);
    assert_int_equal(b.size, strlen(content));
    assert_memory_equal(b.data, content, b.size);
    bytes_free(&b);
}

/* Everything lies on the disk before the name is changed. */
static void a_file_is_flushed_before_it_gets_its_name(void **state)
{
    (void)state;
    static const char *const calls[][2] = { [NONE] = { "owwfcr", "omwwfcr" },
                                            [UNLINKED] = { "wwfcowwfcr",
                                                           "mwwfcomwwfcr" },
                                            [ALL] = { "wwflcr", "mwwflcr" } };
    for (nameless = NONE; nameless <= ALL; nameless++) {
        const char *path = scratch_path("order");
        unlink(path);
        assert_ok(write_two(path, 0));
        assert_string_equal(seen.calls, calls[nameless][0]);
        assert_int_equal(chmod(path, 0640), 0);
        assert_ok(write_two(path, 0));
        assert_string_equal(seen.calls, calls[nameless][1]);
        expect_text(path, "new content");
    }
}

/* A later error does not hide the first one. */
static void each_call_that_fails_leaves_the_old_file(void **state)
{
    (void)state;
    for (nameless = NONE; nameless <= ALL; nameless += ALL - NONE) {
        const char *path = scratch_path("old");
        file_write(path, "old", 3);
        assert_int_equal(chmod(path, 0640), 0);
        int files = scratch_count(), n = 1;
        while (write_two(path, n) != DANAUS_OK) {
            assert_non_null(strstr(danaus_error_detail(), strerror(EIO)));
            expect_text(path, "old");
            assert_int_equal(scratch_count(), files);
            n++;
        }
        assert_int_equal(n, 1 + (int)strlen(nameless ? "mwwflcr" : "omwwfcr"));
        expect_text(path, "new content");
    }
}

static void a_file_that_cannot_be_made_leaves_nothing(void **state)
{
    (void)state;
    for (nameless = NONE; nameless <= ALL; nameless += ALL - NONE) {
        unlink(scratch_path("made"));
        int files = scratch_count(), n = 1;
        for (; write_two(scratch_path("made"), n) != DANAUS_OK; n++)
            assert_int_equal(scratch_count(), files);
        assert_int_equal(n, 1 + (int)strlen(nameless ? "wwflcr" : "owwfcr"));
    }
}

static void what_is_written_in_part_goes_on(void **state)
{
    (void)state;
    const char *path = scratch_path("part");
    const file_part part = { "abcdefghij", 10 };
    begin(0);
    nameless = NONE;
    seen.most = 3;
    seen.interrupted = 1;
    danaus_status status = dn_replace_file(path, &part, 1);
    seen.watching = 0;
    assert_int_equal(status, DANAUS_OK);
    assert_string_equal(seen.calls, "owwwwwfcr");
    expect_text(path, "abcdefghij");
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_file_is_flushed_before_it_gets_its_name),
        cmocka_unit_test(each_call_that_fails_leaves_the_old_file),
        cmocka_unit_test(a_file_that_cannot_be_made_leaves_nothing),
        cmocka_unit_test(what_is_written_in_part_goes_on),
    };
    return cmocka_run_group_tests_name(
        "replace faults", tests, scratch_setup, scratch_teardown);
}
