/* Sound files, through libsndfile and libsamplerate: channels as rows of f32. */
// SPDX-License-Identifier: Apache-2.0
#ifndef CLI_SOUND_H
#define CLI_SOUND_H

#include <stdint.h>

typedef struct sound {
    int64_t channels, length;
    int rate;    /* numbers a second */
    float *data; /* [channels][length], full scale is 1 */
} sound;

typedef enum sound_format { SOUND_PCM16, SOUND_PCM24, SOUND_FLOAT } sound_format;

/* These return an exit status. Reading accepts every format of libsndfile, and refuses sound
   that is empty or shorter than its header says. */
int sound_read(const char *path, sound *s);
int sound_resample(sound *s, int rate);
void sound_free(sound *s);

/* Fails unless files of this name can be written in the format: the end of the name says
   what file it is; "-" is a .wav file. */
int sound_check_name(const char *name, sound_format format);

/* Writes a file of that name's kind to `path`, complete or not at all; numbers beyond full
   scale are clipped in PCM, and counted, and NaN is refused there. */
int sound_write(
    const char *path, const char *name, const sound *s, sound_format format,
    int64_t *clipped);

#endif
