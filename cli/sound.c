/* Sound files, through libsndfile and libsamplerate. */
// SPDX-License-Identifier: Apache-2.0
#include "cli/sound.h"

#include "common/args.h"
#include "common/room.h"
#include "cli/chunks.h"

#ifdef CLI_SOUND

#    include <errno.h>
#    include <inttypes.h>
#    include <math.h>
#    include <samplerate.h>
#    include <sndfile.h>
#    include <stdio.h>
#    include <stdlib.h>
#    include <string.h>
#    include <strings.h>
#    include <unistd.h>

/* Frames that are read or written at a time. */
#    define FRAMES 4096

/* From [frames][channels] to rows, or back. */
static void turn(sound *s, int64_t from, int64_t frames, float *block, int back)
{
    for (int64_t i = 0; i < frames; i++)
        for (int64_t c = 0; c < s->channels; c++) {
            float *row = s->data + c * s->length + from + i;
            float *cell = block + i * s->channels + c;
            *(back ? cell : row) = *(back ? row : cell);
        }
}

/* The file ends where it says, or does not say. */
static int check_whole(const char *path)
{
    FILE *file = fopen(path, "rb");
    if (!file)
        return failure("%s: %s", path, strerror(errno));
    sound_bytes s = chunks_of_sound(file);
    fclose(file);
    if (s.claimed == 0)
        return failure("%s holds no sound", path);
    if (s.claimed > s.there)
        return failure(
            "%s is cut short: %" PRId64 " of %" PRId64 " bytes of sound are there",
            path, s.there, s.claimed);
    return STATUS_OK;
}

/* Reads frames in the order of the file. Memory grows with the frames that exist, because
   headers may claim anything. Returns their number, or -1 after a sentence. */
static int64_t read_frames(SNDFILE *file, int64_t channels, int64_t length, float **all)
{
    int64_t done = 0, room = 0;
    size_t bytes;
    for (int64_t got = 1; got > 0 && done < length; done += got) {
        if (room < done + FRAMES) {
            void *more = *all;
            room = (done < length / 2 ? 2 * done : length) + FRAMES;
            if (room_check(room, channels, sizeof **all, "sound", &bytes) ||
                room_resize(&more, bytes, 1, "sound"))
                return -1;
            *all = more;
        }
        got = sf_readf_float(file, *all + done * channels, FRAMES);
        got = got > 0 ? got : 0;
    }
    return done;
}

/* Turns the frames into rows. */
static int take_frames(const char *path, SNDFILE *file, sound *s)
{
    float *all = NULL;
    int64_t done = read_frames(file, s->channels, s->length, &all);
    int status = done < 0 ? STATUS_FAILURE : STATUS_OK;
    if (!status && done < s->length)
        status = failure(
            "%s ends after %" PRId64 " of %" PRId64 " frames", path, done, s->length);
    if (!status &&
        !(s->data = room_make(s->length, s->channels, sizeof *s->data, path)))
        status = STATUS_FAILURE;
    if (!status)
        turn(s, 0, s->length, all, 0);
    free(all);
    return status;
}

int sound_read(const char *path, sound *s)
{
    SF_INFO info = { 0 };
    *s = (sound){ 0 };
    int status = check_whole(path);
    if (status)
        return status;
    SNDFILE *file = sf_open(path, SFM_READ, &info);
    if (!file)
        return failure("%s: %s", path, sf_strerror(NULL));
    *s = (sound){ info.channels, info.frames, info.samplerate, NULL };
    if (s->length < 1 || s->channels < 1)
        status = failure("%s holds no sound", path);
    else
        status = take_frames(path, file, s);
    sf_close(file);
    if (status)
        sound_free(s);
    return status;
}

int sound_resample(sound *s, int rate)
{
    double ratio = (double)rate / s->rate;
    if (!src_is_valid_ratio(ratio))
        return failure("cannot resample from %d to %d", s->rate, rate);
    double frames = ceil((double)s->length * ratio);
    TRY(fail_if(frames > 9e18, "sound at %d frames a second would not end", rate));
    int64_t length = (int64_t)frames;
    sound to = { s->channels, length > 0 ? length : 1, rate, NULL };
    to.data = room_make(to.length, to.channels, sizeof *to.data, "resampled sound");
    if (!to.data)
        return STATUS_FAILURE;
    for (int64_t c = 0; c < s->channels; c++) {
        SRC_DATA d = {
            .data_in = s->data + c * s->length,
            .data_out = to.data + c * to.length,
            .input_frames = s->length,
            .output_frames = to.length,
            .end_of_input = 1,
            .src_ratio = ratio,
        };
        int error = src_simple(&d, SRC_SINC_BEST_QUALITY, 1);
        if (error) {
            sound_free(&to);
            return failure(
                "cannot resample from %d to %d: %s", s->rate, rate,
                src_strerror(error));
        }
    }
    sound_free(s);
    *s = to;
    return STATUS_OK;
}

static int write_frames(SNDFILE *file, const sound *s)
{
    float *block = malloc((size_t)(FRAMES * s->channels) * sizeof *block);
    sound from = *s;
    int ok = block != NULL;
    for (int64_t done = 0; ok && done < s->length; done += FRAMES) {
        int64_t frames = s->length - done < FRAMES ? s->length - done : FRAMES;
        turn(&from, done, frames, block, 1);
        ok = sf_writef_float(file, block, frames) == frames;
    }
    free(block);
    return ok;
}

