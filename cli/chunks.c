/* Sound files made of chunks: a name of 12 bytes ("RIFF", the size of the rest, "WAVE"),
   then chunks of a name, a size and so many bytes, padded to an even number. RF64 has
   sizes of 64 bits in a chunk "ds64" and 2^32 - 1 where they do not fit. */
// SPDX-License-Identifier: Apache-2.0
#include "cli/chunks.h"

#include <string.h>

typedef struct container {
    char name[5], content[5], sound[5]; /* names: file, what is in it, sound's chunk */
    int big_endian;
} container;

static const container containers[] = {
    { "RIFF", "WAVE", "data", 0 }, { "RIFX", "WAVE", "data", 1 },
    { "RF64", "WAVE", "data", 0 }, { "FORM", "AIFF", "SSND", 1 },
    { "FORM", "AIFC", "SSND", 1 },
};

/* Sizes that stand for "not known yet": from MANY to 2^31, and the last 4096. */
#define MANY  0x7ffff000u
#define LAST  0xfffff000u
#define NO_32 0xffffffffu
/* The size of a whole file in which only the name was written. */
#define UNFINISHED 8

static uint64_t number(const container *c, const unsigned char *bytes, int count)
{
    uint64_t x = 0;
    for (int i = 0; i < count; i++)
        x = x << 8 | bytes[c->big_endian ? i : count - 1 - i];
    return x;
}

static const container *find(const unsigned char head[12])
{
    for (size_t i = 0; i < sizeof containers / sizeof *containers; i++)
        if (!memcmp(head, containers[i].name, 4) &&
            !memcmp(head + 8, containers[i].content, 4))
            return &containers[i];
    return NULL;
}

/* What the size of the sound's chunk, at `start`, says in a file of `end` bytes whose
   own size is `whole`. long_size: of ds64, or 0. */
static sound_bytes judge(
    uint64_t size, uint64_t long_size, uint64_t whole, int64_t start, int64_t end)
{
    sound_bytes s = { -1, end - start };
    if (size == NO_32 && long_size && long_size <= INT64_MAX)
        s.claimed = (int64_t)long_size;
    else if (size == 0)
        s.claimed = whole == UNFINISHED ? -1 : 0;
    else if (size < MANY || (size > 1u << 31 && size < LAST))
        s.claimed = (int64_t)size;
    return s;
}

static sound_bytes walk(FILE *file, const container *c, uint64_t whole, int64_t end)
{
    unsigned char head[8], sizes[16];
    uint64_t long_size = 0;
    for (int64_t at = 12; at <= end - 8;) {
        if (fseeko(file, at, SEEK_SET) || fread(head, 1, 8, file) != 8)
            break;
        uint64_t size = number(c, head + 4, 4);
        if (!memcmp(head, c->sound, 4))
            return judge(size, long_size, whole, at + 8, end);
        if (!memcmp(head, "ds64", 4) && fread(sizes, 1, 16, file) == 16) {
            whole = number(c, sizes, 8);
            long_size = number(c, sizes + 8, 8);
        }
        at += 8 + (int64_t)(size + size % 2);
    }
    return (sound_bytes){ -1, 0 };
}

sound_bytes chunks_of_sound(FILE *file)
{
    unsigned char head[12];
    const container *c = NULL;
    if (fread(head, 1, sizeof head, file) == sizeof head)
        c = find(head);
    if (!c || fseeko(file, 0, SEEK_END))
        return (sound_bytes){ -1, 0 };
    return walk(file, c, number(c, head + 4, 4), ftello(file));
}
