/* The commands of danaus, and the headers that they share. */
// SPDX-License-Identifier: Apache-2.0
#ifndef CLI_COMMANDS_H
#define CLI_COMMANDS_H

#include "common/facts.h"
#include "common/finite.h"
#include "common/open.h"
#include "common/program.h"
#include "common/timing.h"

#include <inttypes.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define X(name, help) int cmd_##name(int argc, char **argv);
#include "cli/commands.def"
#undef X

extern const command danaus_commands[]; /* ends with a row whose name is NULL */

#endif