static const struct {
    const char *end;
    int format;
} kinds[] = {
    { ".wav", SF_FORMAT_WAV },   { ".flac", SF_FORMAT_FLAC },
    { ".aiff", SF_FORMAT_AIFF }, { ".aif", SF_FORMAT_AIFF },
    { ".w64", SF_FORMAT_W64 },   { ".rf64", SF_FORMAT_RF64 },
    { ".au", SF_FORMAT_AU },     { ".caf", SF_FORMAT_CAF },
    { "-", SF_FORMAT_WAV },
};

/* What a file of this name holds; format 0: its end says nothing. */
static SF_INFO info_of(const char *name, sound_format format, const sound *s)
{
    static const int subtypes[] = { SF_FORMAT_PCM_16, SF_FORMAT_PCM_24,
                                    SF_FORMAT_FLOAT };
    SF_INFO info = { .samplerate = s->rate, .channels = (int)s->channels };
    for (size_t i = 0; i < sizeof kinds / sizeof *kinds; i++) {
        size_t n = strlen(name), end = strlen(kinds[i].end);
        if (n >= end && !strcasecmp(name + n - end, kinds[i].end))
            info.format = kinds[i].format | subtypes[format];
    }
    return info;
}

int sound_check_name(const char *name, sound_format format)
{
    const sound any = { .channels = 1, .rate = 48000 };
    SF_INFO info = info_of(name, format, &any);
    if (!info.format)
        return usage_error(
            "%s must end in .npy, .wav, .flac, .aiff, .w64, .rf64, .au or .caf", name);
    if (!sf_format_check(&info))
        return usage_error(
            "%s cannot have this --format: its kind of file has no such numbers", name);
    return STATUS_OK;
}

static int count_lost(
    const char *name, const sound *s, sound_format format, int64_t *clipped)
{
    int64_t count = format == SOUND_FLOAT ? 0 : s->length * s->channels, nan = 0;
    *clipped = 0;
    for (int64_t i = 0; i < count; i++) {
        *clipped += fabsf(s->data[i]) > 1;
        nan += isnan(s->data[i]) != 0;
    }
    if (nan)
        return failure(
            "cannot write %s: %" PRId64 " of its numbers are NaN, which --format float "
            "keeps",
            name, nan);
    return STATUS_OK;
}

/* What a file is to hold, from a file without a name to `path` in one step. */
static int deliver(const char *path, int fd)
{
    off_t size = lseek(fd, 0, SEEK_END), done = 0;
    char *bytes = room_make(1, size, 1, path);
    while (bytes && done < size) {
        ssize_t got = pread(fd, bytes + done, (size_t)(size - done), done);
        if (got <= 0)
            break;
        done += got;
    }
    int status = bytes ? STATUS_OK : STATUS_FAILURE;
    if (bytes && done < size)
        status = failure("cannot write %s: %s", path, strerror(errno));
    else if (bytes && danaus_file_write(path, bytes, (size_t)size))
        status = library_failure();
    free(bytes);
    return status;
}

int sound_write(
    const char *path, const char *name, const sound *s, sound_format format,
    int64_t *clipped)
{
    SF_INFO info = info_of(name, format, s);
    int status = count_lost(name, s, format, clipped);
    if (status)
        return status;
    FILE *made = tmpfile();
    SNDFILE *file = made ? sf_open_fd(fileno(made), SFM_WRITE, &info, SF_FALSE) : NULL;
    if (!file) {
        status = failure(
            "cannot write %s: %s", name, made ? sf_strerror(NULL) : strerror(errno));
    } else {
        sf_command(file, SFC_SET_CLIPPING, NULL, SF_TRUE);
        int ok = write_frames(file, s);
        if (sf_close(file) || !ok)
            status = failure("cannot write %s: %s", name, strerror(errno));
        else
            status = deliver(path, fileno(made));
    }
    if (made)
        fclose(made);
    return status;
}

void sound_free(sound *s)
{
    free(s->data);
    *s = (sound){ 0 };
}

#else

#    include <string.h>

static int missing(const char *path)
{
    return failure(
        "%s: this danaus reads .npy files, not sound, as it was built without "
        "libsndfile and libsamplerate",
        path);
}

int sound_read(const char *path, sound *s)
{
    *s = (sound){ 0 };
    return missing(path);
}
int sound_resample(sound *s, int rate)
{
    (void)s, (void)rate;
    return missing("--resample");
}
int sound_check_name(const char *name, sound_format format)
{
    (void)format;
    if (!strcmp(name, "-"))
        return STATUS_OK;
    return usage_error(
        "%s must end in .npy: this danaus writes no sound, as it was built without "
        "libsndfile and libsamplerate",
        name);
}
int sound_write(
    const char *path, const char *name, const sound *s, sound_format format,
    int64_t *clipped)
{
    (void)name, (void)s, (void)format, (void)clipped;
    return missing(path);
}
void sound_free(sound *s) { (void)s; }

#endif
