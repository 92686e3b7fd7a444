/* Sound files made of chunks (RIFF, RIFX, RF64 and AIFF): how many bytes of sound one
   claims, and how many it has. Libraries that read sound mend a file that was cut and
   give its beginning without a word. */
// SPDX-License-Identifier: Apache-2.0
#ifndef CLI_CHUNKS_H
#define CLI_CHUNKS_H

#include <stdint.h>
#include <stdio.h>

/* The bytes that the header of the sound's chunk claims, and the bytes that follow it. claimed
   is -1 if the file has no such chunk or does not know its size. Programs that write to a pipe
   cannot return to the header and leave a number near 2^31 or 2^32; a stopped program leaves 0,
   with 8 as the size of the whole file. The sound then ends with the file. Any other 0 is a
   size. */
typedef struct sound_bytes {
    int64_t claimed, there;
} sound_bytes;

/* The bytes of sound in a file that can seek; its position is undefined afterwards. */
sound_bytes chunks_of_sound(FILE *file);

#endif
