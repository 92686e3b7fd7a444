/* Runs a fuzz target on every file of the folders that are its arguments: the
   stored corpus as an ordinary test. */
// SPDX-License-Identifier: Apache-2.0
#include "fuzz/fuzz.h"

#include <dirent.h>
#include <stdio.h>

#define MOST_BYTES (1 << 20)

static void replay(const char *path)
{
    static uint8_t bytes[MOST_BYTES];
    FILE *file = fopen(path, "rb");
    expect(file);
    size_t size = fread(bytes, 1, sizeof bytes, file);
    fclose(file);
    LLVMFuzzerTestOneInput(bytes, size);
}

int main(int argc, char **argv)
{
    int count = 0;
    for (int i = 1; i < argc; i++) {
        DIR *folder = opendir(argv[i]);
        expect(folder);
        for (struct dirent *e = readdir(folder); e; e = readdir(folder)) {
            char path[4096];
            snprintf(path, sizeof path, "%s/%s", argv[i], e->d_name);
            if (e->d_name[0] != '.') {
                replay(path);
                count++;
            }
        }
        closedir(folder);
    }
    printf("%d files\n", count);
    return count == 0;
}
