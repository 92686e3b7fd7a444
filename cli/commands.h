/* The commands. Each gets its own arguments, with its name as argv[0], and
   returns the exit status. */
// SPDX-License-Identifier: Apache-2.0
#ifndef CLI_COMMANDS_H
#define CLI_COMMANDS_H

#define X(name, help) int cmd_##name(int argc, char **argv);
#include "cli/commands.def"
#undef X

#endif
