/* Files that are no regular files of a name: standard input and output ("-"), pipes, devices. */
// SPDX-License-Identifier: Apache-2.0
#ifndef COMMON_STANDARD_H
#define COMMON_STANDARD_H

/* Replaces the name of an input by one under which it can be opened, mapped and read anew:
   "-" by that of standard input, a pipe by that of a nameless file which keeps what came
   through it. Only one name may be "-". Returns an exit status. */
int standard_input(const char **name);

#endif
