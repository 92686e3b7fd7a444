/* The commands of danaus. */
// SPDX-License-Identifier: Apache-2.0
#ifndef CLI_COMMANDS_H
#define CLI_COMMANDS_H

#include "common/program.h"

#define X(name, help) int cmd_##name(int argc, char **argv);
#include "cli/commands.def"
#undef X

extern const command danaus_commands[]; /* ends with a row whose name is NULL */

#endif
